// SPDX-License-Identifier: MIT
// A process of a server, as its client has it: started, spoken to, ended.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "aplib/error.hpp"
#include "calls/interface.hpp"
#include "gridrpc/arguments.hpp"
#include "gridrpc/channel.hpp"
#include "gridrpc/configuration.hpp"

namespace aplib::gridrpc {

/// What a function of the C interface returns, and a text for people.
class Failure : public Error {
 public:
  Failure(int code, const std::string& text) : Error(Errc::failed, text), code_(code) {}
  [[nodiscard]] int number() const noexcept { return code_; }  ///< GRPC_...

 private:
  int code_;
};

/// "server NAME (PROGRAM)", for messages.
[[nodiscard]] std::string subject_of(const ServerEntry& entry);

/// The process ended before it had all arguments: the function has not begun.
class NotBegun : public ChannelClosed {
 public:
  NotBegun() : ChannelClosed("the connection ended") {}
};

/// One thread at a time, but for kill().
class ServerProcess {
 public:
  /// Starts one, and waits for its greeting. `number`: in a pool, on which of its hosts, in turn. Throws Failure:
  /// GRPC_SERVER_NOT_FOUND, GRPC_RPC_REFUSED, GRPC_COMMUNICATION_FAILED, GRPC_OTHER_ERROR_CODE.
  ServerProcess(const ServerEntry& entry, unsigned number);
  /// Ends it: it may take a second to end by itself.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// What it offers, as an IDL text.
  [[nodiscard]] const std::string& idl() const noexcept { return idl_; }

  /// Calls function `number` of the interface. Throws Failure, NotBegun.
  void call(const Function& function, std::uint32_t number, std::span<void* const> addresses,
            std::optional<std::chrono::nanoseconds> timeout);

  /// Kills it with all that it has started. Any thread.
  void kill() noexcept;
  /// It can take no further call.
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }

 private:
  void start(unsigned number);
  void greet();
  void exchange(const Function& function, std::uint32_t number, std::span<void* const> addresses);
  /// Ends it, and says how it ended: "it was killed by signal 9 (Killed)".
  std::string end(std::chrono::milliseconds patience);
  [[nodiscard]] std::string subject() const;

  const ServerEntry entry_;
  std::string idl_;
  std::unique_ptr<Channel> channel_;
  bool shares_memory_ = false;
  Arena arena_;
  Extents extents_;
  Parcel parcel_;
  std::atomic<bool> broken_ = false;
  std::mutex mutex_;    // guards process_
  pid_t process_ = -1;  // -1: it has been waited for
};

}  // namespace aplib::gridrpc
