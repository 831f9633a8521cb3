// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/command_line.h"

#include <charconv>
#include <utility>

namespace mm::spank {
namespace {

// "4", "4k"; Slurm's counts take k and m.
std::optional<int> count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (error != std::errc() || value < 0 || value > 1 << 24) return {};
  if (unit == "k" || unit == "K")
    value *= 1024;
  else if (unit == "m" || unit == "M")
    value *= 1024 * 1024;
  else if (!unit.empty())
    return {};
  if (value > 1 << 24) return {};
  return static_cast<int>(value);
}

// "4" and "4-4" are exact, "2-4" is not.
std::optional<int> exact_nodes(std::string_view text) {
  const size_t dash = text.find('-');
  const std::optional<int> least = count(text.substr(0, dash));
  if (dash == std::string_view::npos) return least;
  return least == count(text.substr(dash + 1)) ? least : std::nullopt;
}

// "verbose" and "quiet" alone bind nothing.
bool chooses_binding(std::string_view value) {
  while (!value.empty()) {
    const size_t end = value.find_first_of(",;");
    const std::string_view item = value.substr(0, end);
    value = end == std::string_view::npos ? std::string_view() : value.substr(end + 1);
    if (!item.empty() && item != "v" && item != "verbose" && item != "q" && item != "quiet") return true;
  }
  return false;
}

void state(Stated& s, std::string_view option, const std::string& spelled, std::string_view value) {
  if (option == "nodes") {
    s.nodes_stated = true;
    s.nodes = exact_nodes(value);
  } else if (option == "ntasks") {
    s.tasks = count(value);
  } else if (option == "ntasks-per-node" || option == "tasks-per-node") {
    s.tasks_per_node = count(value);
  } else if (option == "cpus-per-task" || option == "gpus-per-task" || option == "tres-per-task" ||
             option == "threads-per-core") {
    s.sized_tasks = true;
    if (option == "cpus-per-task") s.cpus_per_task = count(value).value_or(0);
  } else if (option == "cpu-bind" || option == "cpu_bind" || option == "hint") {
    if (chooses_binding(value)) s.cpu_choice = spelled;
  } else if (option == "mem-bind" || option == "mem_bind") {
    if (chooses_binding(value)) s.memory_choice = spelled;
  } else if (option == "nodelist" || option == "nodefile" || option == "exclude" || option == "relative" ||
             option == "distribution" || option == "spread-job") {
    s.order_option = spelled;
    if (option == "nodelist" && value.find('/') == std::string_view::npos) s.node_list = value;
    if (option == "distribution") s.distribution = value;
    // Behind the colon: how tasks are dealt over the sockets and cores of their node.
    if (option == "distribution" && value.find(':') != std::string_view::npos) s.cpu_choice = spelled;
  } else if (option == "ntasks-per-gpu" || option == "ntasks-per-core" || option == "ntasks-per-socket" ||
             option == "no-allocate" || option == "jobid" || option == "het-group") {
    s.odd_tasks = true;
  } else if (option == "no-kill") {
    s.no_kill = true;
  } else if (option == "mm-train") {
    s.mm_train = value;
  } else if (option == "wrap") {
    s.wrapped = true;
  }
}

}  // namespace

Stated parse_arguments(Client client, const std::vector<std::string>& words) {
  Stated s;
  size_t i = 0;
  // An argument that a "--name" or "-x" without one takes from the next word.
  const auto next = [&] { return i + 1 < words.size() ? words[++i] : std::string(); };
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      // After an option that is not ours to know this may be its argument.
      if (!s.uncertain || i + 1 == words.size()) break;
      continue;
    }
    if (word[1] == '-') {
      const size_t equals = word.find('=');
      const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
      const Option* o = find_option(client, name);
      if (o == nullptr) {
        s.uncertain = s.uncertain || equals == std::string::npos;
        continue;
      }
      std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
      if (equals == std::string::npos && o->argument == Argument::required) value = next();
      state(s, o->name, "--" + std::string(o->name), value);
      continue;
    }
    for (size_t k = 1; k < word.size(); ++k) {
      const Option* o = find_option(client, word[k]);
      if (o == nullptr) {
        s.uncertain = true;
        break;
      }
      const std::string spelled = {'-', word[k]};
      if (o->argument == Argument::none) {
        state(s, o->name, spelled, "");
        continue;
      }
      std::string value = word.substr(k + 1);
      if (value.empty() && o->argument == Argument::required) value = next();
      state(s, o->name, spelled, value);
      break;
    }
  }
  if (i < words.size()) s.command.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  // " : " parts the components of a heterogeneous job. sbatch and salloc know it among the options only, srun anywhere.
  for (const std::string& word : s.command) {
    s.heterogeneous = s.heterogeneous || word == ":";
    if (client != Client::srun) break;
  }
  return s;
}

Stated parse_script(std::string_view text) {
  Stated all;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.rfind("#SBATCH", 0) == 0) {
      const std::vector<std::string> words = split_words(line.substr(7));
      if (!words.empty() && (words[0] == "hetjob" || words[0] == "packjob"))
        all.heterogeneous = true;
      else
        all = merge(std::move(all), parse_arguments(Client::sbatch, words));
      all.command.clear();
      continue;
    }
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] != '#') break;
  }
  return all;
}

Stated parse_environment(Client client, const GetEnv& get) {
  Stated s;
  const auto take = [&](const char* variable, std::string_view option) {
    if (const std::optional<std::string> value = get(variable)) state(s, option, variable, *value);
  };
  switch (client) {
    case Client::sbatch:
      take("SBATCH_DISTRIBUTION", "distribution");
      take("SBATCH_SPREAD_JOB", "spread-job");
      take("SBATCH_NO_KILL", "no-kill");
      break;
    case Client::salloc:
      take("SALLOC_SPREAD_JOB", "spread-job");
      take("SALLOC_NO_KILL", "no-kill");
      break;
    case Client::srun:
      take("SLURM_JOB_NUM_NODES", "nodes");
      take("SLURM_NNODES", "nodes");
      take("SLURM_NPROCS", "ntasks");
      take("SLURM_NTASKS", "ntasks");
      take("SLURM_NTASKS_PER_NODE", "ntasks-per-node");
      take("SRUN_CPUS_PER_TASK", "cpus-per-task");
      take("SLURM_CPUS_PER_TASK", "cpus-per-task");
      take("SLURM_GPUS_PER_TASK", "gpus-per-task");
      take("SLURM_THREADS_PER_CORE", "threads-per-core");
      take("SLURM_NTASKS_PER_GPU", "ntasks-per-gpu");
      take("SLURM_NTASKS_PER_CORE", "ntasks-per-core");
      take("SLURM_NTASKS_PER_SOCKET", "ntasks-per-socket");
      take("SLURM_SPREAD_JOB", "spread-job");
      take("SLURM_DISTRIBUTION", "distribution");
      take("SLURM_HOSTFILE", "nodefile");
      take("SLURM_HINT", "hint");
      // In a step these are what srun has exported for its tasks.
      if (!get("SLURM_STEP_ID")) {
        take("SLURM_CPU_BIND", "cpu-bind");
        take("SLURM_MEM_BIND", "mem-bind");
      }
      break;
  }
  return s;
}

Stated merge(Stated lower, const Stated& higher) {
  if (higher.nodes_stated) lower.nodes_stated = true, lower.nodes = higher.nodes;
  if (higher.tasks) lower.tasks = higher.tasks;
  if (higher.tasks_per_node) lower.tasks_per_node = higher.tasks_per_node;
  if (!higher.order_option.empty()) lower.order_option = higher.order_option;
  if (!higher.node_list.empty()) lower.node_list = higher.node_list;
  if (!higher.distribution.empty()) lower.distribution = higher.distribution;
  if (!higher.cpu_choice.empty()) lower.cpu_choice = higher.cpu_choice;
  if (!higher.memory_choice.empty()) lower.memory_choice = higher.memory_choice;
  if (higher.cpus_per_task > 0) lower.cpus_per_task = higher.cpus_per_task;
  lower.sized_tasks |= higher.sized_tasks;
  lower.odd_tasks |= higher.odd_tasks;
  lower.no_kill |= higher.no_kill;
  lower.heterogeneous |= higher.heterogeneous;
  lower.uncertain |= higher.uncertain;
  if (higher.mm_train) lower.mm_train = higher.mm_train;
  lower.wrapped |= higher.wrapped;
  if (!higher.command.empty()) lower.command = higher.command;
  return lower;
}

Counts counts_of(const Stated& s) {
  Counts c;
  if (s.uncertain) return c;
  c.nodes = s.nodes;
  if (s.tasks)
    c.tasks = s.tasks;
  else if (s.nodes && s.tasks_per_node && !s.odd_tasks)
    c.tasks = *s.nodes * *s.tasks_per_node;
  if (s.tasks && s.nodes && *s.nodes > 0)
    c.tasks_per_node = (*s.tasks + *s.nodes - 1) / *s.nodes;
  else if (!s.odd_tasks)
    c.tasks_per_node = s.tasks_per_node;
  return c;
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      word += line[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      inside = true;
    } else if (c == '#') {
      break;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(std::exchange(word, ""));
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (inside) words.push_back(word);
  return words;
}

std::vector<std::string> split_command_line(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    words.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return words;
}

}  // namespace mm::spank
