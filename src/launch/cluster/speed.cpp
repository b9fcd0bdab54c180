// SPDX-License-Identifier: MIT
#include "launch/cluster/speed.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <exception>
#include <latch>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/options.hpp"
#include "base/cpus.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/spawn.hpp"
#include "base/os/thread.hpp"
#include "launch/cluster/document.hpp"

namespace aplib::launch::cluster {

void SpeedMeter::add(double work, Clock::time_point now) {
  work_ += work;
  if (now - last_ >= stop_min) note({now, now - last_, work_});
  last_ = now;
}

void SpeedMeter::note(const Stop& stop) {
  const auto longest = std::ranges::max_element(stops_, {}, &Stop::length);
  if (longest != stops_.end() && 2 * stop.length < longest->length) return;
  std::erase_if(stops_, [&](const Stop& other) { return 2 * other.length < stop.length; });
  stops_.push_back(stop);
}

bool SpeedMeter::enough(Clock::duration time) const {
  const Clock::duration passed = last_ - start_;
  if (passed < time) return false;
  return stops_.empty() || passed >= 3 * time;
}

double SpeedMeter::rate() const {
  Stop from{start_, {}, 0};
  Stop to{last_, {}, work_};
  // Stops that leave most of the time out are a few accidents, not a quota.
  if (stops_.size() > 1 && 2 * (stops_.back().end - stops_.front().end) >= last_ - start_) {
    from = stops_.front();
    to = stops_.back();
  }
  const double seconds = std::chrono::duration<double>(to.end - from.end).count();
  return seconds > 0 ? (to.work - from.work) / seconds : 0;
}

namespace {

constexpr std::size_t arrays = 4;
constexpr std::size_t bytes_min = std::size_t{64} << 20;
constexpr std::size_t bytes_max = std::size_t{128} << 20;
constexpr std::size_t points_min = 64;
constexpr std::size_t points_per_step = 8192;

/// Passes over the arrays in one iteration. Each pass reads and writes some of them, and its rows count for that share
/// of the iteration's work.
class MemoryKernel : public SpeedKernel {
 public:
  explicit MemoryKernel(std::size_t points)
      : n_(points), stride_(points + 2), p_(cells(), 1.0), q_(cells(), 0.0), x_(cells(), 0.0), r_(cells(), 1.0) {}

  double step() override {
    const std::size_t end = std::min(row_ + std::max<std::size_t>(points_per_step / n_, 1), n_ + 1);
    const double done = static_cast<double>((end - row_) * n_);
    double share = 0;
    switch (pass_) {
      case 0:
        stencil(row_, end);
        share = 0.25;  // 3 streams of 12: p, and q twice (it is read before it is written)
        break;
      case 1:
        update(row_, end);
        share = 0.5;  // 6 of 12: p, q, x and r twice
        break;
      default:
        direction(row_, end);
        share = 0.25;  // 3 of 12: r, p twice
    }
    row_ = end;
    if (row_ == n_ + 1) next_pass();
    return done * share;
  }

  [[nodiscard]] double result() const override { return x_[stride_ + 1] + pq_ + rr_; }

 private:
  [[nodiscard]] std::size_t cells() const { return stride_ * stride_; }

  void stencil(std::size_t row, std::size_t end) {
    double sum = 0;
    for (std::size_t y = row; y < end; ++y) {
      const double* p = &p_[y * stride_];
      double* q = &q_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) {
        q[i] = 4.0 * p[i] - p[i - 1] - p[i + 1] - p[i - stride_] - p[i + stride_];
        sum += p[i] * q[i];
      }
    }
    pq_ += sum;
  }

  void update(std::size_t row, std::size_t end) {
    double sum = 0;
    for (std::size_t y = row; y < end; ++y) {
      const double* p = &p_[y * stride_];
      const double* q = &q_[y * stride_];
      double* x = &x_[y * stride_];
      double* r = &r_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) {
        x[i] += alpha_ * p[i];
        r[i] -= alpha_ * q[i];
        sum += r[i] * r[i];
      }
    }
    rr_ += sum;
  }

  void direction(std::size_t row, std::size_t end) {
    for (std::size_t y = row; y < end; ++y) {
      double* p = &p_[y * stride_];
      const double* r = &r_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) p[i] = r[i] + beta_ * p[i];
    }
  }

  void next_pass() {
    row_ = 1;
    pass_ = (pass_ + 1) % 3;
    if (pass_ == 1) {
      alpha_ = pq_ > 0 ? rr_before_ / pq_ : 0;
      rr_ = 0;
    } else if (pass_ == 2) {
      beta_ = rr_before_ > 0 ? rr_ / rr_before_ : 0;
      // It has converged. Smaller numbers would slow down processors, which is not what is measured.
      if (!(rr_ > 1e-20)) restart();
      rr_before_ = rr_;
    } else {
      pq_ = 0;
    }
  }

  void restart() {
    std::ranges::fill(r_, 1.0);
    beta_ = 0;
    rr_ = static_cast<double>(n_ * n_);
  }

  const std::size_t n_;
  const std::size_t stride_;
  std::vector<double> p_, q_, x_, r_;  // with a border of one point, which stays as it is
  std::size_t row_ = 1;
  int pass_ = 0;
  double alpha_ = 0;
  double beta_ = 0;
  double pq_ = 0;
  double rr_ = 0;
  double rr_before_ = 1;
};

class ComputeKernel : public SpeedKernel {
 public:
  double step() override {
    constexpr int rounds = 4096;
    std::array<double, lanes> x = x_;  // registers: the loop below has no loads
    for (int i = 0; i < rounds; ++i) {
      for (double& each : x) each = each * 0.999 + 0.5;
    }
    x_ = x;
    return static_cast<double>(rounds) * lanes;
  }

  [[nodiscard]] double result() const override {
    double sum = 0;
    for (const double each : x_) sum += each;
    return sum;
  }

 private:
  static constexpr int lanes = 16;  // enough independent chains to fill the pipelines of two wide units
  std::array<double, lanes> x_{};
};

}  // namespace

std::unique_ptr<SpeedKernel> make_memory_kernel(std::size_t points) {
  return std::make_unique<MemoryKernel>(std::max(points, points_min));
}

std::unique_ptr<SpeedKernel> make_compute_kernel() { return std::make_unique<ComputeKernel>(); }

std::size_t memory_kernel_points(std::size_t threads) {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1: not known
  const std::size_t wanted = std::clamp(2 * static_cast<std::size_t>(std::max(cache, 0L)), bytes_min, bytes_max);
  const double each = static_cast<double>(wanted) / (static_cast<double>(std::max<std::size_t>(threads, 1)) * arrays);
  return std::max(points_min, static_cast<std::size_t>(std::sqrt(each / sizeof(double))));
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t output_max = 4096;

std::string reason(int error) { return std::generic_category().message(error); }

/// sh, in a group of its own, with its standard output in a pipe.
class Shell {
 public:
  /// Throws std::system_error; Error(exhausted).
  explicit Shell(const std::string& line) {
    os::Pipe pipe = os::Pipe::make();
    output_ = std::move(pipe.reader);
    const int error = spawn(line, pipe.writer.get());
    if (error != 0) throw std::system_error(error, std::generic_category());
  }
  ~Shell() {
    output_.reset();
    if (child_ <= 0) return;
    ::kill(-child_, SIGKILL);
    (void)wait();
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  /// Reads to the end of the output. Nothing if that does not come by `until`.
  std::optional<std::string> read(Clock::time_point until) {
    std::string text;
    std::array<char, 512> piece{};
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd entry{.fd = output_.get(), .events = POLLIN, .revents = 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(left, 0)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return std::nullopt;
      const ssize_t count = ::read(output_.get(), piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      if (text.size() < output_max) text.append(piece.data(), static_cast<std::size_t>(count));
    }
  }

  /// Waits for the end. Returns the exit status, or 128 plus the signal's number. Call once.
  int wait() {
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int spawn(const std::string& line, int output) {
    os::SpawnSettings settings;
    // The job's key comes by a node's standard input, which the command must not read.
    ::posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&settings.actions, output, STDOUT_FILENO);
    std::string shell = "sh";
    std::string option = "-c";
    std::string copy = line;
    std::array<char*, 4> arguments{shell.data(), option.data(), copy.data(), nullptr};
    const int error =
        ::posix_spawn(&child_, "/bin/sh", &settings.actions, &settings.attributes, arguments.data(), environ);
    if (error != 0) child_ = 0;
    return error;
  }

  os::UniqueFd output_;
  pid_t child_ = 0;
};

std::optional<double> parse(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(blanks) + 1 - first);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number) || !(number > 0))
    return std::nullopt;
  return number;
}

}  // namespace

double command_number(const std::string& subject, const std::string& line, std::chrono::seconds time_max) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::failed, fmt::format("{}: the command {} {}", subject, cluster::in_quotes(line), what));
  };
  std::optional<std::string> output;
  int status = 0;
  try {
    Shell shell(line);
    output = shell.read(Clock::now() + time_max);
    if (output) status = shell.wait();
  } catch (const std::system_error& error) {
    refuse(fmt::format("cannot be started: {}", reason(error.code().value())));
  }
  if (!output) refuse(fmt::format("is not done after {} s: use a shorter one", time_max.count()));
  if (status != 0) refuse(fmt::format("failed with status {}: try it on this host", status));
  const auto number = parse(*output);
  if (!number)
    refuse(fmt::format("wrote {}, not a number above 0: it must print that and nothing else",
                       cluster::in_quotes(*output)));
  return *number;
}

namespace {

/// More threads tell nothing more about the speed, and each takes memory.
constexpr std::uint32_t threads_max = 1024;

std::unique_ptr<SpeedKernel> make_kernel(Speed::Kind kind, std::uint32_t threads) {
  return kind == Speed::Kind::compute ? make_compute_kernel() : make_memory_kernel(memory_kernel_points(threads));
}

/// The rate of one thread; all begin together. 0 if it got no memory.
double run(Speed::Kind kind, std::uint32_t threads, std::chrono::milliseconds time, std::latch& start) {
  std::unique_ptr<SpeedKernel> kernel;
  try {
    kernel = make_kernel(kind, threads);
  } catch (const std::bad_alloc&) {
    start.count_down();
    return 0;
  }
  start.arrive_and_wait();
  SpeedMeter meter(SpeedMeter::Clock::now());
  do {
    const double work = kernel->step();
    meter.add(work, SpeedMeter::Clock::now());
  } while (!meter.enough(time));
  return std::isfinite(kernel->result()) ? meter.rate() : 0;
}

double measure(Speed::Kind kind, std::uint32_t threads, std::chrono::milliseconds time) {
  std::vector<double> rates(threads, 0);
  std::latch start(threads);
  std::vector<std::jthread> runners;
  try {
    const os::SignalsBlocked blocked;  // they are for the threads that wait for them
    for (std::uint32_t t = 1; t < threads; ++t)
      runners.emplace_back([&, t] { rates[t] = run(kind, threads, time, start); });
  } catch (const std::system_error& error) {
    start.count_down(threads - static_cast<std::ptrdiff_t>(runners.size()));
    throw Error(Errc::failed, fmt::format("speed: {} threads cannot be started: {}; use fewer threads, or a number as "
                                          "speed",
                                          threads, error.code().message()));
  }
  rates[0] = run(kind, threads, time, start);
  runners.clear();
  double sum = 0;
  for (const double rate : rates) {
    if (!(rate > 0))
      throw Error(Errc::failed, "speed: no memory for a run of the kind \"memory\"; use \"compute\" or a number");
    sum += rate;
  }
  return sum;
}

}  // namespace

double measure_speed(const Speed& speed, std::uint32_t threads, std::chrono::milliseconds time) {
  switch (speed.kind) {
    case Speed::Kind::number:
      return speed.number;
    case Speed::Kind::command:
      return command_number("speed-command", speed.command, speed_command_time_max);
    case Speed::Kind::memory:
    case Speed::Kind::compute:
      break;
  }
  return measure(speed.kind, std::clamp(threads, 1U, threads_max), time);
}

std::uint32_t speed_threads(const std::string& threads) {
  Options options;
  if (!threads.empty()) options.set("threads", threads);
  if (options.threads != Options::threads_auto && options.threads != Options::threads_per_cell) return options.threads;
  return usable_cpu_count(allowed_cpus().size(), cpu_quota());
}

HostSpeed measure_host(const Speed& speed, const std::string& threads, bool needed) {
  const std::uint32_t count = speed_threads(threads);
  return {.speed = needed ? measure_speed(speed, count) : 0, .threads = count};
}

}  // namespace aplib::launch::cluster
