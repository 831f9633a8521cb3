// SPDX-License-Identifier: Apache-2.0
// Round trips, the four float types, and headers that lie.
#include "trainer/interop/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "common/error.h"
#include "trainer/interop/load_params.h"

namespace mm::interop {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  Folder() : folder_(fs::temp_directory_path() / ("mm-safetensors-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Folder() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(at(name), std::ios::binary) << content;
    return at(name);
  }
  std::string write_raw(const std::string& header, const std::string& data,
                        const std::string& name = "model.safetensors") const {
    uint64_t n = header.size();
    return write(name, std::string(reinterpret_cast<const char*>(&n), 8) + header + data);
  }
  fs::path folder_;
};

std::string message_of(const std::function<void()>& body, int status = exit_status::usage) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, status);
    return e.what();
  }
  return "no error";
}

TEST_F(Folder, RoundTripKeepsEveryBit) {
  const std::vector<double> a = {0.1, -0.0, 1e300, 5e-324}, scalar = {2.6592};
  write_safetensors(at("x.safetensors"), "F64",
                    {{"b", {2, 2}, a.data()}, {"a/\"quoted\" \xc3\xa9", {}, scalar.data()}, {"none", {0, 3}, nullptr}});
  const Safetensors file(at("x.safetensors"));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors().at("b").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(file.tensors().at("a/\"quoted\" \xc3\xa9").shape.empty());
  std::vector<double> back(4);
  file.read("b", back.data());
  EXPECT_EQ(std::memcmp(back.data(), a.data(), 32), 0);
  file.read("a/\"quoted\" \xc3\xa9", back.data());
  EXPECT_EQ(back[0], scalar[0]);
  EXPECT_NE(message_of([&] { file.read("c", back.data()); }).find("there is no tensor c"), std::string::npos);
}

TEST_F(Folder, HalfPrecisionIsReadExactly) {
  const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x7c00, 0x7e00, 0x3555},
                 brain[] = {0x3f80, 0xc000, 0x0001, 0x7f7f};
  std::string data(reinterpret_cast<const char*>(half), 16);
  data.append(reinterpret_cast<const char*>(brain), 8);
  const Safetensors file(write_raw(
      R"({"__metadata__":{"format":"pt"},"h":{"dtype":"F16","shape":[8],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})",
      data));
  std::vector<double> h(8), b(4);
  file.read("h", h.data());
  file.read("b", b.data());
  EXPECT_EQ(h[0], 1);
  EXPECT_EQ(h[1], -2);
  EXPECT_EQ(h[2], 0x1p-24);
  EXPECT_EQ(h[3], 65504);
  EXPECT_TRUE(h[4] == 0 && std::signbit(h[4]));
  EXPECT_TRUE(std::isinf(h[5]) && std::isnan(h[6]));
  EXPECT_EQ(h[7], 0x1.554p-2);
  EXPECT_EQ(b, (std::vector<double>{1, -2, 0x1p-133, 0x1.fep127}));
}

TEST_F(Folder, HeadersThatLieAreRefusedWithTheReason) {
  const std::string data(16, 'x');
  const struct {
    const char* header;
    const char* reason;
  } cases[] = {
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}})",
       "tensor a: data_offsets [0, 17] do not lie in the 16 bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
       "tensor a: data_offsets hold 16 bytes and the shape needs 12"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", "tensor a: data_offsets [16, 0]"},
      {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "an extent of shape is not a whole number"},
      {R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", "an extent of shape is not a whole number"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})", "shape is too large"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[0,0]}})", "shape is too large"},
      {R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})", "unknown dtype \"F33\""},
      {R"({"a":{"dtype":"F32","shape":[4]}})", "tensor a: data_offsets is missing"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
       "tensor b: starts at byte 4 of the data, overlapping"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "leaving a hole"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "4 bytes of data belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
       "\"a\" stands twice"},
      {R"({"a":{"dtype":"F32","dtype":"F64","shape":[4],"data_offsets":[0,16]}})", "\"dtype\" stands twice"},
      {R"([1,2])", "header is not an object"},
      {R"({"a":)", "header:"},
      {R"({"a":[[[[[[[[[[[[1]]]]]]]]]]]]})", "nested too deeply"},
  };
  for (const auto& c : cases) {
    const std::string message = message_of([&] { Safetensors file(write_raw(c.header, data)); });
    EXPECT_NE(message.find(c.reason), std::string::npos) << c.header << "\n" << message;
    EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([&] { Safetensors file(write("model.safetensors", "short")); }).find("too short"), std::string::npos);
  EXPECT_NE(message_of([&] {
              Safetensors file(write("model.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)));
            }).find("a header of"),
            std::string::npos);
  EXPECT_NE(message_of([&] { Safetensors file(at("absent.safetensors")); }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { Safetensors file(folder_.string()); }).find("not a regular file"), std::string::npos);
}

TEST_F(Folder, MutatedFilesNeverDoMoreThanFail) {
  const std::vector<float> a(64, 1.5f);
  write_safetensors(at("x"), "F32", {{"a", {8, 4}, a.data()}, {"b", {32}, a.data()}});
  std::ifstream in(at("x"), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::mt19937_64 random(20);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (uint64_t k = random() % 4; k < 4; ++k)
      bad[random() % 160] = static_cast<char>(random() % 8 == 0 ? random() : "0123456789[]{},:\""[random() % 17]);
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    try {
      const Safetensors file(write("y", bad));
      for (const auto& [name, info] : file.tensors()) {
        std::vector<double> out(static_cast<size_t>(info.elements()));
        if (info.dtype == "F32" || info.dtype == "F64" || info.dtype == "F16") file.read(name, out.data());
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

model::ParamStore<double> small_store() {
  return model::ParamStore<double>({{.name = "a", .shape = {2}}, {.name = "b.weight", .shape = {1, 2}}});
}

TEST_F(Folder, AModelIsLoadedStrictly) {
  const std::vector<double> x = {1, 2}, y = {3, 4};
  model::ParamStore<double> store = small_store();
  const auto load = [&] { load_params(folder_.string(), store.specs(), store); };
  EXPECT_NE(message_of(load).find("neither model.safetensors nor"), std::string::npos);
  write_safetensors(at("model.safetensors"), "F64",
                    {{"a", {2}, x.data()}, {"b.weight", {1, 2}, y.data()}, {"v.position_ids", {2}, x.data()}});
  load();
  EXPECT_EQ(std::vector<double>(store.values(), store.values() + 4), (std::vector<double>{1, 2, 3, 4}));
  write_safetensors(at("model.safetensors"), "F64", {{"a", {2}, x.data()}});
  EXPECT_NE(message_of(load).find("tensor b.weight is missing"), std::string::npos);
  write_safetensors(at("model.safetensors"), "F64", {{"a", {2}, x.data()}, {"b.weight", {2, 1}, y.data()}});
  EXPECT_NE(message_of(load).find("tensor b.weight has shape [2, 1] and config.json asks for [1, 2]"), std::string::npos);
  write_safetensors(at("model.safetensors"), "F64",
                    {{"a", {2}, x.data()}, {"b.weight", {1, 2}, y.data()}, {"z", {2}, y.data()}});
  EXPECT_NE(message_of(load).find("tensor z is none of the model"), std::string::npos);
}

TEST_F(Folder, ShardsAreFoundThroughTheIndex) {
  const std::vector<double> x = {1, 2}, y = {3, 4};
  write_safetensors(at("one.safetensors"), "F64", {{"a", {2}, x.data()}});
  write_safetensors(at("two.safetensors"), "F64", {{"b.weight", {1, 2}, y.data()}});
  const auto index = [&](const std::string& map) { write("model.safetensors.index.json", "{\"weight_map\":" + map + "}"); };
  model::ParamStore<double> store = small_store();
  const auto load = [&] { load_params(folder_.string(), store.specs(), store); };
  index(R"({"a":"one.safetensors","b.weight":"two.safetensors"})");
  load();
  EXPECT_EQ(store.values()[3], 4);
  index(R"({"a":"one.safetensors","b.weight":"one.safetensors"})");
  EXPECT_NE(message_of(load).find("tensor b.weight is not in"), std::string::npos);
  index(R"({"a":"../one.safetensors"})");
  EXPECT_NE(message_of(load).find("is no name of a file in the folder"), std::string::npos);
  index(R"({"a":"one.safetensors","a":"two.safetensors"})");
  EXPECT_NE(message_of(load).find("\"a\" stands twice"), std::string::npos);
  index(R"({"a":"three.safetensors"})");
  EXPECT_NE(message_of(load).find("three.safetensors: No such file"), std::string::npos);
}

}  // namespace
}  // namespace mm::interop
