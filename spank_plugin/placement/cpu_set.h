// SPDX-License-Identifier: Apache-2.0
// A set of CPUs (or NUMA nodes) by the operating system's numbers. A value; as large as its largest member needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::placement {

class CpuSet {
 public:
  static constexpr int most = 1 << 16;  // larger numbers are no CPUs

  void add(int cpu);
  bool contains(int cpu) const;
  bool empty() const;
  int count() const;
  int first() const;  // -1 where empty
  std::vector<int> members() const;
  bool includes(const CpuSet& other) const;
  bool intersects(const CpuSet& other) const;

  CpuSet& operator|=(const CpuSet& other);
  CpuSet& operator&=(const CpuSet& other);
  CpuSet& operator-=(const CpuSet& other);
  friend CpuSet operator|(CpuSet a, const CpuSet& b) { return a |= b; }
  friend CpuSet operator&(CpuSet a, const CpuSet& b) { return a &= b; }
  friend CpuSet operator-(CpuSet a, const CpuSet& b) { return a -= b; }
  friend bool operator==(const CpuSet& a, const CpuSet& b) { return a.includes(b) && b.includes(a); }

 private:
  std::vector<uint64_t> words_;
};

// "0-3,8" as Linux and taskset(1) write it. Nothing where it is malformed.
std::string format_list(const CpuSet& set);
std::optional<CpuSet> parse_list(std::string_view text);
// "0xff" of Slurm, "000000ff,ffff0000" of sysfs and NCCL: hexadecimal, the most significant digit first.
std::optional<CpuSet> parse_mask(std::string_view text);

}  // namespace mm::placement
