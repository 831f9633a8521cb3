// SPDX-License-Identifier: Apache-2.0
#include "agent/klog/classifier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "agent/klog/scan.h"

namespace mm::agent {
namespace {

struct Case {
  std::string name;
  std::vector<std::string> lines, incidents;
};

std::vector<Case> cases() {
  std::ifstream file("tests/agent/klog/cases.txt");
  EXPECT_TRUE(file) << "run from the top of the tree";
  std::vector<Case> out;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("== ")) out.push_back({line.substr(3), {}, {}});
    else if (line.starts_with("-> ") && !out.empty()) out.back().incidents.push_back(line.substr(3));
    else if (!line.empty() && !out.empty()) out.back().lines.push_back(line);
  }
  return out;
}

std::string told(const Finding& found) {
  const Finding f = found.shown();
  return fmt::format("{} {} {} {} {} {}", name(f.part), f.code, f.device.empty() ? "-" : f.device, name(f.severity), name(f.action), f.count);
}

std::vector<std::string> told(const std::vector<std::string>& lines) {
  Classifier classifier;
  for (const std::string& line : lines) classifier.add(line);
  std::vector<std::string> out;
  for (const Finding& f : classifier.findings()) out.push_back(told(f));
  return out;
}

TEST(Classifier, GivesTheIncidentsOfRealLines) {
  const auto all = cases();
  ASSERT_GT(all.size(), 60u);
  for (const Case& c : all) EXPECT_EQ(told(c.lines), c.incidents) << c.name;
}

// However a line was logged, it means the same; and every incident quotes a line that was there.
TEST(Classifier, TheLoggersFormDoesNotMatter) {
  const auto bare = [](const std::string& line) { return std::string(parse_log_line(line).message); };
  for (const Case& c : cases()) {
    bool plain = true;  // lines with a time of their own, or that are not the kernel's, keep theirs
    for (const std::string& line : c.lines) plain &= parse_log_line(line).kernel && parse_log_line(line).clock == LogLine::Clock::none;
    if (!plain) continue;
    for (const char* form : {"[ 7200.123456] {}", "<4>[ 7200.123456] {}", "[Sun Feb 23 16:24:18 2025] {}", "Feb 23 16:24:18 node7 kernel: {}",
                             "Feb 23 16:24:18 node7 kernel: [ 7200.123456] {}", "2025-02-23T16:24:18.123456+00:00 node7 kernel: {}", "4,1234,7200123456,-;{}",
                             "kern  :warn  : [ 7200.123456] {}", "kern  :err   : 2025-02-23T16:24:18,123456+00:00 {}", "[ 7200.123456] [ T1234] {}",
                             "[ 7200.123456] node7 kernel: {}", "{}\r"}) {
      std::vector<std::string> lines;
      for (const std::string& line : c.lines) lines.push_back(fmt::format(fmt::runtime(form), bare(line)));
      EXPECT_EQ(told(lines), c.incidents) << c.name << " as " << form;
    }
  }
  for (const Case& c : cases()) {
    Classifier classifier;
    for (const std::string& line : c.lines) classifier.add(line);
    for (const Finding& f : classifier.findings()) {
      ASSERT_FALSE(f.evidence.empty()) << c.name;
      for (const std::string& e : f.evidence)
        EXPECT_TRUE(std::any_of(c.lines.begin(), c.lines.end(), [&](const std::string& l) { return trimmed(l) == e; })) << c.name << ": " << e;
    }
  }
}

TEST(Classifier, AnOrdinaryBootAndRunGivesNothing) {
  std::ifstream file("tests/agent/klog/ordinary.log");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  ASSERT_GT(lines.size(), 150u);
  Classifier classifier;
  std::mt19937 random(3);
  double seconds = 0;
  for (int i = 0; i < 10000; ++i) {
    const size_t at = static_cast<size_t>(i) < lines.size() ? static_cast<size_t>(i) : 1 + random() % (lines.size() - 1);
    classifier.add(fmt::format("[{:12.6f}] {}", seconds += 0.1 + 1e-4 * static_cast<double>(random() % 1000), lines[at]));
  }
  for (const Finding& f : classifier.findings()) ADD_FAILURE() << told(f) << ": " << f.evidence.front();
}

TEST(Classifier, AStormIsOneIncidentAndSmall) {
  Classifier classifier;
  std::mt19937 random(5);
  for (int i = 0; i < 800000; ++i)
    classifier.add(fmt::format("[{:.6f}] NVRM: Xid (PCI:0000:19:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x{:x},0x0). RST: Yes, D-RST: No",
                               7000 + i * 1e-5, random() % 29));
  const auto found = classifier.findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].count, 800000);
  EXPECT_EQ(found[0].evidence.size(), 29u);
}

TEST(Classifier, ManyFaultsStayBounded) {
  Classifier classifier;
  for (int i = 0; i < 20000; ++i) classifier.add(fmt::format("nfs: server nas{} not responding, still trying", i));
  EXPECT_LE(classifier.findings().size(), 512u);
}

// Damaged lines: no crash, no read outside (a sanitizer looks), and what is quoted was there.
TEST(Classifier, DamagedLines) {
  std::vector<std::string> lines;
  for (const Case& c : cases()) lines.insert(lines.end(), c.lines.begin(), c.lines.end());
  std::mt19937 random(17);
  Classifier classifier;
  for (int i = 0; i < 60000; ++i) {
    std::string line = lines[random() % lines.size()];
    switch (random() % 4) {
      case 0: line.resize(random() % (line.size() + 1)); break;
      case 1: line.erase(0, random() % (line.size() + 1)); break;
      case 2: line += lines[random() % lines.size()]; break;
      default: break;
    }
    for (unsigned k = random() % 4; k > 0 && !line.empty(); --k) line[random() % line.size()] = static_cast<char>(random());
    const std::vector<char> exact(line.begin(), line.end());
    classifier.add(std::string_view(exact.data(), exact.size()));
    for (const uint64_t number : classifier.changed()) {
      const Finding* f = classifier.find(number);
      ASSERT_TRUE(f == nullptr || !f->code.empty());
    }
  }
}

TEST(Pci, Addresses) {
  EXPECT_EQ(pci_address("PCI:0000:01:00"), "0000:01:00.0");
  EXPECT_EQ(pci_address("00000000:04:00.0"), "0000:04:00.0");
  EXPECT_EQ(pci_address("10000:e1:00.0"), "10000:e1:00.0");
  EXPECT_EQ(pci_address("01:1f.7"), "0000:01:1f.7");
  EXPECT_EQ(pci_address("0000:01:20.0"), "");
  EXPECT_EQ(pci_address("banana"), "");
  EXPECT_EQ(find_pci_address("mlx5_core 0000:AB:00.1: words"), "0000:ab:00.1");
  EXPECT_EQ(find_pci_address("at 12:34:56 nothing"), "");
}

}  // namespace
}  // namespace mm::agent
