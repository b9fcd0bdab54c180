// SPDX-License-Identifier: MIT
// farm-cell: runs the jobs of one slot of apfarm --cells, each as the program of the only cell of a machine that stays.
// Program files stay loaded, so a job costs an instance, and no process.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/local_socket.hpp"
#include "farm/apfarm/cell_messages.hpp"
#include "kernel/kept_programs.hpp"
#include "launch/this_host.hpp"
#include "launch/thread_locals.h"

namespace aplib::farm {
namespace {

/// The file that a shell would execute; empty: there is none.
std::string found_program(const std::string& name) {
  if (name.find('/') != name.npos) return name;
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  for (;;) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0) return file;
    if (colon == rest.npos) return {};
    rest.remove_prefix(colon + 1);
  }
}

/// Changes when the file does.
using FileState = std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::int64_t, std::int64_t>;

std::optional<FileState> state_of(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

/// A program's streams are this process's, which are the job's.
class JobSink final : public OutputSink {
 public:
  void write(std::uint32_t /*cell*/, loader::Stream stream, std::span<const char> bytes) override {
    const int to = stream == loader::Stream::err ? STDERR_FILENO : STDOUT_FILENO;
    static_cast<void>(os::write_all(to, {bytes.data(), bytes.size()}));
  }
  void flush(std::uint32_t /*cell*/, loader::Stream /*stream*/) override {}
  int input(std::uint32_t /*cell*/) override { return STDIN_FILENO; }
  void ended(std::uint32_t /*cell*/, int status) override { status_ = status; }
  void warn(const std::string& line) override { static_cast<void>(os::write_all(STDERR_FILENO, line + "\n")); }

  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  int status_ = 0;
};

class CellServer {
 public:
  explicit CellServer(os::UniqueFd socket) : socket_(std::move(socket)), machine_(options_for_one()) {}

  /// Until apfarm is gone, or the cell is spent.
  void run() {
    for (;;) {
      const std::optional<CellJob> job = next_job();
      if (!job) return;
      const CellEnded ended = run_job(*job);
      std::fflush(nullptr);
      const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing.get(), fd);
      launch::wire::Bytes bytes;
      append_message(bytes, ended);
      if (!os::send_all(socket_.get(), bytes) || ended.spent) return;
    }
  }

 private:
  struct Known {
    FileState state;
    std::unique_ptr<KeptPrograms> programs;
  };

  static Options options_for_one() {
    Options options = Options::from_environment();
    options.cells = {1, 1};
    return options;
  }

  /// Nothing: apfarm is gone.
  std::optional<CellJob> next_job() {
    for (;;) {
      if (auto job = stream_.next<CellJob>()) return job;
      if (stream_.bad()) throw Error(Errc::failed, "what came is no job of an apfarm of this version");
      std::array<std::byte, 4096> piece;
      os::ReceivedMessage message = os::receive_message(socket_.get(), piece);
      if (message.bytes <= 0) return std::nullopt;
      if (message.passed == CellJob::descriptors)
        for (int fd = 0; fd < static_cast<int>(CellJob::descriptors); ++fd)
          ::dup2(message.descriptors[static_cast<std::size_t>(fd)].get(), fd);
      stream_.add(std::span(piece).first(static_cast<std::size_t>(message.bytes)));
    }
  }

  CellEnded run_job(const CellJob& job) {
    const std::string file = job.words.empty() ? "" : found_program(job.words[0]);
    const std::optional<FileState> state = file.empty() ? std::nullopt : state_of(file);
    if (!state) return refuse(job, "there is no such file");
    if (const std::string why = why_not_loaded(file); !why.empty()) return refuse(job, "it " + why);
    Known& known = known_[file];
    if (known.programs == nullptr || known.state != *state) known = {*state, std::make_unique<KeptPrograms>()};
    JobSink sink;
    ProgramRun run;
    run.file = file;
    run.arguments = job.words;
    if (!job.entry.empty()) {
      run.entry = job.entry;
      run.entry_arguments.assign(job.words.begin() + 1, job.words.end());
      run.arguments.resize(1);
    }
    run.variables = {{"PARALLEL_SEQ", fmt::format("{}", job.sequence)},
                     {"PARALLEL_JOBSLOT", fmt::format("{}", job.slot_number)}};
    try {
      const Report report = run_program(machine_, run, sink, *known.programs);
      const int status = sink.status() != 0 ? sink.status() : report.exit_status;
      return {.loaded = true,
              .spent = !report.reason.empty() || programs_remain(machine_),
              .exit_value = static_cast<std::uint8_t>(status)};
    } catch (const Error& error) {
      return refuse(job, error.what());
    }
  }

  /// A program says itself what is wrong when it is executed.
  static CellEnded refuse(const CellJob& job, const std::string& why) {
    if (job.entry.empty()) return {};
    const std::string name = job.words.empty() ? "" : job.words[0];
    static_cast<void>(os::write_all(STDERR_FILENO, fmt::format("apfarm: --entry {}: {}: {}\n", job.entry, name, why)));
    return {.loaded = true, .exit_value = static_cast<std::uint8_t>(ExitStatus::usage)};
  }

  os::UniqueFd socket_;
  Machine machine_;
  MessageStream stream_;
  std::unordered_map<std::string, Known> known_;
};

}  // namespace
}  // namespace aplib::farm

int main(int /*argc*/, char** argv) {
  using namespace aplib;
  launch::settle(argv, launch::Heap::of_cells);
  static_cast<void>(lend_thread_locals(aplib_thread_locals, sizeof aplib_thread_locals));
  try {
    os::UniqueFd socket(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!socket) os::refuse_descriptor("a cell's socket");
    farm::CellServer(std::move(socket)).run();
  } catch (const std::exception& error) {
    static_cast<void>(os::write_all(STDERR_FILENO, fmt::format("apfarm: {}\n", error.what())));
    ::_exit(1);
  }
  ::_exit(0);  // threads of programs may remain
}
