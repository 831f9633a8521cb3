// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/error.h"

namespace mm::checkpoint {
namespace {

constexpr int64_t most_elements = int64_t{1} << 60;

// Emits [begin, end) of the flattened dimensions from `dim` on; `at` holds the offsets of the ones before.
void emit(const Extents& global, size_t dim, Extents& at, int64_t begin, int64_t end, std::vector<Box>& out) {
  if (begin >= end) return;
  auto whole_rows = [&](int64_t first, int64_t last) {
    if (first >= last) return;
    Box box{at, Extents(dim, 1)};
    for (size_t d = dim; d < global.size(); ++d) {
      box.offset.push_back(d == dim ? first : 0);
      box.shape.push_back(d == dim ? last - first : global[d]);
    }
    out.push_back(std::move(box));
  };
  if (dim == global.size()) {
    out.push_back({at, Extents(dim, 1)});
    return;
  }
  int64_t row = 1;
  for (size_t d = dim + 1; d < global.size(); ++d) row *= global[d];
  auto part_of_row = [&](int64_t index, int64_t first, int64_t last) {
    at.push_back(index);
    emit(global, dim + 1, at, first, last, out);
    at.pop_back();
  };
  int64_t first = begin / row;
  const int64_t last = end / row;
  if (begin % row != 0) {
    if (first == last) return part_of_row(first, begin - first * row, end - first * row);
    part_of_row(first, begin - first * row, row);
    ++first;
  }
  whole_rows(first, last);
  if (end % row != 0) part_of_row(last, 0, end - last * row);
}

}  // namespace

int64_t elements(const Extents& shape) {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}

std::optional<int64_t> checked_elements(const Extents& shape) {
  int64_t n = 1;
  bool empty = false;
  for (const int64_t e : shape) {
    if (e < 0 || e > most_elements) return std::nullopt;
    if (e == 0)
      empty = true;
    else if (n > most_elements / e)
      return std::nullopt;
    else
      n *= e;
  }
  return empty ? 0 : n;
}

std::vector<Box> boxes_of_range(const Extents& global_shape, int64_t begin, int64_t end) {
  const auto n = checked_elements(global_shape);
  if (!n || begin < 0 || end < begin || end > *n) {
    throw Error(exit_status::internal,
                fmt::format("checkpoint: elements [{}, {}) of a tensor of shape {}", begin, end, text_of(global_shape)));
  }
  if (*n == 0) return {{Extents(global_shape.size(), 0), global_shape}};
  std::vector<Box> out;
  Extents at;
  emit(global_shape, 0, at, begin, end, out);
  return out;
}

std::vector<Box> boxes_of_slice_range(const Box& slice, int64_t begin, int64_t end) {
  std::vector<Box> out = boxes_of_range(slice.shape, begin, end);
  for (Box& b : out) {
    for (size_t d = 0; d < b.offset.size(); ++d) b.offset[d] += slice.offset.at(d);
  }
  return out;
}

bool lies_within(const Box& box, const Extents& global_shape) {
  if (box.offset.size() != global_shape.size() || box.shape.size() != global_shape.size()) return false;
  for (size_t d = 0; d < global_shape.size(); ++d) {
    if (box.offset[d] < 0 || box.shape[d] < 0 || box.shape[d] > global_shape[d]) return false;
    if (box.offset[d] > global_shape[d] - box.shape[d]) return false;
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box out;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin >= end) return std::nullopt;
    out.offset.push_back(begin);
    out.shape.push_back(end - begin);
  }
  return out;
}

void for_each_run(const Box& source, const Box& target, const Box& shared,
                  const std::function<void(int64_t, int64_t, int64_t)>& run) {
  const size_t rank = shared.shape.size();
  // Dimensions from `outer` on make one run: all but the first of them are whole in both boxes.
  size_t outer = rank;
  int64_t count = 1;
  while (outer > 0) {
    --outer;
    count *= shared.shape[outer];
    if (shared.shape[outer] != source.shape[outer] || shared.shape[outer] != target.shape[outer]) break;
  }
  auto position = [&](const Box& box, const Extents& index) {
    int64_t p = 0;
    for (size_t d = 0; d < rank; ++d) p = p * box.shape[d] + (shared.offset[d] + index[d] - box.offset[d]);
    return p;
  };
  Extents index(rank, 0);
  for (;;) {
    run(position(source, index), position(target, index), count);
    size_t d = outer;
    for (; d > 0; --d) {
      if (++index[d - 1] < shared.shape[d - 1]) break;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

std::string tiling_error(const Extents& global_shape, std::vector<Box> boxes) {
  std::erase_if(boxes, [](const Box& b) { return elements(b.shape) == 0; });
  int64_t sum = 0;
  for (const Box& b : boxes) sum += elements(b.shape);
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.offset < b.offset; });
  // Sorted by the first dimension, so that a box can only meet the following ones that begin before it ends there.
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = i + 1; j < boxes.size(); ++j) {
      if (!global_shape.empty() && boxes[j].offset[0] >= boxes[i].offset[0] + boxes[i].shape[0]) break;
      if (intersection(boxes[i], boxes[j])) {
        return fmt::format("boxes {} at {} and {} at {} overlap", text_of(boxes[i].shape), text_of(boxes[i].offset),
                           text_of(boxes[j].shape), text_of(boxes[j].offset));
      }
    }
  }
  if (sum != elements(global_shape))
    return fmt::format("{} of {} elements are in no box", elements(global_shape) - sum, elements(global_shape));
  return "";
}

std::string text_of(const Extents& extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

}  // namespace mm::checkpoint
