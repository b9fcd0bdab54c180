// SPDX-License-Identifier: MIT
#include "job.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "../measure.hpp"
#include "aplib/error.hpp"

namespace apbench::farm {
namespace {

using aplib::farm::Bytes;
using aplib::farm::Where;

/// What all bytes of common data are. Task data and output have values of their task's number.
constexpr std::byte shared_value{0x5a};
constexpr std::size_t piece_bytes = std::size_t{256} << 10;
/// Data of tasks that wait and data of results may take so much each.
constexpr std::uint64_t waiting_bytes = std::uint64_t{512} << 20;

/// For data of tasks. In processes the farm keeps them until their tasks end, so those that run count, too.
std::uint64_t inputs_limit(const Job& job, Where where) {
  return waiting_bytes + (where == Where::threads ? 0 : job.nodes * job.task_bytes);
}

std::byte value_of(std::uint64_t task) { return static_cast<std::byte>(task % 251); }

/// Reads all of it.
bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() || (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

[[noreturn]] void fail(const std::string& text) { throw aplib::Error(aplib::Errc::failed, text); }

/// Bytes that may be held at once; who wants more waits. Any one wish is granted when nothing else is held.
class Budget {
 public:
  explicit Budget(std::uint64_t limit) : limit_(limit) {}
  void take(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    less_.wait(lock, [&] { return open_ || held_ == 0 || bytes <= limit_ - std::min(held_, limit_); });
    held_ += bytes;
  }
  void give(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
    less_.notify_all();
  }
  /// Nobody waits any more.
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    less_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable less_;
  const std::uint64_t limit_;
  std::uint64_t held_ = 0;
  bool open_ = false;
};

/// Common data, in memory that threads and forked processes can read: a file without a name.
class SharedData {
 public:
  explicit SharedData(std::uint64_t bytes) : file_(::memfd_create("apbench-shared", MFD_CLOEXEC)) {
    const Bytes piece(piece_bytes, shared_value);
    for (std::uint64_t done = 0; file_ >= 0 && done < bytes;) {
      const ssize_t count = ::write(file_, piece.data(), std::min<std::uint64_t>(piece.size(), bytes - done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) break;
      done += static_cast<std::uint64_t>(count);
      written_ = done;
    }
    if (file_ >= 0 && written_ == bytes) return;
    const int error = errno;
    if (file_ >= 0) ::close(file_);
    fail(fmt::format("no memory for {} bytes of common data: {}; lower SharedDataSize", bytes, std::strerror(error)));
  }
  ~SharedData() { ::close(file_); }
  SharedData(const SharedData&) = delete;
  SharedData& operator=(const SharedData&) = delete;

  [[nodiscard]] int file() const { return file_; }

 private:
  int file_;
  std::uint64_t written_ = 0;
};

void read_shared(int file, std::uint64_t bytes) {
  Bytes piece(std::min<std::uint64_t>(piece_bytes, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::pread(file, piece.data(), piece.size(), static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || !all_are(std::span(piece).first(static_cast<std::size_t>(count)), shared_value))
      throw std::runtime_error("the worker did not get the common data");
    done += static_cast<std::uint64_t>(count);
  }
}

std::string own_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

struct Report {
  double calc_in = 0;
  double calc_out = 0;
  std::string host{};
  Bytes output{};

  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.calc_in, self.calc_out, self.host, self.output);
  }
};

/// What a worker does. Plain data, so that it can go to a process.
struct Calculation {
  std::uint64_t task_bytes;
  std::uint64_t shared_bytes;
  std::uint64_t write_bytes;
  int shared_file;
  Budget* inputs;  // in threads; nullptr in processes
  Budget* outputs;

  Report operator()(std::uint64_t task, double sleep, Bytes& data) const {
    thread_local bool has_shared = false;
    if (!has_shared) read_shared(shared_file, shared_bytes);
    has_shared = true;
    if (data.size() != task_bytes || !all_are(data, value_of(task)))
      throw std::runtime_error("the worker did not get the task's data");
    Bytes().swap(data);  // it has read them
    if (inputs != nullptr) inputs->give(task_bytes);
    Report report{.calc_in = now_seconds(), .host = own_host()};
    std::this_thread::sleep_for(std::chrono::duration<double>(sleep));
    report.calc_out = now_seconds();
    if (outputs != nullptr) outputs->take(write_bytes);
    report.output.assign(write_bytes, value_of(task));
    return report;
  }
};

/// The job's side: takes results as they come, on the threads that bring them.
class Results {
 public:
  Results(const Job& job, Where where, double base)
      : inputs(inputs_limit(job, where)),
        outputs(waiting_bytes),
        times(job.sleeps.size()),
        job_(job),
        in_threads_(where == Where::threads),
        base_(base) {}

  void take(std::uint64_t task, const aplib::farm::Future<Report>& future) {
    std::string why;
    try {
      const Report& report = future.get();
      if (report.output.size() != job_.write_bytes || !all_are(report.output, value_of(task)))
        why = "its output is not what it wrote";
      TaskTimes& own = times[task];
      own.retrieve = now_seconds() - base_;
      own.calc_in = report.calc_in - base_;
      own.calc_out = report.calc_out - base_;
      own.host = report.host;
      if (in_threads_) {
        outputs.give(job_.write_bytes);
      } else {
        inputs.give(job_.task_bytes);
      }
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (why.empty()) return;
    inputs.open();  // it has given nothing back
    outputs.open();
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("task {} failed: {}", task, why);
  }

  /// Throws for the first task that failed.
  void check() {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail(failure_);
  }

  Budget inputs;
  Budget outputs;
  std::vector<TaskTimes> times;

 private:
  const Job& job_;
  const bool in_threads_;
  const double base_;
  std::mutex mutex_;
  std::string failure_;
};

}  // namespace

std::uint64_t bytes_needed(const Job& job, Where where) {
  const std::uint64_t running = std::min<std::uint64_t>(job.nodes, job.sleeps.size());
  const std::uint64_t inputs = std::min(inputs_limit(job, where) + job.task_bytes, job.sleeps.size() * job.task_bytes);
  if (where == Where::threads)
    return job.shared_bytes + inputs + std::min(waiting_bytes + job.write_bytes, running * job.write_bytes);
  // On both sides a message, and what is in it.
  return job.shared_bytes + inputs + running * 4 * (job.task_bytes + job.write_bytes);
}

std::uint64_t bytes_available() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::uint64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return std::numeric_limits<std::uint64_t>::max();  // nobody knows
}

std::vector<TaskTimes> run(const Job& job, Where where) {
  const SharedData shared(job.shared_bytes);
  const double base = now_seconds();
  Results results(job, where, base);
  const bool in_threads = where == Where::threads;
  const Calculation calculation{.task_bytes = job.task_bytes,
                                .shared_bytes = job.shared_bytes,
                                .write_bytes = job.write_bytes,
                                .shared_file = shared.file(),
                                .inputs = in_threads ? &results.inputs : nullptr,
                                .outputs = in_threads ? &results.outputs : nullptr};
  try {
    // Its destructor waits for threads, which use what stands above.
    aplib::farm::Farm farm({.where = where,
                            .workers = job.nodes,
                            .bytes_max = std::numeric_limits<std::uint64_t>::max() / 2,
                            .copies = false});
    for (std::uint64_t task = 0; task < job.sleeps.size(); ++task) {
      results.inputs.take(job.task_bytes);
      Bytes data(job.task_bytes, value_of(task));
      results.times[task].submit = now_seconds() - base;
      const auto future = farm.submit(calculation, task, job.sleeps[task], std::move(data));
      // As results come, and so that nobody keeps them.
      future.state()->at_end([&results, task, future] { results.take(task, future); });
      results.check();
    }
    farm.wait();
  } catch (const std::system_error& error) {
    fail(fmt::format("no {} workers: {}; lower NNodes, or see ulimit -u", job.nodes, error.what()));
  }
  results.check();
  return std::move(results.times);
}

std::string columns(const Job& job, const std::vector<TaskTimes>& times) {
  std::string text;
  for (std::size_t task = 0; task < times.size(); ++task) {
    const TaskTimes& own = times[task];
    fmt::format_to(std::back_inserter(text), "{} {:.6f} {:.6f} {:.6f} {:.6f} {:.6f} {}\n", task, job.sleeps[task],
                   own.submit, own.calc_in, own.calc_out, own.retrieve, own.host);
  }
  return text;
}

}  // namespace apbench::farm
