// SPDX-License-Identifier: Apache-2.0
// srun: the order of the step's nodes, checks that need the allocation, and the record for slurmstepd.
//
// How ranks get their order. srun reads SLURM_HOSTFILE after it has called our option callback and before it has parsed its
// command line; a host file there means an arbitrary distribution, rank by rank, so that SLURM_PROCID itself follows our order.
// The file is a memfd, named /proc/self/fd/N: no file to leak. It must be written in the callback (init_post_opt is too late)
// and is taken back in init_post_opt, so that no task inherits the variable. SLURM_DISTRIBUTION is never set: srun would then
// want as many names as tasks in -w, too. A -w, -x, -m or -r on the command line defeats a host file; that is the user's word,
// and Slurm's order stays.
//
// The callback knows no count yet, so it reads the command line and the environment as srun does. Only a step on all nodes of
// the allocation, or on those that MM_NODES lists in order, is ordered; for fewer nodes Slurm must be free to choose those that
// are idle. With a host file srun takes one task a node where -n is absent, whatever --ntasks-per-node says: so SLURM_NTASKS is
// set as well. srun reads it before it parses the command line and before it calls us back for an inherited option, hence we
// look for the option in slurm_spank_init already.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "common/error.h"
#include "common/files.h"
#include "common/hostlist.h"
#include "common/process.h"
#include "common/site.h"
#include "spank_plugin/checks.h"
#include "spank_plugin/client.h"
#include "spank_plugin/contexts.h"
#include "spank_plugin/node_order.h"
#include "spank_plugin/rank_order.h"

namespace mm::spank {
namespace {

constexpr std::chrono::seconds scontrol_deadline{5};

struct Step {
  Stated arguments, stated;
  std::optional<Request> request;
  bool inherited = false;
  std::optional<int> tasks;  // of the step, where it is surely known
  std::string problem, note, warning;
  std::vector<std::string> told;  // with verbose
  int step_fd = -1;               // mm-run's
  UniqueFd host_file;
  TemporaryVariable host_file_variable{"SLURM_HOSTFILE"}, tasks_variable{"SLURM_NTASKS"};
};
Step& step() {
  static Step instance;
  return instance;
}

bool in_allocation() {
  return own_variable("SLURM_JOB_ID").has_value();
}

// The daemon that another launcher starts on each node is no rank, and its children must not take its RANK for theirs.
bool is_launcher_daemon(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  const std::string name = command.front().substr(command.front().rfind('/') + 1);
  for (const char* daemon : {"orted", "prted", "hydra_bstrap_proxy", "hydra_pmi_proxy"})
    if (name == daemon) return true;
  return false;
}

// Tasks on each of `nodes`: as the allocation gave them where they add up, else evenly; nothing where they do not divide.
std::vector<int> spread(const std::vector<std::string>& nodes, const std::vector<std::string>& job_nodes, int tasks) {
  const std::optional<std::vector<int>> given = expand_counts(own_variable("SLURM_TASKS_PER_NODE").value_or(""));
  if (given && given->size() == job_nodes.size()) {
    std::vector<int> out;
    for (const std::string& node : nodes) {
      const auto at = std::find(job_nodes.begin(), job_nodes.end(), node);
      if (at != job_nodes.end()) out.push_back((*given)[static_cast<size_t>(at - job_nodes.begin())]);
    }
    if (out.size() == nodes.size() && std::accumulate(out.begin(), out.end(), int64_t{0}) == tasks) return out;
  }
  const int count = static_cast<int>(nodes.size());
  if (count == 0 || tasks % count != 0) return {};
  return std::vector<int>(nodes.size(), tasks / count);
}

// A line for each rank.
void write_host_file(Step& s, const std::vector<std::string>& node_of_rank) {
  UniqueFd fd(::memfd_create("mm-train-hosts", MFD_CLOEXEC));
  if (!fd) throw system_error("host file: memfd_create", errno);
  std::string text;
  for (const std::string& node : node_of_rank) text += node + '\n';
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + done, text.size() - done);
    if (n < 0) throw system_error("host file: write", errno);
    done += static_cast<size_t>(n);
  }
  s.host_file_variable.set(fmt::format("/proc/self/fd/{}", fd.get()), true);
  s.host_file = std::move(fd);
  s.request->record.order = compress_hostlist(first_mentions(node_of_rank));
  s.request->record.ordered = true;
}

// Asked for once, though the option may be called back several times.
const std::string& topology() {
  static const std::string text = [] {
    try {
      const CommandResult r = run_command({"scontrol", "show", "topology"}, scontrol_deadline);
      return r.ok() ? r.out : "";
    } catch (const Error&) {
      return std::string();  // no scontrol here: Slurm's order
    }
  }();
  return text;
}

// The site's settings as far as the placement needs them: a mistake in them is told on the nodes.
Site node_site() {
  try {
    return load_site(plugin().config);
  } catch (const std::exception&) {
    return Site();
  }
}

// The same question comes with every callback: the last answer is kept.
const RankOrder& rank_order(const Job& job, const std::string& value, const std::vector<std::string>& nodes,
                            const std::vector<int>& tasks) {
  static std::string asked;
  static RankOrder answer;
  const std::string question = fmt::format("{}\n{}\n{}", value, compress_hostlist(nodes), fmt::join(tasks, ","));
  if (asked != question) answer = order_ranks(job, nodes, tasks, nodes.size() > 1 ? topology() : std::string(), node_site());
  asked = question;
  return answer;
}

std::vector<std::string> in_order(const std::vector<std::string>& nodes, const std::vector<int>& tasks) {
  std::vector<std::string> out;
  for (size_t i = 0; i < nodes.size(); ++i) out.insert(out.end(), static_cast<size_t>(tasks[i]), nodes[i]);
  return out;
}

// What the user has chosen of how tasks are bound stays, on the nodes.
void take_bindings(Step& s) {
  Record& r = s.request->record;
  r.user_cpus = !s.stated.cpu_choice.empty();
  r.user_memory = !s.stated.memory_choice.empty();
  // srun 22.05 does not take SLURM_CPUS_PER_TASK for its own.
  r.cpus = s.arguments.cpus_per_task;
  if (const std::optional<std::string> text = own_variable("SRUN_CPUS_PER_TASK"); r.cpus == 0 && text)
    r.cpus = std::max(0, std::atoi(text->c_str()));
  for (const std::string& choice : {s.stated.cpu_choice, s.stated.memory_choice})
    if (!choice.empty()) s.told.push_back(fmt::format("{} is the user's choice: it stays", choice));
}

// What a user's own choice makes the order of ranks, as far as it can be told: Slurm keeps nodes sorted but for a host file.
std::vector<std::string> users_order(const Stated& stated) {
  if (stated.order_option == "SLURM_HOSTFILE")
    return nodes_of_host_file(read_file(own_variable("SLURM_HOSTFILE").value_or("")));
  if (stated.distribution.rfind("arbitrary", 0) == 0 && !stated.node_list.empty())
    return first_mentions(expand_hostlist(stated.node_list));
  return {};
}

// mm-run starts with the allocation's first nodes, and puts a spare where one is lost: the map is that of the first nodes
// always, so that ranks whose node is still there keep it.
void place_ranks(Step& s, const std::vector<std::string>& nodes, const std::vector<std::string>& job_nodes,
                 const std::vector<int>& tasks) {
  std::vector<std::string> first = nodes;
  if (job_nodes.size() >= nodes.size()) std::copy_n(job_nodes.begin(), nodes.size(), first.begin());
  const RankOrder& order = rank_order(s.request->job, s.request->record.spec, first, tasks);
  std::unordered_map<std::string, std::string> now;
  for (size_t i = 0; i < nodes.size(); ++i) now[first[i]] = nodes[i];
  std::vector<std::string> node_of_rank;
  for (const std::string& node : order.node_of_rank) node_of_rank.push_back(now.at(node));
  write_host_file(s, node_of_rank);
  s.request->record.bytes = order.bytes;
  s.request->record.stage_speeds = stage_speeds_of(s.request->job, node_of_rank, node_site());
  s.warning = order.warning;
  if (!order.told.empty()) s.told.push_back(order.told);
}

// Why the order of a step's ranks is Slurm's affair; empty: it is not.
std::string why_not_ordered(const Stated& stated, bool nested, size_t job_nodes) {
  if (nested) return "a step inside a step";
  if (stated.uncertain) return "an option that is not known";
  if (stated.odd_tasks) return "tasks follow from GPUs, cores or sockets, or nodes are another job's";
  if (!stated.nodes) return "no exact number of nodes";
  if (static_cast<size_t>(*stated.nodes) == job_nodes) return {};
  return fmt::format("a step on {} of {} nodes", *stated.nodes, job_nodes);
}

void plan_order(Step& s) {
  if (!in_allocation()) {
    s.note = "outside an allocation Slurm's order of nodes stays";
    return;
  }
  const std::optional<std::string> chosen = own_variable("MM_NODES");
  // In a step srun has exported a distribution that nobody chose.
  const std::string step_id = own_variable("SLURM_STEP_ID").value_or("");
  const std::string& option = chosen || !step_id.empty() ? s.arguments.order_option : s.stated.order_option;
  if (!option.empty()) {
    s.note = fmt::format("{} chooses nodes or their order, so Slurm's order of ranks stays", option);
    try {
      s.request->record.order = compress_hostlist(users_order(s.stated));
    } catch (const Error&) {
      // A host file that srun will refuse itself.
    }
    return;
  }
  const std::vector<std::string> job_nodes = expand_hostlist(own_variable("SLURM_JOB_NODELIST").value_or(""));
  std::vector<std::string> nodes;
  if (chosen) {
    nodes = expand_hostlist(*chosen);
    if (first_mentions(nodes).size() != nodes.size())
      throw usage_error(fmt::format("MM_NODES={}: a node is there twice", *chosen));
    if (s.arguments.nodes && static_cast<size_t>(*s.arguments.nodes) != nodes.size())
      throw usage_error(fmt::format("MM_NODES={}: {} nodes, but srun asks for {}", *chosen, nodes.size(), *s.arguments.nodes));
  } else {
    const bool nested = !step_id.empty() && step_id != std::to_string(interactive_step);
    const std::string why = why_not_ordered(s.stated, nested, job_nodes.size());
    if (!why.empty()) {
      s.told.push_back(why + ": Slurm's order of ranks stays");
      return;
    }
    nodes = job_nodes;
  }
  const int count = static_cast<int>(nodes.size());
  if (s.stated.tasks)
    s.tasks = *s.stated.tasks;
  else if (s.stated.tasks_per_node)
    s.tasks = count * *s.stated.tasks_per_node;
  else if (!s.stated.sized_tasks)
    s.tasks = count;
  else {
    s.told.push_back("as many tasks as fit: Slurm's order of ranks stays");
    return;
  }
  const std::vector<int> each = spread(nodes, job_nodes, *s.tasks);
  if (each.empty()) {
    if (!chosen) {
      s.told.push_back(
          fmt::format("{} tasks do not spread evenly over {} nodes: Slurm's order of ranks stays", *s.tasks, nodes.size()));
      return;
    }
    throw usage_error(fmt::format("MM_NODES={}: {} tasks do not spread evenly over {} nodes", *chosen, *s.tasks, nodes.size()));
  }
  if (chosen && !own_variable("MM_RUN_STEP_FD"))
    write_host_file(s, in_order(nodes, each));  // whoever writes MM_NODES has decided on the order
  else
    place_ranks(s, nodes, job_nodes, each);
  if (!s.stated.tasks) s.tasks_variable.set(std::to_string(*s.tasks));
}

// Where the name of rank 0's node does not resolve, its address as Slurm has it.
std::string master_address(const std::string& order) {
  if (order.empty()) return {};
  const std::string node = expand_hostlist(order).front();
  addrinfo* found = nullptr;
  if (::getaddrinfo(node.c_str(), nullptr, nullptr, &found) == 0) {
    ::freeaddrinfo(found);
    return {};
  }
  try {
    const CommandResult r = run_command({"scontrol", "show", "node", node, "-o"}, scontrol_deadline);
    for (const std::string& word : split_words(r.out))
      if (word.rfind("NodeAddr=", 0) == 0) return word.substr(9);
  } catch (const Error&) {
    // no scontrol here: the name must do
  }
  return {};
}

// mm-run leaves a descriptor open for us: it wants to know which step it has started, as soon as there is one. Tasks inherit
// what the environment is in init_post_opt, so the variable goes there.
void take_step_fd(Step& s) {
  const std::optional<std::string> text = own_variable("MM_RUN_STEP_FD");
  if (!text) return;
  ::unsetenv("MM_RUN_STEP_FD");
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), s.step_fd);
  if (error != std::errc() || *end != '\0' || s.step_fd < 3) s.step_fd = -1;
}

void tell_step_id(const Step& s, spank_t spank) {
  uint32_t id = 0;
  if (s.step_fd < 0 || spank_get_item(spank, S_JOB_STEPID, &id) != ESPANK_SUCCESS) return;
  const std::string line = fmt::format("{}\n", id);
  if (::write(s.step_fd, line.data(), line.size()) < 0) slurm_verbose("mm-train: mm-run does not take the step's id: %m");
}

void check_size(const Step& s, int tasks, int step_nodes) {
  StepSize size;
  size.tasks = tasks;
  size.job_nodes = static_cast<int>(expand_hostlist(own_variable("SLURM_JOB_NODELIST").value_or("")).size());
  if (size.job_nodes == 0) size.job_nodes = step_nodes;
  size.inherited = s.inherited;
  if (!is_helper(s.request->record, size)) check_step(s.request->job, tasks);
}

}  // namespace

void srun_init() {
  std::optional<std::string> value = own_arguments().mm_train;
  if (!value) value = own_variable(inherited_option_variable);
  if (!value) return;
  plugin().value = *value;
  srun_option();
}

void srun_option() {
  Step& s = step();
  s.host_file_variable.undo();
  s.tasks_variable.undo();
  s.host_file.reset();
  s.request.reset();
  s.tasks.reset();
  s.problem.clear();
  s.note.clear();
  s.warning.clear();
  s.told.clear();
  try {
    s.arguments = own_arguments();
    s.stated = merge(parse_environment(Client::srun, own_variable), s.arguments);
    s.inherited = !s.arguments.mm_train;
    if (is_launcher_daemon(s.arguments.command)) return;
    const std::optional<Record> record = parse_record(own_variable(record_variable).value_or(""));
    const std::string value = plugin().value.value_or("");
    s.request = record && record->value == value ? read_inherited_request(*record) : read_request(value);
    if (!s.request) return;
    s.request->record.order.clear();
    s.request->record.master.clear();
    s.request->record.ordered = false;
    s.request->record.stage_speeds.clear();
    take_bindings(s);
    if (s.stated.heterogeneous || own_variable("SLURM_HET_SIZE"))
      throw usage_error("--mm-train: heterogeneous jobs and steps are not supported");
    plan_order(s);
  } catch (const Error& e) {
    s.problem = e.what();
  }
}

void srun_check() {
  Step& s = step();
  s.host_file_variable.undo();
  s.tasks_variable.undo();
  s.host_file.reset();
  if (!s.problem.empty()) refuse(s.problem);
  take_step_fd(s);
  forget_exported();
  if (!s.request) {
    ::unsetenv(record_variable);
    return;
  }
  if (own_variable("MM_NODES")) {
    // mm-run's, for this step only; its host file is for an srun without the plugin.
    ::unsetenv("MM_NODES");
    ::unsetenv("SLURM_HOSTFILE");
  }
  try {
    Record& record = s.request->record;
    if (!in_allocation())
      record.tasks = check_submission(s.request->job, s.stated);
    else if (s.tasks)
      check_size(s, *s.tasks, s.stated.nodes.value_or(1));
    record.master = master_address(record.order);
    ::setenv(record_variable, format_record(record).c_str(), 1);
  } catch (const Error& e) {
    refuse(e.what());
  }
  // Slurm's default fence of PMIx without data lets about 3 % of MPI launches die in MPI_Init.
  ::setenv("SLURM_PMIX_FENCE", "ring", 0);
  for (const std::string* line : {&s.note, &s.warning})
    if (!line->empty()) say(*line);
  if (s.request->record.verbose)
    for (const std::string& line : s.told) say(line);
}

void srun_step_check(spank_t spank) {
  Step& s = step();
  tell_step_id(s, spank);
  uint32_t tasks = 0, nodes = 0;
  if (!s.request || spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS)
    return;
  try {
    check_size(s, static_cast<int>(tasks), static_cast<int>(nodes));
  } catch (const Error& e) {
    // The step exists, and srun takes no failure from here: its tasks end it, before they start.
    say(e.what());
    s.request->record.refused = true;
    ::setenv(record_variable, format_record(s.request->record).c_str(), 1);
  }
}

}  // namespace mm::spank
