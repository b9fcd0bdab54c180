// SPDX-License-Identifier: MIT
// Matrix: what is known of the network between some hosts: a measurement for each ordered pair, or why there is none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/net/measurement.hpp"

namespace aplib::launch::net {

class Matrix {
 public:
  explicit Matrix(std::vector<std::string> names) : names_(std::move(names)), problems_(names_.size()) {}

  [[nodiscard]] std::uint32_t hosts() const { return static_cast<std::uint32_t>(names_.size()); }
  [[nodiscard]] const std::string& name(std::uint32_t host) const { return names_.at(host); }

  /// Keeps it, unless it speaks of hosts that there are not, or of one host alone.
  void add(const Measurement& measurement);
  /// Why the two have not been measured. A measurement that is there, or comes, counts more.
  void lose(std::uint32_t a, std::uint32_t b, const std::string& why);
  /// Why a host is not measured any more. What it has measured stays.
  void lose(std::uint32_t host, const std::string& why);

  /// Null: there is none.
  [[nodiscard]] const Measurement* find(std::uint32_t from, std::uint32_t to) const;
  /// Why there is none; empty: nobody knows yet.
  [[nodiscard]] std::string why_not(std::uint32_t from, std::uint32_t to) const;
  /// Empty: it takes part.
  [[nodiscard]] const std::string& problem(std::uint32_t host) const { return problems_.at(host); }

  /// Both take part, and a direction is neither measured nor given up.
  [[nodiscard]] bool is_open(std::uint32_t a, std::uint32_t b) const;
  /// The first round of a tournament with an open pair.
  [[nodiscard]] std::optional<std::uint32_t> open_round() const;
  [[nodiscard]] bool is_complete() const;

 private:
  using Ordered = std::pair<std::uint32_t, std::uint32_t>;  // from, to

  std::vector<std::string> names_;
  std::vector<std::string> problems_;
  std::map<Ordered, Measurement> measured_;
  std::map<Ordered, std::string> lost_;
};

}  // namespace aplib::launch::net
