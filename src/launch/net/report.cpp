// SPDX-License-Identifier: MIT
#include "launch/net/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "launch/terminal.hpp"

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

namespace {

using text::json_string;

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

std::string square(const Matrix& matrix) {
  std::vector<TableRow> rows{{"from \\ to"}};
  for (std::uint32_t to = 0; to < matrix.hosts(); ++to) rows[0].push_back(matrix.name(to));
  for (std::uint32_t from = 0; from < matrix.hosts(); ++from) {
    TableRow& row = rows.emplace_back(TableRow{matrix.name(from)});
    for (std::uint32_t to = 0; to < matrix.hosts(); ++to) {
      const Measurement* const m = matrix.find(from, to);
      row.push_back(m != nullptr ? fmt::format("{} / {}", milliseconds(m->round_trip), rate_text(m->rate()))
                    : from == to ? "-"
                                 : "?");
    }
  }
  return "round trip in ms / rate in MB/s, from the host of the row to that of the column\n\n" + table(rows);
}

/// "0.24 9.8 14.39": the least, the median and the most.
template <class Text>
std::string three(std::vector<double> values, Text&& text) {
  if (values.empty()) return "?";
  std::ranges::sort(values);
  return fmt::format("{} {} {}", text(values.front()), text(values[values.size() / 2]), text(values.back()));
}

std::string lines(const Matrix& matrix) {
  std::vector<TableRow> rows{{"host", "round trip", "sends", "receives"}};
  for (std::uint32_t host = 0; host < matrix.hosts(); ++host) {
    std::vector<double> trips;
    std::vector<double> sends;
    std::vector<double> receives;
    for (std::uint32_t other = 0; other < matrix.hosts(); ++other) {
      if (const Measurement* const m = matrix.find(host, other); m != nullptr) {
        trips.push_back(m->round_trip);
        sends.push_back(m->rate());
      }
      if (const Measurement* const m = matrix.find(other, host); m != nullptr) receives.push_back(m->rate());
    }
    rows.push_back(
        {matrix.name(host), three(trips, milliseconds), three(sends, rate_text), three(receives, rate_text)});
  }
  return "round trips in ms and rates in MB/s, the least, the median and the most over all other hosts\n\n" +
         table(rows);
}

std::vector<std::string> problems(const Matrix& matrix) {
  std::vector<std::string> found;
  for (std::uint32_t host = 0; host < matrix.hosts(); ++host)
    if (!matrix.problem(host).empty())
      found.push_back(fmt::format("{}: not measured with all others: {}", matrix.name(host), matrix.problem(host)));
  for (std::uint32_t a = 0; a < matrix.hosts(); ++a) {
    for (std::uint32_t b = a + 1; b < matrix.hosts(); ++b) {
      if (!matrix.problem(a).empty() || !matrix.problem(b).empty()) continue;  // said above
      if (matrix.find(a, b) != nullptr && matrix.find(b, a) != nullptr) continue;
      const std::string why = matrix.find(a, b) == nullptr ? matrix.why_not(a, b) : matrix.why_not(b, a);
      found.push_back(fmt::format("{} and {}: not measured: {}", matrix.name(a), matrix.name(b), why));
    }
  }
  return found;
}

const char* limit_text(Limit limit) {
  switch (limit) {
    case Limit::path:
      return "path";
    case Limit::sender_buffer:
      return "sender's buffer";
    case Limit::receiver_buffer:
      return "receiver's buffer";
    case Limit::sender_processor:
      return "sender's processor";
    case Limit::receiver_processor:
      return "receiver's processor";
    case Limit::unknown:
      break;
  }
  return "unknown";
}

std::string json_pair(const Matrix& matrix, std::uint32_t from, std::uint32_t to) {
  std::string text =
      fmt::format(R"({{"from": {}, "to": {}, )", json_string(matrix.name(from)), json_string(matrix.name(to)));
  const Measurement* const m = matrix.find(from, to);
  if (m == nullptr) return text + fmt::format(R"("problem": {}}})", json_string(matrix.why_not(from, to)));
  return text + fmt::format(R"("round_trip_ms": {:.6g}, "round_trip_median_ms": {:.6g}, "mbyte_per_second": {:.6g}, )"
                            R"("streams": {}, "sent_again": {:.4g}, "sender_cores": {:.3g}, "receiver_cores": {:.3g}, )"
                            R"("limit": {}}})",
                            1e3 * m->round_trip, 1e3 * m->round_trip_median, m->rate() / 1e6, m->streams, m->loss(),
                            m->sender_cores, m->receiver_cores, json_string(limit_text(m->limit())));
}

std::string json_list(const std::vector<std::string>& elements) {
  return elements.empty() ? "[]" : fmt::format("[\n    {}\n  ]", fmt::join(elements, ",\n    "));
}

/// As a string of gnuplot's.
std::string plotted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

}  // namespace

std::string text_report(const Matrix& matrix) {
  std::string text = matrix.hosts() <= columns_max ? square(matrix) : lines(matrix);
  for (const std::vector<std::string>& list : {find_outliers(matrix), problems(matrix)})
    if (!list.empty()) text += fmt::format("\n{}\n", printable(fmt::format("{}", fmt::join(list, "\n"))));
  return text;
}

std::string json_report(const Matrix& matrix, const std::string& file, double seconds) {
  std::vector<std::string> hosts;
  std::vector<std::string> pairs;
  std::vector<std::string> outliers;
  for (std::uint32_t from = 0; from < matrix.hosts(); ++from) {
    const std::string& problem = matrix.problem(from);
    hosts.push_back(problem.empty() ? fmt::format(R"({{"name": {}}})", json_string(matrix.name(from)))
                                    : fmt::format(R"({{"name": {}, "problem": {}}})", json_string(matrix.name(from)),
                                                  json_string(problem)));
    for (std::uint32_t to = 0; to < matrix.hosts(); ++to)
      if (to != from) pairs.push_back(json_pair(matrix, from, to));
  }
  for (const std::string& line : find_outliers(matrix)) outliers.push_back(json_string(line));
  return fmt::format(
      "{{\n  \"file\": {},\n  \"seconds\": {:g},\n  \"hosts\": {},\n  \"pairs\": {},\n"
      "  \"outliers\": {}\n}}\n",
      json_string(file), seconds, json_list(hosts), json_list(pairs), json_list(outliers));
}

std::string picture_script(const Matrix& matrix, const std::string& path) {
  const std::uint32_t hosts = matrix.hosts();
  const bool labels = hosts <= columns_max;
  const std::uint32_t side = std::clamp<std::uint32_t>(72 * hosts, 320, 1600);
  std::string ticks;
  for (std::uint32_t host = 0; host < hosts; ++host)
    ticks += fmt::format("{}{} {}", host == 0 ? "" : ", ", plotted(printable(matrix.name(host))), host);
  std::string text = fmt::format(
      "set terminal pngcairo noenhanced size {},{} font 'sans,10'\n"
      "set output {}\n"
      "set title 'Rates in MB/s{}, from the host of the row to that of the column'\n"
      "set xtics ({}) rotate by 45 right scale 0\n"
      "set ytics ({}) scale 0\n"
      "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\n"
      "set logscale cb\nset format cb '%g'\n"
      "set palette defined (0 '#c6402d', 0.5 '#f8e3c0', 1 '#4b9bc9')\n"
      "$pairs << EOD\n",
      side + 200, side + 140, plotted(path), labels ? " and round trips in ms" : "", ticks, ticks, hosts - 0.5,
      hosts - 0.5);
  for (std::uint32_t from = 0; from < hosts; ++from) {
    for (std::uint32_t to = 0; to < hosts; ++to) {
      const Measurement* const m = matrix.find(from, to);
      text += m == nullptr ? fmt::format("{} {} NaN {} -\n", to, from, from == to ? "-" : "?")
                           : fmt::format("{} {} {:.6g} {} {}\n", to, from, std::max(m->rate() / 1e6, 1e-6),
                                         rate_text(m->rate()), milliseconds(m->round_trip));
    }
  }
  text += "EOD\nplot $pairs using 1:2:3 with image notitle";
  if (labels)
    text +=
        ", $pairs using 1:2:4 with labels offset 0,0.5 notitle, "
        "$pairs using 1:2:5 with labels offset 0,-0.6 font 'sans,8' notitle";
  return text + '\n';
}

}  // namespace aplib::launch::net
