// SPDX-License-Identifier: MIT
// Overseer: sees a machine of several processes as one. It knows when all cells have ended, passes on failures and
// other notes, finds deadlocks that span processes, and answers questions about what runs. It is pure logic: its owner
// (src/launch, or a test) brings the notes to and fro.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "base/cell_map.hpp"

namespace aplib {

struct OverseerActions {
  /// Brings a note to a process. Must not call back.
  std::function<void(std::uint32_t process, std::vector<std::byte> note)> send;
  /// The run fails, with this exit status and text. Once: the first failure. All processes have been told to stop.
  std::function<void(int status, const std::string& text)> failed;
  /// Every cell has ended: the processes have been told, and their runs return.
  std::function<void()> over;
  /// A process has lost its data connection to this one, perhaps because that one has died: wait a moment whether a
  /// better cause comes, and then call lost() with this one. Null: lost() is called at once.
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
  /// A process is gone, for this reason ("its process was killed by signal 9"). Names the process's cells. A
  /// process that has returned its report may go. The run ends with `status`.
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aplib
