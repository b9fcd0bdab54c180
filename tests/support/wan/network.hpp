// SPDX-License-Identifier: MIT
// The model of an internet: what becomes of each packet, and when. It knows no clock and no devices, so that tests can
// drive it with times of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "wan/prefix.hpp"

namespace aplib::wan {

using Time = std::chrono::nanoseconds;  // since a moment that does not matter
using Packet = std::vector<std::byte>;

/// Carries bytes one after the other at a rate; more wait. What has come keeps its time when the rate changes.
class Line {
 public:
  double rate = 0;                     // bits in a second; 0: as fast as one likes
  std::optional<std::uint64_t> queue;  // bytes that may wait; without it: those of 50 ms, at least 64 kB

  /// When the bytes that have come `now` are through. Nothing, and no time passes, if there is no room to wait.
  [[nodiscard]] std::optional<Time> pass(std::size_t bytes, Time now) noexcept;

 private:
  Time free_{};  // nothing waits from then on
};

/// What has become of the packets from one site to another.
struct Counters {
  std::uint64_t packets = 0;  // that have arrived
  std::uint64_t bytes = 0;    // of these
  std::uint64_t queue = 0;    // packets dropped because too many waited,
  std::uint64_t loss = 0;     // by chance,
  std::uint64_t cut = 0;      // and because there was no way
};

/// The way from one site to another.
struct Path {
  Line line;
  Time delay{};
  double loss = 0;  // share of the packets, by chance
  Counters counters;
};

/// Sites, a path for each ordered pair of them, and the packets under way. Packets from one site to another keep their
/// order, whatever is changed meanwhile. A packet passes the sender's access line, the path's line and delay, and the
/// receiver's access line.
///
/// Thread safety: none. Times must not go back.
class Network {
 public:
  using Site = std::size_t;  // its number, from 0

  /// `header`: so many bytes before each IP header are not the network's.
  explicit Network(std::size_t header = 0) : header_(header) {}

  /// A site with these addresses. REQUIRES: no other site has them (owner()).
  Site add_site(std::string name, std::vector<Prefix> addresses);
  [[nodiscard]] std::size_t sites() const noexcept { return sites_.size(); }
  [[nodiscard]] const std::string& name(Site site) const { return sites_[site].name; }
  [[nodiscard]] std::optional<Site> find(const std::string& name) const noexcept;
  /// The site that has some of these addresses.
  [[nodiscard]] std::optional<Site> owner(const Prefix& addresses) const noexcept;

  /// What leads out of a site and into it, to and from all others.
  [[nodiscard]] Line& up(Site site) { return sites_[site].up; }
  [[nodiscard]] Line& down(Site site) { return sites_[site].down; }
  [[nodiscard]] Path& path(Site from, Site to) { return sites_[from].ways[to].path; }
  /// Packets of a site that go to nobody's address.
  [[nodiscard]] std::uint64_t nowhere(Site site) const { return sites_[site].nowhere; }
  /// From now on, the path's losses by chance are those of this seed.
  void seed(Site from, Site to, std::uint64_t seed) { sites_[from].ways[to].random.seed(seed); }

  /// Drops what is on the path, and what comes before `end`. Without `end`: until join().
  void cut(Site from, Site to, std::optional<Time> end = std::nullopt);
  void join(Site from, Site to) { sites_[from].ways[to].cut_until = Time::min(); }

  /// A packet comes from a site.
  void enter(Site from, Packet packet, Time now);
  /// No packet arrives before this time; nothing if none is under way.
  [[nodiscard]] std::optional<Time> next() const;

  struct Arrival {
    Site to;
    Packet packet;
  };
  /// The next packet that has arrived by now, each once, in the order of their times.
  [[nodiscard]] std::optional<Arrival> take(Time now);

 private:
  struct Way;

  struct Transit {
    Time due;
    std::uint64_t number;
    Way* way;
    Packet packet;
  };
  /// Packets that leave in the order in which they came.
  struct Fifo {
    std::deque<Transit> transits;
    std::optional<Site> into;  // whose access line they come to next; nothing: they arrive
  };
  struct Way {
    Path path;
    Site to = 0;
    Time cut_until = Time::min();
    std::mt19937_64 random;
    Fifo under_way;
  };
  struct SiteState {
    std::string name;
    std::vector<Prefix> addresses;
    std::uint64_t nowhere = 0;
    Line up, down;
    std::deque<Way> ways;  // to each site; a deque, because others point to them
    Fifo arriving;         // through `down`
  };
  /// The first packet of a Fifo, unless that was cut.
  struct Head {
    Time due;
    std::uint64_t number;
    Fifo* fifo;
    bool operator>(const Head& other) const noexcept {
      return due != other.due ? due > other.due : number > other.number;
    }
  };

  Way* way_to(Site from, std::span<const std::byte> address);
  void push(Fifo& fifo, Transit transit);
  [[nodiscard]] std::size_t size(const Packet& packet) const noexcept { return packet.size() - header_; }

  std::size_t header_;
  std::deque<SiteState> sites_;
  std::uint64_t number_ = 0;  // of the next transit
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
};

}  // namespace aplib::wan
