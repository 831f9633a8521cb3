// SPDX-License-Identifier: Apache-2.0
// `clear` and drains that meet, with a scontrol of the test's own that takes its time.
#include <stdlib.h>
#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "agent/peers/address_book.h"
#include "common/error.h"
#include "common/files.h"
#include "tests/agent/desk_fixture.h"

namespace mm::agent {
namespace {

class ClearTest : public DeskFixture {
 protected:
  ClearTest() {
    const std::string bin = folder_.path + "/bin";
    std::filesystem::create_directories(bin);
    log_ = folder_.path + "/log";
    gate_ = folder_.path + "/gate";
    if (::mkfifo(gate_.c_str(), 0600) != 0) throw system_error("mkfifo", errno);
    // A drain says that it begins, and waits until somebody opens the gate.
    std::ofstream(bin + "/scontrol") << "#!/bin/sh\n"
                                     << "log=" << log_ << "\n"
                                     << "case \"$*\" in\n"
                                     << "show*) state=IDLE\n"
                                     << "  [ \"$(tail -n 1 $log 2>/dev/null)\" != drain ] || state='IDLE+DRAIN Reason=mm-agent: x [root@2026-11-30T09:14:28]'\n"
                                     << "  echo \"NodeName=n1 NodeAddr=127.0.0.1 Port=41000 State=$state\" ;;\n"
                                     << "*state=drain*) echo begin >>$log; cat <" << gate_ << " >/dev/null; echo drain >>$log ;;\n"
                                     << "*state=resume*) echo resume >>$log ;;\n"
                                     << "esac\n";
    ::chmod((bin + "/scontrol").c_str(), 0755);
    path_before_ = ::getenv("PATH");
    ::setenv("PATH", (bin + ":" + path_before_).c_str(), 1);
    context_.slurm = Slurm("", false);
    NodeRecord self;
    self.name = "n1";
    self.address = "127.0.0.1";
    self.port = 41000;
    context_.mesh.open(make_address_book({self}, static_cast<int>(::getpid() % 20000)), "/nowhere");
  }
  ~ClearTest() override { ::setenv("PATH", path_before_.c_str(), 1); }

  // Runs the loop until it is so.
  void until(const std::function<bool()>& holds) {
    Timer poll(loop_), deadline(loop_);
    poll.repeat(milliseconds(5), [&] {
      if (holds()) loop_.stop();
    });
    bool late = false;
    deadline.start(milliseconds(20000), [&] {
      late = true;
      loop_.stop();
    });
    loop_.io().restart();
    loop_.run();
    ASSERT_FALSE(late) << "waited in vain";
  }
  void open_gate() { std::ofstream(gate_) << "go\n"; }
  std::string log() const {
    std::ifstream in(log_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool drained(const std::string& key) const { return desk_.open().contains(key) && desk_.open().at(key).drained; }
  // As the agent does it, with a check that passes.
  void undrain() {
    loop_.work(Loop::Pool::slurm, [this]() -> Loop::Action {
      const std::string done = context_.slurm.undrain("n1");
      return [this] {
        desk_.end_clear(true);
        cleared_ = true;
      };
    });
  }

  std::string log_, gate_, path_before_;
  bool cleared_ = false;
};

TEST_F(ClearTest, ComesAfterADrainUnderWayAndBeforeOneThatIsNew) {
  desk_.report("k", report("79", Severity::fatal, Action::drain));
  until([&] { return log() == "begin\n"; });
  bool ready = false;
  EXPECT_TRUE(desk_.begin_clear([&] {
    ready = true;
    undrain();
  }));
  EXPECT_FALSE(ready);
  EXPECT_FALSE(desk_.begin_clear([] {})) << "one at a time";
  desk_.report("k2", report("48", Severity::fatal, Action::drain));
  open_gate();
  until([&] { return cleared_; });
  EXPECT_TRUE(ready);
  EXPECT_FALSE(desk_.is_open("k"));
  EXPECT_TRUE(desk_.is_open("k2")) << "no check has seen that it is repaired";
  until([&] { return log() == "begin\ndrain\nresume\nbegin\n"; });
  open_gate();
  until([&] { return drained("k2"); });
  EXPECT_EQ(log(), "begin\ndrain\nresume\nbegin\ndrain\n");
}

TEST_F(ClearTest, ThatFailsLeavesEverythingAsItWas) {
  desk_.report("k", report("79", Severity::fatal, Action::drain));
  until([&] { return log() == "begin\n"; });
  EXPECT_TRUE(desk_.begin_clear([&] { desk_.end_clear(false); }));
  open_gate();
  until([&] { return drained("k"); });
  EXPECT_TRUE(desk_.is_open("k"));
  EXPECT_EQ(log(), "begin\ndrain\n");
  EXPECT_TRUE(desk_.begin_clear([&] { undrain(); }));
  until([&] { return cleared_; });
  EXPECT_FALSE(desk_.is_open("k"));
}

}  // namespace
}  // namespace mm::agent
