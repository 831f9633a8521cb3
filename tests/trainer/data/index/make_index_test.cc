// SPDX-License-Identifier: Apache-2.0
// Versions of a data set, from several writers at once, killed ones and sleeping ones, and what a reader makes of them.
#include "trainer/data/index/make_index.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "tests/trainer/data/support.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image/image.h"
#include "trainer/data/index/lock.h"
#include "trainer/data/read/faults.h"
#include "trainer/data/stream.h"

namespace mm::data {
namespace {

using namespace test;
using namespace std::chrono_literals;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

std::string shard_name(int i) {
  return "part-" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ".tar";
}

// Shard i has i % 4 * 3 samples: uneven ones, and empty ones.
std::string shard_tar(int i) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int s = 0; s < i % 4 * 3; ++s) {
    const std::string key = "s" + std::to_string(i) + "-" + std::to_string(s);
    members.push_back({key + ".png", encode_png(plain(3, 3, static_cast<uint8_t>(i), static_cast<uint8_t>(s), 9))});
    members.push_back({key + ".txt", "caption of " + key});
  }
  return make_tar(members);
}

void make_shards(const TemporaryFolder& folder, int from, int to) {
  for (int i = from; i < to; ++i) write(folder.path(shard_name(i)), shard_tar(i));
}

IndexResult index_folder(const TemporaryFolder& folder, int jobs = 2) {
  return make_index({.paths = {folder.path()}, .jobs = jobs});
}

// All that a data set says, contents as well.
std::string everything(const Dataset& dataset) {
  std::string out = dataset.fingerprint();
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    out += "\n" + std::string(dataset.key(i)) + " " + std::filesystem::path(dataset.shard_of(i).path).filename().string();
    for (const Part& part : dataset.parts(i)) out += " " + dataset.part_name(part) + "=" + dataset.read(i, part);
  }
  return out;
}

DatasetOptions options(const TemporaryFolder& folder, const std::string& version = "") {
  return {.shards = {folder.path("part-*.tar")}, .mix = {}, .index = "", .version = version};
}

TEST(MakeIndex, AnIndexedDataSetIsTheSameAsAScannedOne) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 12);
  const std::string want = everything(Dataset(options(folder)));
  const IndexResult result = index_folder(folder);
  EXPECT_TRUE(result.published);
  EXPECT_EQ(result.hashed, 12);
  const Dataset dataset(options(folder));
  for (uint32_t s = 0; s < 12; ++s) EXPECT_TRUE(dataset.indexed(s));
  EXPECT_EQ(everything(dataset), want);
  EXPECT_EQ(dataset.block_hash(3, 0), hash_of(shard_tar(3)));
  EXPECT_EQ(dataset.block_hash(3, 1), std::nullopt);
  // Again: nothing to do, nothing published.
  const IndexResult again = index_folder(folder);
  EXPECT_FALSE(again.published);
  EXPECT_EQ(again.reused, 12);
  EXPECT_EQ(again.version.id, result.version.id);
}

TEST(MakeIndex, TheStreamIsTheSameWithAndWithoutIndexForAnyRanksThreadsAndStart) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 12);
  StreamOptions o;
  o.shards = {folder.path("part-*.tar")};
  o.global_batch = 8;
  o.shuffle_window = 64;
  o.rule = {.image_size = 4, .positions_per_image = 1, .max_length = 64, .vocabulary = 264};
  const auto read = [&](int ranks, int threads, int64_t from) {
    std::vector<std::string> keys;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int r = 0; r < ranks; ++r) {
      o.rank = r, o.ranks = ranks, o.threads = threads;
      streams.push_back(std::make_unique<Stream>(o));
    }
    for (int64_t b = from; b < 16; ++b)
      for (const auto& stream : streams)
        for (const Sample& s : stream->next(b)) keys.push_back(s.key);
    return keys;
  };
  const std::vector<std::string> want = read(1, 1, 0);
  ASSERT_EQ(want.size(), 16u * 8);
  index_folder(folder);
  for (const int ranks : {1, 2, 4})
    for (const int threads : {1, 2, 8})
      for (const int64_t from : {0, 5, 15})
        EXPECT_EQ(read(ranks, threads, from), std::vector<std::string>(want.begin() + from * 8, want.end())) << ranks << " ranks, " << threads << " threads, from " << from;
}

TEST(MakeIndex, AppendsMakeANewVersionAndAReaderPinsOne) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 4);
  const IndexResult first = index_folder(folder);
  const std::string old_text = content_of(folder.path("dataset.json")), want = everything(Dataset(options(folder)));
  make_shards(folder, 4, 6);
  const IndexResult second = make_index({.paths = {folder.path("part-04.tar"), folder.path("part-05.tar")}, .jobs = 1});
  EXPECT_EQ(second.hashed, 2);
  EXPECT_EQ(second.kept, 4);
  EXPECT_EQ(second.version.number, 2);
  EXPECT_EQ(second.version.parent, first.version.id);
  EXPECT_EQ(second.version.shards.size(), 6u);
  EXPECT_EQ(Dataset(options(folder)).shards().size(), 6u);
  EXPECT_EQ(everything(Dataset(options(folder, hex(first.version.id).substr(0, 10)))), want);
  EXPECT_EQ(content_of(folder.path("dataset-1.json")), old_text);  // never edited
  const std::string unknown = error_of(exit_status::data, [&] { Dataset d(options(folder, "00ff")); });
  EXPECT_NE(unknown.find("no version 00ff; there are " + hex(second.version.id).substr(0, 12)), std::string::npos) << unknown;
  // The name pattern applies to the version, whatever is in the folder now.
  DatasetOptions two = options(folder, hex(second.version.id));
  two.shards = {folder.path("part-0{1,5}.tar")};
  EXPECT_EQ(Dataset(two).shards().size(), 2u);

  // A whole folder is what it holds now.
  std::filesystem::remove(folder.path(shard_name(3)));
  const IndexResult third = index_folder(folder);
  EXPECT_EQ(third.version.shards.size(), 5u);
  EXPECT_EQ(third.version.parent, second.version.id);
  const std::string gone = error_of(exit_status::data, [&] { Dataset d(options(folder, hex(second.version.id))); });
  EXPECT_NE(gone.find(shard_name(3)), std::string::npos) << gone;
}

TEST(MakeIndex, AChangedShardIsScannedOrWithAVersionRefused) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 4);
  const IndexResult result = index_folder(folder);
  write(folder.path(shard_name(2)), shard_tar(3));  // of another size
  const Dataset scanned(options(folder));
  EXPECT_FALSE(scanned.indexed(2));
  EXPECT_TRUE(scanned.indexed(3));
  EXPECT_EQ(scanned.samples(), 3 + 9 + 9);
  const std::string refused = error_of(exit_status::data, [&] { Dataset d(options(folder, hex(result.version.id))); });
  EXPECT_NE(refused.find(shard_name(2) + ": changed since version"), std::string::npos) << refused;
  const IndexResult again = index_folder(folder);
  EXPECT_EQ(again.hashed, 1);
  EXPECT_EQ(again.reused, 3);
}

TEST(MakeIndex, AnIndexThatIsReplacedUnderAReaderIsAnError) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 4);
  index_folder(folder);
  const Dataset dataset(options(folder));
  std::filesystem::copy_file(folder.path("part-03.tar.mmidx"), folder.path("part-02.tar.mmidx"), std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(error_of(exit_status::data, [&] { dataset.key(3); }).find("not that of the shard"), std::string::npos);
  EXPECT_EQ(dataset.key(0), "s1-0");
}

TEST(MakeIndex, TheIndexMayLieInAnotherFolder) {
  const TemporaryFolder folder, out;
  make_shards(folder, 0, 4);
  const std::string want = everything(Dataset(options(folder)));
  make_index({.paths = {folder.path()}, .out = out.path("index"), .jobs = 1});
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) EXPECT_EQ(entry.path().extension(), ".tar");
  DatasetOptions o = options(folder);
  o.index = out.path("index");
  const Dataset dataset(o);
  EXPECT_TRUE(dataset.indexed(0));
  EXPECT_EQ(everything(dataset), want);
}

TEST(MakeIndex, WhatCannotBeIndexedIsNamedAndTheRestKept) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 4);
  std::filesystem::resize_file(folder.path(shard_name(3)), std::filesystem::file_size(folder.path(shard_name(3))) - 1500);
  const std::string cut = error_of(exit_status::data, [&] { index_folder(folder, 1); });
  EXPECT_NE(cut.find(folder.path(shard_name(3)) + ": offset "), std::string::npos) << cut;
  EXPECT_FALSE(std::filesystem::exists(folder.path("dataset.json")));
  make_shards(folder, 3, 4);
  EXPECT_EQ(index_folder(folder).reused, 3);

  const TemporaryFolder other;
  make_shards(other, 1, 2);
  write(other.path("dataset.json"), R"({"made by": "another program"})");
  error_of(exit_status::usage, [&] { index_folder(other); });
  EXPECT_EQ(Dataset(options(other)).samples(), 3);
  error_of(exit_status::usage, [&] { make_index({.paths = {folder.path("part-00.tar"), other.path("part-01.tar")}}); });
}

TEST(MakeIndex, AReadThatFailsOnceOrFallsShortIsNobodysBusiness) {
  const TemporaryFolder good, folder;
  make_shards(good, 0, 6);
  make_shards(folder, 0, 6);
  const Hash128 want = index_folder(good).version.id;
  std::set<std::string> failed;
  set_fault_hook([&](const Operation& operation) {
    if (operation.op != Op::read) return Fault{};
    return Fault{.error = failed.insert(operation.path).second ? EIO : 0, .at_most = 999};
  });
  const Hash128 got = index_folder(folder, 1).version.id;
  EXPECT_EQ(failed.size(), 6u);
  failed.clear();
  EXPECT_EQ(Dataset::open_one(folder.path(shard_name(3))).samples(), 9);
  EXPECT_EQ(failed.size(), 1u);
  std::filesystem::remove(folder.path("part-03.tar.mmidx"));
  set_fault_hook([](const Operation& operation) { return Fault{.error = operation.op == Op::read ? EIO : 0}; });
  const std::string reason = error_of(exit_status::internal, [&] { index_folder(folder, 1); });
  set_fault_hook({});
  EXPECT_EQ(got, want);
  EXPECT_NE(reason.find("read " + folder.path(shard_name(3)) + " at offset 0: "), std::string::npos) << reason;
}

TEST(MakeIndex, ASampleMayBeInTwoPlaces) {
  const TemporaryFolder folder;
  write(folder.path("part-0.tar"), make_tar({{"a.txt", "1"}, {"b.txt", "2"}, {"a.txt", "3"}}));
  write(folder.path("part-1.tar"), make_tar({{"a.txt", "4"}}));
  index_folder(folder);
  const Dataset dataset(options(folder));
  ASSERT_EQ(dataset.samples(), 3);
  EXPECT_EQ(dataset.parts(0).size(), 2u);  // which make_sample refuses
  EXPECT_EQ(dataset.key(0), dataset.key(2));
  EXPECT_EQ(dataset.read(2, dataset.parts(2)[0]), "4");
}

TEST(MakeIndex, MoreShardsThanFileDescriptors) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 96);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 90;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  const std::string scanned = everything(Dataset(options(folder)));
  index_folder(folder);
  EXPECT_EQ(everything(Dataset(options(folder))), scanned);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// ---------------------------------------------------------------- several writers

// Runs `body` in a child, which reports what it returns through its exit status.
pid_t in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const Error& error) {
      status = error.status;
    }
    ::_exit(status);
  }
  return child;
}
int status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, WUNTRACED) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : WIFSTOPPED(status) ? 1000 + WSTOPSIG(status) : 2000 + WTERMSIG(status);
}

TEST(Writers, TwoAtOnceShareTheWork) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 20);
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i)
    children.push_back(in_child([&] {
      const IndexResult result = index_folder(folder);
      return static_cast<int>(result.hashed) + (result.published ? 50 : 0);
    }));
  const std::set<int> got = {status_of(children[0]), status_of(children[1])};
  EXPECT_EQ(got, (std::set<int>{0, 70}));  // one read all and published, the other found everything done
  EXPECT_EQ(newest_version(folder.path())->number, 1);
}

TEST(Writers, AKilledOneIsContinuedAtOnce) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 12);
  const pid_t child = in_child([&] {
    IndexOptions o{.paths = {folder.path()}, .jobs = 1, .lease = 1h};
    o.progress = [](int64_t shards, int64_t, int64_t, int64_t) {
      if (shards == 5) ::kill(::getpid(), SIGKILL);
    };
    make_index(o);
    return 0;
  });
  EXPECT_EQ(status_of(child), 2000 + SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(folder.path("dataset.json")));
  write(folder.path("part-00.tar.mmidx.tmp1"), "half a file");
  const IndexResult result = index_folder(folder);  // without waiting for the hour
  EXPECT_EQ(result.reused, 5);
  EXPECT_EQ(result.hashed, 7);
  EXPECT_FALSE(std::filesystem::exists(folder.path("part-00.tar.mmidx.tmp1")));
  EXPECT_EQ(Dataset(options(folder)).samples(), 3 * (3 + 6 + 9));
}

TEST(Writers, ASleepingOneLosesTheLockAndPublishesNothing) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 6);
  const pid_t child = in_child([&] {
    IndexOptions o{.paths = {folder.path()}, .jobs = 1, .lease = 400ms};
    o.progress = [](int64_t shards, int64_t, int64_t, int64_t) {
      if (shards == 3) ::kill(::getpid(), SIGSTOP);
    };
    make_index(o);
    return 0;
  });
  ASSERT_EQ(status_of(child), 1000 + SIGSTOP);
  make_shards(folder, 6, 7);
  std::string holder;
  IndexOptions o{.paths = {folder.path()}, .jobs = 1, .lease = 400ms};
  o.waiting = [&](const std::string& who) { holder = who; };
  const IndexResult result = make_index(o);
  EXPECT_NE(holder.find("mm-data index, process " + std::to_string(child) + " on "), std::string::npos) << holder;
  EXPECT_EQ(result.version.shards.size(), 7u);
  const std::string published = content_of(folder.path("dataset.json"));
  ::kill(child, SIGCONT);
  EXPECT_EQ(status_of(child), exit_status::internal);
  EXPECT_EQ(content_of(folder.path("dataset.json")), published);
  EXPECT_FALSE(std::filesystem::exists(folder.path("dataset-2.json")));
}

TEST(Writers, OfTwoThatPublishTheSameNumberOneWins) {
  const TemporaryFolder folder;
  const Version a = make_version({{"a.tar", 1, 2, 3, 4, {5, 6}}}, std::nullopt), b = make_version({{"b.tar", 1, 2, 3, 4, {5, 7}}}, std::nullopt);
  EXPECT_TRUE(publish_version(folder.path(), a));
  EXPECT_FALSE(publish_version(folder.path(), b));
  EXPECT_EQ(newest_version(folder.path())->id, a.id);
  EXPECT_TRUE(publish_version(folder.path(), make_version(b.shards, a)));
  // The copy of a late writer, and no copy at all, mislead nobody.
  write(folder.path("dataset.json"), to_json(a));
  EXPECT_EQ(newest_version(folder.path())->id, b.id);
  std::filesystem::remove(folder.path("dataset.json"));
  EXPECT_EQ(newest_version(folder.path())->id, b.id);
  EXPECT_EQ(find_version(folder.path(), hex(a.id)).number, 1);
}

TEST(Writers, TermsOfTheLockGoUpAndOneHoldsIt) {
  const TemporaryFolder folder;
  int64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const FolderLock lock(folder.path(), "x", {.purpose = "test"});
    EXPECT_GT(lock.term(), last);
    EXPECT_TRUE(lock.held());
    last = lock.term();
    FolderLock::Options impatient{.purpose = "other", .deadline = 50ms};
    EXPECT_NE(error_of(exit_status::internal, [&] { FolderLock(folder.path(), "x", impatient); }).find("still held by test, process "), std::string::npos);
  }
  // Many at once, each adding to a file that is not safe by itself.
  write(folder.path("sum"), "0");
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c)
    children.push_back(in_child([&] {
      for (int i = 0; i < 5; ++i) {
        const FolderLock lock(folder.path(), "x", {.purpose = "test", .lease = 5s});
        write(folder.path("sum"), std::to_string(std::stoi(content_of(folder.path("sum"))) + 1));
        lock.check();
      }
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(content_of(folder.path("sum")), "20");
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.path().filename().string().starts_with(".x.lock.");
  EXPECT_EQ(files, 1u);
}

TEST(Versions, DamageIsRefusedOrHarmless) {
  const TemporaryFolder folder;
  make_shards(folder, 0, 3);
  make_shards(folder, 3, 4);
  const std::string good = to_json(index_folder(folder).version);
  EXPECT_EQ(to_json(parse_version(good, "x")), good);
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(text[at] ^ (1 << random() % 8)); break;
        case 1: text.erase(at, random() % 40); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
        default: text[at] = "0123456789\"{}[],:-e"[random() % 19]; break;
      }
      if (text.empty()) text = "x";
    }
    try {
      const Version version = parse_version(text, "fuzzed");
      ASSERT_EQ(to_json(version), good) << text;  // blanks, or numbers that are there to be read by people
    } catch (const Error& error) {
      ASSERT_EQ(error.status, exit_status::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace mm::data
