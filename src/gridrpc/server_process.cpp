// SPDX-License-Identifier: MIT
#include "gridrpc/server_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/gridrpc.h"
#include "base/os/spawn.hpp"
#include "base/os/thread.hpp"
#include "calls/idl.hpp"

extern char** environ;  // NOLINT

namespace aplib::gridrpc {
namespace {

constexpr std::chrono::milliseconds patience_at_end{1000};
constexpr std::uint64_t failure_text_max = std::uint64_t{64} << 10;
constexpr std::uint64_t arena_unit = std::uint64_t{2} << 20;

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("it was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("it ended with status {}", WEXITSTATUS(status));
}

/// In the environment of a server: how many have started each other. One that starts itself, because it is a client
/// that was taken for a server, goes no further. Not an option of ours, which aprun would not know.
constexpr const char* depth_variable = "_APLIB_GRIDRPC_DEPTH";
constexpr int depth_max = 8;

int checked_depth(const std::string& subject) {
  const char* const text = std::getenv(depth_variable);
  const int depth = text != nullptr ? std::atoi(text) : 0;
  if (depth >= 0 && depth < depth_max) return depth;
  throw Failure(
      GRPC_RPC_REFUSED,
      fmt::format("{}: this program was started as a server itself, as the {}th in a row: does one name itself "
                  "as a server?",
                  subject, depth_max));
}

/// The environment, with its null, but for these variables.
std::vector<char*> environment_without(std::initializer_list<std::string_view> names) {
  std::vector<char*> kept;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text(*each);
    if (std::ranges::find(names, text.substr(0, text.find('='))) == names.end()) kept.push_back(*each);
  }
  kept.push_back(nullptr);
  return kept;
}

/// Whether the process has ended by then.
bool ends_within(pid_t process, std::chrono::milliseconds patience) {
  const os::UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  pollfd one{.fd = handle.get(), .events = POLLIN, .revents = 0};
  if (handle) return ::poll(&one, 1, static_cast<int>(patience.count())) > 0;
  siginfo_t about{};
  for (const auto until = Channel::Clock::now() + patience; Channel::Clock::now() < until;) {
    about.si_pid = 0;
    if (::waitid(P_PID, static_cast<id_t>(process), &about, WEXITED | WNOHANG | WNOWAIT) != 0 || about.si_pid != 0)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

std::string subject_of(const ServerEntry& entry) {
  const std::string pool = entry.pool.empty() ? "" : fmt::format(" in pool {}", entry.pool);
  return fmt::format("server {} ({}{})", entry.name, entry.program, pool);
}

ServerProcess::ServerProcess(const ServerEntry& entry, unsigned number) : entry_(entry) {
  start(number);
  try {
    greet();
  } catch (const ChannelTimedOut&) {
    kill();
    static_cast<void>(end({}));
    throw Failure(GRPC_RPC_REFUSED,
                  fmt::format("{}: it said nothing within {} s, as servers do: is it a program that apgen has written "
                              "the main part of? A slow one needs start-timeout",
                              subject(), std::chrono::duration<double>(entry_.start_timeout).count()));
  } catch (const ChannelClosed&) {
    throw Failure(GRPC_COMMUNICATION_FAILED,
                  fmt::format("{}: {} before it had said what it offers: its standard error may say why, and {} "
                              "--interface may show more",
                              subject(), end(patience_at_end), entry_.program));
  } catch (...) {
    kill();
    static_cast<void>(end({}));
    throw;
  }
}

ServerProcess::~ServerProcess() { static_cast<void>(end(broken_ ? std::chrono::milliseconds{} : patience_at_end)); }

std::string ServerProcess::subject() const { return subject_of(entry_); }

void ServerProcess::start(unsigned number) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Failure(GRPC_OTHER_ERROR_CODE,
                  fmt::format("{}: no connection can be made: {}", subject(), os::text_of(errno)));
  os::UniqueFd own(ends[0]);
  const os::UniqueFd theirs(ends[1]);
  std::vector<std::string> command{entry_.program};
  if (!entry_.pool.empty()) {
    const std::string place = entry_.host.empty() ? entry_.pool : entry_.pool + ":" + entry_.host;
    command = {"apctl", "exec", "--number", fmt::format("{}", number), place, entry_.program};
  }
  command.insert(command.end(), entry_.arguments.begin(), entry_.arguments.end());
  std::vector<char*> words;
  for (std::string& each : command) words.push_back(each.data());
  words.push_back(nullptr);
  const std::string depth = fmt::format("{}={}", depth_variable, checked_depth(subject()) + 1);
  std::vector<char*> surroundings = environment_without({depth_variable, "APLIB_GRIDRPC_PATH"});
  surroundings.insert(surroundings.end() - 1, const_cast<char*>(depth.c_str()));
  os::SpawnSettings settings;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
    ::posix_spawn_file_actions_adddup2(&settings.actions, theirs.get(), stream);
  const int error =
      ::posix_spawnp(&process_, words[0], &settings.actions, &settings.attributes, words.data(), surroundings.data());
  if (error != 0) {
    process_ = -1;
    const bool scarce = error == EAGAIN || error == ENOMEM;
    throw Failure(scarce || error == EMFILE ? GRPC_OTHER_ERROR_CODE : GRPC_SERVER_NOT_FOUND,
                  fmt::format("{}: it cannot be started: {}{}", subject(), os::process_text(error),
                              scarce                ? ", or set a lower number of `processes`"
                              : error == EMFILE     ? ""
                              : entry_.pool.empty() ? "; check the program's path"
                                                    : "; apctl must be in PATH"));
  }
  channel_ = std::make_unique<Channel>(std::move(own));
}

void ServerProcess::greet() {
  channel_->set_deadline(Channel::Clock::now() + entry_.start_timeout);
  Greeting greeting;
  channel_->receive(greeting);
  if (greeting.mark != greeting_mark)
    throw Failure(GRPC_RPC_REFUSED, fmt::format("{}: it is no server of GridRPC: name a program that apgen has written "
                                                "the main part of",
                                                subject()));
  if (greeting.version != protocol_version) {
    throw Failure(GRPC_RPC_REFUSED, fmt::format("{}: it speaks version {}, and this program {}: compile both with the "
                                                "same APlib",
                                                subject(), greeting.version, protocol_version));
  }
  if (greeting.idl_bytes > idl_bytes_max)
    throw Failure(GRPC_RPC_REFUSED, fmt::format("{}: its interface has {} bytes, which is too much: split the module",
                                                subject(), greeting.idl_bytes));
  idl_.resize(greeting.idl_bytes);
  channel_->receive(idl_.data(), idl_.size());
  channel_->set_deadline({});
  shares_memory_ = static_cast<bool>(channel_->take_descriptor());
}

void ServerProcess::call(const Function& function, std::uint32_t number, std::span<void* const> addresses,
                         std::optional<std::chrono::nanoseconds> timeout) {
  std::optional<Channel::Clock::time_point> deadline;
  if (timeout) deadline = Channel::Clock::now() + *timeout;
  channel_->set_deadline(deadline);
  try {
    exchange(function, number, addresses);
  } catch (const Failure&) {
    throw;
  } catch (const ChannelTimedOut&) {
    broken_ = true;
    kill();
    throw Failure(GRPC_TIMEOUT_NP,
                  fmt::format("{} at {}: not done within {} s, and killed: raise timeout in the file of "
                              "servers",
                              function.name, subject(), std::chrono::duration<double>(*timeout).count()));
  } catch (const NotBegun&) {
    broken_ = true;
    throw;
  } catch (const ChannelClosed& error) {
    broken_ = true;
    throw Failure(GRPC_SESSION_FAILED, fmt::format("{} at {}: {} ({}) in the call: its standard error may say why",
                                                   function.name, subject(), end(patience_at_end), error.what()));
  } catch (const Error& error) {
    const bool by_caller = error.code() == Errc::bad_argument;
    if (!by_caller) {  // what it sent makes no sense, or half of what was to be sent has left
      broken_ = true;
      kill();
    }
    throw Failure(
        by_caller ? GRPC_OTHER_ERROR_CODE : GRPC_SESSION_FAILED,
        by_caller ? std::string(error.what()) : fmt::format("{} at {}: {}", function.name, subject(), error.what()));
  }
}

void ServerProcess::exchange(const Function& function, std::uint32_t number, std::span<void* const> addresses) {
  extents_.measure(function, addresses);
  CallHead head{.function = number};
  os::UniqueFd descriptor;
  if (shares_memory_) {
    head.arena_bytes = extents_.place_in_arena(function);
    if (head.arena_bytes > arena_.bytes()) {
      const std::uint64_t bytes =
          (std::max(head.arena_bytes, 2 * arena_.bytes()) + arena_unit - 1) / arena_unit * arena_unit;
      arena_ = Arena();
      arena_ = Arena::make(bytes, descriptor);
    }
  }
  try {
    write_arguments(parcel_, function, addresses, extents_, arena_);
  } catch (...) {
    if (descriptor) arena_ = Arena();  // the server will not know it
    throw;
  }
  head.bytes = parcel_.bytes();
  bool sent = true;
  try {
    parcel_.send(*channel_, &head, sizeof head, descriptor.get());
  } catch (const ChannelClosed&) {  // it may have said why
    sent = false;
  }
  ReplyHead reply;
  try {
    channel_->receive(reply);
  } catch (const ChannelClosed&) {
    if (!sent) throw NotBegun();
    throw;
  }
  if (reply.type != ReplyHead::type_of_replies) throw Error(Errc::failed, "what came back is no answer");
  Body body(*channel_, reply.bytes);
  if (reply.status != ReplyStatus::done) {
    std::string text(static_cast<std::size_t>(std::min(reply.bytes, failure_text_max)), '\0');
    body.read(text.data(), text.size());
    body.skip();
    std::ranges::replace_if(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
    throw Failure(GRPC_SESSION_FAILED, fmt::format("{} at {}: {}", function.name, subject(), text));
  }
  std::string problem = read_results(body, function, addresses, extents_, arena_);
  if (body.left() != 0) throw Error(Errc::failed, "what came back is longer than the results");
  if (!problem.empty()) throw Failure(GRPC_SESSION_FAILED, problem);
}

void ServerProcess::kill() noexcept {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);
  ::kill(process_, SIGKILL);  // it may have left its group
  channel_->shut();           // a process that it has left may hold the other end
}

std::string ServerProcess::end(std::chrono::milliseconds patience) {
  if (process_ <= 0) return "it has ended";
  if (channel_) channel_->shut();
  if (!ends_within(process_, patience)) ::kill(process_, SIGKILL);
  ::kill(-process_, SIGKILL);  // what it has left: until it is waited for, no other group has its number
  int status = 0;
  pid_t waited = 0;
  const std::lock_guard lock(mutex_);
  do waited = ::waitpid(process_, &status, 0);
  while (waited < 0 && errno == EINTR);
  process_ = -1;
  return waited < 0 ? "it has ended" : how_it_ended(status);
}

}  // namespace aplib::gridrpc
