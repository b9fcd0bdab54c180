// SPDX-License-Identifier: MIT
// What apctl net decides and says. net_test.py measures.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/net/matrix.hpp"
#include "launch/net/measurement.hpp"
#include "launch/net/pace.hpp"
#include "launch/net/report.hpp"
#include "launch/net/tournament.hpp"

namespace aplib::launch::net {
namespace {

TEST(NetTournament, EachMeetsEachOnceAndOneAtATime) {
  for (std::uint32_t hosts = 1; hosts <= 40; ++hosts) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> met;
    ASSERT_LE(rounds_of(hosts), hosts);
    for (std::uint32_t round = 0; round < rounds_of(hosts); ++round) {
      std::uint32_t resting = 0;
      for (std::uint32_t host = 0; host < hosts; ++host) {
        const auto partner = partner_of(hosts, round, host);
        if (!partner) {
          ++resting;
          continue;
        }
        ASSERT_NE(*partner, host);
        ASSERT_LT(*partner, hosts);
        ASSERT_EQ(partner_of(hosts, round, *partner), host) << hosts << " hosts, round " << round;
        ASSERT_EQ(round_of(hosts, host, *partner), round);
        if (host < *partner) {
          ASSERT_TRUE(met.emplace(host, *partner).second);
        }
      }
      ASSERT_EQ(resting, hosts % 2);
    }
    ASSERT_EQ(met.size(), hosts * (hosts - 1) / 2);
  }
}

Measurement measured(std::uint32_t from, std::uint32_t to, double mbyte_per_second, double round_trip_ms = 1) {
  Measurement m;
  m.from = from;
  m.to = to;
  m.round_trip = m.round_trip_median = round_trip_ms / 1e3;
  m.bytes = mbyte_per_second * 1e6;
  m.time = 1;
  m.streams = 1;
  m.sent = m.bytes;
  m.busy = 1;
  return m;
}

TEST(NetMeasurement, ALineSaysAllOfIt) {
  Measurement m = measured(3, 12, 0.1 + 0.2, 14.39);
  m.sent_again = 1e-9;
  m.receiver_cores = 0.25;
  const std::string line = measurement_line(m);
  ASSERT_EQ(line.back(), '\n');
  const auto read = read_measurement(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(read);
  EXPECT_EQ(measurement_line(*read), line);
  EXPECT_EQ(read->rate(), m.rate());
  EXPECT_EQ(read->to, 12U);
  EXPECT_EQ(read_round("round 7"), 7U);
}

TEST(NetMeasurement, OtherLinesAreNone) {
  const std::string line = measurement_line(measured(0, 1, 5));
  for (const std::string& text :
       {std::string(), std::string("measured"), line, line.substr(0, line.size() / 2), "x" + line, line + " 1",
        std::string("measured 0 1 nan 1 1 1 1 1 1 1 1 1 1 1"), std::string("measured 0 1 -1 1 1 1 1 1 1 1 1 1 1 1")})
    EXPECT_FALSE(read_measurement(text)) << text;
  for (const char* text : {"round", "round ", "round -1", "round 1 2", "rounds 1"}) EXPECT_FALSE(read_round(text));
}

TEST(NetMeasurement, TheSideThatLimits) {
  Measurement m = measured(0, 1, 5);
  EXPECT_EQ(m.limit(), Limit::path);
  m.sender_limited = 0.6;
  EXPECT_EQ(m.limit(), Limit::sender_buffer);
  m.receiver_limited = 0.7;
  EXPECT_EQ(m.limit(), Limit::receiver_buffer);
  m.receiver_cores = 0.95;
  EXPECT_EQ(m.limit(), Limit::receiver_processor);
  m.sender_cores = 0.95;
  EXPECT_EQ(m.limit(), Limit::sender_processor);
  m = measured(0, 1, 5);
  m.streams = 0;
  EXPECT_EQ(m.limit(), Limit::unknown);
}

/// Runs a stream over a path with that rate (bytes per second) and round trip, and returns the largest amount that was
/// under way, in seconds of the rate.
double run_pace(double rate, double round_trip, double seconds, double& delivered) {
  Pace pace(round_trip);
  struct Sent {
    double heard;
    std::size_t bytes;
  };
  std::deque<Sent> under_way;
  double link_free = 0;
  double now = 0;
  double most = 0;
  delivered = 0;
  while (now < seconds) {
    while (pace.may_send()) {
      const std::size_t bytes = pace.message();
      link_free = std::max(link_free, now) + static_cast<double>(bytes) / rate;
      under_way.push_back({link_free + round_trip, bytes});
      pace.sent(bytes);
    }
    most = std::max(most, static_cast<double>(pace.under_way()) / rate);
    now = under_way.front().heard;
    delivered += static_cast<double>(under_way.front().bytes);
    pace.arrived(under_way.front().bytes, now);
    under_way.pop_front();
  }
  return most;
}

TEST(NetPace, FillsAPathWithoutFloodingIt) {
  for (const double rate : {0.5e6, 5e6, 50e6, 110e6, 1.2e9}) {
    for (const double round_trip : {0.0002, 0.01, 0.1, 0.2}) {
      double delivered = 0;
      const double most = run_pace(rate, round_trip, 4, delivered);
      const double fits = std::min(1.0, static_cast<double>(Pace::window_max) / rate / round_trip);
      EXPECT_GT(delivered, 0.6 * fits * rate * 4) << rate << " B/s, " << round_trip << " s";
      EXPECT_LT(most, 2.5 * std::max(0.1, 2 * round_trip) + 1.1 * Pace::window_min / rate)
          << rate << " B/s, " << round_trip << " s";
    }
  }
}

TEST(NetMatrix, KnowsWhatIsOpen) {
  Matrix matrix({"a", "b", "c", "d"});
  EXPECT_EQ(matrix.open_round(), 0U);
  for (std::uint32_t a = 0; a < 4; ++a)
    for (std::uint32_t b = 0; b < 4; ++b)
      if (a != b && round_of(4, a, b) == 0) matrix.add(measured(a, b, 1));
  EXPECT_EQ(matrix.open_round(), 1U);
  matrix.lose(3, "its process was killed");
  EXPECT_FALSE(matrix.is_open(0, 3));
  EXPECT_TRUE(matrix.is_open(0, 1));
  matrix.add(measured(0, 1, 1));
  EXPECT_TRUE(matrix.is_open(0, 1)) << "the other direction is missing";
  matrix.lose(0, 1, "their connection broke");
  EXPECT_FALSE(matrix.is_open(0, 1));
  EXPECT_EQ(matrix.why_not(1, 0), "their connection broke");
  EXPECT_EQ(matrix.why_not(0, 1), "") << "it was measured";
  for (const auto& [a, b] : {std::pair(1U, 2U), std::pair(0U, 2U)}) {
    matrix.add(measured(a, b, 1));
    matrix.add(measured(b, a, 1));
  }
  EXPECT_FALSE(matrix.open_round());
  EXPECT_FALSE(matrix.is_complete());
}

TEST(NetMatrix, IgnoresWhatMakesNoSense) {
  Matrix matrix({"a", "b"});
  matrix.add(measured(0, 0, 1));
  matrix.add(measured(0, 2, 1));
  matrix.add(measured(7, 1, 1));
  EXPECT_EQ(matrix.find(0, 0), nullptr);
  EXPECT_FALSE(matrix.is_complete());
  matrix.add(measured(0, 1, 1));
  matrix.add(measured(1, 0, 1));
  EXPECT_TRUE(matrix.is_complete());
}

/// Table 6 of the paper on RENKEI-PoP, by a tenth.
Matrix seven_sites() {
  const std::vector<std::vector<double>> rates{{0, 1120, 381, 770, 451, 29, 174}, {1120, 0, 418, 761, 450, 19, 172},
                                               {530, 526, 0, 466, 319, 65, 205},  {557, 555, 484, 0, 466, 67, 490},
                                               {412, 413, 299, 376, 0, 48, 748},  {14, 12, 16, 10, 7, 0, 5},
                                               {357, 433, 341, 415, 623, 43, 0}};
  Matrix matrix({"titech", "titech2", "osaka", "nii", "kek", "nagoya", "tkb"});
  for (std::uint32_t from = 0; from < 7; ++from)
    for (std::uint32_t to = 0; to < 7; ++to)
      if (from != to) matrix.add(measured(from, to, rates[from][to] / 10));
  return matrix;
}

TEST(NetOutliers, NamesTheHostAndItsSide) {
  EXPECT_EQ(find_outliers(seven_sites()),
            (std::vector<std::string>{
                "nagoya: 0.5 to 6.7 MB/s both ways, the others 17 to 112: its own link limits",
                "titech to tkb: 17 MB/s, where titech sends up to 112 and tkb receives up to 75: the path between them "
                "limits",
                "titech2 to tkb: 17 MB/s, where titech2 sends up to 112 and tkb receives up to 75: the path between "
                "them limits"}));
}

Matrix alike(double mbyte_per_second) {
  Matrix matrix({"a", "b", "c", "d"});
  for (std::uint32_t from = 0; from < 4; ++from)
    for (std::uint32_t to = 0; to < 4; ++to)
      if (from != to) matrix.add(measured(from, to, mbyte_per_second));
  return matrix;
}

TEST(NetOutliers, NoneWhereAllAreAlikeOrTooFew) {
  EXPECT_TRUE(find_outliers(alike(100)).empty());
  EXPECT_TRUE(find_outliers(Matrix({"a", "b", "c"})).empty());
  Matrix two({"a", "b"});
  two.add(measured(0, 1, 100));
  two.add(measured(1, 0, 1));
  EXPECT_TRUE(find_outliers(two).empty());
}

TEST(NetOutliers, OneDirectionAlone) {
  Matrix matrix = alike(100);
  for (std::uint32_t to = 0; to < 3; ++to) {
    Measurement m = measured(3, to, 10);
    m.sender_limited = 0.9;
    matrix.add(m);
  }
  EXPECT_EQ(find_outliers(matrix),
            (std::vector<std::string>{
                "d: sends 10 MB/s, the others 100: its buffers for sending limit (sysctl net.ipv4.tcp_wmem)"}));
  Matrix other = alike(100);
  for (std::uint32_t from = 0; from < 3; ++from) {
    Measurement m = measured(from, 3, 10);
    m.receiver_cores = 0.99;
    other.add(m);
  }
  EXPECT_EQ(find_outliers(other),
            (std::vector<std::string>{"d: receives 10 MB/s, the others 100: its processor limits"}));
}

TEST(NetOutliers, APathWithLoss) {
  Matrix matrix = alike(100);
  Measurement m = measured(1, 2, 8);
  m.sent_again = 0.02 * m.sent;
  matrix.add(m);
  EXPECT_EQ(find_outliers(matrix),
            (std::vector<std::string>{"b to c: 8.0 MB/s, where b sends up to 100 and c receives up to 100: the path "
                                      "between them limits (2.0 % was sent again)"}));
}

TEST(NetReport, TableHasRoundTripAndRate) {
  Matrix matrix({"a", "b", "c"});
  matrix.add(measured(0, 1, 38.1, 9.8));
  matrix.add(measured(1, 0, 0.5, 9.62));
  matrix.lose(2, "its process was killed by signal 9");
  EXPECT_EQ(text_report(matrix),
            "round trip in ms / rate in MB/s, from the host of the row to that of the column\n\n"
            "from \\ to  a           b          c\n"
            "a          -           9.80 / 38  ?\n"
            "b          9.62 / 0.5  -          ?\n"
            "c          ?           ?          -\n"
            "\nc: not measured with all others: its process was killed by signal 9\n");
}

TEST(NetReport, ManyHostsHaveALineEach) {
  std::vector<std::string> names;
  for (std::uint32_t host = 0; host <= columns_max; ++host) names.push_back("h" + std::to_string(host));
  Matrix matrix(names);
  matrix.add(measured(0, 1, 10));
  matrix.add(measured(0, 2, 30));
  matrix.add(measured(0, 3, 20));
  const std::string text = text_report(matrix);
  EXPECT_NE(text.find("h0    1.00 1.00 1.00  10 20 30"), text.npos) << text;
}

TEST(NetReport, TextsOfOthersAreQuoted) {
  Matrix matrix({"a\"'\n", "b"});
  matrix.add(measured(0, 1, 38.1));
  matrix.lose(0, 1, "tab\there");
  const std::string json = json_report(matrix, "x\\y.toml", 2);
  EXPECT_NE(json.find(R"("from": "a\"'\n", "to": "b", "round_trip_ms": 1,)"), json.npos) << json;
  EXPECT_NE(json.find(R"("problem": "tab\there")"), json.npos) << json;
  EXPECT_NE(json.find(R"("file": "x\\y.toml")"), json.npos) << json;
  const std::string script = picture_script(matrix, "it's.png");
  EXPECT_NE(script.find("set output 'it''s.png'"), script.npos) << script;
  EXPECT_EQ(script.find("a\"'\n"), script.npos) << "a name could give gnuplot commands";
}

}  // namespace
}  // namespace aplib::launch::net
