// SPDX-License-Identifier: MIT
// Overseer: sees a machine of several processes as one. It knows when all cells have ended, passes on failures and
// other notes, finds deadlocks that span processes, and answers questions about what runs. It is pure logic: its owner
// (src/launch, or a test) brings the notes to and fro.
//
// Notes are what it and the processes tell each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "aplib/ids.hpp"
#include "aplib/options.hpp"
#include "base/bytes.hpp"
#include "base/cell_map.hpp"

namespace aplib {

// Notes: a byte that says the kind, then fields (base/bytes.hpp) in the order given here. Those who carry notes do not
// look inside.

enum class NoteKind : std::uint8_t {
  // process -> overseer
  failed = 1,  ///< u32 status, text
  /// u64 starts: no cell of the process is live, after so many started programs (besides the first of a machine
  /// without host program)
  all_ended,
  /// u32 cell, u64 tasks, 3 u64 episodes, u32 status, u32s processes that know already;  overseer -> process: the
  /// same without processes
  cell_ended,
  status,       ///< u64 words of the process's cells combined, and its age;  overseer -> process: u32 process, u64
  preset,       ///< u32 word: for cells that have posted none. Both ways.
  start,        ///< StartNote. Both ways.
  lost_peer,    ///< u32 process, text
  quiet,        ///< QuietNote: all processors of the process sleep, and will unless a frame comes
  still,        ///< u64 round, u8 is quiet, QuietNote
  description,  ///< u64 question, text
  // overseer -> process
  stop,   ///< u32 status, text
  over,   ///< nothing
  probe,  ///< u64 round
  ask,    ///< u64 question
};

/// A program for all cells.
struct StartNote {
  Grid grid{0, 0};  ///< And who carries what: the host program may have chosen another grid. 0x0: as it is.
  CellMap cells;
  std::string file;  ///< Empty: the process knows.
  std::uint32_t task = 0;
  bool joins = false;  ///< By the launcher, beside what runs: its collectives are among its own tasks.
  std::vector<std::string> arguments;

  void write(ByteWriter& out) const {
    out.number(grid.nx);
    out.number(grid.ny);
    out.numbers(cells.words());
    out.text(file);
    out.number(task);
    out.number(static_cast<std::uint8_t>(joins));
    out.texts(arguments);
  }
  /// The rest of a note to or from a machine of so many processes. Nothing: it makes no sense.
  static std::optional<StartNote> read(ByteReader& in, std::uint32_t processes) {
    StartNote note;
    note.grid.nx = in.number<std::uint32_t>();
    note.grid.ny = in.number<std::uint32_t>();
    std::optional<CellMap> cells = CellMap::from_words(in.numbers<std::uint32_t>());
    note.file = in.text();
    note.task = in.number<std::uint32_t>();
    const auto joins = in.number<std::uint8_t>();
    note.joins = joins == 1;
    note.arguments = in.texts();
    if (!in.ended() || joins > 1 || !cells || cells->processes() != processes || note.task > task_id_max)
      return std::nullopt;
    const std::uint64_t count = std::uint64_t{note.grid.nx} * note.grid.ny;
    if (count != cells->cells() && !(note.grid.nx == 0 && note.grid.ny == 0)) return std::nullopt;
    note.cells = std::move(*cells);
    return note;
  }
};

struct QuietNote {
  std::uint64_t sent = 0;       ///< Frames this process has sent so far,
  std::uint64_t received = 0;   ///< and taken.
  std::uint8_t host_ended = 0;  ///< The host program was here and is through.
  friend bool operator==(const QuietNote&, const QuietNote&) = default;

  void write(ByteWriter& out) const {
    out.number(sent);
    out.number(received);
    out.number(host_ended);
  }
  static QuietNote read(ByteReader& in) {
    QuietNote note;
    note.sent = in.number<std::uint64_t>();
    note.received = in.number<std::uint64_t>();
    note.host_ended = in.number<std::uint8_t>();
    return note;
  }
};

inline ByteWriter begin_note(NoteKind kind) {
  ByteWriter out;
  out.number(static_cast<std::uint8_t>(kind));
  return out;
}

struct OverseerActions {
  /// Brings a note to a process. Must not call back.
  std::function<void(std::uint32_t process, std::vector<std::byte> note)> send;
  /// The run fails, with this exit status and text. Once: the first failure. All processes have been told to stop.
  std::function<void(int status, const std::string& text)> failed;
  /// Something else has failed since: at the same moment, or as a consequence. Null: nobody wants to know.
  std::function<void(const std::string& text)> failed_too{};
  /// Every cell has ended: the processes have been told, and their runs return.
  std::function<void()> over;
  /// A process has lost its data connection to this one, perhaps because this one has died. The owner waits a moment
  /// for a better cause, and then calls lost() with this one. Null: lost() is called at once.
  std::function<void(std::uint32_t process, const std::string& why)> suspect{};
};

/// Thread safety: none; one thread, or the caller's lock.
class APLIB_API Overseer {
 public:
  /// `names`: of the processes, for messages. `cells` as Process's.
  Overseer(std::vector<std::string> names, CellMap cells, bool deadlock_report, OverseerActions actions);
  ~Overseer();

  /// A note of a process. What makes no sense is a failure that names the process.
  void receive(std::uint32_t process, std::span<const std::byte> note);
  /// A process is gone, for this reason ("its process was killed by signal 9"). The run ends with `status` and a text
  /// that names the process's cells. A process that has returned its report may go.
  void lost(std::uint32_t process, const std::string& why, int status = static_cast<int>(ExitStatus::peer_lost));
  /// Ends the run, as a failure would.
  void stop(int status, const std::string& text);

  /// Starts a further program on all cells, as ccreat() of a host program does. `file` as
  /// Supervisor::program_file() takes it.
  void start_program(const std::string& file, std::uint32_t task, const std::vector<std::string>& arguments);
  /// Which process carries which cell; a host program may have chosen another grid than was planned.
  [[nodiscard]] const CellMap& cells() const noexcept;
  /// Asks every process for a line per task; `answer` gets the texts of all processes, in order, when all have come.
  void ask_tasks(std::function<void(std::string)> answer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib
