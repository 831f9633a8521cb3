// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/layouts/harness.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/files.h"
#include "tests/trainer/make_fixture.h"
#include "trainer/comm/trace.h"
#include "trainer/data/tar.h"
#include "trainer/interop/safetensors.h"
#include "trainer/loop/tensors.h"
#include "trainer/loop/train.h"
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/vlm.h"

namespace mm::loop {

namespace fs = std::filesystem;

std::string Case::name() const {
  return fmt::format("dp{}-tp{}-cp{}-pp{}-zero{}-chunks{}{}{}", dp, tp, cp, pp, zero, chunks, recompute ? "-recompute" : "",
                     encoder_tp > 0 ? fmt::format("-encoder-tp{}-dp{}", encoder_tp, encoder_dp) : "");
}

Settings Case::settings() const {
  Settings all = {fmt::format("parallel.tp={}", tp), fmt::format("parallel.cp={}", cp), fmt::format("parallel.pp={}", pp),
                  fmt::format("parallel.zero={}", zero)};
  if (chunks > 1) all.push_back(fmt::format("parallel.virtual={}", chunks));
  if (recompute) all.push_back("parallel.recompute=full");
  if (encoder_tp > 0) all.push_back(fmt::format("parallel.encoder.tp={}", encoder_tp));
  if (!stages.empty()) all.push_back("parallel.stages=" + stages);
  if (encoder_dp > 0) all.push_back(fmt::format("parallel.encoder.dp={}", encoder_dp));
  return all;
}

fs::path* Layouts::folder_ = nullptr;

void Layouts::SetUpTestSuite() {
  // Hundreds of checkpoints are made durable; in memory that costs nothing.
  const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  folder_ = new fs::path(base / fmt::format("mm-layouts-{}", ::getpid()));
  fs::create_directories(*folder_);
  for (const std::string& preset : fixture::presets()) fixture::write_model(at("model-" + preset), preset);
  for (const char* preset : {"pairs", "narrow"}) fixture::write_model(at(fmt::format("model-{}", preset)), preset);
  fixture::write_shards(at("data"), 64, 4, 32);
}

void Layouts::TearDownTestSuite() {
  fs::remove_all(*folder_);
  delete folder_;
}

std::string Layouts::job(const std::string& preset) {
  const std::string path = at("job-" + preset + ".toml");
  std::ofstream(path) << fmt::format(
      "[model]\npath = \"{0}/model-{1}\"\n[data]\nshards = \"{0}/data/*.tar\"\nshuffle = false\nglobal_batch = 8\n"
      "[parallel]\ndtype = \"float64\"\nthreads = 1\nmicro_batch = 2\n[optim]\nlr = 1e-3\nwarmup = 4\n"
      "[recovery]\nhang_timeout = 5\n[checkpoint]\nevery = 1000\n[log]\nevery = 1000\ntensorboard = false\n",
      folder_->string(), preset);
  return path;
}

Settings Layouts::shard(const std::string& name, const std::string& kinds) {
  const std::string shapes = read_file(at("data/shapes-00000.tar"));
  const auto members = data::list_tar("shapes", static_cast<int64_t>(shapes.size()), [&](int64_t offset, char* to, size_t length) {
    const size_t n = std::min(length, shapes.size() - std::min(shapes.size(), static_cast<size_t>(offset)));
    std::memcpy(to, shapes.data() + offset, n);
    return n;
  });
  std::string tar;
  size_t picture = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string key = fmt::format("{:04}", i);
    const auto text = [&](const std::string& answer, size_t question = 7) {
      data::append_tar_member(tar, key + ".json",
                              fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}},{{"role":"assistant","content":"{}"}}]}})",
                                          std::string(question + i % 5, 'q'), answer));
    };
    switch (kinds[i]) {
      case 'p':
        for (int part = 0; part < 2; ++part, ++picture) {
          const auto& member = members.at(picture);
          data::append_tar_member(tar, key + member.name.substr(member.name.find('.')),
                                  std::string_view(shapes).substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.size)));
        }
        break;
      case 't':
        text(std::string(3 + i % 4, static_cast<char>('a' + i % 26)));
        break;
      case 'u':
        text("a", 300);
        break;
      case '1':
        text("");
        break;
      case 'm':
        text(std::string(100, 'x'));
        break;
    }
  }
  data::append_tar_end(tar);
  const std::string path = at(name + ".tar");
  std::ofstream(path, std::ios::binary) << tar;
  return {"data.shards=" + path, "data.max_length=160"};
}

bool Layouts::run(const std::string& preset, const Case& c, const std::string& dir, const Settings& settings,
                  const std::string& gradients) {
  TrainOptions options;
  options.job_file = job(preset);
  options.assignments = c.settings();
  options.assignments.push_back("run.dir=" + at(dir));
  options.assignments.insert(options.assignments.end(), settings.begin(), settings.end());
  options.dump_gradients = gradients;
  std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(c.ranks());
  std::vector<std::string> errors(comms.size());
  std::vector<std::vector<comm::Traced>> traces(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      comms[r]->start_trace();
      try {
        const int status = train(options, *comms[r]);
        if (status != 0) errors[r] = fmt::format("status {}", status);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
      traces[r] = comms[r]->take_trace();
      if (errors[r].empty()) return;
      for (size_t i = traces[r].size() - std::min<size_t>(traces[r].size(), 8); i < traces[r].size(); ++i)
        errors[r] += "\n  began " + traces[r][i].group + " " + traces[r][i].what;
    });
  for (std::thread& t : threads) t.join();
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) {
      ADD_FAILURE() << preset << " " << c.name() << " rank " << r << ": " << errors[r];
    }
  EXPECT_EQ(comm::first_difference(traces), "") << preset << " " << c.name();
  return !HasFailure();
}

std::vector<Step> Layouts::steps(const std::string& dir) {
  std::vector<Step> out;
  std::ifstream in(at(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json j = nlohmann::json::parse(line);
    out.push_back({j.at("loss"), j.at("grad_norm"), j.at("tokens")});
  }
  return out;
}

Tensors Layouts::tensors_of(const std::string& file) {
  Tensors out;
  const interop::Safetensors read(file);
  for (const auto& [name, info] : read.tensors())
    read.read(name, (out[name] = std::vector<double>(static_cast<size_t>(info.elements()))).data());
  return out;
}

Tensors Layouts::trained(const std::string& preset, const std::string& dir, const std::string& role) {
  const std::string folder = at("model-" + preset);
  model::ParamStore<double> store(model::is_dual_tower(folder) ? model::param_specs(model::load_dual_tower_config(folder))
                                                               : model::param_specs(model::load_config(folder)));
  const auto wanted = [&](const model::Run& held) { return role == "param" || held.trained; };
  checkpoint::SelfGroup self;
  checkpoint::RunFolder(at(dir), false).load_newest(self, [&](int64_t, const checkpoint::Facts&) {
    std::vector<checkpoint::View> views;
    for (const model::Run& held : store.runs())
      if (wanted(held)) add_views(store, held, {0, held.size}, role, store.values() + held.value_at, views);
    return views;
  });
  Tensors out;
  for (const model::Run& held : store.runs())
    for (size_t i : held.params)
      if (wanted(held)) out[store.specs()[i].name].assign(store.value(i), store.value(i) + store.local()[i].size);
  return out;
}

void Layouts::expect_close(const Tensors& a, const Tensors& b, double tolerance, double floor, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    ASSERT_EQ(values.size(), others.size()) << what << " " << name;
    double norm = 0, apart = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      norm += values[i] * values[i];
      apart += (values[i] - others[i]) * (values[i] - others[i]);
    }
    EXPECT_LE(std::sqrt(apart), tolerance * std::sqrt(norm) + floor) << what << " " << name;
  }
}

void Layouts::expect_close(const std::vector<Step>& a, const std::vector<Step>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-9 * a[i].loss) << what << " step " << i;
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-9 * a[i].grad_norm) << what << " step " << i;
    EXPECT_EQ(a[i].tokens, b[i].tokens) << what << " step " << i;
  }
}

std::vector<Step> Layouts::expect_equals_one_rank(const std::string& preset, const std::vector<Case>& cases, int count,
                                                  const Settings& settings) {
  Settings set = settings;
  set.push_back(fmt::format("run.steps={}", count));
  const std::string one = fmt::format("one-{}-{}-{}", preset, count, testing::UnitTest::GetInstance()->current_test_info()->name());
  if (!fs::exists(at(one)) && (!run(preset, {}, one, set) || !run(preset, {}, one + "-g", set, at(one + ".safetensors")))) return {};
  const std::vector<Step> expected = steps(one);
  const Tensors gradients = tensors_of(at(one + ".safetensors")), values = trained(preset, one);
  for (const Case& c : cases) {
    const std::string file = at("g.safetensors"), what = preset + " " + c.name();
    fs::remove_all(at("run"));
    fs::remove_all(at("g"));
    if (!run(preset, c, "g", set, file) || !run(preset, c, "run", set)) break;
    expect_close(gradients, tensors_of(file), 1e-12, 1e-14, what + " gradient");
    expect_close(expected, steps("run"), what);
    expect_close(values, trained(preset, "run"), 1e-9, 1e-14, what + " value");
  }
  return expected;
}

}  // namespace mm::loop
