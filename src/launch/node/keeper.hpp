// SPDX-License-Identifier: MIT
// Keeper: what a node has instead of a machine when its cell is an ordinary process: that process, its streams, and a
// place in the launcher's machine, which the process takes when its program first calls MPI (member.cpp).
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/node/streams.hpp"
#include "launch/program_run.hpp"
#include "launch/start/child.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::node {

class Keeper {
 public:
  /// What it is given outlives it.
  Keeper(wire::Connection& connection, NodeSink& sink, std::uint32_t cell, wire::Welcome welcome);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Starts the cell's program, and returns when the process has ended. Throws Error if it cannot be executed.
  wire::Finished run(const RunText& text, const std::vector<std::string>& files);

  /// A message of the coordinator. False: it is not for the process. Any thread.
  bool pass_on(wire::MessageType type, std::span<const std::byte> body);
  /// Sends the process, which is no member of the machine, a signal that it handles. False: it does not.
  /// Nothing: it has ended. Any thread.
  std::optional<bool> pass_signal(int signal);
  /// Ends the process, soon by force. Any thread.
  void end() noexcept;
  /// At once, with all of its tree: the node is about to end itself. Any thread.
  void kill() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Member : std::uint8_t { none, joined, left, lost };

  void start(const RunText& text, const std::vector<std::string>& files, start::Guard& guard);
  void wait();
  void take_output(start::Child::Stream stream);
  void welcome_member();
  void take_messages();
  void take_message(wire::MessageType type, std::span<const std::byte> body);
  bool tell_member(wire::MessageType type, std::span<const std::byte> body);
  bool send_unsent();
  void lose_member();
  void end_by_and_by();
  void look_for_stop();
  [[nodiscard]] std::string why_it_ended(int status) const;
  void note_file(const std::string& path);
  [[nodiscard]] std::string changed_file(int status) const;

  wire::Connection& connection_;
  NodeSink& sink_;
  const std::uint32_t cell_;
  wire::Welcome welcome_;
  os::EventFd wake_;
  std::atomic<bool> ends_{false};
  os::UniqueFd listener_;
  std::atomic<pid_t> root_{-1};  // of the process's tree, while it runs; -1: it does not yet; 0: it has ended
  std::mutex mutex_;             // of the socket, for who writes there
  os::UniqueFd socket_;
  wire::Bytes unsent_;  // that it has not taken yet

  // run()'s thread
  std::optional<start::Child> child_;
  wire::Bytes unread_;
  Member member_ = Member::none;
  long member_process_ = 0;
  std::map<std::string, struct stat> files_;  ///< Of the program and its libraries, as they were at its start.
  int stopped_looks_ = 0;                     ///< In a row, at which it was stopped.
  Clock::time_point next_look_{};
  std::optional<Clock::time_point> patience_;  ///< For the process's end, when the member is lost.
  std::optional<Clock::time_point> killing_;
};

}  // namespace aplib::launch::node
