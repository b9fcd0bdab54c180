// SPDX-License-Identifier: MIT
// The lines that make an internet and change it while it runs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "wan/network.hpp"

namespace aplib::wan {

/// What the program's standard input understands; the program says it to who asks for help.
inline constexpr std::string_view grammar = R"(
One order a line is answered by "ok", or by "error: ...", and then has changed nothing.
  site NAME NAMESPACE DEVICE ADDRESS[/BITS]...
            a site; its packets come and go by a TUN device, made in the network namespace of that file
  access NAME [up RATE] [down RATE] [queue SIZE]
            all that a site sends and receives; each direction has a queue of its own
  pair FROM TO [delay TIME] [rate RATE] [queue SIZE] [loss SHARE] [seed NUMBER]
            the way from one site to another, not the way back; what is not named stays
  cut FROM TO [TIME]
            drops what is on the way, and all that comes, for that time or until join
  join FROM TO
            ends a cut
  count     a line for each pair, and for each site
RATE: 64kb/s, 1.5Mb/s, 10Gb/s, none (10^3, 10^6, 10^9 bits)   SIZE: 1500B, 64kB, 1MB, or auto: 50 ms, at least 64 kB
TIME: 100us, 0.35ms, 2s                                       SHARE: 0 to 1
A new pair has no delay, no limits and no loss.
)";

/// Carries out orders on a network.
class Orders {
 public:
  /// Makes the device of the site that will have the next number. Throws std::runtime_error if it cannot.
  using MakeDevice = std::function<void(const std::string& name_space, const std::string& device)>;

  Orders(Network& network, MakeDevice make_device) : network_(network), make_device_(std::move(make_device)) {}

  /// The answer to a line, as lines of which the last is "ok" or begins with "error: ". After an error nothing has
  /// changed. Blank lines and those that begin with # do nothing.
  [[nodiscard]] std::string carry_out(std::string_view line, Time now);

  /// What `count` answers.
  [[nodiscard]] std::string counters();

 private:
  Network& network_;
  MakeDevice make_device_;
  int lines_ = 0;
};

}  // namespace aplib::wan
