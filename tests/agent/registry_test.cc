// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/registry.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

namespace mm::agent {
namespace {

// A process that waits until it is killed, and is reaped at the end.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(Processes, StatWithBracketsAndSpacesInTheName) {
  const auto s = parse_process_stat("42 (a) b (c) T 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9 9");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->name, "a) b (c");
  EXPECT_EQ(s->state, 'T');
  EXPECT_EQ(s->parent, 7);
  EXPECT_EQ(s->start, 12345u);
  EXPECT_FALSE(parse_process_stat("42 (short) R 1 2 3"));
  EXPECT_FALSE(parse_process_stat(""));
}

TEST(Processes, AnotherStartTimeIsAnotherProcess) {
  const Child child;
  const auto id = identify(child.pid());
  ASSERT_TRUE(id);
  EXPECT_TRUE(alive(*id));
  const ProcessId reused = {id->pid, id->start + 1};
  EXPECT_FALSE(alive(reused));
  EXPECT_FALSE(open_process(reused));
  EXPECT_FALSE(kill_process(reused));
  EXPECT_TRUE(alive(*id)) << "a process with a reused id was killed";
  EXPECT_TRUE(kill_process(*id));
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(id->pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(alive(*id));
}

TEST(Processes, KillTreeTakesDescendants) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t root = ::fork();
  if (root == 0) {
    for (int i = 0; i < 3; ++i)
      if (::fork() == 0 && ::fork() == 0) break;  // children and grandchildren
    const char c = 0;
    (void)!::write(fds[1], &c, 1);
    for (;;) ::pause();
  }
  ::close(fds[1]);
  char byte;
  ASSERT_EQ(::read(fds[0], &byte, 1), 1);
  const auto id = identify(root);
  ASSERT_TRUE(id);
  EXPECT_GE(kill_tree(*id), 1);
  ::waitpid(root, nullptr, 0);
  // Every holder of the other end is gone when the pipe ends.
  while (::read(fds[0], &byte, 1) > 0) {
  }
  ::close(fds[0]);
}

Registry one_job(pid_t pid) {
  Job job;
  job.id = "17";
  job.uid = 1000;
  job.nodes = {"n1", "n2", "n5"};
  job.batch_node = "n1";
  job.restarts = 2;
  job.spares = 1;
  job.requeue = false;
  Step step;
  step.id = "3";
  step.uid = 1000;
  step.nodes = {"n1", "n2"};
  step.task_count = 4;
  step.hang_timeout = 12.5;
  step.killed = true;
  Task task;
  task.rank = 2;
  task.local_rank = 1;
  task.process = identify(pid).value();
  task.status = 9;
  step.tasks.emplace(2, task);
  job.steps.emplace("3", step);
  return {{"17", job}};
}

TEST(Registry, SurvivesJson) {
  const Registry before = one_job(::getpid());
  const std::string text = registry_to_json(before);
  const Registry after = registry_from_json(text);
  EXPECT_EQ(registry_to_json(after), text);
  const Step& step = after.at("17").steps.at("3");
  EXPECT_EQ(step.tasks.at(2).process, identify(::getpid()));
  EXPECT_EQ(step.tasks.at(2).status, 9);
  EXPECT_EQ(step.hang_timeout, 12.5);
  EXPECT_TRUE(step.killed);
  EXPECT_FALSE(after.at("17").requeue);
  EXPECT_ANY_THROW(registry_from_json("{"));
  EXPECT_ANY_THROW(registry_from_json(R"([{"id":"1"}])"));
}

TEST(Registry, FindsARankByADescendant) {
  Registry registry = one_job(::getpid());
  const Child child;
  const FoundTask found = find_task(registry, child.pid());
  ASSERT_TRUE(found);
  EXPECT_EQ(found.task->rank, 2);
  EXPECT_EQ(found.job->id, "17");
  // A rank whose process id was reused is nobody's ancestor.
  registry.at("17").steps.at("3").tasks.at(2).process.start += 1;
  EXPECT_FALSE(find_task(registry, child.pid()));
}

TEST(Registry, JobMessageRoundTripAndErrors) {
  const Job job = one_job(::getpid()).at("17");
  const Job again = job_from_message(message_from_job(job));
  EXPECT_EQ(message_from_job(again), message_from_job(job));
  KeyValues message = message_from_job(job);
  message.erase("NODES");
  try {
    job_from_message(message);
    FAIL() << "a job without nodes was accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "job: NODES= is missing");
  }
}

}  // namespace
}  // namespace mm::agent
