// SPDX-License-Identifier: MIT
#include "report.hpp"

#include <aplib/cellos.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace scg {

Speed::Speed(const Job& job, const Outcome& outcome) {
  if (!(outcome.seconds > 0)) return;
  const double updates = static_cast<double>(job.grid.count()) * outcome.iterations;
  mflops = flops_per_unknown * updates / outcome.seconds / 1e6;
  bytes_per_second = bytes_per_unknown * updates / outcome.seconds;
}

namespace {

double message_share(const CellTimes& times) { return times.seconds > 0 ? times.message_seconds / times.seconds : 0; }

/// Share of the threads' time in which no cell computed.
double idle_share(const Outcome& outcome) {
  double computing = 0;
  for (const CellTimes& times : outcome.cell_times) computing += times.seconds - times.message_seconds;
  const double all = outcome.seconds * outcome.threads;
  return all > 0 ? std::clamp(1 - computing / all, 0.0, 1.0) : 0;
}

/// The cells as they lie in the square, north at the top. Large machines get three numbers instead.
std::string message_shares(const Outcome& outcome) {
  constexpr int columns_max = 16;
  std::string text =
      fmt::format("time in messages {:.1f} % of the threads' time; by cell, waiting for other cells included:\n",
                  100 * idle_share(outcome));
  if (outcome.cells.nx > columns_max || outcome.cells.ny > columns_max) {
    std::vector<double> shares;
    for (const CellTimes& times : outcome.cell_times) shares.push_back(message_share(times));
    std::sort(shares.begin(), shares.end());
    return text + fmt::format("                 least {:.1f} %, median {:.1f} %, most {:.1f} %\n", 100 * shares.front(),
                              100 * shares[shares.size() / 2], 100 * shares.back());
  }
  for (int y = outcome.cells.ny - 1; y >= 0; --y) {
    text += "                ";
    for (int x = 0; x < outcome.cells.nx; ++x) {
      text += fmt::format(" {:4.1f} %",
                          100 * message_share(outcome.cell_times[static_cast<std::size_t>(x + y * outcome.cells.nx)]));
    }
    text += '\n';
  }
  return text;
}

/// "1 iteration", "2 iterations".
std::string counted(long long count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// The problem in words: the formula of its solution, or how many charges there are.
std::string description(const Problem& problem) {
  if (problem.charges.empty()) return fmt::format("{}: {}", problem.name, problem.formula);
  return fmt::format("{}: f = sum of {}", problem.name,
                     counted(static_cast<long long>(problem.charges.size()), "point charge"));
}

std::string verdict(const Job& job, const Outcome& outcome) {
  if (outcome.converged) return {};
  if (!std::isfinite(outcome.residual)) return ": stopped, because numbers overflowed; use smaller charges";
  return fmt::format(": not converged (tolerance {:g}); raise --max-iter", job.tolerance);
}

/// JSON has no infinities and no NaN.
std::string json_number(double value, int digits = 6) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null";
}

}  // namespace

std::string text_report(const Job& job, const Outcome& outcome) {
  const Speed speed(job, outcome);
  std::string text = fmt::format("problem          {}\n", description(job.problem));
  text += fmt::format("grid             {} x {}, {} unknowns\n", job.grid.nx, job.grid.ny, job.grid.count());
  text += fmt::format("cells            {} x {} on {}\n", outcome.cells.nx, outcome.cells.ny,
                      counted(outcome.threads, "thread"));
  text += fmt::format("iterations       {}{}\n", outcome.iterations, verdict(job, outcome));
  if (std::isfinite(outcome.residual)) {
    text += fmt::format("residual         {:.3e} |b|; computed afresh from the solution: {:.3e} |b|\n",
                        outcome.residual, outcome.true_residual);
  } else {
    text += "residual         not a number\n";
  }
  if (job.problem.solution != nullptr) {
    text += fmt::format("error            {:.3e} at most, against the exact solution\n", outcome.error_max);
  } else {
    text += "error            the exact solution is not known\n";
  }
  text += fmt::format("time             {:.6f} s\n", outcome.seconds);
  text += fmt::format("speed            {:.0f} MFlops, counting {} operations per unknown and iteration\n",
                      speed.mflops, flops_per_unknown);
  text += fmt::format(
      "memory           {:.1f} GB/s, counting {} bytes per unknown and iteration; triad on the same memory: {:.1f} "
      "GB/s\n",
      speed.bytes_per_second / 1e9, bytes_per_unknown, outcome.threads * outcome.triad_bytes_per_second / 1e9);
  text += fmt::format("loops            {}\n", outcome.instruction_set);
  return text + message_shares(outcome);
}

std::string json_report(const Job& job, const Outcome& outcome) {
  const Speed speed(job, outcome);
  std::string shares;
  for (const CellTimes& times : outcome.cell_times) {
    if (!shares.empty()) shares += ',';
    shares += fmt::format("{:.4f}", message_share(times));
  }
  return fmt::format(
      R"({{"grid":[{},{}],"cells":[{},{}],"iterations":{},"residual":{},"error_max":{},"seconds":{},"mflops":{},)"
      R"("problem":"{}","threads":{},"converged":{},"true_residual":{},"flops_per_unknown":{},"gbytes_per_second":{},)"
      R"("triad_gbytes_per_second":{},"loops":"{}","idle_share":{},"message_shares":[{}]}})",
      job.grid.nx, job.grid.ny, outcome.cells.nx, outcome.cells.ny, outcome.iterations,
      json_number(outcome.residual, 17), job.problem.solution != nullptr ? json_number(outcome.error_max) : "null",
      json_number(outcome.seconds), json_number(speed.mflops), job.problem.name, outcome.threads, outcome.converged,
      json_number(outcome.true_residual), flops_per_unknown, json_number(speed.bytes_per_second / 1e9),
      json_number(outcome.threads * outcome.triad_bytes_per_second / 1e9), outcome.instruction_set,
      json_number(idle_share(outcome)), shares);
}

bool say(std::FILE* stream, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
}

namespace {

/// The name after following links, or the name itself if there is no such file yet.
std::string followed(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  return real != nullptr ? real.get() : path;
}

}  // namespace

OutputFile::OutputFile(std::string what, const std::string& path)
    : what_(std::move(what)), path_(path), target_(followed(path)) {
  struct stat old {};
  const bool exists = stat(target_.c_str(), &old) == 0;
  int file = -1;
  if (!exists || S_ISREG(old.st_mode)) {
    temporary_ = fmt::format("{}.{}.part", target_, getpid());
    file = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? old.st_mode & 0777 : 0666);
    // The file may be writable in a folder that is not.
    if (file < 0 && exists && errno != EEXIST) temporary_.clear();
  }
  if (temporary_.empty()) file = open(target_.c_str(), O_WRONLY | O_CLOEXEC | (S_ISREG(old.st_mode) ? O_TRUNC : 0));
  if (file < 0) {
    const int cause = errno;
    temporary_.clear();
    fail(std::strerror(cause));
  }
  stream_ = fdopen(file, "wb");
  if (stream_ != nullptr) return;
  const int cause = errno;
  close(file);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  fail(std::strerror(cause));
}

OutputFile::~OutputFile() {
  if (stream_ == nullptr) return;  // finished
  std::fclose(stream_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::finish() {
  if (std::fflush(stream_) != 0) fail(std::strerror(errno));
  std::FILE* const stream = std::exchange(stream_, nullptr);
  const bool closed = std::fclose(stream) == 0;
  if (closed && (temporary_.empty() || std::rename(temporary_.c_str(), target_.c_str()) == 0)) return;
  const int cause = errno;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  fail(std::strerror(cause));
}

void OutputFile::fail(const std::string& cause) const {
  throw std::runtime_error(fmt::format("cannot write the {} \"{}\": {}", what_, path_, cause));
}

void write_history(const std::string& path, const Outcome& outcome) {
  OutputFile file("history", path);
  std::string text = "iteration,residual\n";
  for (std::size_t i = 0; i < outcome.history.size(); ++i) text += fmt::format("{},{:.6e}\n", i, outcome.history[i]);
  if (!say(file.stream(), text)) file.fail(std::strerror(errno));
  file.finish();
}

Caption caption_of(const Job& job, const Outcome& outcome) {
  std::string subtitle =
      fmt::format("{} x {} unknowns, {} x {} cells, {}, residual {:.1e}", job.grid.nx, job.grid.ny, outcome.cells.nx,
                  outcome.cells.ny, counted(outcome.iterations, "iteration"), outcome.residual);
  if (job.problem.solution != nullptr) subtitle += fmt::format(", error {:.1e}", outcome.error_max);
  return {description(job.problem), subtitle};
}

bool Progress::possible() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

void Progress::show(int iteration, double residual) {
  if (!on_ || iteration % 32 != 0) return;
  const double now = dgettime();
  if (now < next_) return;
  next_ = now + 0.1;
  draw(iteration, residual);
}

void Progress::draw(int iteration, double residual) {
  constexpr int width = 40;
  const double way = residual > 0 ? std::log(residual) / std::log(tolerance_) : 0;
  const int done = static_cast<int>(std::clamp(way, 0.0, 1.0) * width);
  drawn_ = say(stderr, fmt::format("\r[{:#<{}}{:.<{}}] iteration {}, residual {:.1e} ", "", done, "", width - done,
                                   iteration, residual));
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = !say(stderr, "\r\033[K");
}

}  // namespace scg
