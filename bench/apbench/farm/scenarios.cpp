// SPDX-License-Identifier: MIT
#include "scenarios.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "setup.hpp"

namespace apbench::farm {
namespace {

constexpr std::array cores_of_paper{1U, 10U, 50U, 100U, 200U, 400U};
constexpr std::array kb_of_paper{0.0, 10.0, 100.0, 1e3, 1e4, 1e5};
constexpr unsigned usual_cores = 100;
constexpr double usual_sleep = 30;

constexpr std::array<Scenario, scenario_count> scenarios{{
    {"common data to many cores", "begin / transfer s", "begin / transfer s"},
    {"length of tasks by data that come and go", "total s by its formula", ""},
    {"start-up", "start-up s", "start-up s"},
    {"task data", "Mb/s from the client", "start of the last of 100, s"},
    {"output", "Mb/s", "Mb/s"},
    {"fixed work in n pieces", "total / without start-up s", "total / without start-up s"},
}};

/// A figure of the paper. 0 stands for any.
struct PaperFigure {
  int scenario;
  unsigned cores;
  std::uint64_t tasks;
  double kb;
  std::string_view symphony;
  std::string_view ninf_g;
};
constexpr double any_kb = -1;

// Tables 5.5.1-1, 5.5.2-1, and the text of 5.5.3 to 5.5.6.
constexpr std::array paper_figures{
    PaperFigure{1, 100, 0, 0, "5.6 / 0.6", "21.75 / 0.15"},
    PaperFigure{1, 100, 0, 10, "5.6 / 0.6", "20 / 0.11"},
    PaperFigure{1, 100, 0, 100, "5.71 / 0.71", "18.8 / 0.3"},
    PaperFigure{1, 100, 0, 1e3, "6.52 / 1.52", "22.3 / 1.1"},
    PaperFigure{1, 100, 0, 1e4, "14.4 / 9.4", "32.6 / 9.5"},
    PaperFigure{1, 100, 0, 1e5, "94.7 / 89.7", "110.3 / 90.1"},
    PaperFigure{3, 100, 1, any_kb, "0.1", "3.028"},
    PaperFigure{3, 100, 10, any_kb, "about 5", "6.185"},
    PaperFigure{3, 100, 100, any_kb, "5.6", "19.1 +- 3.1"},
    PaperFigure{3, 100, 0, any_kb, "5.6", ""},
    PaperFigure{4, 400, 1200, 100, "552", ""},
    PaperFigure{4, 200, 600, 100, "548", ""},
    PaperFigure{4, 100, 300, 100, "552", ""},
    PaperFigure{4, 400, 1200, 1e3, "576", ""},
    PaperFigure{4, 200, 600, 1e3, "559", ""},
    PaperFigure{4, 100, 300, 1e3, "567", ""},
    PaperFigure{4, 400, 1200, 1e4, "593", ""},
    PaperFigure{4, 200, 600, 1e4, "584", ""},
    PaperFigure{4, 100, 300, 1e4, "559", ""},
    PaperFigure{4, 100, 100, 0, "", "0.145"},
    PaperFigure{4, 100, 100, 10, "", "0.152"},
    PaperFigure{4, 100, 100, 100, "", "0.239"},
    PaperFigure{4, 100, 100, 1e3, "", "1.1"},
    PaperFigure{4, 100, 100, 1e4, "", "9.72"},
    PaperFigure{5, 400, 0, 100, "281", ""},
    PaperFigure{5, 200, 0, 100, "379", ""},
    PaperFigure{5, 100, 0, 100, "119", "192"},
    PaperFigure{5, 400, 0, 1e3, "479", ""},
    PaperFigure{5, 200, 0, 1e3, "615", ""},
    PaperFigure{5, 100, 0, 1e3, "748", "377"},
    PaperFigure{5, 200, 0, 1e4, "473", ""},
    PaperFigure{5, 100, 0, 1e4, "457", "671"},
    PaperFigure{6, 100, 1, 0, "100.48 / 100.003", "103.15 / 100.126"},
    PaperFigure{6, 100, 10, 0, "15.58 / 10.006", "16.32 / 10.133"},
    PaperFigure{6, 100, 25, 0, "9.56 / 4.006", "13.61 / 4.149"},
    PaperFigure{6, 100, 50, 0, "7.58 / 2.012", "13.32 / 2.188"},
    PaperFigure{6, 100, 100, 0, "6.65 / 1.013", "24.70 / 1.373"},
    PaperFigure{6, 100, 200, 0, "6.63 / 1.023", "21.30 / 1.648"},
    PaperFigure{6, 100, 400, 0, "6.62 / 1.025", "19.69 / 2.229"},
    PaperFigure{6, 100, 1000, 0, "6.65 / 1.037", "20.25 / 3.998"},
    PaperFigure{6, 100, 1, 1e3, "100.50", "104.36"},
    PaperFigure{6, 100, 10, 1e3, "15.64", "13.92"},
    PaperFigure{6, 100, 25, 1e3, "9.82", "16.03"},
    PaperFigure{6, 100, 50, 1e3, "8.03", "16.34"},
    PaperFigure{6, 100, 100, 1e3, "7.49", "23.83"},
    PaperFigure{6, 100, 200, 1e3, "7.96", "22.07"},
    PaperFigure{6, 100, 400, 1e3, "9.50", "27.00"},
    PaperFigure{6, 100, 1000, 1e3, "16.29", "109.39"},
};

/// 5.5.2: 5 s + (work + data there and back at 800 Mb/s, those of all cores) x rounds.
std::string formula_of_symphony(const Case& one) {
  constexpr double bytes_per_second = 100e6;
  const double moved = 2 * one.task_kb * bytes_of_kb * one.cores / bytes_per_second;
  return fmt::format("{:.1f}", 5 + (one.sleep + moved) * static_cast<double>(one.tasks) / one.cores);
}

/// Scenarios 4 and 5: waves of 30 s on different numbers of cores.
std::vector<Case> waves(double Case::*size) {
  std::vector<Case> all;
  for (const unsigned cores : cores_of_paper) {
    for (const std::uint64_t rounds : {1U, 2U, 3U}) {
      for (const double kb : kb_of_paper) {
        Case one{.cores = cores, .tasks = rounds * cores, .sleep = usual_sleep};
        one.*size = kb;
        all.push_back(one);
      }
    }
  }
  return all;
}

std::vector<Case> pieces() {
  std::vector<Case> all;
  for (const double work : {100.0, 10.0}) {
    for (const double kb : {0.0, 10.0, 100.0, 1e3}) {
      for (const std::uint64_t n : {1U, 10U, 25U, 50U, 100U, 200U, 400U, 1000U}) {
        if (work < 100 && n == 1000) continue;  // as in the paper
        all.push_back({.cores = usual_cores, .tasks = n, .sleep = work / static_cast<double>(n), .task_kb = kb});
      }
    }
  }
  return all;
}

std::string data_text(double kb) {
  if (kb >= 1e3) return fmt::format("{:g}M", kb / 1e3);
  return kb == 0 ? "0" : fmt::format("{:g}K", kb);
}

std::string row_head(const Case& one) {
  return fmt::format("{:>5} {:>6} {:>8.6g} {:>6}", one.cores, one.tasks, one.sleep, data_text(one.kb()));
}

}  // namespace

double Case::kb() const { return std::max({task_kb, shared_kb, write_kb}); }

const Scenario& scenario(int number) { return scenarios.at(static_cast<std::size_t>(number - 1)); }

std::vector<Case> cases(int number) {
  std::vector<Case> all;
  switch (number) {
    case 1:
      for (const unsigned cores : cores_of_paper) {
        for (const double kb : kb_of_paper)
          all.push_back({.cores = cores, .tasks = cores, .sleep = usual_sleep, .shared_kb = kb});
      }
      return all;
    case 2:
      for (const double sleep : {0.0, 0.1, 1.0, 10.0, 100.0}) {
        for (const double kb : kb_of_paper) {
          all.push_back(
              {.cores = usual_cores, .tasks = 2 * usual_cores, .sleep = sleep, .task_kb = kb, .write_kb = kb});
        }
      }
      return all;
    case 3:
      for (const std::uint64_t tasks : {1U, 10U, 100U, 1'000U, 10'000U})
        all.push_back({.cores = usual_cores, .tasks = tasks, .sleep = usual_sleep});
      return all;
    case 4:
      return waves(&Case::task_kb);
    case 5:
      return waves(&Case::write_kb);
    default:
      return pieces();
  }
}

Peers peers(int number, const Case& one) {
  if (number == 2) return {.symphony = formula_of_symphony(one), .ninf_g = ""};
  if (number == 6 && std::fabs(one.sleep * static_cast<double>(one.tasks) - 100) > 1e-6) return {};
  for (const PaperFigure& each : paper_figures) {
    if (each.scenario == number && each.cores == one.cores && (each.tasks == 0 || each.tasks == one.tasks) &&
        (each.kb == any_kb || each.kb == one.kb())) {
      return {.symphony = std::string(each.symphony), .ninf_g = std::string(each.ninf_g)};
    }
  }
  return {};
}

Job job_of(const Case& one, double scale) {
  const auto bytes = [](double kb) { return static_cast<std::uint64_t>(kb * bytes_of_kb); };
  return {.nodes = one.cores,
          .sleeps = std::vector<double>(one.tasks, one.sleep / scale),
          .task_bytes = bytes(one.task_kb),
          .shared_bytes = bytes(one.shared_kb),
          .write_bytes = bytes(one.write_kb)};
}

Figures figures(const Job& job, const std::vector<TaskTimes>& times) {
  Figures found;
  std::vector<double> starts;
  double submitted = times.front().submit;
  for (const TaskTimes& each : times) {
    submitted = std::min(submitted, each.submit);
    found.total = std::max(found.total, each.retrieve);
    starts.push_back(each.calc_in);
  }
  std::sort(starts.begin(), starts.end());
  found.standing = found.total - submitted;
  found.first_start = starts.front() - submitted;
  found.all_started = starts[std::min<std::size_t>(job.nodes, starts.size()) - 1] - submitted;
  const std::size_t rounds = (times.size() + job.nodes - 1) / job.nodes;
  found.work = static_cast<double>(rounds) * job.sleeps.front();
  return found;
}

Observation observation(const Job& job, const Figures& found) {
  return {.cores = static_cast<double>(job.nodes),
          .tasks = static_cast<double>(job.sleeps.size()),
          .task_bytes = static_cast<double>(job.task_bytes),
          .shared_bytes = static_cast<double>(job.shared_bytes),
          .write_bytes = static_cast<double>(job.write_bytes),
          .work = found.work,
          .total = found.total};
}

std::string table_head(int number, double scale) {
  const Scenario& about = scenario(number);
  std::string text = fmt::format("Scenario {}: {}", number, about.title);
  if (scale != 1) text += fmt::format("; the sleeps of the table divided by {:g}", scale);
  text += fmt::format("\n{:>5} {:>6} {:>8} {:>6} {:>11} {:>11} {:>11} {:>9} {:>9} {:>9}  | {:<26} | {}\n", "cores",
                      "tasks", "sleep s", "data", "total s", "standing s", "beyond s", "first ms", "all ms", "Mb/s",
                      "Symphony", "Ninf-G");
  const std::string_view ninf_g = about.ninf_g;
  return text + fmt::format("{:>94}  | {:<26} | {}\n", "", about.symphony, ninf_g);
}

std::string table_row(int number, const Case& one, const Job& job, const Figures& found) {
  const double beyond = found.standing - found.work;
  const double users = static_cast<double>(std::min<std::uint64_t>(job.nodes, job.sleeps.size()));
  const double moved = static_cast<double>(job.task_bytes + job.write_bytes) * static_cast<double>(job.sleeps.size()) +
                       static_cast<double>(job.shared_bytes) * users;
  const std::string rate = moved == 0 || beyond <= 0 ? "-" : fmt::format("{:.0f}", moved * 8e-6 / beyond);
  const Peers others = peers(number, one);
  return fmt::format("{} {:>11.6f} {:>11.6f} {:>11.6f} {:>9.3f} {:>9.3f} {:>9}  | {:<26} | {}\n", row_head(one),
                     found.total, found.standing, beyond, found.first_start * 1e3, found.all_started * 1e3, rate,
                     others.symphony, others.ninf_g);
}

std::string table_row(int number, const Case& one, std::string_view why) {
  const Peers others = peers(number, one);
  return fmt::format("{} {:<65}  | {:<26} | {}\n", row_head(one), why, others.symphony, others.ninf_g);
}

}  // namespace apbench::farm
