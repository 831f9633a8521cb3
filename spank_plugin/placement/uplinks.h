// SPDX-License-Identifier: Apache-2.0
// How busy the uplinks of switches are, given where blocks of ranks are: the part of the cost that the order of blocks decides,
// without looking at single ranks. A link is a family's use of a switch's uplinks in one direction; it has its seconds.
//
// Invariant: of every family the busiest link is known.
#pragma once

#include <tuple>
#include <vector>

#include "spank_plugin/placement/cost.h"

namespace mm::placement {

class Uplinks {
 public:
  // `start` has the seconds that no switch is to blame for; they are the same wherever the blocks are. All blocks are on node 0
  // until they are placed.
  Uplinks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks);

  void place(const std::vector<int>& node_of_block);
  // Places of two blocks.
  void exchange(int a, int b);
  // Takes back the last exchange, which was of the same two.
  void undo(int a, int b);

  double seconds() const;
  // The same with the 8-norm of a family's links in place of the busiest: of two orders whose busiest links are as busy, the one
  // with fewer such links has less. So exchanges that relieve one of them after the other lead on.
  double smooth_seconds() const;
  const std::vector<int>& nodes() const { return node_; }
  size_t edges() const { return edges_.size(); }  // what placing costs
  // The switch of the busiest link of a family that is busier than what no switch is to blame for; -1: none.
  int busiest_switch(int family) const;

 private:
  // Bytes that one block sends another.
  struct Edge {
    int family, from, to;
    double bytes;
    std::tuple<int, int, int> key() const { return {family, from, to}; }
  };
  void find_edges(const std::vector<std::vector<int>>& blocks);
  void find_busiest(int f);
  void add(const Edge& e, int sign);
  void change(int a, int b, int sign);
  void move(int a, int b);
  static double power(double seconds);
  double busiest(int f) const { return links_[static_cast<size_t>(busiest_[static_cast<size_t>(f)])]; }

  const Pricer& pricer_;
  int families_, width_;  // width: links of a family
  std::vector<int> node_;
  std::vector<double> floor_, slowness_, links_;
  std::vector<int> busiest_;  // of each family, a link
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> of_block_;
  std::vector<int> touched_;  // links that changed
  std::vector<int> before_;
  std::vector<double> seconds_before_;
  std::vector<double> powers_, powers_before_;  // of each family, the sum of its links' eighth powers
};

}  // namespace mm::placement
