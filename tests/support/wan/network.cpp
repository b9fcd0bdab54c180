// SPDX-License-Identifier: MIT
#include "wan/network.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace aplib::wan {
namespace {

constexpr double queue_seconds = 0.05;
constexpr double queue_min = 64e3;

/// Whether a share of so many comes true.
bool happens(double share, std::mt19937_64& random) {
  return share > 0 && static_cast<double>(random() >> 11U) * 0x1p-53 < share;
}

}  // namespace

std::optional<Time> Line::pass(std::size_t bytes, Time now) noexcept {
  if (rate == 0) return std::max(now, free_);
  if (free_ > now) {
    const double limit = queue ? static_cast<double>(*queue) : std::max(queue_min, rate / 8 * queue_seconds);
    const double waiting = static_cast<double>((free_ - now).count()) * rate / 8e9;
    if (waiting + static_cast<double>(bytes) > limit) return std::nullopt;
  }
  free_ = std::max(free_, now) + Time(static_cast<Time::rep>(std::ceil(static_cast<double>(bytes) * 8e9 / rate)));
  return free_;
}

Network::Site Network::add_site(std::string name, std::vector<Prefix> addresses) {
  const Site site = sites_.size();
  SiteState& added = sites_.emplace_back();
  added.name = std::move(name);
  added.addresses = std::move(addresses);
  for (Site from = 0; from <= site; ++from) {
    for (Site to = sites_[from].ways.size(); to <= site; ++to) {
      Way& way = sites_[from].ways.emplace_back();
      way.to = to;
      way.under_way.into = to;
      way.random.seed(from << 32U | to);
    }
  }
  return site;
}

std::optional<Network::Site> Network::find(const std::string& name) const noexcept {
  for (Site site = 0; site < sites_.size(); ++site) {
    if (sites_[site].name == name) return site;
  }
  return std::nullopt;
}

std::optional<Network::Site> Network::owner(const Prefix& addresses) const noexcept {
  for (Site site = 0; site < sites_.size(); ++site) {
    const auto overlaps = [&](const Prefix& own) { return own.overlaps(addresses); };
    if (std::ranges::any_of(sites_[site].addresses, overlaps)) return site;
  }
  return std::nullopt;
}

void Network::cut(Site from, Site to, std::optional<Time> end) {
  Way& way = sites_[from].ways[to];
  way.cut_until = end.value_or(Time::max());
  way.path.counters.cut += way.under_way.transits.size();
  way.under_way.transits.clear();  // their head is skipped when its time comes
}

Network::Way* Network::way_to(Site from, std::span<const std::byte> address) {
  for (Site to = 0; to < sites_.size(); ++to) {
    const auto holds = [&](const Prefix& own) { return own.holds(address); };
    if (std::ranges::any_of(sites_[to].addresses, holds)) return &sites_[from].ways[to];
  }
  return nullptr;
}

void Network::enter(Site from, Packet packet, Time now) {
  if (packet.size() < header_) return;
  const auto address = destination(std::span(packet).subspan(header_));
  Way* way = way_to(from, address);
  if (way == nullptr) {
    if (!is_multicast(address)) ++sites_[from].nowhere;
    return;
  }
  Path& path = way->path;
  if (now < way->cut_until) {
    ++path.counters.cut;
    return;
  }
  std::optional<Time> through = sites_[from].up.pass(size(packet), now);
  if (through) through = path.line.pass(size(packet), *through);
  if (!through) {
    ++path.counters.queue;
    return;
  }
  if (happens(path.loss, way->random)) {
    ++path.counters.loss;
    return;
  }
  push(way->under_way, {*through + path.delay, 0, way, std::move(packet)});
}

void Network::push(Fifo& fifo, Transit transit) {
  transit.number = number_++;
  if (!fifo.transits.empty()) transit.due = std::max(transit.due, fifo.transits.back().due);
  fifo.transits.push_back(std::move(transit));
  const Transit& first = fifo.transits[0];
  if (fifo.transits.size() == 1) heads_.push({first.due, first.number, &fifo});
}

std::optional<Time> Network::next() const { return heads_.empty() ? std::nullopt : std::optional(heads_.top().due); }

std::optional<Network::Arrival> Network::take(Time now) {
  while (!heads_.empty() && heads_.top().due <= now) {
    const Head head = heads_.top();
    heads_.pop();
    Fifo& fifo = *head.fifo;
    if (fifo.transits.empty() || fifo.transits[0].number != head.number) continue;  // cut
    Transit transit = std::move(fifo.transits[0]);
    fifo.transits.pop_front();
    if (!fifo.transits.empty()) heads_.push({fifo.transits[0].due, fifo.transits[0].number, &fifo});
    Counters& counters = transit.way->path.counters;
    if (!fifo.into) {
      ++counters.packets;
      counters.bytes += size(transit.packet);
      return Arrival{transit.way->to, std::move(transit.packet)};
    }
    SiteState& site = sites_[*fifo.into];
    if (const auto through = site.down.pass(size(transit.packet), transit.due)) {
      transit.due = *through;
      push(site.arriving, std::move(transit));
    } else {
      ++counters.queue;
    }
  }
  return std::nullopt;
}

}  // namespace aplib::wan
