// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/cipher.h"

#include <sodium.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace mm::data {
namespace {

static_assert(Cipher::key_bytes == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);
static_assert(Cipher::nonce_bytes == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES);
static_assert(Cipher::tag_bytes == crypto_aead_xchacha20poly1305_ietf_ABYTES);

unsigned char* bytes_of(std::span<char> piece) {
  return reinterpret_cast<unsigned char*>(piece.data());
}

Cipher::Nonce numbered(Cipher::Nonce nonce, uint32_t number) {
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
}

}  // namespace

void Cipher::Free::operator()(unsigned char* memory) const {
  ::sodium_free(memory);
}

Cipher::Cipher(std::span<const unsigned char, key_bytes> key) {
  if (::sodium_init() < 0) throw Error(exit_status::internal, "data: cache: libsodium does not start");
  key_.reset(static_cast<unsigned char*>(::sodium_malloc(key_bytes)));
  if (!key_) throw system_error("data: cache: lock memory for the key", ENOMEM);
  std::memcpy(key_.get(), key.data(), key_bytes);
  ::sodium_mprotect_readonly(key_.get());
}

Cipher::Nonce Cipher::fresh_nonce() {
  Nonce nonce{};
  ::randombytes_buf(nonce.data(), nonce.size() - sizeof(uint32_t));
  return nonce;
}

Cipher::Tag Cipher::seal(std::span<char> piece, uint32_t number, const Nonce& nonce, std::string_view about) const {
  Tag tag{};
  ::crypto_aead_xchacha20poly1305_ietf_encrypt_detached(bytes_of(piece), tag.data(), nullptr, bytes_of(piece), piece.size(),
                                                        reinterpret_cast<const unsigned char*>(about.data()), about.size(), nullptr,
                                                        numbered(nonce, number).data(), key_.get());
  return tag;
}

bool Cipher::open(std::span<char> piece, uint32_t number, const Nonce& nonce, const Tag& tag, std::string_view about) const {
  return ::crypto_aead_xchacha20poly1305_ietf_decrypt_detached(bytes_of(piece), nullptr, bytes_of(piece), piece.size(), tag.data(),
                                                               reinterpret_cast<const unsigned char*>(about.data()), about.size(),
                                                               numbered(nonce, number).data(), key_.get()) == 0;
}

Hash128 Cipher::name_of(const Hash128& key) const {
  unsigned char text[sizeof key], name[sizeof(Hash128)];
  std::memcpy(text, &key, sizeof key);
  ::crypto_generichash(name, sizeof name, text, sizeof text, key_.get(), key_bytes);
  Hash128 out;
  std::memcpy(&out, name, sizeof out);
  return out;
}

}  // namespace mm::data
