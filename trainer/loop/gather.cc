// SPDX-License-Identifier: Apache-2.0
// First all ranks learn all names; then, name by name, each says where its boxes lie and what is in them. So no more than one
// tensor is on its way at a time.
#include "trainer/loop/gather.h"

#include <cstring>
#include <set>
#include <sstream>

namespace mm::loop {
namespace {

void put(std::string& to, int64_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put(std::string& to, const std::vector<int64_t>& values) {
  put(to, static_cast<int64_t>(values.size()));
  for (int64_t v : values) put(to, v);
}
int64_t get(const char*& from) {
  int64_t value;
  std::memcpy(&value, from, sizeof value);
  from += sizeof value;
  return value;
}
std::vector<int64_t> get_all(const char*& from) {
  std::vector<int64_t> values(static_cast<size_t>(get(from)));
  for (int64_t& v : values) v = get(from);
  return values;
}

// Calls visit(flat index in the whole, index in the box, elements) for each row of the box.
template <class Visit>
void for_rows(const std::vector<int64_t>& shape, const checkpoint::Box& box, const Visit& visit) {
  const size_t n = shape.size();
  const int64_t width = n == 0 ? 1 : box.shape[n - 1], rows = width == 0 ? 0 : checkpoint::elements(box.shape) / width;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, flat = 0, stride = 1;
    for (size_t d = n; d-- > 0;) {
      const int64_t at = d + 1 == n ? 0 : rest % box.shape[d];
      if (d + 1 < n) rest /= box.shape[d];
      flat += (box.offset[d] + at) * stride;
      stride *= shape[d];
    }
    visit(flat, row * width, width);
  }
}

}  // namespace

template <class T>
std::vector<GatheredTensor<T>> gather_tensors(comm::Comm& world, const std::vector<checkpoint::ConstView>& mine) {
  std::string names;
  for (const checkpoint::ConstView& v : mine) names += v.name + "\n";
  std::set<std::string> all;
  for (const std::string& theirs : world.all_gather(names)) {
    std::istringstream lines(theirs);
    for (std::string name; std::getline(lines, name);) all.insert(name);
  }
  std::vector<GatheredTensor<T>> out;
  for (const std::string& name : all) {
    std::string boxes;
    for (const checkpoint::ConstView& v : mine) {
      if (v.name != name) continue;
      put(boxes, v.global_shape);
      put(boxes, v.box.offset);
      put(boxes, v.box.shape);
      boxes.append(static_cast<const char*>(v.data), static_cast<size_t>(checkpoint::elements(v.box.shape)) * sizeof(T));
    }
    GatheredTensor<T> tensor{name, {}, {}};
    for (const std::string& theirs : world.all_gather(boxes)) {
      if (world.rank() != 0) break;
      for (const char *at = theirs.data(), *end = at + theirs.size(); at < end;) {
        tensor.shape = get_all(at);
        checkpoint::Box box;
        box.offset = get_all(at);
        box.shape = get_all(at);
        tensor.values.resize(static_cast<size_t>(checkpoint::elements(tensor.shape)));
        for_rows(tensor.shape, box, [&](int64_t flat, int64_t index, int64_t n) {
          std::memcpy(tensor.values.data() + flat, at + static_cast<size_t>(index) * sizeof(T), static_cast<size_t>(n) * sizeof(T));
        });
        at += static_cast<size_t>(checkpoint::elements(box.shape)) * sizeof(T);
      }
    }
    if (world.rank() == 0) out.push_back(std::move(tensor));
  }
  return out;
}

template std::vector<GatheredTensor<float>> gather_tensors(comm::Comm&, const std::vector<checkpoint::ConstView>&);
template std::vector<GatheredTensor<double>> gather_tensors(comm::Comm&, const std::vector<checkpoint::ConstView>&);

}  // namespace mm::loop
