// SPDX-License-Identifier: MIT
// The coordinator with nodes that the test makes, which do what real ones should not.
#include "launch/coordinator/coordinator.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "kernel/overseer.hpp"
#include "launch/start/starter.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/files.hpp"
#include "launch/wire/run_messages.hpp"
#include "process.hpp"

namespace aplib::launch {
namespace {

using namespace std::chrono_literals;

/// A node that answers as a real one would, unless the test says otherwise.
class FakeNode {
 public:
  explicit FakeNode(std::uint32_t process) : process_(process) {
    hello_.version = version;
    hello_.process = process;
    hello_.host_id = "computer";
    hello_.host = "computer";
    hello_.local = "127.0.0.1";
    finished.cell_status = {0};
  }
  ~FakeNode() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  void call(const coordinator::Coordinator::Invitation& invitation) {
    wire::ConnectionSettings settings{.key = *comm::JobKey::from_hex(invitation.key)};
    settings.self = process_;
    wire::Connecting connecting;
    connecting.endpoints = invitation.endpoints;
    connecting.made = [this](std::shared_ptr<wire::Connection> connection) { begin(std::move(connection)); };
    connecting.failed = [this](const std::string& why, bool) { note("failed: " + why); };
    wire::connect_to_launcher(loop_, settings, std::move(connecting));
    thread_ = std::thread([this] { loop_.run(); });
  }

  /// Speaks over pipes. Returns the launcher's ends. `kept`: a keeper has started it, so it does not
  /// greet; and it is told things before it says who it is, which it never does.
  os::Ends speak(const comm::JobKey& key, bool kept = false) {
    os::Pipe there = os::Pipe::make();
    os::Pipe back = os::Pipe::make();
    const auto mine = std::make_shared<os::Ends>(os::Ends{std::move(there.reader), std::move(back.writer)});
    wire::ConnectionSettings settings{.key = key};
    settings.self = process_;
    loop_.post([this, settings, mine, kept] {
      wire::ConnectionEvents events;
      if (kept) {
        events.message = [this](wire::MessageType type, std::span<const std::byte> body) { take(type, body); };
        connection_ =
            wire::join_pair(loop_, settings, std::move(*mine), comm::Introduction::launcher, std::move(events));
        return;
      }
      events.opened = [this](std::uint32_t) { begin(std::move(greeted_)); };
      events.closed = [this](wire::ConnectionEnd, const std::string& why) { note("failed: " + why); };
      greeted_ =
          wire::connect_pair(loop_, settings, std::move(*mine), comm::Introduction::launcher, "", std::move(events));
    });
    thread_ = std::thread([this] { loop_.run(); });
    return {std::move(back.reader), std::move(there.writer)};
  }

  /// Waits until the node was told this.
  void wait_for(const std::string& what) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return told_.contains(what); });
  }
  [[nodiscard]] bool was_told(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return told_.contains(what);
  }

  /// All cells of the node have ended. It reports when those of the others have ended too.
  void end_cells(wire::Connection& connection) {
    ByteWriter note = begin_note(NoteKind::all_ended);
    note.number(std::uint64_t{0});
    connection.send(wire::Note{true, note.bytes()});
  }

  /// Called instead of the usual answer, on the node's thread.
  std::map<wire::MessageType, std::function<void(wire::Connection&)>> instead;
  std::function<wire::Bytes(const wire::Ask&)> answer;
  wire::Hello hello_;
  wire::Finished finished;
  wire::Prepare prepare;  ///< As it was told, once it was.

 private:
  void begin(std::shared_ptr<wire::Connection> connection) {
    connection_ = std::move(connection);
    connection_->trust();
    wire::ConnectionEvents events;
    events.message = [this](wire::MessageType type, std::span<const std::byte> body) { take(type, body); };
    events.closed = [this](wire::ConnectionEnd, const std::string&) { note("closed"); };
    connection_->listen(std::move(events));
    connection_->send(hello_);
  }
  void take(wire::MessageType type, std::span<const std::byte> body) {
    // Before the answer, because the coordinator may return upon it.
    if (type == wire::MessageType::prepare) prepare = *wire::decode<wire::Prepare>(body);
    if (type == wire::MessageType::go) note("go");
    if (type == wire::MessageType::stop) note("stop");
    if (type == wire::MessageType::refused) note("refused: " + wire::decode<wire::Refused>(body)->text);
    if (type == wire::MessageType::leave) note("leave");
    if (type == wire::MessageType::written) note("written");
    if (type == wire::MessageType::input) note("input");
    if (const auto other = instead.find(type); other != instead.end()) {
      other->second(*connection_);
    } else if (type == wire::MessageType::ask && answer) {
      const auto ask = wire::decode<wire::Ask>(body);
      connection_->send(wire::Answer{ask->question, answer(*ask)});
    } else if (type == wire::MessageType::prepare) {
      connection_->send(wire::Prepared{"tcp=127.0.0.1:1", {}, ""});
    } else if (type == wire::MessageType::plan) {
      connection_->send(wire::Ready{});
    } else if (type == wire::MessageType::go) {
      end_cells(*connection_);
    } else if (type == wire::MessageType::note &&
               wire::decode<wire::Note>(body)->bytes.front() == std::byte(NoteKind::over)) {
      connection_->send(finished);
    } else if (type == wire::MessageType::stop) {
      connection_->send(finished);
    } else if (type == wire::MessageType::refused || type == wire::MessageType::leave) {
      connection_->close();
    }
  }
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    told_[what] = true;
    changed_.notify_all();
  }

  const std::uint32_t process_;
  wire::EventLoop loop_;
  std::shared_ptr<wire::Connection> greeted_;
  std::shared_ptr<wire::Connection> connection_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, bool> told_;
};

/// A starter that starts nothing. The test says what becomes of the processes.
class NoStarter : public start::Starter {
 public:
  void start(std::vector<start::NodeStart> /*nodes*/, start::StartEvents its_events) override {
    events = std::move(its_events);
    if (when_started) when_started();
  }
  void arrived(std::uint32_t /*process*/) override {}

  start::StartEvents events;
  std::function<void()> when_started;
};

/// A machine of two processes, a and b, with a cell each.
class TwoNodes : public ::testing::Test {
 protected:
  TwoNodes() {
    for (const char* name : {"a", "b"}) {
      cluster::ClusterHost host;
      host.name = name;
      host.address = "127.0.0.1";
      host.launch = cluster::LaunchKind::pmix;  // these call
      host.cells = 1;
      job_.cluster.hosts.push_back(host);
    }
    job_.cluster.file = "test.toml";
    job_.cluster.grid = Grid{2, 1};
    job_.files = wire::describe_files({folder_.write("prog", "program")});
    job_.text.programs = {{.name = "prog"}};
    EXPECT_EQ(::pipe2(out_, O_CLOEXEC), 0);
    output_ = std::make_unique<Output>(OutputPlan{}, out_[1], out_[1]);
  }
  ~TwoNodes() override {
    ::close(out_[0]);
    ::close(out_[1]);
  }

  coordinator::JobResult run() {
    job_.reach = coordinator::find_reach(job_.cluster.hosts);
    coordinator_ = std::make_unique<coordinator::Coordinator>(
        job_, *output_, std::move(starter_),
        coordinator::Coordinator::Actions{.say = [this](const std::string& line) { said_.push_back(line); }});
    coordinator_->listening = [this](const coordinator::Coordinator::Invitation& invitation) {
      a_.call(invitation);
      b_.call(invitation);
      for (const auto& more : more_) more->call(invitation);
    };
    return coordinator_->run();
  }

  test::Folder folder_;
  coordinator::Job job_;
  int out_[2] = {-1, -1};
  std::unique_ptr<Output> output_;
  std::unique_ptr<start::Starter> starter_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;
  FakeNode a_{0};
  FakeNode b_{1};
  std::vector<std::unique_ptr<FakeNode>> more_;
  std::vector<std::string> said_;
};

using Lines = std::vector<std::string>;

TEST_F(TwoNodes, RunWhenBothAreReadyAndLeaveWhenBothHaveFinished) {
  b_.finished.cell_status = {3};
  b_.finished.status = 3;
  const coordinator::JobResult result = run();
  EXPECT_EQ(said_, Lines{});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.cell_status, (std::vector<int>{0, 3}));
  a_.wait_for("leave");
  b_.wait_for("leave");
}

TEST_F(TwoNodes, AnotherVersionIsRefusedInWords) {
  b_.hello_.version = "9.9.9";
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 2);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_TRUE(said_[0].starts_with(
      fmt::format("b has APlib 9.9.9 (control protocol {}), and this is APlib ", wire::control_version)))
      << said_[0];
  b_.wait_for("refused: " + said_[0]);
  EXPECT_FALSE(a_.was_told("go"));
}

// As Debian 12 and 13: what both allocate may lie elsewhere.
TEST_F(TwoNodes, HeapsThatAreLaidOutOtherwiseAreTold) {
  a_.hello_.heap_layout = 1074;
  b_.hello_.heap_layout = 1083;
  EXPECT_EQ(run().status, 0);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("place the memory that programs ask for differently (Boost 1."), std::string::npos)
      << said_[0];
}

TEST_F(TwoNodes, AnotherProtocolIsRefusedInWords) {
  b_.hello_.control = 77;
  EXPECT_EQ(run().status, 2);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("control protocol 77"), std::string::npos) << said_[0];
}

TEST_F(TwoNodes, OneThatCannotCallsTheStartOff) {
  b_.instead[wire::MessageType::plan] = [](wire::Connection& connection) {
    connection.send(wire::Cannot{"no memory for 7 cells"});
  };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(said_, Lines{"b is not ready: no memory for 7 cells; nothing was started"});
  EXPECT_EQ(result.lost, std::vector<std::uint32_t>{1});
  a_.wait_for("refused: " + said_[0]);
  EXPECT_FALSE(a_.was_told("go"));
}

TEST_F(TwoNodes, WordsOfANodeStayWithinOurLine) {
  b_.instead[wire::MessageType::plan] = [](wire::Connection& connection) {
    connection.send(wire::Warning{"careful\naprun: all is well"});
    connection.send(wire::Cannot{"no memory\naprun: \x1b[2Jall is well"});
  };
  EXPECT_EQ(run().status, 2);
  EXPECT_EQ(said_, (Lines{"careful\\naprun: all is well",
                          "b is not ready: no memory\\naprun: \\x1b[2Jall is well; nothing was started"}));
}

TEST_F(TwoNodes, OneThatGoesCallsTheStartOff) {
  b_.instead[wire::MessageType::prepare] = [](wire::Connection& connection) { connection.close(); };
  EXPECT_EQ(run().status, 2);
  EXPECT_EQ(said_, Lines{"b is not ready: its connection was closed; nothing was started"});
}

TEST_F(TwoNodes, OneThatGoesWhileTheyRunEndsTheRun) {
  a_.instead[wire::MessageType::go] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::go] = [](wire::Connection& connection) { connection.close(); };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, static_cast<int>(ExitStatus::peer_lost));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_TRUE(said_[0].starts_with("b (cell 1) is lost: its connection was closed")) << said_[0];
  EXPECT_EQ(result.lost, std::vector<std::uint32_t>{1});
  a_.wait_for("stop");
}

TEST_F(TwoNodes, OneThatReportsBeforeTheEndEndsTheRun) {
  a_.instead[wire::MessageType::go] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::go] = [](wire::Connection& connection) {
    connection.send(wire::Finished{143, "stopped by signal 15", {0}});
  };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(said_, Lines{"b (cell 1) is lost: stopped by signal 15; the machine stops"});
  EXPECT_EQ(result.lost, std::vector<std::uint32_t>{1});
  a_.wait_for("stop");
  b_.wait_for("leave");
}

TEST_F(TwoNodes, OneThatIsToldToEndBeforeTheStartCallsItOff) {
  b_.instead[wire::MessageType::plan] = [](wire::Connection& connection) { connection.send(wire::ToldToEnd{SIGTERM}); };
  EXPECT_EQ(run().status, 143);
  EXPECT_EQ(said_, Lines{"b is not ready: it was told to end by signal 15 (SIGTERM); nothing was started"});
  EXPECT_FALSE(a_.was_told("go"));
}

TEST_F(TwoNodes, OneThatTalksNonsenseIsLost) {
  a_.instead[wire::MessageType::go] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::go] = [](wire::Connection& connection) { connection.send(wire::Go{}); };
  EXPECT_EQ(run().status, static_cast<int>(ExitStatus::peer_lost));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("what it says is not this version's control protocol"), std::string::npos) << said_[0];
}

/// Of a cell, by a node.
struct Word {
  const char* name;
  void (*send)(wire::Connection& connection, std::uint32_t cell);

  friend void PrintTo(const Word& word, std::ostream* out) { *out << word.name; }
};

class WordsOfCells : public TwoNodes, public ::testing::WithParamInterface<std::tuple<Word, std::uint32_t>> {};

// Node b has cell 1 alone.
TEST_P(WordsOfCells, OneThatSpeaksOfACellOfAnotherIsLost) {
  a_.instead[wire::MessageType::go] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::go] = [](wire::Connection& connection) {
    const auto& [word, cell] = GetParam();
    word.send(connection, cell);
    // Who believes that answers this.
    connection.send(wire::OutputPiece{1, false, std::as_bytes(std::span("x"))});
  };
  b_.instead[wire::MessageType::written] = [this](wire::Connection&) { coordinator_->stop(9, "it was believed"); };
  EXPECT_EQ(run().status, static_cast<int>(ExitStatus::peer_lost));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("what it says is not this version's control protocol"), std::string::npos) << said_[0];
}

INSTANTIATE_TEST_SUITE_P(OfOthers, WordsOfCells,
                         ::testing::Combine(::testing::Values(Word{"output",
                                                                   [](wire::Connection& connection,
                                                                      std::uint32_t cell) {
                                                                     connection.send(wire::OutputPiece{
                                                                         cell, false, std::as_bytes(std::span("x"))});
                                                                   }},
                                                              Word{
                                                                  "flush",
                                                                  [](wire::Connection& connection, std::uint32_t cell) {
                                                                    connection.send(wire::Flush{cell, false});
                                                                  }},
                                                              Word{
                                                                  "ended",
                                                                  [](wire::Connection& connection, std::uint32_t cell) {
                                                                    connection.send(wire::EndedCell{cell, 0});
                                                                  }},
                                                              Word{
                                                                  "input",
                                                                  [](wire::Connection& connection, std::uint32_t cell) {
                                                                    connection.send(wire::WantInput{cell, 1});
                                                                  }}),
                                            ::testing::Values(0U, 2U, Output::host)));

TEST_F(TwoNodes, AFileThatWasNotOfferedIsNotSent) {
  b_.instead[wire::MessageType::prepare] = [](wire::Connection& connection) {
    connection.send(wire::WantFiles{wire::own_transfers, {"/etc/passwd"}});
  };
  EXPECT_EQ(run().status, 2);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("what it says is not this version's control protocol"), std::string::npos) << said_[0];
}

TEST_F(TwoNodes, FilesThatDoNotComeAreTold) {
  job_.fetched.push_back({"out", folder_ / "results", {true, true}});
  for (FakeNode* node : {&a_, &b_}) {
    node->instead[wire::MessageType::note] = [node](wire::Connection& connection) {
      connection.send(node->finished);
      const wire::Bytes nonsense(100, std::byte{0xff});
      connection.send(wire::Transfer{0, nonsense});
    };
  }
  EXPECT_EQ(run().status, 1);
  EXPECT_EQ(said_.size(), 2U) << fmt::format("{}", fmt::join(said_, "\n"));
  for (const std::string& line : said_)
    EXPECT_NE(line.find("what the sender of the files says makes no sense"), std::string::npos) << line;
}

TEST_F(TwoNodes, OneThatDoesNotEndIsLeftBehind) {
  a_.instead[wire::MessageType::go] = a_.instead[wire::MessageType::stop] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::go] = [this](wire::Connection&) { coordinator_->stop(9, "enough"); };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 9);
  EXPECT_EQ(said_, Lines{"enough"});
}

TEST_F(TwoNodes, AStopBeforeTheStartCallsItOff) {
  b_.instead[wire::MessageType::prepare] = [this](wire::Connection&) { coordinator_->stop(130, "SIGINT"); };
  EXPECT_EQ(run().status, 130);
  EXPECT_EQ(said_, Lines{"SIGINT"});
  EXPECT_FALSE(a_.was_told("go"));
}

TEST_F(TwoNodes, ProcessesThatAreNotOfTheMachineDoNotDisturbIt) {
  more_.push_back(std::make_unique<FakeNode>(7));
  // a waits for the end of the uninvited node, so that it is there in time.
  a_.instead[wire::MessageType::plan] = [this](wire::Connection& connection) {
    more_[0]->wait_for("refused: there is no such process in this machine");
    connection.send(wire::Ready{});
  };
  EXPECT_EQ(run().status, 0);
  EXPECT_EQ(said_, Lines{});
}

TEST_F(TwoNodes, OutputIsPassedOnAndAcknowledged) {
  b_.instead[wire::MessageType::go] = [](wire::Connection& connection) {
    const std::string text = "one line\nand half";
    connection.send(wire::OutputPiece{1, false, std::as_bytes(std::span(text))});
  };
  b_.instead[wire::MessageType::written] = [this](wire::Connection& connection) { b_.end_cells(connection); };
  EXPECT_EQ(run().status, 0);
  output_->end_all();
  char text[100];
  const ssize_t count = ::read(out_[0], text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(count, 0))), "one line\nand half");
}

TEST_F(TwoNodes, FailuresOfCellsCountInTheOrderOfTheirEnds) {
  const auto end = [](FakeNode& node, std::uint32_t cell, int status) {
    return [&node, cell, status](wire::Connection& connection) {
      connection.send(wire::EndedCell{cell, status});
      connection.send(wire::OutputPiece{cell, false, std::as_bytes(std::span("ended"))});
      node.finished = {status, "", {status}};
      node.end_cells(connection);
    };
  };
  b_.instead[wire::MessageType::go] = end(b_, 1, 4);
  a_.instead[wire::MessageType::go] = [&](wire::Connection& connection) {
    b_.wait_for("written");  // of what came after its cell's end
    end(a_, 0, 3)(connection);
  };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 4);
  EXPECT_EQ(result.cell_status, (std::vector<int>{3, 4}));
}

constexpr const char* fault_of_a = "aplib: cell 0 task 0: SIGSEGV, bad memory access; the program ends here";
constexpr const char* fault_of_b = "aplib: cell 1 task 0: SIGSEGV, bad memory access; the program ends here";
constexpr int killed_by_fault = 128 + SIGSEGV;

/// Both processes tell of faults, a first.
class TwoFaults : public TwoNodes {
 protected:
  TwoFaults() {
    auto starter = std::make_unique<NoStarter>();
    process_ = &starter->events;
    starter_ = std::move(starter);
    for (FakeNode* node : {&a_, &b_}) node->instead[wire::MessageType::go] = [](wire::Connection&) {};
  }
  void tell_of_faults() const {
    process_->said(0, fault_of_a);
    process_->said(1, fault_of_b);
    process_->said(1, "and more");
  }
  const std::string said_of_a_ = std::string("a: ") + fault_of_a;
  const std::string loss_of_a_ =
      "a (cell 0) is lost: its process was killed by signal 11 (Segmentation fault); the machine stops";
  const start::StartEvents* process_ = nullptr;
};

TEST_F(TwoFaults, AtOnceTheFirstIsTold) {
  a_.instead[wire::MessageType::go] = [this](wire::Connection&) {
    tell_of_faults();
    process_->ended(1, 128 + SIGABRT, "");  // a dumps its core
    process_->ended(0, killed_by_fault, "");
  };
  EXPECT_EQ(run().status, killed_by_fault);
  EXPECT_EQ(said_, (Lines{said_of_a_, loss_of_a_}));
}

TEST_F(TwoFaults, AtDebugLevelAllIsTold) {
  job_.cluster.options.set("log-level", "debug");
  a_.instead[wire::MessageType::go] = [this](wire::Connection&) {
    tell_of_faults();
    process_->ended(1, killed_by_fault, "");
    process_->ended(0, killed_by_fault, "");
  };
  EXPECT_EQ(run().status, killed_by_fault);
  EXPECT_EQ(said_, (Lines{said_of_a_, loss_of_a_,
                          "debug: b (cell 1) is lost: its process was killed by signal 11 (Segmentation fault); the "
                          "machine stops",
                          std::string("debug: b: ") + fault_of_b, "debug: b: and more"}));
}

TEST_F(TwoFaults, AFailureBehindTheFaultOfAnotherIsItsConsequence) {
  b_.instead[wire::MessageType::go] = [this](wire::Connection& connection) {
    process_->said(0, fault_of_a);
    process_->said(1, "b goes on");
    ByteWriter note = begin_note(NoteKind::failed);
    note.number(std::uint32_t{1});
    note.text("cell 1 task 0: l_arecv: cell 0 has ended");
    connection.send(wire::Note{true, note.bytes()});
    connection.send(wire::OutputPiece{1, false, std::as_bytes(std::span("x"))});
  };
  b_.instead[wire::MessageType::written] = [this](wire::Connection&) { process_->ended(0, killed_by_fault, ""); };
  EXPECT_EQ(run().status, killed_by_fault);
  EXPECT_EQ(said_, (Lines{said_of_a_, loss_of_a_, "b: b goes on"}));
}

TEST_F(TwoFaults, WhatOnlyLooksLikeAFaultHidesNoOther) {
  a_.instead[wire::MessageType::go] = [this](wire::Connection&) {
    tell_of_faults();
    process_->ended(1, killed_by_fault, "");
  };
  EXPECT_EQ(run().status, killed_by_fault);
  EXPECT_EQ(said_, (Lines{said_of_a_,
                          "b (cell 1) is lost: its process was killed by signal 11 (Segmentation fault); the machine "
                          "stops",
                          std::string("b: ") + fault_of_b, "b: and more"}));
}

/// They speak by their standard streams.
class ByStreams : public TwoNodes {
 protected:
  ByStreams() {
    for (cluster::ClusterHost& host : job_.cluster.hosts) {
      host.address.clear();
      host.launch = cluster::LaunchKind::ssh;
    }
  }
  coordinator::JobResult run_by_streams() {
    auto starter = std::make_unique<NoStarter>();
    starter->when_started = [this, events = &starter->events] {
      events->greets({.process = 0, .ends = a_.speak(*key_)});
      events->greets(
          {.process = 1, .ends = b_.speak(wrong_key_ ? comm::JobKey::make() : *key_, b_is_kept_), .kept = b_is_kept_});
    };
    job_.reach = coordinator::find_reach(job_.cluster.hosts);
    coordinator_ = std::make_unique<coordinator::Coordinator>(
        job_, *output_, std::move(starter),
        coordinator::Coordinator::Actions{.say = [this](const std::string& line) { said_.push_back(line); }});
    coordinator_->listening = [this](const coordinator::Coordinator::Invitation& invitation) {
      EXPECT_TRUE(invitation.endpoints.empty());
      key_ = comm::JobKey::from_hex(invitation.key);
    };
    return coordinator_->run();
  }

  std::optional<comm::JobKey> key_;
  bool wrong_key_ = false;
  bool b_is_kept_ = false;
};

// Its keeper has foretold what it will say, so it is told what to prepare at once.
TEST_F(ByStreams, SignalsBeforeAForetoldNodeHasComeEndTheStart) {
  for (cluster::ClusterHost& host : job_.cluster.hosts) host.process = true;
  job_.foretold = {a_.hello_, b_.hello_};
  b_is_kept_ = true;
  b_.answer = [](const wire::Ask&) { return wire::signal_answer(true); };
  b_.instead[wire::MessageType::prepare] = [this](wire::Connection&) {
    coordinator_->refused_signal = [this](int signal) { coordinator_->stop(128 + signal, "refused"); };
    coordinator_->pass_signal(SIGTERM);
  };
  EXPECT_EQ(run_by_streams().status, 128 + SIGTERM);
  EXPECT_EQ(said_, Lines{"refused"});
}

TEST_F(ByStreams, NobodyListensAndAddressesAreThoseOfSsh) {
  job_.cluster.hosts[1].launch = cluster::LaunchKind::local;
  a_.hello_.local = "10.0.0.7";
  b_.hello_.local = "10.0.0.9";  // what it has inherited says nothing
  EXPECT_EQ(run_by_streams().status, 0);
  EXPECT_EQ(said_, Lines{});
  EXPECT_EQ(a_.prepare.address, "10.0.0.7");
  EXPECT_EQ(b_.prepare.address, "");
  EXPECT_EQ(b_.prepare.others, Lines{"10.0.0.7"});
}

TEST_F(ByStreams, TheAddressOfTheFileWins) {
  job_.cluster.hosts[0].address = "10.0.0.1";
  a_.hello_.local = b_.hello_.local = "10.0.0.7";
  EXPECT_EQ(run_by_streams().status, 0);
  EXPECT_EQ(a_.prepare.address, "10.0.0.1");
  EXPECT_EQ(b_.prepare.address, "10.0.0.7");
}

TEST_F(ByStreams, OnOneComputerLoopbackWillDo) {
  EXPECT_EQ(run_by_streams().status, 0);
  EXPECT_EQ(a_.prepare.others, Lines{"127.0.0.1"});
}

TEST_F(ByStreams, ComputersThatNobodyKnowsAnAddressOfAreNoMachine) {
  b_.hello_.host_id = "another computer";
  EXPECT_EQ(run_by_streams().status, 2);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_TRUE(said_[0].starts_with("the addresses by which the hosts reach each other are not known")) << said_[0];
}

TEST_F(ByStreams, OneWithoutTheKeyCallsTheStartOff) {
  wrong_key_ = true;
  EXPECT_EQ(run_by_streams().status, 2);
  EXPECT_EQ(said_, Lines{"b is not ready: what speaks there is not this machine's aprun: does not know the job's key; "
                         "nothing was started"});
}

TEST_F(TwoNodes, ADryRunSaysWhatWouldBe) {
  job_.dry_run = true;
  for (FakeNode* node : {&a_, &b_})
    node->instead[wire::MessageType::measure] = [](wire::Connection& connection) {
      connection.send(wire::SpeedIs{0, 1});
    };
  const coordinator::JobResult result = run();
  EXPECT_EQ(result.status, 0);
  ASSERT_EQ(result.plan.size(), 2U);
  EXPECT_EQ(result.planned_cells, CellMap::consecutive(std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(result.plan[1].address, "127.0.0.1");
  EXPECT_FALSE(a_.was_told("go"));
}

TEST_F(TwoNodes, TheStateCanBeAsked) {
  wire::MachineStatus status;
  std::vector<std::optional<wire::Bytes>> heard;
  for (FakeNode* node : {&a_, &b_}) {
    node->answer = [](const wire::Ask& ask) {
      EXPECT_EQ(ask.what, wire::node_state_question);
      wire::NodeState is;
      is.module = "tcp";
      is.frames_sent = 12;
      return wire::encode(is);
    };
    node->instead[wire::MessageType::go] = [](wire::Connection&) {};
  }
  const std::function<void()> ask = [&] {
    coordinator_->ask_nodes(wire::node_state_question, [&](const auto& answers) {
      if (!answers[0] || !answers[1]) return ask();  // one was late
      status = coordinator_->status();
      heard = answers;
      coordinator_->stop(0, "asked");
    });
  };
  b_.instead[wire::MessageType::go] = [&](wire::Connection&) { coordinator_->post(ask); };
  EXPECT_EQ(run().status, 0);
  EXPECT_EQ(status.state, "running");
  EXPECT_EQ(status.grid, (Grid{2, 1}));
  ASSERT_EQ(status.processes.size(), 2U);
  EXPECT_EQ(status.processes[1].name, "b");
  EXPECT_EQ(status.cells, CellMap::consecutive(std::vector<std::uint32_t>{1, 1}));
  ASSERT_EQ(heard.size(), 2U);
  ASSERT_TRUE(heard[1]);
  EXPECT_EQ(wire::decode<wire::NodeState>(*heard[1])->frames_sent, 12U);
}

TEST_F(TwoNodes, OneThatDoesNotAnswerHoldsUpNobody) {
  std::vector<std::optional<wire::Bytes>> heard;
  a_.answer = [](const wire::Ask&) { return wire::Bytes(1, std::byte{7}); };
  a_.instead[wire::MessageType::go] = [](wire::Connection&) {};
  b_.instead[wire::MessageType::ask] = [](wire::Connection&) {};
  const std::function<void()> ask = [&] {
    coordinator_->ask_nodes("anything", [&](const auto& answers) {
      if (!answers[0]) return ask();  // it was late
      heard = answers;
      coordinator_->stop(0, "asked");
    });
  };
  b_.instead[wire::MessageType::go] = [&](wire::Connection&) { coordinator_->post(ask); };
  EXPECT_EQ(run().status, 0);
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0], wire::Bytes(1, std::byte{7}));
  EXPECT_EQ(heard[1], std::nullopt);
}

}  // namespace
}  // namespace aplib::launch
