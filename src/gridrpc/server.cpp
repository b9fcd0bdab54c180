// SPDX-License-Identifier: MIT
// The server's side: one client at the other end of standard input, one call at a time.
#include "aplib/gridrpc_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "calls/idl.hpp"
#include "gridrpc/arguments.hpp"
#include "gridrpc/channel.hpp"

namespace aplib::gridrpc {
namespace {

constexpr int usage_status = 2;
constexpr std::size_t failure_bytes_max = 4096;

/// What grpc_server_fail_np() has said of the call that runs. A process serves one client.
struct CallFailure {
  std::mutex mutex;
  std::string text;
};

CallFailure& call_failure() {
  static CallFailure failure;
  return failure;
}

std::string take_failure() {
  const std::lock_guard lock(call_failure().mutex);
  return std::exchange(call_failure().text, {});
}

/// Takes standard input for the channel, and leaves /dev/null there, so that no function reads from it. Standard output
/// is the same socket, or another pipe, and taken as well: what functions print goes to standard error.
std::unique_ptr<Channel> take_standard_input() {
  struct stat about {};
  if (::fstat(STDIN_FILENO, &about) != 0 || (!S_ISSOCK(about.st_mode) && !S_ISFIFO(about.st_mode))) return nullptr;
  const auto take = [](int number, int replacement) {
    os::UniqueFd taken(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!taken || ::dup2(replacement, number) < 0) os::refuse_descriptor("a connection");
    ::fcntl(taken.get(), F_SETFL, ::fcntl(taken.get(), F_GETFL) & ~O_NONBLOCK);  // who has made it may have set that
    return taken;
  };
  const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) os::refuse_descriptor("a connection");
  os::UniqueFd reader = take(STDIN_FILENO, nothing.get());
  os::UniqueFd writer = take(STDOUT_FILENO, STDERR_FILENO);
  if (S_ISSOCK(about.st_mode)) return std::make_unique<Channel>(std::move(reader));
  return std::make_unique<Channel>(std::move(reader), std::move(writer));
}

class Server {
 public:
  Server(Channel& channel, const Interface& interface, const grpc_server_function_np* functions)
      : channel_(channel), functions_(functions), signatures_(functions_of(interface)) {}

  /// Until the client closes the channel.
  void serve(const std::string& idl) {
    // Before the greeting: a client tries no further process where the first could not be made ready for calls.
    os::quiet_thread("aplib-gridrpc", [reader = channel_.reader(), busy = busy_] { watch(reader, busy); }).detach();
    greet(idl);
    try {
      for (;;) {
        CallHead head;
        channel_.receive(head);
        carry_out(head);
      }
    } catch (const ChannelClosed&) {
    }
  }

 private:
  void greet(const std::string& idl) {
    Greeting greeting{.idl_bytes = static_cast<std::uint32_t>(idl.size())};
    std::array parts{iovec{.iov_base = &greeting, .iov_len = sizeof greeting},
                     iovec{.iov_base = const_cast<char*>(idl.data()), .iov_len = idl.size()}};
    // A client that gets it knows that descriptors come through.
    const os::UniqueFd proof(::memfd_create("aplib-gridrpc", MFD_CLOEXEC));
    channel_.send(parts, proof.get());
  }

  /// A client that is gone wants no results: a call that runs ends with all that it has started.
  static void watch(int reader, const std::shared_ptr<std::atomic<bool>>& busy) {
    pollfd end{.fd = reader, .events = POLLRDHUP, .revents = 0};
    while (::poll(&end, 1, -1) < 0) {
    }
    for (;;) {
      if (*busy) {
        if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
        ::_exit(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void carry_out(const CallHead& head) {
    if (head.type != CallHead::type_of_calls) throw Error(Errc::failed, "what came is no call");
    Body body(channel_, head.bytes);
    try {
      if (os::UniqueFd came = channel_.take_descriptor()) arena_ = Arena::map(came);
      run(body, head);
    } catch (const ChannelClosed&) {
      throw;
    } catch (const std::exception& error) {
      body.skip();
      fail(error.what());
    }
    call_.clear();
  }

  void run(Body& body, const CallHead& head) {
    if (head.function >= signatures_.size()) throw Error(Errc::failed, "there is no such function");
    call_.read(body, *signatures_[head.function], head.arena_bytes, arena_);
    static_cast<void>(take_failure());  // of an earlier call that has thrown as well, or of a thread that was late
    call_function(head.function);
    if (const std::string failure = take_failure(); !failure.empty()) throw Error(Errc::failed, failure);
    call_.write_results(parcel_, arena_);
    const ReplyHead reply{.status = ReplyStatus::done, .bytes = parcel_.bytes()};
    try {
      parcel_.send(channel_, &reply, sizeof reply);
    } catch (const Error& error) {  // half of it has left
      throw ChannelClosed(error.what());
    }
  }

  void call_function(std::uint32_t number) {
    struct Busy {
      explicit Busy(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
      ~Busy() { flag_ = false; }
      std::atomic<bool>& flag_;
    };
    const Busy busy(*busy_);
    functions_[number](call_.addresses());
  }

  void fail(std::string_view text) {
    text = text.substr(0, failure_bytes_max);
    ReplyHead reply{.status = ReplyStatus::failed, .bytes = text.size()};
    std::array parts{iovec{.iov_base = &reply, .iov_len = sizeof reply},
                     iovec{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()}};
    channel_.send(parts);
  }

  Channel& channel_;
  const grpc_server_function_np* functions_;
  std::vector<const Function*> signatures_;
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);  // a function runs
  Arena arena_;
  ServedCall call_;
  Parcel parcel_;
};

int explain(const char* program) {
  std::fprintf(stderr,
               "%s: a server of GridRPC, which its clients start: standard input is to be a socket or a pipe.\n"
               "Name the program in a client's file of servers, or in APLIB_GRIDRPC_PATH. %s --interface shows what it "
               "offers.\n",
               program, program);
  return usage_status;
}

}  // namespace
}  // namespace aplib::gridrpc

extern "C" int grpc_server_main_np(int argc, char** argv, const char* idl, const grpc_server_function_np* functions,
                                   size_t count) {
  using namespace aplib::gridrpc;
  const char* const program = argc > 0 ? argv[0] : "server";
  try {
    const Interface interface = read_interface(idl, program, Bodies::none);
    const std::string text = print_interface(interface);
    if (functions_of(interface).size() != count) {
      std::fprintf(stderr, "%s: %zu functions for an interface of %zu: run apgen again\n", program, count,
                   functions_of(interface).size());
      return usage_status;
    }
    if (argc > 1 && std::string_view(argv[1]) == "--interface") {
      std::fputs(text.c_str(), stdout);
      return 0;
    }
    const std::unique_ptr<Channel> channel = take_standard_input();
    if (!channel) return explain(program);
    Server server(*channel, interface, functions);
    server.serve(text);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

extern "C" void grpc_server_fail_np(const char* text) {
  aplib::gridrpc::CallFailure& failure = aplib::gridrpc::call_failure();
  const std::lock_guard lock(failure.mutex);
  if (failure.text.empty()) failure.text = text != nullptr && *text != '\0' ? text : "the function failed";
}
