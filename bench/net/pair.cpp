// SPDX-License-Identifier: MIT
#include "pair.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

#include "../apbench/measure.hpp"

namespace net {
namespace {

using apbench::now_seconds;

enum Orders : std::uint64_t { ping_pong_order, window_order };

struct Order {
  std::uint64_t kind = 0;
  std::uint64_t bytes = 0;
  std::uint64_t window = 0;
  std::uint64_t count = 0;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// The cores that this program was started with; bind_to() leaves only one.
const std::vector<std::size_t>& cores() {
  static const std::vector<std::size_t> all = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) found.push_back(i);
    }
    return found;
  }();
  return all;
}

void bind_to(std::size_t nth) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores()[nth], &set);
  sched_setaffinity(0, sizeof set, &set);
}

void enter(const std::string& name) {
  if (name.empty()) return;
  const int file = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(fmt::format("the network namespace '{}'", name));
  const int result = setns(file, CLONE_NEWNET);
  close(file);
  if (result != 0) fail(fmt::format("entering the network namespace '{}' (root is needed)", name));
}

sockaddr_in address_of(const std::string& text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error(fmt::format("--address: '{}' is no IPv4 address", text));
  }
  return address;
}

void write_all(int file, const void* data, std::size_t bytes) {
  if (write(file, data, bytes) != static_cast<ssize_t>(bytes)) fail("a pipe");
}

bool read_all(int file, void* data, std::size_t bytes) {
  return read(file, data, bytes) == static_cast<ssize_t>(bytes);
}

// The far end of every operation.
void obey(Stream& stream, const Order& order) {
  std::vector<std::byte> buffer(order.bytes, std::byte{1});
  std::array<std::byte, 8> acknowledgement{};
  for (std::uint64_t i = 0; i < order.count; ++i) {
    for (std::uint64_t j = 0; j < order.window; ++j) stream.read(buffer);
    stream.write(order.kind == ping_pong_order ? std::span<const std::byte>(buffer) : acknowledgement);
  }
}

// Listens, sends its port, and carries out orders until they end.
void far_process(Kind kind, const Placement& placement, int orders, int port_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  enter(placement.far_namespace);
  bind_to(1);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = address_of(placement.address, 0);
  socklen_t length = sizeof address;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail("listening on " + placement.address);
  }
  write_all(port_pipe, &address.sin_port, sizeof address.sin_port);
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) fail("accept");
  const std::unique_ptr<Stream> stream = make_stream(kind, socket, true);
  for (Order order; read_all(orders, &order, sizeof order);) obey(*stream, order);
}

}  // namespace

Pair::Pair(Kind kind, const Placement& placement) {
  if (cores().size() < 2) {
    throw std::runtime_error("two usable cores are needed, and this process has one (see taskset)");
  }
  std::array<int, 2> orders{};
  std::array<int, 2> port_pipe{};
  if (pipe2(orders.data(), O_CLOEXEC) != 0 || pipe2(port_pipe.data(), O_CLOEXEC) != 0) fail("a pipe");
  orders_ = orders[1];
  far_ = fork();
  if (far_ < 0) fail("fork");
  if (far_ == 0) {
    close(orders[1]);
    int status = 0;
    try {
      far_process(kind, placement, orders[0], port_pipe[1]);
    } catch (const std::exception& error) {
      fmt::print(stderr, "bench-net: {}\n", error.what());
      status = 1;
    }
    _exit(status);
  }
  close(orders[0]);
  close(port_pipe[1]);
  std::uint16_t port = 0;
  const bool listening = read_all(port_pipe[0], &port, sizeof port);
  close(port_pipe[0]);
  if (!listening) throw std::runtime_error("the other process could not begin");
  enter(placement.near_namespace);
  bind_to(0);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(placement.address, port);
  if (socket < 0 || connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail("connecting to " + placement.address);
  }
  stream_ = make_stream(kind, socket, false);
}

Pair::~Pair() {
  if (orders_ >= 0) close(orders_);
  if (far_ > 0) {
    stream_.reset();
    while (waitpid(far_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

double Pair::ordered(std::uint64_t kind, std::size_t bytes, std::uint64_t window, std::uint64_t count) {
  constexpr std::uint64_t warm_max = 10'000;
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 4, kind == ping_pong_order ? warm_max : 100);
  const Order order{kind, bytes, window, warm + count};
  write_all(orders_, &order, sizeof order);
  std::vector<std::byte> buffer(bytes, std::byte{2});
  std::array<std::byte, 8> acknowledgement{};
  double start = now_seconds();
  for (std::uint64_t i = 0; i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    for (std::uint64_t j = 0; j < window; ++j) stream_->write(buffer);
    stream_->read(kind == ping_pong_order ? std::span<std::byte>(buffer) : acknowledgement);
  }
  return now_seconds() - start;
}

double Pair::ping_pongs(std::size_t bytes, std::uint64_t count) { return ordered(ping_pong_order, bytes, 1, count); }

double Pair::windows(std::size_t bytes, std::uint64_t window, std::uint64_t count) {
  return ordered(window_order, bytes, window, count);
}

}  // namespace net
