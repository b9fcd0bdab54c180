// SPDX-License-Identifier: MIT
#include "job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "kernels.hpp"

namespace scg {

namespace {

constexpr double pi = std::numbers::pi;

// sine: one wave. Its f is an eigenvector of the matrix, so CG needs one iteration. It is a check, not a benchmark.
double sine(double x, double y) { return std::sin(pi * x) * std::sin(pi * y); }
double sine_source(double x, double y) { return 2 * pi * pi * sine(x, y); }

// polynomial: degree four in x, the lowest at which the five-point stencil is not exact.
double polynomial(double x, double y) { return 32 * x * x * x * (1 - x) * y * (1 - y); }
double polynomial_source(double x, double y) {
  return 32 * ((12 * x * x - 6 * x) * y * (1 - y) + 2 * x * x * x * (1 - x));
}

// steep: e^(ax) sin(bx) times the same in y with other numbers, so that no symmetry helps.
struct Swell {
  double a;
  double b;
  double operator()(double t) const { return std::exp(a * t) * std::sin(b * t); }
  [[nodiscard]] double second_derivative(double t) const {
    return std::exp(a * t) * ((a * a - b * b) * std::sin(b * t) + 2 * a * b * std::cos(b * t));
  }
};
constexpr Swell steep_x{3, pi};
constexpr Swell steep_y{-2, 2 * pi};
double steep(double x, double y) { return steep_x(x) * steep_y(y); }
double steep_source(double x, double y) {
  return -(steep_x.second_derivative(x) * steep_y(y) + steep_x(x) * steep_y.second_derivative(y));
}

// harmonic: f = 0. Only the edge determines the solution.
double harmonic(double x, double y) { return std::exp(pi * x) * std::sin(pi * y); }
double zero(double, double) { return 0; }

}  // namespace

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{
      {"steep", "u = exp(3x - 2y) sin(pi x) sin(2 pi y)", steep_source, steep},
      {"sine", "u = sin(pi x) sin(pi y)", sine_source, sine},
      {"polynomial", "u = 32 x^3 (1 - x) y (1 - y)", polynomial_source, polynomial},
      {"harmonic", "u = exp(pi x) sin(pi y)", zero, harmonic},
      {"charges",
       "f = sum of point charges",
       nullptr,
       nullptr,
       {{0.3, 0.35, 1.0}, {0.7, 0.35, -1.0}, {0.25, 0.75, -0.5}, {0.5, 0.7, 1.5}, {0.8, 0.8, -1.0}}},
  };
  return all;
}

const Problem* find_problem(std::string_view name) {
  for (const Problem& problem : problems()) {
    if (problem.name == name) return &problem;
  }
  return nullptr;
}

std::string problem_names() {
  std::string names;
  for (const Problem& problem : problems()) {
    if (!names.empty()) names += ", ";
    names += problem.name;
  }
  return names;
}

Charge parse_charge(const std::string& text) {
  const auto refuse = [&](const char* why) {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a charge: {}; use x,y,q with 0 < x < 1 and 0 < y < 1, for example 0.3,0.5,-1", text, why));
  };
  double value[3];
  const char* at = text.c_str();
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && *at++ != ',') refuse("it needs three numbers separated by commas");
    char* end = nullptr;
    value[i] = std::strtod(at, &end);
    if (end == at) refuse("it needs three numbers separated by commas");
    if (!std::isfinite(value[i])) refuse("its numbers must be finite");
    at = end;
  }
  if (*at != '\0') refuse("something follows the third number");
  if (!(value[0] > 0 && value[0] < 1 && value[1] > 0 && value[1] < 1)) refuse("it lies outside the square");
  return {value[0], value[1], value[2]};
}

namespace {
constexpr int side_max = 100'000;  // unknowns in one direction
}  // namespace

GridSize parse_grid(const std::string& text) {
  const auto refuse = [&] {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a grid: use N or NXxNY with 1 to {} unknowns in each direction, for example 300 or 400x300",
        text, side_max));
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [after, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 1 || value > side_max) refuse();
    at = after;
    return value;
  };
  GridSize grid;
  grid.nx = grid.ny = number();
  if (at != end && *at == 'x') {
    ++at;
    grid.ny = number();
  }
  if (at != end) refuse();
  return grid;
}

int default_iterations_max(GridSize grid) { return 100 + 20 * std::max(grid.nx, grid.ny); }

namespace {

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    put_bytes(&value, sizeof value);
  }
  template <class List>
  void put_list(const List& list) {
    put(list.size());
    put_bytes(list.data(), list.size() * sizeof *list.data());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void put_bytes(const void* from, std::size_t count) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + count);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void get(T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    get_bytes(&value, sizeof value);
  }
  template <class List>
  void get_list(List& list) {
    std::size_t count = 0;
    get(count);
    if (count > bytes_.size() / sizeof *list.data()) refuse();
    list.resize(count);
    get_bytes(list.data(), count * sizeof *list.data());
  }
  void end() const {
    if (!bytes_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw std::runtime_error("a message between host program and cells is damaged"); }
  void get_bytes(void* to, std::size_t count) {
    if (count > bytes_.size()) refuse();
    if (count > 0) std::memcpy(to, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  std::span<const std::byte> bytes_;
};

/// The numbers of a job, in the same order for writing and reading.
template <class Wire, class AJob>
void numbers_of_job(Wire&& each, AJob& job) {
  each(job.grid);
  each(job.tolerance);
  each(job.iterations_max);
  each(job.picture_side);
  each(job.wants_history);
  each(job.shows_progress);
}

template <class Wire, class AnOutcome>
void numbers_of_outcome(Wire&& each, AnOutcome& outcome) {
  each(outcome.cells);
  each(outcome.iterations);
  each(outcome.converged);
  each(outcome.residual);
  each(outcome.true_residual);
  each(outcome.error_max);
  each(outcome.seconds);
  each(outcome.threads);
  each(outcome.triad_bytes_per_second);
}

/// This instance's own constant with that text.
const char* instruction_set_named(std::string_view name) {
  for (const Kernels* const* each = usable_kernels(); *each != nullptr; ++each) {
    if (name == (*each)->name) return (*each)->name;
  }
  return "";
}

}  // namespace

std::vector<std::byte> pack(const Job& job) {
  Writer writer;
  numbers_of_job([&](const auto& value) { writer.put(value); }, job);
  writer.put_list(job.problem.name);
  writer.put_list(job.problem.charges);
  return writer.take();
}

Job unpack_job(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Job job;
  numbers_of_job([&](auto& value) { reader.get(value); }, job);
  std::string name;
  reader.get_list(name);
  const Problem* problem = find_problem(name);
  if (problem == nullptr) throw std::runtime_error("a message asks for a problem that is not known: " + name);
  job.problem = *problem;
  reader.get_list(job.problem.charges);
  reader.end();
  return job;
}

std::vector<std::byte> pack(const Outcome& outcome) {
  Writer writer;
  numbers_of_outcome([&](const auto& value) { writer.put(value); }, outcome);
  writer.put_list(std::string_view(outcome.instruction_set));
  writer.put_list(outcome.history);
  writer.put_list(outcome.cell_times);
  writer.put_list(outcome.picture);
  return writer.take();
}

Outcome unpack_outcome(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Outcome outcome;
  numbers_of_outcome([&](auto& value) { reader.get(value); }, outcome);
  std::string instruction_set;
  reader.get_list(instruction_set);
  outcome.instruction_set = instruction_set_named(instruction_set);
  reader.get_list(outcome.history);
  reader.get_list(outcome.cell_times);
  reader.get_list(outcome.picture);
  reader.end();
  return outcome;
}

}  // namespace scg
