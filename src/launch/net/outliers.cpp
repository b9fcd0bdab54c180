// SPDX-License-Identifier: MIT
#include "launch/net/outliers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>

namespace aplib::launch::net {
namespace {

/// Rates, from the least to the most.
struct Range {
  double least = 0;
  double most = 0;
  bool any = false;

  void add(double rate) {
    least = any ? std::min(least, rate) : rate;
    most = std::max(most, rate);
    any = true;
  }
  [[nodiscard]] std::string text() const {
    const std::string low = rate_text(least);
    const std::string high = rate_text(most);
    return low == high ? low : fmt::format("{} to {}", low, high);
  }
};

/// Of a host: rates from it (0) and to it (1), or of several together.
using Ranges = std::array<Range, 2>;

void for_each(const Matrix& matrix, const std::function<void(const Measurement&)>& what) {
  for (std::uint32_t from = 0; from < matrix.hosts(); ++from) {
    for (std::uint32_t to = 0; to < matrix.hosts(); ++to)
      if (const Measurement* const measurement = matrix.find(from, to); measurement != nullptr) what(*measurement);
  }
}

/// Of those that send, or receive, anything at all. 0: too few to compare.
double usual_best(const std::vector<Ranges>& hosts, std::size_t direction) {
  std::vector<double> best;
  for (const Ranges& host : hosts)
    if (host[direction].any) best.push_back(host[direction].most);
  if (best.size() < 3) return 0;
  const auto middle = best.begin() + static_cast<std::ptrdiff_t>(best.size() / 2);
  std::ranges::nth_element(best, middle);
  return *middle;
}

using Limits = std::map<Limit, int>;

Limit most_frequent(const Limits& limits) {
  const auto most = std::ranges::max_element(limits, {}, [](const auto& entry) { return entry.second; });
  return most == limits.end() ? Limit::unknown : most->first;
}

/// What holds back a host that is slow in this direction with everybody.
std::string host_limit(Limit limit, bool sends, bool receives) {
  if (sends && limit == Limit::sender_processor) return "its processor limits";
  if (receives && limit == Limit::receiver_processor) return "its processor limits";
  if (sends && limit == Limit::sender_buffer) return "its buffers for sending limit (sysctl net.ipv4.tcp_wmem)";
  if (receives && limit == Limit::receiver_buffer) return "its buffers for receiving limit (sysctl net.ipv4.tcp_rmem)";
  return "its own link limits";
}

std::string path_limit(const Matrix& matrix, const Measurement& m) {
  switch (m.limit()) {
    case Limit::sender_processor:
      return fmt::format("{}'s processor limits", matrix.name(m.from));
    case Limit::receiver_processor:
      return fmt::format("{}'s processor limits", matrix.name(m.to));
    case Limit::sender_buffer:
      return fmt::format("{}'s buffers for sending limit (sysctl net.ipv4.tcp_wmem)", matrix.name(m.from));
    case Limit::receiver_buffer:
      return fmt::format("{}'s buffers for receiving limit (sysctl net.ipv4.tcp_rmem)", matrix.name(m.to));
    case Limit::path:
    case Limit::unknown:
      break;
  }
  const double percent = 100 * m.loss();
  const std::string again = percent < 0.1 ? std::string() : fmt::format(" ({:.1f} % was sent again)", percent);
  return fmt::format("the path between them limits{}", again);
}

}  // namespace

std::string rate_text(double bytes_per_second) {
  const double rate = bytes_per_second / 1e6;
  if (rate < 0.0995) return fmt::format("{:.2g}", rate);
  return rate < 9.95 ? fmt::format("{:.1f}", rate) : fmt::format("{:.0f}", rate);
}

std::vector<std::string> find_outliers(const Matrix& matrix) {
  const std::uint32_t hosts = matrix.hosts();
  std::vector<Ranges> of(hosts);
  std::vector<Limits> limits(hosts);
  for_each(matrix, [&](const Measurement& m) {
    of[m.from][0].add(m.rate());
    of[m.to][1].add(m.rate());
  });
  const std::array<double, 2> usual{usual_best(of, 0), usual_best(of, 1)};
  const auto is_slow = [&](std::uint32_t host, std::size_t direction) {
    const Range& range = of[host][direction];
    return range.any && range.most < outlier_share * usual[direction];
  };
  Range others;
  for_each(matrix, [&](const Measurement& m) {
    const bool slow_from = is_slow(m.from, 0);
    const bool slow_to = is_slow(m.to, 1);
    if (slow_from) ++limits[m.from][m.limit()];
    if (slow_to) ++limits[m.to][m.limit()];
    if (slow_from || slow_to) return;
    others.add(m.rate());
  });
  std::vector<std::string> lines;
  for (std::uint32_t host = 0; host < hosts; ++host) {
    const bool sends = is_slow(host, 0);
    const bool receives = is_slow(host, 1);
    if (!sends && !receives) continue;
    Range its = of[host][sends ? 0 : 1];
    if (sends && receives) {
      its.add(of[host][1].least);
      its.add(of[host][1].most);
    }
    const std::string rates = fmt::format("{} MB/s", its.text());
    const std::string what = sends && receives ? rates + " both ways"
                             : sends           ? fmt::format("sends {}", rates)
                                               : fmt::format("receives {}", rates);
    lines.push_back(fmt::format("{}: {}, the others {}: {}", matrix.name(host), what, others.text(),
                                host_limit(most_frequent(limits[host]), sends, receives)));
  }
  for_each(matrix, [&](const Measurement& m) {
    if (usual[0] == 0 || is_slow(m.from, 0) || is_slow(m.to, 1)) return;
    if (m.rate() >= outlier_share * std::min(of[m.from][0].most, of[m.to][1].most)) return;
    lines.push_back(fmt::format("{} to {}: {} MB/s, where {} sends up to {} and {} receives up to {}: {}",
                                matrix.name(m.from), matrix.name(m.to), rate_text(m.rate()), matrix.name(m.from),
                                rate_text(of[m.from][0].most), matrix.name(m.to), rate_text(of[m.to][1].most),
                                path_limit(matrix, m)));
  });
  return lines;
}

}  // namespace aplib::launch::net
