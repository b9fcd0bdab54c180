// SPDX-License-Identifier: MIT
// scg: runs the program scg beside apbench, and compares its speeds pair by pair within a round.
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <memory>
#include <stdexcept>

#include "benches.hpp"
#include "child.hpp"

namespace apbench {
namespace {

struct Size {
  const char* name;
  const char* cells;
  const char* threads;
  const char* grid;
  const char* iterations;  // at most
};
constexpr std::array<Size, 5> sizes{{{"1x1-on-1", "1x1", "1", "300", "10000"},
                                     {"2x1-on-2", "2x1", "2", "300", "10000"},
                                     {"8x8-on-2", "8x8", "2", "300", "10000"},
                                     {"2x1-on-2-1200", "2x1", "2", "1200", "300"},
                                     {"8x8-on-2-1200", "8x8", "2", "1200", "300"}}};

/// The speed of one over that of another.
struct Ratio {
  const char* name;
  std::size_t over;
  std::size_t under;
};
constexpr std::array<Ratio, 3> ratios{{{"2x1-over-1x1", 1, 0}, {"8x8-over-2x1", 2, 1}, {"8x8-over-2x1-1200", 4, 3}}};

// The number after "name": in the last JSON object of `text`.
double json_number(const std::string& text, const std::string& name) {
  const std::string key = fmt::format("\"{}\":", name);
  const std::size_t at = text.rfind(key);
  double value = 0;
  if (at != std::string::npos) {
    std::size_t begin = at + key.size();
    while (begin < text.size() && text[begin] == ' ') ++begin;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (error == std::errc{}) return value;
  }
  throw std::runtime_error(fmt::format("scg --json printed no number named {}", key));
}

double mflops(const Size& size) {
  constexpr int not_converged = 1;
  return json_number(output_of({beside("scg"), "--cells", size.cells, "--threads", size.threads, "--grid", size.grid,
                                "--max-iter", size.iterations, "--json"},
                               not_converged),
                     "mflops");
}

}  // namespace

// Always runs all, because the ratios need the speeds before them in the round. What --case leaves out is not printed.
void plan_scg(Plan& plan, Machines&, const Wishes&) {
  const auto round = std::make_shared<std::array<double, sizes.size()>>();
  const auto add = [&plan](const char* name, const char* unit, std::function<double(std::uint64_t)> run) {
    plan.push_back({.bench = "scg",
                    .case_name = name,
                    .bytes = 0,
                    .unit = unit,
                    .run = std::move(run),
                    .value = [](double value, std::uint64_t) { return value; },
                    .calibrated = false});
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    add(sizes[i].name, "MFlops", [round, i](std::uint64_t) { return (*round)[i] = mflops(sizes[i]); });
  }
  for (const Ratio& ratio : ratios) {
    add(ratio.name, "ratio", [round, &ratio](std::uint64_t) { return (*round)[ratio.over] / (*round)[ratio.under]; });
  }
}

}  // namespace apbench
