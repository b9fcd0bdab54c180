// SPDX-License-Identifier: MIT
// Overseer: sees a machine of several parts as one. It knows when all cells have ended, passes on failures and other notes, finds deadlocks that span parts, and
// answers questions about what runs. Pure logic: whoever owns it brings the notes to and fro (src/launch, or a test).
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
  /// Brings a note to a part. Must not call back.
  std::function<void(std::uint32_t part, std::vector<std::byte> note)> send;
  /// The run fails, with this exit status and text. Once: the first failure. All parts have been told to stop.
  std::function<void(int status, const std::string& text)> failed;
  /// Every cell has ended: the parts have been told, and their runs return.
  std::function<void()> over;
  /// A part has lost its data connection to this one, perhaps because that one has died: wait a moment whether a better cause comes, and then call lost() with this one. Null: lost() is called at once.
  std::function<void(std::uint32_t part, const std::string& why)> suspect{};
};

/// Thread safety: none; one thread, or the caller's lock.
class APLIB_API Overseer {
 public:
  /// `names`: of the parts, for messages. `cells` as Part's.
  Overseer(std::vector<std::string> names, CellMap cells, bool deadlock_report, OverseerActions actions);
  ~Overseer();

  /// A note of a part. What makes no sense is a failure that names the part.
  void receive(std::uint32_t part, std::span<const std::byte> note);
  /// The process of a part is gone, for this reason ("its process was killed by signal 9"). Names the part's cells. A part that has returned its report may go. The run ends with `status`.
  void lost(std::uint32_t part, const std::string& why, int status = static_cast<int>(ExitStatus::peer_lost));
  /// Ends the run, as a failure would.
  void stop(int status, const std::string& text);

  /// Starts a further program on all cells, as ccreat() of a host program does. `file` as Supervisor::program_file() takes it.
  void start_program(const std::string& file, std::uint32_t task, const std::vector<std::string>& arguments);
  /// Which process carries which cell; a host program may have chosen another grid than was planned.
  [[nodiscard]] const CellMap& cells() const noexcept;
  /// Asks every part for a line per task; `answer` gets the texts of all parts, in order, when all have come.
  void ask_tasks(std::function<void(std::string)> answer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aplib
