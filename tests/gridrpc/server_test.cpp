// SPDX-License-Identifier: MIT
// A server whose client is hostile: it answers with a reason, or ends; it never crashes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "calls/idl.hpp"
#include "gridrpc/channel.hpp"

namespace aplib::gridrpc {

using namespace calls;

namespace {

class HostileClient {
 public:
  HostileClient() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::setpgid(0, 0);
      ::dup2(ends[1], STDIN_FILENO);
      ::dup2(ends[1], STDOUT_FILENO);
      ::execl(TEST_SERVER, TEST_SERVER, nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    channel = std::make_unique<Channel>(os::UniqueFd(ends[0]));
    channel->set_deadline(Channel::Clock::now() + std::chrono::seconds(60));
    Greeting greeting;
    channel->receive(greeting);
    EXPECT_EQ(greeting.mark, greeting_mark);
    std::string idl(greeting.idl_bytes, '\0');
    channel->receive(idl.data(), idl.size());
    EXPECT_TRUE(channel->take_descriptor()) << "of a socket";
    interface = read_interface(idl, "the server's", Bodies::none);
  }
  ~HostileClient() { static_cast<void>(end()); }
  HostileClient(const HostileClient&) = delete;
  HostileClient& operator=(const HostileClient&) = delete;

  [[nodiscard]] std::uint32_t number_of(const std::string& name) const {
    const std::vector<const Function*> functions = functions_of(interface);
    for (std::uint32_t i = 0; i < functions.size(); ++i)
      if (functions[i]->name == name) return i;
    ADD_FAILURE() << name;
    return 0;
  }

  void send(const CallHead& head, std::string bytes, int descriptor = -1) {
    CallHead copy = head;
    std::array parts{iovec{.iov_base = &copy, .iov_len = sizeof copy},
                     iovec{.iov_base = bytes.data(), .iov_len = bytes.size()}};
    channel->send(parts, descriptor);
  }
  /// What it says is wrong.
  std::string refusal(const std::string& function, const std::string& bytes, std::uint64_t arena_bytes = 0,
                      int descriptor = -1) {
    send({.function = number_of(function), .bytes = bytes.size(), .arena_bytes = arena_bytes}, bytes, descriptor);
    return answer();
  }
  std::string answer() {
    ReplyHead reply;
    channel->receive(reply);
    EXPECT_EQ(reply.type, ReplyHead::type_of_replies);
    std::string text(reply.bytes, '\0');
    channel->receive(text.data(), text.size());
    return reply.status == ReplyStatus::failed ? text : "(it worked)";
  }
  /// Its status, as of waitpid(2).
  int end() {
    int status = 0;
    channel.reset();
    if (process_ > 0) ::waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

  std::unique_ptr<Channel> channel;
  Interface interface;

 private:
  pid_t process_ = -1;
};

template <class... T>
std::string bytes_of_all(T... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

TEST(HostileClients, GetReasons) {
  HostileClient client;
  EXPECT_EQ(client.refusal("twice", bytes_of_all(21)), "(it worked)");
  EXPECT_EQ(client.refusal("twice", "ab"), "what came is shorter than its arguments");
  EXPECT_EQ(client.refusal("twice", bytes_of_all(21, 22)), "what came is longer than its arguments");
  EXPECT_EQ(client.refusal("twice", ""), "what came is shorter than its arguments");
  client.send({.function = 4711, .bytes = 3}, "abc");
  EXPECT_EQ(client.answer(), "there is no such function");
  EXPECT_EQ(client.refusal("dmmul", bytes_of_all(-1)),
            "dmmul: IN double A[n][n]: the size of dimension 1 is -1: use 0 or more");
  EXPECT_EQ(client.refusal("dmmul", bytes_of_all(INT32_MAX)),
            "dmmul: IN double A[n][n]: with a dimension 2 of 2147483647 elements it has no room in memory: use less");
  EXPECT_TRUE(client.refusal("reverse", bytes_of_all(1L << 41))
                  .ends_with("more than the memory of the server's computer: pass less at a time"));
  EXPECT_EQ(client.refusal("greet", bytes_of_all(std::uint64_t{1} << 60)),
            "a text or file is said to have 1152921504606846976 bytes, which do not come");
  EXPECT_EQ(client.refusal("upper", bytes_of_all(std::uint64_t{100}, std::uint64_t{0})),
            "a text or file is said to have 100 bytes, which do not come");
  EXPECT_EQ(client.refusal("dmmul", bytes_of_all(1000), 24'000'000), "the shared memory is smaller than the arguments");
  EXPECT_EQ(client.refusal("twice", bytes_of_all(21)), "(it worked)") << "as before";
  EXPECT_EQ(client.end(), 0);
}

TEST(HostileClients, CannotShareMemoryThatShrinks) {
  const os::UniqueFd file(::memfd_create("hostile", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 1 << 25), 0);
  HostileClient client;
  EXPECT_EQ(client.refusal("dmmul", bytes_of_all(1000), 1 << 25, file.get()),
            "what came as shared memory is none, or could shrink");
  const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(client.refusal("dmmul", bytes_of_all(1000), 1 << 25, nothing.get()),
            "what came as shared memory is none, or could shrink");
  EXPECT_EQ(client.end(), 0);
}

TEST(HostileClients, EndTheirServersAndNoMore) {
  HostileClient client;
  std::string noise(sizeof(CallHead), '?');
  std::array parts{iovec{.iov_base = noise.data(), .iov_len = noise.size()}};
  client.channel->send(parts);
  const int status = client.end();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

TEST(HostileClients, SendAnythingAndCrashNothing) {
  std::mt19937_64 random(17);
  const std::vector<std::string> functions{"scalars", "change", "dmmul", "middle", "rotate",
                                           "greet",   "join",   "upper", "reverse"};
  for (int round = 0; round < 10; ++round) {
    HostileClient client;
    try {
      for (int i = 0; i < 30; ++i) {
        std::string bytes(random() % 200, '\0');
        for (std::size_t k = 0; k < bytes.size(); ++k)  // small numbers, or negative ones
          bytes[k] = static_cast<char>(k % 4 == 0 ? random() % 5 : random() % 50 == 0 ? 255 : 0);
        CallHead head{.function = client.number_of(functions[random() % functions.size()]), .bytes = bytes.size()};
        if (random() % 20 == 0) head.arena_bytes = random();
        if (random() % 40 == 0) head.function = static_cast<std::uint32_t>(random());
        client.send(head, bytes);
        static_cast<void>(client.answer());
      }
    } catch (const ChannelClosed&) {
    }
    const int status = client.end();
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " in round " << round;
  }
}

}  // namespace
}  // namespace aplib::gridrpc
