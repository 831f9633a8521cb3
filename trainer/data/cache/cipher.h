// SPDX-License-Identifier: Apache-2.0
// Encryption of cached blocks at rest: XChaCha20-Poly1305 (libsodium) over pieces of a block, so that a part of it can be read, and
// file names by a keyed hash, so that a name does not tell which block it is.
//
// The key is in locked memory that is left out of core dumps and wiped when it goes; nothing here writes it anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "trainer/data/index/hash.h"

namespace mm::data {

class Cipher {
 public:
  static constexpr size_t key_bytes = 32, nonce_bytes = 24, tag_bytes = 16;
  using Nonce = std::array<unsigned char, nonce_bytes>;
  using Tag = std::array<unsigned char, tag_bytes>;

  // Throws an Error where memory cannot be locked.
  explicit Cipher(std::span<const unsigned char, key_bytes> key);
  // A fresh random one; the last 4 bytes are left for the number of the piece.
  static Nonce fresh_nonce();
  // Encrypts in place. `about` is not encrypted, but open() needs the same.
  Tag seal(std::span<char> piece, uint32_t number, const Nonce& nonce, std::string_view about) const;
  // false, with the piece undefined, where it was not sealed so with this key.
  bool open(std::span<char> piece, uint32_t number, const Nonce& nonce, const Tag& tag, std::string_view about) const;
  Hash128 name_of(const Hash128& key) const;

 private:
  struct Free {
    void operator()(unsigned char* memory) const;
  };
  std::unique_ptr<unsigned char, Free> key_;
};

}  // namespace mm::data
