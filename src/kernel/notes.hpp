// SPDX-License-Identifier: MIT
// Notes between a process and the overseer: a byte that says the kind, then fields (base/bytes.hpp) in the order given
// here. Those who carry notes do not look inside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aplib/ids.hpp"
#include "aplib/options.hpp"
#include "base/bytes.hpp"
#include "base/cell_map.hpp"

namespace aplib {

enum class NoteKind : std::uint8_t {
  // process -> overseer
  failed = 1,  ///< u32 status, text
  /// u64 starts: no cell of the process is live, after so many started programs (besides the first of a machine
  /// without host program)
  all_ended,
  /// u32 cell, u64 tasks, 3 u64 episodes, u32s processes that know already;  overseer -> process: the same without
  /// processes
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
  std::vector<std::string> arguments;

  void write(ByteWriter& out) const {
    out.number(grid.nx);
    out.number(grid.ny);
    out.numbers(cells.words());
    out.text(file);
    out.number(task);
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
    note.arguments = in.texts();
    if (!in.ended() || !cells || cells->processes() != processes || note.task > task_id_max) return std::nullopt;
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

}  // namespace aplib
