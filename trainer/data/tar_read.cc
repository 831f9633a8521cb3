// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "common/error.h"
#include "trainer/data/tar.h"

namespace mm::data {
namespace {

constexpr int64_t block = 512;
constexpr int64_t longest_extension = 1 << 20;  // of a pax header or a GNU long name

// Where the fields of a header lie.
struct Field {
  size_t at, length;
};
constexpr Field name_field{0, 100}, size_field{124, 12}, checksum_field{148, 8}, prefix_field{345, 155};
constexpr size_t type_at = 156, magic_at = 257;

class Lister {
 public:
  Lister(const std::string& shard, int64_t file_size, const ReadAt& read_at, const std::function<void(TarMember)>& member)
      : shard_(shard), file_size_(file_size), read_at_(read_at), member_(member) {}

  void walk() {
    if (file_size_ == 0) fail(0, "an empty file, not a tar archive");
    while (read_header()) one_member();
  }

 private:
  [[noreturn]] void fail(int64_t at, const std::string& reason) const {
    throw data_error(fmt::format("{}: offset {}: {}", shard_, at, reason));
  }

  void read(int64_t offset, char* to, size_t length) {
    // Headers of small members lie close together: one read serves many.
    if (offset < window_at_ || offset + static_cast<int64_t>(length) > window_at_ + static_cast<int64_t>(window_.size())) {
      if (length > window_capacity) {
        if (read_at_(offset, to, length) < length) fail(offset, "cut short");
        return;
      }
      window_.resize(window_capacity);
      window_.resize(read_at_(offset, window_.data(), window_.size()));
      window_at_ = offset;
      if (window_.size() < length) fail(offset, "cut short");
    }
    std::memcpy(to, window_.data() + (offset - window_at_), length);
  }

  // False at the end marker: a block of zeros (that a second one follows is good manners, not needed).
  bool read_header() {
    header_at_ = next_;
    if (next_ >= file_size_) fail(next_, "cut short: the end marker is missing");
    if (file_size_ - next_ < block) fail(next_, "cut short inside a header");
    read(next_, header_.data(), header_.size());
    next_ += block;
    return std::any_of(header_.begin(), header_.end(), [](char c) { return c != 0; });
  }

  std::string text(Field f) const {
    const char* from = header_.data() + f.at;
    return std::string(from, std::find(from, from + f.length, '\0'));
  }

  void check_sum() const {
    int64_t plain = 0, with_sign = 0;
    for (size_t i = 0; i < header_.size(); ++i) {
      const bool blank = i >= checksum_field.at && i < checksum_field.at + checksum_field.length;
      plain += blank ? ' ' : static_cast<unsigned char>(header_[i]);
      with_sign += blank ? ' ' : static_cast<signed char>(header_[i]);
    }
    const int64_t stated = number(checksum_field, "checksum");
    if (stated != plain && stated != with_sign) fail(header_at_, "no tar header: the checksum does not match");
  }

  // Octal digits between blanks and zeros, or base 256 where the top bit is set.
  int64_t number(Field f, const char* what) const {
    const std::string_view digits(header_.data() + f.at, f.length);
    const auto top = static_cast<unsigned char>(digits[0]);
    uint64_t value = 0;
    if ((top & 0x80) != 0) {
      if ((top & 0x40) != 0) fail(header_at_, fmt::format("negative {}", what));
      value = top & 0x3f;
      for (const char c : digits.substr(1)) {
        if (value > (std::numeric_limits<uint64_t>::max() >> 9)) fail(header_at_, fmt::format("{} overflows", what));
        value = value << 8 | static_cast<unsigned char>(c);
      }
    } else {
      size_t i = 0;
      while (i < digits.size() && digits[i] == ' ') ++i;
      for (; i < digits.size() && digits[i] != ' ' && digits[i] != '\0'; ++i) {
        if (digits[i] == '-') fail(header_at_, fmt::format("negative {}", what));
        if (digits[i] < '0' || digits[i] > '7') fail(header_at_, fmt::format("{} is not a number", what));
        value = value << 3 | static_cast<uint64_t>(digits[i] - '0');  // 12 digits of 3 bits at most
      }
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) fail(header_at_, fmt::format("{} overflows", what));
    return static_cast<int64_t>(value);
  }

  // Takes `size` bytes of content and their padding; returns where they begin.
  int64_t take(int64_t size, std::string_view name) {
    const int64_t at = next_;
    if (size > file_size_ - at)
      fail(header_at_,
           fmt::format("cut short: member '{}' has {} bytes, {} are left in the file", name, size, file_size_ - at));
    next_ = at + size + (block - size % block) % block;
    return at;
  }

  std::string extension(const char* what) {
    const int64_t size = number(size_field, "size");
    if (size > longest_extension) fail(header_at_, fmt::format("{} of {} bytes", what, size));
    std::string content(static_cast<size_t>(size), '\0');
    read(take(size, what), content.data(), content.size());
    return content;
  }

  // "LENGTH KEY=VALUE\n", where LENGTH counts itself.
  void read_pax(std::string_view records) {
    while (!records.empty()) {
      size_t digits = 0, length = 0;
      while (digits < records.size() && digits < 8 && records[digits] >= '0' && records[digits] <= '9')
        length = length * 10 + static_cast<size_t>(records[digits++] - '0');
      if (digits == 0 || digits >= records.size() || records[digits] != ' ' || length <= digits + 1 ||
          length > records.size() || records[length - 1] != '\n')
        fail(header_at_, "pax header: bad record length");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail(header_at_, "pax header: record without '='");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path")
        long_name_ = std::string(value);
      else if (key == "size")
        pax_size_ = decimal(value);
      else if (key.starts_with("GNU.sparse."))
        sparse_ = true;
    }
  }

  int64_t decimal(std::string_view digits) const {
    int64_t value = 0;
    if (digits.empty() || digits.size() > 18) fail(header_at_, "pax header: invalid size");
    for (const char c : digits) {
      if (c < '0' || c > '9') fail(header_at_, "pax header: invalid size");
      value = value * 10 + (c - '0');
    }
    return value;
  }

  std::string member_name() const {
    if (long_name_) return *long_name_;
    std::string name = text(name_field);
    // GNU's magic is "ustar  ": there the prefix field holds other things.
    if (std::memcmp(header_.data() + magic_at, "ustar\0", 6) == 0)
      if (const std::string prefix = text(prefix_field); !prefix.empty()) name = prefix + "/" + name;
    return name;
  }

  void one_member() {
    check_sum();
    const char type = header_[type_at];
    switch (type) {
      case 'x':
      case 'X':
        read_pax(extension("pax header"));
        return;
      case 'g':
        extension("global pax header");
        return;
      case 'L': {
        const std::string name = extension("long name");
        long_name_ = name.substr(0, name.find('\0'));
        return;
      }
      case 'K':
        extension("long link name");
        return;
      default:
        break;
    }
    const std::string name = member_name();
    if (sparse_ || type == 'S') fail(header_at_, fmt::format("sparse member '{}': pack it as a plain file", name));
    if (type == 'M') fail(header_at_, fmt::format("member '{}' continues another volume", name));
    // Links, devices and folders have no content, whatever size they state.
    if (type < '1' || type > '6') {
      const int64_t stated = number(size_field, "size"), size = pax_size_.value_or(stated);
      const bool folder = type == '\0' && name.ends_with('/');
      const int64_t at = take(size, name);
      if ((type == '0' || type == '\0' || type == '7') && !folder) member_({name, at, size});
    }
    long_name_.reset();
    pax_size_.reset();
  }

  static constexpr size_t window_capacity = 4096;
  const std::string& shard_;
  const int64_t file_size_;
  const ReadAt& read_at_;
  const std::function<void(TarMember)>& member_;
  std::vector<char> window_;
  int64_t window_at_ = 0;
  std::array<char, block> header_{};
  int64_t header_at_ = 0, next_ = 0;
  // What extension headers said about the member that follows them.
  std::optional<std::string> long_name_;
  std::optional<int64_t> pax_size_;
  bool sparse_ = false;
};

}  // namespace

void walk_tar(const std::string& shard, int64_t file_size, const ReadAt& read_at, const std::function<void(TarMember)>& member) {
  Lister(shard, file_size, read_at, member).walk();
}

std::vector<TarMember> list_tar(const std::string& shard, int64_t file_size, const ReadAt& read_at) {
  std::vector<TarMember> members;
  walk_tar(shard, file_size, read_at, [&](TarMember member) { members.push_back(std::move(member)); });
  return members;
}

}  // namespace mm::data
