// SPDX-License-Identifier: MIT
// bench-relay: round trips of 8 bytes, and bandwidth, through a relay that joins two ends, and through what others have
// for it: bench/relay/compare starts them.
//
//   bench-relay serve                          prints a port, and answers there
//   bench-relay call ADDRESS:PORT              measures through what stands there and leads to that port
//   bench-relay relay PLACE MACHINE KEY        measures through an aprelay: both ends call it
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "comm/connect/relay_call.hpp"
#include "comm/tcp/address.hpp"

namespace {

using aplib::os::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr std::size_t small_bytes = 8;
constexpr std::size_t block_bytes = 256 * 1024;
constexpr int warm_up = 2'000;
constexpr int round_trips = 20'000;
constexpr std::uint64_t stream_bytes = std::uint64_t{512} << 20;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void prepare(int socket) {
  constexpr int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) fail("send");
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

/// False: the end.
bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0) fail("recv");
    if (got == 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

/// Sends back what is small, and one word behind the stream.
void answer(int socket) {
  prepare(socket);
  std::array<std::byte, small_bytes> word{};
  for (int i = 0; i < warm_up + round_trips; ++i) {
    if (!receive_all(socket, word)) return;
    send_all(socket, word);
  }
  std::vector<std::byte> block(block_bytes);
  for (std::uint64_t left = stream_bytes; left != 0;) {
    const ssize_t got = ::recv(socket, block.data(), block.size(), 0);
    if (got <= 0) return;
    left -= static_cast<std::uint64_t>(got);
  }
  send_all(socket, word);
}

void measure(int socket) {
  prepare(socket);
  std::array<std::byte, small_bytes> word{};
  std::vector<double> times;
  for (int i = 0; i < warm_up + round_trips; ++i) {
    const auto begun = Clock::now();
    send_all(socket, word);
    if (!receive_all(socket, word)) fail("the other end");
    if (i >= warm_up) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
  }
  std::ranges::sort(times);
  const std::vector<std::byte> block(block_bytes);
  const auto begun = Clock::now();
  for (std::uint64_t sent = 0; sent < stream_bytes; sent += block_bytes) send_all(socket, block);
  receive_all(socket, word);
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  fmt::print("{:.2f} us {:.0f} MB/s\n", times[times.size() / 2], static_cast<double>(stream_bytes) / 1e6 / seconds);
}

int serve() {
  aplib::comm::tcp::Listener listener("127.0.0.1", "");
  fmt::print("{}\n", listener.endpoint());
  std::fflush(stdout);
  const UniqueFd listening = listener.release();
  ::fcntl(listening.get(), F_SETFL, 0);  // it blocks
  const UniqueFd socket(::accept(listening.get(), nullptr, nullptr));
  if (!socket) fail("accept");
  answer(socket.get());
  return 0;
}

int call(const std::string& where) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket(io);
  socket.connect(aplib::comm::tcp::parse_endpoint(where).value());
  measure(socket.native_handle());
  return 0;
}

int by_relay(const std::string& place, const std::string& machine, const std::string& key) {
  namespace connect = aplib::comm::connect;
  const auto end = [&](std::uint32_t self) {
    boost::asio::io_context io;
    UniqueFd socket;
    const connect::RelayCall one(io,
                                 {.place = place,
                                  .key = aplib::comm::JobKey::from_hex(key).value(),
                                  .machine = machine,
                                  .self = self,
                                  .peer = 1 - self,
                                  .patience = std::chrono::seconds(10)},
                                 {.joined =
                                      [&](connect::Socket joined) {
                                        joined.native_non_blocking(false);
                                        socket.reset(joined.release());
                                        io.stop();
                                      },
                                  .failed =
                                      [](const std::string& why) {
                                        fmt::print(stderr, "{}\n", why);
                                        std::exit(1);
                                      }});
    io.run();
    return socket;
  };
  // Ends are processes of their own elsewhere; here the answering one is, as for the others.
  if (::fork() == 0) {
    const UniqueFd socket = end(1);
    answer(socket.get());
    ::_exit(0);
  }
  const UniqueFd socket = end(0);
  measure(socket.get());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "serve") return serve();
  if (words.size() == 2 && words[0] == "call") return call(words[1]);
  if (words.size() == 4 && words[0] == "relay") return by_relay(words[1], words[2], words[3]);
  fmt::print(stderr, "bench-relay serve | call ADDRESS:PORT | relay PLACE MACHINE KEY; see bench/relay/compare\n");
  return 2;
}
