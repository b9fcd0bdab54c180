// SPDX-License-Identifier: MIT
// wan: an internet in a process. Each site is a network namespace with a TUN device; packets between two of them take
// the time that they are told to take. What the orders on its standard input are, `wan --help` says.
//
//   ip netns add a; ip netns add b
//   wan <<END                                     (or from a pipe that stays open: it ends with its input)
//   site a /run/netns/a wan0 10.0.0.1
//   site b /run/netns/b wan0 10.0.0.2
//   pair a b delay 10ms rate 100Mb/s
//   END
//
// When its standard input ends, it writes what `count` would answer, and ends; the devices go with it.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "wan/network.hpp"
#include "wan/orders.hpp"
#include "wan/tun.hpp"

namespace {

using aplib::wan::Network;
using aplib::wan::Orders;
using aplib::wan::Time;
using aplib::wan::Tun;

Time now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// The devices of the sites, and the loop that carries packets between them and the network.
class Wan {
 public:
  explicit Wan(bool offload)
      : network_(offload ? Tun::offload_header : 0),
        orders_(network_, [this, offload](const std::string& name_space, const std::string& device) {
          devices_.emplace_back(name_space, device, offload);
        }) {}

  /// Until standard input has ended.
  void run() {
    for (bool more = true; more;) {
      wait();
      deliver();
      for (Network::Site site = 0; site < devices_.size(); ++site) {
        if (polled_[site + 1].revents != 0) receive(site, turn_packets);
        if ((polled_[site + 1].revents & POLLERR) != 0) devices_[site].close();
        deliver();
      }
      if (polled_[0].revents != 0) more = obey();
    }
    say(orders_.counters());
  }

 private:
  static constexpr int turn_packets = 64;      // of one site, before others have their turn
  static constexpr int queue_packets = 10000;  // about what a device holds for us (namespaces.py)

  void wait() {
    polled_.assign(1, {STDIN_FILENO, POLLIN, 0});
    for (const Tun& device : devices_) polled_.push_back({device.descriptor(), POLLIN, 0});
    timespec left{};
    const auto next = network_.next();
    if (next) {
      const auto nanoseconds = std::max(Time::zero(), *next - now()).count();
      left = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    }
    if (ppoll(polled_.data(), polled_.size(), next ? &left : nullptr, nullptr) < 0) {
      for (pollfd& one : polled_) one.revents = 0;  // a signal
    }
  }

  void receive(Network::Site site, int packets) {
    for (; packets > 0; --packets) {
      const std::size_t size = devices_[site].read(buffer_);
      if (size == 0) return;
      network_.enter(site, {buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(size)}, now());
    }
  }

  void deliver() {
    // A device that is down takes nothing; as with a host that is off, nobody is told.
    while (const auto arrival = network_.take(now())) devices_[arrival->to].write(arrival->packet);
  }

  /// Carries out the orders that have come; false at the end of them. What was sent before an order was given has come
  /// into the network before it is carried out.
  bool obey() {
    std::array<char, 4096> piece;
    const ssize_t got = read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    input_.append(piece.data(), static_cast<std::size_t>(got));
    if (got == 0 && !input_.empty()) input_ += '\n';
    for (Network::Site site = 0; site < devices_.size(); ++site) receive(site, queue_packets);
    deliver();
    for (std::size_t end; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1)) {
      say(orders_.carry_out(std::string_view(input_).substr(0, end), now()));
    }
    return got != 0;
  }

  static void say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
      if (written < 0 && errno != EINTR) std::exit(1);  // nobody listens
      if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  Network network_;
  std::vector<Tun> devices_;  // by site
  Orders orders_;
  std::vector<pollfd> polled_;  // standard input and the devices
  std::string input_;           // what came after the last whole line
  std::array<std::byte, 65536 + Tun::offload_header> buffer_;
};

}  // namespace

int main(int count, char** arguments) {
  const std::string_view option = count == 2 ? arguments[1] : "";
  if (option == "--help") {
    std::printf("usage: wan [--offload]     (packets of 64 KiB, for more than 1 Gb/s)\n%s", aplib::wan::grammar.data());
    return 0;
  }
  if (count > 2 || (count == 2 && option != "--offload")) {
    std::fprintf(stderr, "wan: '%s' is no option: use --offload, --help, or none\n", arguments[1]);
    return 2;
  }
  // Its own lateness would be everyone's delay: a timer as exact as the system has it, and the processor before others.
  prctl(PR_SET_TIMERSLACK, 1);
  setpriority(PRIO_PROCESS, 0, -20);
  try {
    Wan(option == "--offload").run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wan: %s\n", error.what());
    return 1;
  }
  return 0;
}
