// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "../measure.hpp"

namespace apbench::farm {
namespace {

constexpr std::size_t terms = Model::terms;
using Row = std::array<double, terms>;

/// Below that, what is beyond the work is the clock's and the scheduler's noise.
constexpr double noise_seconds = 1e-3;
/// Of a column's length: less is left of it than rounding leaves when others explain it.
constexpr double dependent = 1e-9;

Row row_of(const Observation& o) {
  const double with_common = std::min(o.cores, o.tasks);  // a core without a task gets none
  return {1, o.cores, o.tasks, o.task_bytes * o.tasks, o.shared_bytes * with_common, o.write_bytes * o.tasks};
}

/// Solves the normal equations for the terms that are `used`; a term that the ones before it explain becomes 0.
Row solve(const std::vector<Row>& rows, const std::vector<double>& values, const std::array<bool, terms>& used) {
  Row length{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < terms; ++i) length[i] += row[i] * row[i];
  }
  for (double& each : length) each = std::sqrt(each);
  std::array<Row, terms> matrix{};
  Row right{};
  std::array<bool, terms> solved{};
  for (std::size_t i = 0; i < terms; ++i) {
    if (!used[i] || length[i] == 0) continue;
    solved[i] = true;
    for (std::size_t n = 0; n < rows.size(); ++n) {
      right[i] += rows[n][i] / length[i] * values[n];
      for (std::size_t j = 0; j < terms; ++j) {
        if (used[j] && length[j] != 0) matrix[i][j] += rows[n][i] / length[i] * rows[n][j] / length[j];
      }
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {
    solved[i] = solved[i] && matrix[i][i] > dependent;
    for (std::size_t k = i + 1; k < terms && solved[i]; ++k) {
      const double factor = matrix[k][i] / matrix[i][i];
      for (std::size_t j = i; j < terms; ++j) matrix[k][j] -= factor * matrix[i][j];
      right[k] -= factor * right[i];
    }
  }
  Row result{};
  for (std::size_t i = terms; i-- > 0;) {
    if (!solved[i]) continue;
    double rest = right[i];
    for (std::size_t j = i + 1; j < terms; ++j) rest -= matrix[i][j] * result[j];
    result[i] = rest / matrix[i][i];
  }
  for (std::size_t i = 0; i < terms; ++i) result[i] = solved[i] ? result[i] / length[i] : 0;
  return result;
}

std::string seconds_text(double seconds) {
  if (seconds >= 0.1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-4) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} us", seconds * 1e6);
}

}  // namespace

double Model::total(const Observation& what) const {
  const Row row = row_of(what);
  double sum = what.work;
  for (std::size_t i = 0; i < terms; ++i) sum += seconds[i] * row[i];
  return sum;
}

Model fit(const std::vector<Observation>& all) {
  std::vector<Row> rows;
  std::vector<double> values;
  for (const Observation& each : all) {
    const double beyond = each.total - each.work;
    const double weight = 1 / (std::fabs(beyond) + noise_seconds);
    rows.push_back(row_of(each));
    for (double& value : rows.back()) value *= weight;
    values.push_back(beyond * weight);
  }
  std::array<bool, terms> used{};
  used.fill(true);
  Model model;
  for (std::size_t i = 0; i <= terms; ++i) {
    model.seconds = solve(rows, values, used);
    const auto least = std::min_element(model.seconds.begin(), model.seconds.end());
    if (*least >= 0) break;
    used[static_cast<std::size_t>(least - model.seconds.begin())] = false;
  }
  return model;
}

std::string describe(const Model& model, const std::vector<Observation>& all) {
  static constexpr std::array names{"start-up",  "for each core",       "for each task",
                                    "task data", "common data x cores", "output"};
  constexpr std::size_t first_rate = 3;
  std::string text = fmt::format("Model, by {} cases: total = work", all.size());
  auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < terms; ++i) {
    if (model.seconds[i] == 0) continue;
    if (i < first_rate) {
      fmt::format_to(out, " + {} {}", seconds_text(model.seconds[i]), names[i]);
    } else {
      fmt::format_to(out, " + {} / {:.0f} Mb/s", names[i], 8e-6 / model.seconds[i]);
    }
  }
  std::vector<double> errors;
  for (const Observation& each : all)
    errors.push_back(100 * std::fabs(model.total(each) - each.total) / std::max(each.total, noise_seconds));
  std::sort(errors.begin(), errors.end());
  fmt::format_to(out, "\n  error of the total: {:.2f} % in the middle, {:.2f} % at most\n",
                 errors.empty() ? 0 : summarize(errors).median, errors.empty() ? 0 : errors.back());
  text +=
      "  Symphony: total = work + 5.6 s start-up + task data / 830 Mb/s + common data x cores / 880 Mb/s + output / "
      "570 "
      "Mb/s + queueing\n"
      "  Ninf-G:   total = work + 4.2 s start-up + 0.15 s for each core + (task data + common data x cores + output) / "
      "835 Mb/s + queueing\n";
  return text;
}

}  // namespace apbench::farm
