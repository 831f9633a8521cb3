// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/command_line.h"

#include <gtest/gtest.h>

#include <map>

namespace mm::spank {
namespace {

using Words = std::vector<std::string>;

Stated sbatch(const Words& words) {
  return parse_arguments(Client::sbatch, words);
}
Stated srun(const Words& words) {
  return parse_arguments(Client::srun, words);
}

GetEnv environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

TEST(CommandLine, EverySpellingOfACount) {
  for (const Words& words :
       {Words{"-N", "4", "-n", "8", "s.sh"}, Words{"-N4", "-n8", "s.sh"}, Words{"--nodes=4", "--ntasks=8", "s.sh"},
        Words{"--nodes", "4", "--ntasks", "8", "s.sh"}, Words{"--nodes=4-4", "-vvn8", "s.sh"},
        Words{"-HQN4", "--ntask=8", "s.sh"}, Words{"-N", "9", "-N", "4", "-n8", "--", "s.sh"}}) {
    const Stated s = sbatch(words);
    EXPECT_EQ(s.nodes, 4) << words[0];
    EXPECT_EQ(s.tasks, words[1] == "--ntask=8" ? std::nullopt : std::optional<int>(8)) << words[0];
    EXPECT_EQ(s.command, Words{"s.sh"});
  }
  // "--ntask" begins several names, so getopt refuses it, and nothing may be concluded.
  EXPECT_EQ(find_option(Client::sbatch, "ntask"), nullptr);
  EXPECT_EQ(find_option(Client::sbatch, "ntasks")->letter, 'n');
  EXPECT_EQ(find_option(Client::sbatch, "nodel")->letter, 'w');
  EXPECT_EQ(find_option(Client::salloc, "wrap"), nullptr);
}

TEST(CommandLine, RangesAndUnits) {
  EXPECT_EQ(sbatch({"-N2-4"}).nodes, std::nullopt);
  EXPECT_TRUE(sbatch({"-N2-4"}).nodes_stated);
  EXPECT_EQ(sbatch({"-n", "1k"}).tasks, 1024);
  EXPECT_EQ(sbatch({"-n", "lots"}).tasks, std::nullopt);
  EXPECT_EQ(sbatch({"-n", "99999999999"}).tasks, std::nullopt);
  EXPECT_EQ(sbatch({"-N"}).nodes, std::nullopt);
}

TEST(CommandLine, ArgumentsOfTheScriptAreItsOwn) {
  const Stated s = sbatch({"-N2", "train.sh", "-N", "64", "--mm-train=off", ":"});
  EXPECT_EQ(s.nodes, 2);
  EXPECT_FALSE(s.mm_train);
  EXPECT_FALSE(s.heterogeneous);
  EXPECT_EQ(s.command, (Words{"train.sh", "-N", "64", "--mm-train=off", ":"}));
}

TEST(CommandLine, AnArgumentIsNotTheScript) {
  EXPECT_EQ(sbatch({"-J", "name", "--comment", "a b", "-W", "s.sh"}).command, Words{"s.sh"});
  EXPECT_EQ(srun({"-W", "30", "-K", "-l", "prog"}).command, Words{"prog"});         // srun's -W takes one, sbatch's does not
  EXPECT_EQ(srun({"-K1", "--kill-on-bad-exit=0", "prog"}).command, Words{"prog"});  // optional ones are attached
  EXPECT_EQ(srun({"--exclusive", "prog"}).command, Words{"prog"});
  EXPECT_TRUE(sbatch({"--wrap", "srun prog"}).wrapped);
  EXPECT_TRUE(sbatch({"--wrap", "srun prog"}).command.empty());
}

TEST(CommandLine, OurOption) {
  EXPECT_EQ(sbatch({"--mm-train=a.toml", "--mm-train", "off", "s.sh"}).mm_train, "off");
  EXPECT_EQ(sbatch({"--mm-train", "script.sh"}).mm_train, "script.sh");
  EXPECT_TRUE(sbatch({"--mm-train", "script.sh"}).command.empty());
  EXPECT_EQ(sbatch({"--mm-train=", "script.sh"}).mm_train, "");
  EXPECT_EQ(sbatch({"--mm-train"}).mm_train, "");
  EXPECT_EQ(sbatch({"--mm=auto"}).mm_train, "auto");  // getopt takes a beginning
}

TEST(CommandLine, NothingIsConcludedPastAnUnknownOption) {
  const Stated s = sbatch({"--container-image", "ubuntu", "-N3", "-n6", "job.sh"});
  EXPECT_TRUE(s.uncertain);
  EXPECT_EQ(counts_of(s).tasks, std::nullopt);
  EXPECT_FALSE(sbatch({"--container-image=ubuntu", "-N3", "-n6", "job.sh"}).uncertain);
}

TEST(CommandLine, ChoicesOfNodesAndOrder) {
  for (const Words& words :
       {Words{"-w", "n1"}, Words{"--nodelist=n1"}, Words{"-x", "n1"}, Words{"-m", "cyclic"}, Words{"--distribution=block"},
        Words{"-r1"}, Words{"--spread-job"}, Words{"-F", "f"}, Words{"-lw", "n1"}})
    EXPECT_FALSE(srun(words).order_option.empty()) << words[0];
  for (const Words& words : {Words{"-N2"}, Words{"--exclusive"}, Words{"prog", "-w", "n1"}, Words{"--overlap", "--mpi=pmix"}})
    EXPECT_TRUE(srun(words).order_option.empty()) << words[0];
  EXPECT_EQ(srun({"-w", "n[1,3]"}).node_list, "n[1,3]");
  EXPECT_EQ(srun({"-w", "./hosts"}).node_list, "");
}

TEST(CommandLine, HeterogeneousJobs) {
  EXPECT_TRUE(sbatch({"-N1", ":", "-N2", "s.sh"}).heterogeneous);
  EXPECT_TRUE(srun({"-N1", "a", ":", "-N2", "b"}).heterogeneous);
  EXPECT_TRUE(parse_script("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n").heterogeneous);
  EXPECT_TRUE(parse_script("#!/bin/sh\n#SBATCH packjob # old word\n").heterogeneous);
}

TEST(Script, DirectivesUpToTheFirstCommand) {
  const Stated s = parse_script(
      "#!/bin/bash\n"
      "# a comment\n"
      "\n"
      "#SBATCH --nodes=4 --ntasks-per-node=2   # two words, and a comment\n"
      "#SBATCH --comment=\"a # b\" -c 3\r\n"
      "#SBATCH --mm-train='my job.toml'\n"
      "##SBATCH -N 99\n"
      " #SBATCH -N 98\n"
      "module load cuda\n"
      "#SBATCH -N 97\n");
  EXPECT_EQ(s.nodes, 4);
  EXPECT_EQ(s.tasks_per_node, 2);
  EXPECT_TRUE(s.sized_tasks);
  EXPECT_EQ(s.mm_train, "my job.toml");
  EXPECT_FALSE(s.uncertain);
  EXPECT_TRUE(parse_script("").command.empty());
  EXPECT_EQ(parse_script("#!/bin/sh\n#SBATCH -N 2").nodes, 2);  // no newline at the end
}

TEST(Environment, SrunReadsTheAllocation) {
  const Stated s = parse_environment(
      Client::srun, environment({{"SLURM_NNODES", "4"}, {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_DISTRIBUTION", "cyclic"}}));
  EXPECT_EQ(counts_of(s).tasks, 8);
  EXPECT_EQ(s.order_option, "SLURM_DISTRIBUTION");
  EXPECT_EQ(parse_environment(Client::sbatch, environment({{"SLURM_NNODES", "4"}})).nodes, std::nullopt);
}

TEST(Environment, BindingIsTheUsersWhereItIsSaid) {
  for (const Words& words : {Words{"--cpu-bind=cores"}, Words{"--cpu-bind", "verbose,map_cpu:0,1"},
                             Words{"--hint=nomultithread"}, Words{"-m", "block:cyclic"}, Words{"--cpu-bind=none"}})
    EXPECT_NE(srun(words).cpu_choice, "") << words[0];
  for (const Words& words :
       {Words{"--cpu-bind=verbose"}, Words{"--cpu-bind=v,q"}, Words{"-m", "block"}, Words{"--mem-bind=local"}})
    EXPECT_EQ(srun(words).cpu_choice, "") << words[0];
  EXPECT_EQ(srun({"--mem-bind=local"}).memory_choice, "--mem-bind");
  EXPECT_EQ(srun({"-c", "6"}).cpus_per_task, 6);
  EXPECT_EQ(parse_environment(Client::srun, environment({{"SLURM_CPU_BIND", "cores"}})).cpu_choice, "SLURM_CPU_BIND");
  const Stated inner =
      parse_environment(Client::srun, environment({{"SLURM_CPU_BIND", "quiet,mask_cpu:0x1"}, {"SLURM_STEP_ID", "0"}}));
  EXPECT_EQ(inner.cpu_choice, "") << "srun exported it to its tasks";
}

TEST(Merge, ScriptThenEnvironmentThenCommandLine) {
  Stated s = merge(parse_script("#SBATCH -N 2 -n 4 --mm-train=a\n"),
                   parse_environment(Client::sbatch, environment({{"SBATCH_DISTRIBUTION", "block"}})));
  s = merge(s, sbatch({"-N", "3", "--mm-train=b"}));
  EXPECT_EQ(s.nodes, 3);
  EXPECT_EQ(s.tasks, 4);
  EXPECT_EQ(s.mm_train, "b");
  EXPECT_EQ(s.order_option, "SBATCH_DISTRIBUTION");
  EXPECT_EQ(merge(sbatch({"-N2"}), sbatch({"-N2-4"})).nodes, std::nullopt);  // a range takes an exact count back
}

TEST(Counts, OfWhatIsStated) {
  EXPECT_EQ(counts_of(sbatch({"-N4", "--ntasks-per-node=2"})).tasks, 8);
  EXPECT_EQ(counts_of(sbatch({"-N4", "--ntasks-per-node=8", "-n6"})).tasks, 6);  // -n wins, the other is then a limit
  EXPECT_EQ(counts_of(sbatch({"-N4", "-n6"})).tasks_per_node, 2);
  EXPECT_EQ(counts_of(sbatch({"-N4"})).tasks, std::nullopt);
  EXPECT_EQ(counts_of(sbatch({"-N4", "--ntasks-per-node=2", "--ntasks-per-gpu=1"})).tasks, std::nullopt);
}

// Whatever the words are: no crash, and the command is a tail of them.
TEST(CommandLine, AnyWords) {
  const Words pieces = {"-", "--",    "-N",         "-N4", "--nodes", "--nodes=", "=",  "--=", "",
                        ":", "-\xff", "--mm-train", "-w",  "x",       "--x",      "-K", "-nn"};
  uint64_t seed = 1;
  for (int round = 0; round < 20000; ++round) {
    Words words;
    for (int k = 0; k < 6; ++k) {
      seed = seed * 6364136223846793005U + 1442695040888963407U;
      words.push_back(pieces[(seed >> 33) % pieces.size()]);
    }
    for (const Client client : {Client::sbatch, Client::salloc, Client::srun}) {
      const Stated s = parse_arguments(client, words);
      ASSERT_TRUE(std::equal(s.command.rbegin(), s.command.rend(), words.rbegin()));
    }
  }
}

}  // namespace
}  // namespace mm::spank
