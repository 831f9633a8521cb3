// SPDX-License-Identifier: Apache-2.0
// The samples are what Slurm 22.05.8 prints.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "agent/incidents/incident.h"
#include "agent/slurm/commands.h"
#include "agent/slurm/end_time.h"
#include "agent/slurm/parse.h"
#include "agent/slurm/spool.h"
#include "common/files.h"

namespace mm::agent {
namespace {

constexpr const char* nodes_text =
    "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=8 CPULoad=0.30 Gres=(null) NodeAddr=198.18.1.11 NodeHostName=node1 "
    "Port=10381 Version=22.05.8 OS=Linux 6.18 #1 SMP @0  State=IDLE ThreadsPerCore=1 CapWatts=n/a ExtSensorsTemp=n/s\n"
    "NodeName=node2 Arch=x86_64 NodeAddr=10.0.0.2 NodeHostName=node2 Port=6818 State=DOWN*+DRAIN ThreadsPerCore=1 "
    "Reason=fan [left] is State=IDLE \"loud\" [root@2026-11-30T09:14:28]\n"
    "NodeName=node3 NodeAddr=node3.cluster Port=6818 State=MIXED+DRAIN+NOT_RESPONDING Reason=Not responding [slurm@2026-11-30T10:00:00] Comment=hello\n"
    "NodeName=node4 NodeAddr=10.0.0.4 Port=6818 State=ALLOCATED# Extra=\n";

TEST(Parse, Nodes) {
  const auto nodes = parse_nodes(nodes_text);
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].name, "node1");
  EXPECT_EQ(nodes[0].address, "198.18.1.11");
  EXPECT_EQ(nodes[0].port, 10381);
  EXPECT_FALSE(nodes[0].drained() || nodes[0].down());
  EXPECT_EQ(nodes[0].reason, "");
  EXPECT_TRUE(nodes[1].drained() && nodes[1].down());
  EXPECT_EQ(nodes[1].reason, "fan [left] is State=IDLE \"loud\"") << "an admin's words, as they are";
  EXPECT_TRUE(nodes[2].drained());
  EXPECT_FALSE(nodes[2].down());
  EXPECT_EQ(nodes[2].reason, "Not responding");
  EXPECT_EQ(nodes[2].address, "node3.cluster");
  EXPECT_TRUE(nodes[3].has("ALLOCATED"));
  EXPECT_TRUE(parse_nodes("No nodes in the system\n").empty());
}

TEST(Parse, EndOfARun) {
  const auto end = [](const char* state, const char* time) {
    return parse_run_end(std::string("JobId=4 JobState=") + state + " Restarts=2 RunTime=00:00:05 TimeLimit=00:01:00 EndTime=" + time + " Deadline=N/A\n");
  };
  const auto first = end("RUNNING", "2026-11-30T10:01:00"), later = end("RUNNING", "2026-11-30T11:01:00");
  ASSERT_TRUE(first && later);
  EXPECT_EQ(first->restarts, 2);
  EXPECT_GT(first->time, 1.7e9);
  EXPECT_EQ(later->time - first->time, 3600);
  EXPECT_EQ(end("RUNNING", "Unknown")->time, 0);
  EXPECT_FALSE(end("PENDING", "2026-11-30T10:01:00"));
  EXPECT_FALSE(parse_run_end(""));
}

TEST(Parse, Job) {
  const auto job = parse_job(
      "JobId=10002 JobName=job.sh UserId=u(999) GroupId=u(995) Priority=0 JobState=PENDING Reason=BadConstraints Dependency=(null) Requeue=1 "
      "Restarts=1 BatchFlag=1 Reboot=0 ReqNodeList=(null) ExcNodeList=node[1,7] NodeList= BatchHost=node1 NumNodes=3 NumCPUs=8 NumTasks=8 CPUs/Task=2 "
      "ReqB:S:C:T=0:0:*:* Socks/Node=* NtasksPerN:B:S:C=2:0:*:* CoreSpec=*\n");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "PENDING");
  EXPECT_EQ(job->restarts, 1);
  EXPECT_TRUE(job->requeue && job->has_batch);
  EXPECT_TRUE(job->nodes.empty());
  EXPECT_EQ(job->excluded, "node[1,7]");
  EXPECT_EQ(job->tasks, 8);
  EXPECT_EQ(job->tasks_per_node, 2);
  EXPECT_EQ(job->cpus_per_task, 2);
  const auto running = parse_job("JobId=3 JobState=RUNNING Requeue=0 Restarts=0 BatchFlag=0 ReqNodeList=n9 ExcNodeList=(null) NodeList=n[1-2,5]\n");
  ASSERT_TRUE(running);
  EXPECT_EQ(running->nodes, (std::vector<std::string>{"n1", "n2", "n5"})) << "NodeList, not ReqNodeList";
  EXPECT_EQ(running->excluded, "");
  EXPECT_FALSE(running->requeue);
  EXPECT_FALSE(parse_job(""));
}

TEST(Parse, Config) {
  const SlurmConfig c = parse_config(
      "Configuration data as of 2026-11-30T09:08:59\nAuthInfo                = ttl=60,socket=/run/x/munge.socket,cred_expire=30\n"
      "SlurmctldHost[0]        = head(198.18.1.1)\nSlurmctldHost[1]        = spare(198.18.1.2)\nSlurmctldPort           = 10380\n"
      "UnkillableStepTimeout   = 60 sec\n");
  EXPECT_EQ(c.controller, "198.18.1.1");
  EXPECT_EQ(c.controller_port, 10380);
  EXPECT_EQ(c.munge_socket, "/run/x/munge.socket");
  EXPECT_EQ(c.unkillable_step_timeout, 60);
  EXPECT_EQ(parse_config("SlurmctldHost[0] = head\nAuthInfo = (null)\n").controller, "head");
  EXPECT_EQ(parse_config("AuthInfo = (null)\n").munge_socket, "");
}

TEST(Reason, SomebodyElsesIsUsedAgain) {
  NodeRecord node;
  EXPECT_EQ(reason_to_give(node, "ours"), "ours");
  node.reason = "admin: bad fan";
  EXPECT_EQ(reason_to_give(node, "ours"), "admin: bad fan");
}

TEST(Reason, OneLineWithoutQuotes) {
  EXPECT_EQ(drain_reason("nic eth1 carrier lost", 7), "mm-agent: nic eth1 carrier lost (incident 7)");
  EXPECT_EQ(drain_reason("a \"b\"\nc", 1), "mm-agent: a  b  c (incident 1)");
}

TEST(HostLists, MergeKeepsTheUsers) {
  EXPECT_EQ(merge_hostlists("node[1,7]", "node[7-8]"), "node[1,7-8]");
  EXPECT_EQ(merge_hostlists("", "node2"), "node2");
}

TEST(Incident, MessageRoundTrip) {
  Incident i;
  i.id = 12;
  i.origin = "node2";
  i.kind = "node";
  i.severity = "fatal";
  i.action = "drain";
  i.node = "node4";
  i.job = "17";
  i.step = "0";
  i.rank = 3;
  i.time = 1796033144.095970;
  i.evidence = {"no heartbeat for 2.1 s", "slurmd port 6818 closed"};
  const KeyValues message = message_from_incident(i);
  EXPECT_EQ(get(message, "CLASS"), "node");
  const Incident again = incident_from_message(parse_key_values(format_key_values(message)));
  EXPECT_EQ(message_from_incident(again), message);
  EXPECT_EQ(again.evidence, i.evidence);
}

TEST(Spool, FolderHasNodeAndHostFilledIn) {
  EXPECT_EQ(spool_folder("/var/spool/slurmd/%n", "n1", "host.domain"), "/var/spool/slurmd/n1");
  EXPECT_EQ(spool_folder("/s/%h-%n%", "n1", "host.domain"), "/s/host-n1%");
  EXPECT_EQ(spool_folder("", "n1", "host"), "");
}

TEST(Spool, OnlyWhatPmixLeftOfTheJobGoes) {
  char pattern[] = "/tmp/mm-spool-XXXXXX";
  const std::string folder = ::mkdtemp(pattern);
  const auto listen_on = [&](const std::string& name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder + "/" + name).c_str());
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  };
  for (const char* name : {"stepd.slurm.pmix.12.0", "stepd.slurm.pmix.12.1", "stepd.slurm.pmix.123.0", "n1_12.0"}) listen_on(name);
  write_file_durably(folder + "/stepd.slurm.pmix.12.file", "");
  for (const char* name : {"pmix.12.0/pmix.sys", "pmix.123.0", "job12", "spmix_appdir_999_12.3", "spmix_appdir_12_123.0"}) std::filesystem::create_directories(folder + "/" + name);
  EXPECT_EQ(remove_pmix_leftovers(folder, "12"), 4);
  EXPECT_FALSE(std::filesystem::exists(folder + "/pmix.12.0"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/spmix_appdir_999_12.3"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/stepd.slurm.pmix.12.0"));
  for (const char* name : {"stepd.slurm.pmix.123.0", "n1_12.0", "stepd.slurm.pmix.12.file", "pmix.123.0", "job12", "spmix_appdir_12_123.0"})
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + name)) << name;
  EXPECT_EQ(remove_pmix_leftovers(folder + "/none", "12"), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mm::agent
