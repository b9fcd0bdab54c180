// SPDX-License-Identifier: MIT
#include "launch/net/matrix.hpp"

#include "launch/net/tournament.hpp"

namespace aplib::launch::net {

void Matrix::add(const Measurement& measurement) {
  if (measurement.from >= hosts() || measurement.to >= hosts() || measurement.from == measurement.to) return;
  measured_[{measurement.from, measurement.to}] = measurement;
}

void Matrix::lose(std::uint32_t a, std::uint32_t b, const std::string& why) {
  lost_[{a, b}] = why;
  lost_[{b, a}] = why;
}

void Matrix::lose(std::uint32_t host, const std::string& why) { problems_.at(host) = why; }

const Measurement* Matrix::find(std::uint32_t from, std::uint32_t to) const {
  const auto found = measured_.find({from, to});
  return found == measured_.end() ? nullptr : &found->second;
}

std::string Matrix::why_not(std::uint32_t from, std::uint32_t to) const {
  if (find(from, to) != nullptr) return {};
  if (const auto found = lost_.find({from, to}); found != lost_.end()) return found->second;
  return problems_.at(from).empty() ? problems_.at(to) : problems_.at(from);
}

bool Matrix::is_open(std::uint32_t a, std::uint32_t b) const {
  const auto unknown = [this](std::uint32_t from, std::uint32_t to) {
    return find(from, to) == nullptr && why_not(from, to).empty();
  };
  return problem(a).empty() && problem(b).empty() && (unknown(a, b) || unknown(b, a));
}

std::optional<std::uint32_t> Matrix::open_round() const {
  for (std::uint32_t round = 0; round < rounds_of(hosts()); ++round) {
    for (std::uint32_t host = 0; host < hosts(); ++host) {
      const auto partner = partner_of(hosts(), round, host);
      if (partner && host < *partner && is_open(host, *partner)) return round;
    }
  }
  return std::nullopt;
}

bool Matrix::is_complete() const { return measured_.size() == std::size_t{hosts()} * hosts() - hosts(); }

}  // namespace aplib::launch::net
