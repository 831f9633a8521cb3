// SPDX-License-Identifier: Apache-2.0
// Reading and writing of tar archives as WebDataset uses them.
//
// The reader takes what comes from anywhere: it never creates files, follows no link, and trusts no number. It reads ustar, GNU
// (long names, sizes in base 256) and pax (path, size) headers; members that are no regular file are passed over. Sparse and
// multi-volume members, negative or overflowing sizes, bad checksums, and an archive that ends before its end marker are data
// Errors that name the shard and the offset. What follows the end marker is not read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::data {

struct TarMember {
  std::string name;    // as stored, any bytes
  int64_t offset = 0;  // of the content
  int64_t size = 0;
};

// Fills `to` with `length` bytes from `offset`; returns how many there were (fewer only at the end of the file). Throws on read
// errors.
using ReadAt = std::function<size_t(int64_t offset, char* to, size_t length)>;

// Calls for every regular member, in order. `shard` is for messages; `file_size` bounds what a member may claim. Headers are read
// from the beginning to the end, and a member is told before anything behind its header's own 4096 bytes is read.
void walk_tar(const std::string& shard, int64_t file_size, const ReadAt& read_at, const std::function<void(TarMember)>& member);
// All regular members in order.
std::vector<TarMember> list_tar(const std::string& shard, int64_t file_size, const ReadAt& read_at);

// A member as bytes: header (with a pax header before it where the name or size needs one), content, padding. The same input
// gives the same bytes anywhere: owner, time and mode are fixed.
void append_tar_member(std::string& archive, const std::string& name, std::string_view content);
void append_tar_end(std::string& archive);

}  // namespace mm::data
