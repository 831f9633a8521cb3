// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/block_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "trainer/data/read/faults.h"

namespace mm::data {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  char magic[8];
  uint32_t encrypted;
  uint32_t pieces;
  uint64_t size;
  Hash128 key;
  Cipher::Nonce nonce;
};
static_assert(sizeof(Header) == 64);
static_assert(sizeof(Hash128) == sizeof(Cipher::Tag));

constexpr char magic[8] = {'m', 'm', 'b', 'l', 'o', 'c', 'k', '1'};

size_t pieces_of(uint64_t size) {
  return (size + piece_bytes - 1) / piece_bytes;
}
size_t front_bytes(size_t pieces) {
  return sizeof(Header) + (pieces + 1) * sizeof(Hash128);
}

// What of the header each piece is bound to.
std::string_view about(const Header& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

Cipher::Tag mark_of(std::string_view piece) {
  const Hash128 hash = hash_of(piece);
  Cipher::Tag mark;
  std::memcpy(mark.data(), &hash, sizeof hash);
  return mark;
}

// Fewer only at the end of the file.
size_t read_at(int fd, const std::string& path, int64_t offset, std::span<char> to) {
  size_t done = 0;
  while (done < to.size()) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const Fault fault = ask_fault({Op::cache_read, path, at, to.size() - done});
    const ssize_t n = fault.error != 0 ? -1 : ::pread(fd, to.data() + done, std::min(to.size() - done, fault.at_most), at);
    const int reason = fault.error != 0 ? fault.error : errno;
    if (n < 0 && reason == EINTR) continue;
    if (n < 0) throw system_error("data: cache: read " + path, reason);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

std::string encode_block(const Hash128& key, std::string_view content, const Cipher* cipher) {
  if (content.size() > static_cast<size_t>(block_bytes)) throw Error(exit_status::internal, "data: cache: a block that is too large");
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.encrypted = cipher != nullptr ? 1 : 0;
  header.pieces = static_cast<uint32_t>(pieces_of(content.size()));
  header.size = content.size();
  header.key = key;
  if (cipher != nullptr) header.nonce = Cipher::fresh_nonce();
  const size_t front = front_bytes(header.pieces);
  std::string file(front, '\0');
  file += content;
  std::memcpy(file.data(), &header, sizeof header);
  for (uint32_t i = 0; i < header.pieces; ++i) {
    const std::span<char> piece(file.data() + front + i * piece_bytes, std::min(piece_bytes, content.size() - i * piece_bytes));
    const Cipher::Tag mark =
        cipher != nullptr ? cipher->seal(piece, i, header.nonce, about(header)) : mark_of({piece.data(), piece.size()});
    std::memcpy(file.data() + sizeof header + i * sizeof mark, mark.data(), mark.size());
  }
  const Hash128 hash = hash_of({file.data(), front - sizeof(Hash128)});
  std::memcpy(file.data() + front - sizeof hash, &hash, sizeof hash);
  return file;
}

std::optional<BlockFile> BlockFile::open(UniqueFd fd, const std::string& path, const std::optional<Hash128>& key, const Cipher* cipher,
                                         Bad& why) {
  why = Bad::header;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error("data: cache: stat " + path, errno);
  Header header{};
  std::string front(sizeof header, '\0');
  if (!S_ISREG(status.st_mode) || read_at(fd.get(), path, 0, front) < front.size()) return {};
  std::memcpy(&header, front.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0 || header.encrypted > 1 || header.size > static_cast<uint64_t>(block_bytes) ||
      header.pieces != pieces_of(header.size))
    return {};
  front.resize(front_bytes(header.pieces));
  if (static_cast<uint64_t>(status.st_size) != front.size() + header.size || read_at(fd.get(), path, 0, front) < front.size()) return {};
  Hash128 hash;
  std::memcpy(&hash, front.data() + front.size() - sizeof hash, sizeof hash);
  if (hash != hash_of({front.data(), front.size() - sizeof hash})) return {};
  why = Bad::other_block;
  if (key && header.key != *key) return {};
  why = Bad::no_key;
  if (header.encrypted == 1 && cipher == nullptr) return {};
  why = Bad::none;
  BlockFile block;
  block.fd_ = std::move(fd);
  block.path_ = path;
  block.key_ = header.key;
  block.size_ = static_cast<int64_t>(header.size);
  block.first_ = static_cast<int64_t>(front.size());
  block.encrypted_ = header.encrypted == 1;
  block.nonce_ = header.nonce;
  block.marks_.resize(header.pieces);
  if (header.pieces > 0) std::memcpy(block.marks_.data(), front.data() + sizeof header, header.pieces * sizeof(Cipher::Tag));
  return block;
}

bool BlockFile::read_piece(size_t number, std::span<char> to, const Cipher* cipher) const {
  const auto at = static_cast<int64_t>(number * piece_bytes);
  if (read_at(fd_.get(), path_, first_ + at, to) < to.size()) return false;
  if (!encrypted_) return mark_of({to.data(), to.size()}) == marks_[number];
  if (cipher == nullptr) return false;
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.encrypted = 1;
  header.pieces = static_cast<uint32_t>(marks_.size());
  header.size = static_cast<uint64_t>(size_);
  header.key = key_;
  header.nonce = nonce_;
  return cipher->open(to, static_cast<uint32_t>(number), nonce_, marks_[number], about(header));
}

bool BlockFile::read(int64_t offset, std::span<char> to, const Cipher* cipher) const {
  if (offset < 0 || offset > size_ || static_cast<int64_t>(to.size()) > size_ - offset) return false;
  std::string beside;
  for (size_t done = 0; done < to.size();) {
    const size_t at = static_cast<size_t>(offset) + done, number = at / piece_bytes, begin = number * piece_bytes;
    const size_t length = std::min(piece_bytes, static_cast<size_t>(size_) - begin);
    const size_t n = std::min(to.size() - done, begin + length - at);
    if (n == length) {
      if (!read_piece(number, to.subspan(done, n), cipher)) return false;
    } else {
      beside.resize(length);
      if (!read_piece(number, beside, cipher)) return false;
      std::memcpy(to.data() + done, beside.data() + (at - begin), n);
    }
    done += n;
  }
  return true;
}

}  // namespace mm::data
