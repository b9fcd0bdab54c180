// SPDX-License-Identifier: MIT
// What apfarm and its worker on a host of a pool say to each other, by messages.hpp. What arrives may be anybody's.
//
//   apfarm                          worker (apfarm --worker)
//     BeginWork               ->
//     FilePiece ...          <->    FilePiece ...               a transfer (launch/files) of what all jobs need
//                             <-    WorkerReady
//     RunJob ... StopJob ...  ->
//     JobFile ...            <->    JobFile ...                 a transfer of what one job needs, or has made
//                             <-    JobOutput ... JobEnded      of one job after the other
//                             <-    Beat                        where nothing else is said for long
//
// A worker ends, with its jobs, when the connection closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farm/apfarm/job_host.hpp"
#include "farm/messages.hpp"

namespace aplib::farm {

inline constexpr std::uint32_t worker_version = 4;
/// Of a job's output in one message.
inline constexpr std::size_t output_piece = std::size_t{64} << 10;
/// A worker beats so often in the time after which its silence means that it is lost.
inline constexpr int beats_in_silence = 4;

enum class WorkMessage : std::uint8_t {
  begin_work = 1,
  run_job,
  stop_job,
  file_piece,
  job_file,
  beat,
  worker_ready,
  job_output,
  job_ended,
  last = job_ended
};

struct BeginWork {
  static constexpr WorkMessage type = WorkMessage::begin_work;
  std::uint32_t version = worker_version;
  std::string jobs{};         ///< As of -j.
  std::string shell{};        ///< Empty: the host's own.
  std::string owner{};        ///< PARALLEL_PID
  std::uint64_t silence = 0;  ///< A worker that says nothing for so many nanoseconds is lost.
  bool has_files = false;     ///< A transfer follows.
  bool cells = false;         ///< As of JobRunner,
  std::uint8_t nice = 0;      ///< this,
  std::string entry{};        ///< and this, too.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.version, self.jobs, self.shell, self.owner, self.silence, self.has_files, self.cells, self.nice,
           self.entry);
  }
};

struct RunJob {
  static constexpr WorkMessage type = WorkMessage::run_job;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  std::uint64_t sequence = 0;
  std::uint32_t slot_number = 0;
  std::string text{};
  std::vector<std::string> words{};
  bool has_files = false;              ///< A transfer follows.
  std::vector<std::string> returns{};  ///< As in JobFileNames,
  bool cleanup = false;                ///< and this, too.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.task, self.slot, self.sequence, self.slot_number, self.text, self.words, self.has_files, self.returns,
           self.cleanup);
  }
};

/// To the worker until the job begins, and from it when the job has ended; the other way what the receiver says. After
/// the job's end, and for others, it says nothing.
struct JobFile {
  static constexpr WorkMessage type = WorkMessage::job_file;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.task, self.slot, self.bytes);
  }
};

struct StopJob {
  static constexpr WorkMessage type = WorkMessage::stop_job;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  Stop how = Stop::term;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.task, self.slot, self.how);
  }
};

struct FilePiece {
  static constexpr WorkMessage type = WorkMessage::file_piece;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.bytes);
  }
};

struct Beat {
  static constexpr WorkMessage type = WorkMessage::beat;
  template <class Self, class Fields>
  static void list(Self& /*self*/, Fields&& fields) {
    fields();
  }
};

struct WorkerReady {
  static constexpr WorkMessage type = WorkMessage::worker_ready;
  std::uint32_t version = worker_version;
  std::uint32_t slots = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.version, self.slots);
  }
};

struct JobOutput {
  static constexpr WorkMessage type = WorkMessage::job_output;
  enum class Stream : std::uint8_t { output, error, last = error };
  std::uint64_t task = 0;
  Stream stream = Stream::output;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.task, self.stream, self.bytes);
  }
};

/// As JobEnd.
struct JobEnded {
  static constexpr WorkMessage type = WorkMessage::job_ended;
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
  bool begun = false;
  std::uint64_t start = 0;  ///< Nanoseconds since 1970.
  std::uint64_t ran = 0;    ///< Nanoseconds.
  std::uint8_t exit_value = 0;
  std::uint8_t signal = 0;
  std::string problem{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.task, self.slot, self.begun, self.start, self.ran, self.exit_value, self.signal, self.problem);
  }
};

}  // namespace aplib::farm
