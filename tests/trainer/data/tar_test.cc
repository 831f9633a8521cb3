// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tar.h"

#include <cstring>
#include <random>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/data/support.h"

namespace mm::data {
namespace {

using namespace test;

std::vector<TarMember> list(const std::string& archive) {
  return list_tar("s.tar", static_cast<int64_t>(archive.size()), [&](int64_t offset, char* to, size_t length) {
    if (offset >= static_cast<int64_t>(archive.size())) return size_t{0};
    const size_t n = std::min(length, archive.size() - static_cast<size_t>(offset));
    std::memcpy(to, archive.data() + offset, n);
    return n;
  });
}

const std::vector<std::pair<std::string, std::string>> names = {
    {"a.png", "1"},
    {"dir/b.txt", std::string(512, 'x')},
    {std::string(60, 'd') + "/" + std::string(90, 'n') + ".txt", ""},                         // ustar's prefix
    {std::string(130, 'd') + "/" + std::string(140, 'n') + ".png", std::string(70000, 'y')},  // pax
    {std::string(100, 'q'), "exactly 100"},
    {"\xff\xfe not UTF-8.txt", "z"},
};

TEST(Tar, WhatIsWrittenIsListed) {
  const std::string archive = make_tar(names);
  const std::vector<TarMember> members = list(archive);
  ASSERT_EQ(members.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(members[i].name, names[i].first);
    EXPECT_EQ(archive.substr(static_cast<size_t>(members[i].offset), static_cast<size_t>(members[i].size)), names[i].second);
  }
}

TEST(Tar, GnuTarReadsWhatIsWritten) {
  const TemporaryFolder folder;
  write(folder.path("a.tar"), make_tar({names.begin(), names.end() - 1}));
  const CommandResult result = run_command({"tar", "tf", folder.path("a.tar")}, std::chrono::seconds(60));
  ASSERT_TRUE(result.ok()) << result.err;
  std::string want;
  for (size_t i = 0; i + 1 < names.size(); ++i) want += names[i].first + "\n";
  EXPECT_EQ(result.out, want);
}

TEST(Tar, EveryFormatOfGnuTarIsRead) {
  const TemporaryFolder folder;
  const std::string deep = std::string(80, 'd') + "/" + std::string(120, 'e');
  write(folder.path("in/" + deep + "/k.txt"), "deep");
  write(folder.path("in/k.png"), std::string(3000, 'p'));
  std::filesystem::create_symlink("k.png", folder.path("in/link.png"));
  for (const char* format : {"gnu", "pax", "posix"}) {
    const std::string path = folder.path(std::string(format) + ".tar");
    ASSERT_TRUE(run_command({"tar", "cf", path, std::string("--format=") + format, "-C", folder.path("in"), "."},
                            std::chrono::seconds(60))
                    .ok());
    std::vector<std::string> seen;
    for (const TarMember& m : list(read_file(path))) seen.push_back(m.name + " " + std::to_string(m.size));
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::string>{"./" + deep + "/k.txt 4", "./k.png 3000"})) << format;
  }
}

TEST(Tar, EveryCutNamesShardAndOffset) {
  const std::string archive = make_tar(names);
  for (size_t length = 0; length + 1024 <= archive.size(); length += 97) {
    const std::string reason = error_of(exit_status::data, [&] { list(archive.substr(0, length)); });
    EXPECT_TRUE(reason.starts_with("s.tar: offset ")) << reason;
  }
  EXPECT_NE(error_of(exit_status::data, [&] { list(make_tar(names, false)); }).find("end marker"), std::string::npos);
}

TEST(Tar, HostileHeadersAreRefused) {
  const auto patched = [](size_t at, std::string_view bytes) {
    std::string archive = make_tar({{"a.png", "1"}});
    archive.replace(at, bytes.size(), bytes);
    std::memset(archive.data() + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[i]);
    std::snprintf(archive.data() + 148, 8, "%06o", sum);
    return archive;
  };
  const auto reason = [&](size_t at, std::string_view bytes) {
    return error_of(exit_status::data, [&] { list(patched(at, bytes)); });
  };
  using namespace std::string_view_literals;
  EXPECT_NE(reason(124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv).find("negative size"), std::string::npos);
  EXPECT_NE(reason(124, "\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv).find("overflows"), std::string::npos);
  EXPECT_NE(reason(124, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"sv).find("cut short"), std::string::npos);
  EXPECT_NE(reason(124, "77777777777"sv).find("cut short"), std::string::npos);
  EXPECT_NE(reason(124, "0000000000z"sv).find("not a number"), std::string::npos);
  EXPECT_NE(reason(156, "S"sv).find("sparse"), std::string::npos);
  EXPECT_NE(reason(156, "M"sv).find("volume"), std::string::npos);
  std::string archive = make_tar({{"a.png", "1"}});
  archive[0] ^= 1;
  EXPECT_NE(error_of(exit_status::data, [&] { list(archive); }).find("checksum"), std::string::npos);
  // A link has no content whatever size it states; the archive goes on behind its header.
  EXPECT_EQ(list(patched(156, "5").erase(512, 512)).size(), 0u);
}

TEST(Tar, MutationsAreListedOrRefused) {
  std::string archive = make_tar(names);
  if (!corpus().empty())
    for (const char* file :
         {"test_compat_gtar_1.tar", "test_pax_filename_encoding.tar", "test_read_format_tar_mac_metadata_1.tar"})
      archive = archive.substr(0, archive.size() - 1024) + read_file(corpus() + "/tars/" + file);
  const unsigned seed = 77;
  std::mt19937 random(seed);
  int listed = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = archive;
    const size_t member = random() % (bad.size() / 512) * 512;
    for (unsigned n = 1 + random() % 3; n > 0; --n) bad[(member + random() % 512) % bad.size()] = static_cast<char>(random());
    if (random() % 2 == 0) {  // right checksums let the mutation through to the other fields
      std::memset(bad.data() + member + 148, ' ', 8);
      unsigned sum = 0;
      for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bad[member + i]);
      std::snprintf(bad.data() + member + 148, 8, "%06o", sum);
    }
    try {
      for (const TarMember& m : list(bad)) {
        ASSERT_GE(m.offset, 512);
        ASSERT_GE(m.size, 0);
        ASSERT_LE(m.size, static_cast<int64_t>(bad.size()) - m.offset);
      }
      ++listed;
    } catch (const Error& error) {
      ASSERT_EQ(error.status, exit_status::data) << "seed " << seed << " round " << round;
      ++refused;
    }
  }
  EXPECT_GT(listed, 100);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace mm::data
