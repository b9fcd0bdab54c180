// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels.hpp"

namespace scg {

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

/// What stands in both directions in the same order.
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

/// The constant of that text in this instance.
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
