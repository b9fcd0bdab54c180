// SPDX-License-Identifier: MIT
// Output: what cells write, brought to aprun's standard streams or to files, whole lines at a time; and where cells
// read from. Destination is one such file, pipe or terminal, shared by many writers: what one call writes stays
// together; a line that one writer has left open is ended before another writes.
//
// Invariants of Output: (1) bytes of one cell and stream arrive in their order; (2) a line of up to line_bytes_max
// bytes is never cut by another cell's output, a longer one may be, where a new line begins; (3) each cell holds at
// most line_bytes_max bytes a stream here, whatever it writes.
#pragma once

#include <fcntl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::launch {

class Destination {
 public:
  /// `descriptor` stays the caller's unless `owned`. `name`: for messages, "standard output".
  Destination(int descriptor, std::string name, bool owned);
  ~Destination() = default;
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  /// Writes `text`, the next bytes of `writer`, by one system call where the system takes them. Where `text` ends
  /// within a line, that line is the writer's until it goes on or another writer comes. False, once: from here on
  /// all is lost, and problem() says why. Call from: any thread. Blocks as the descriptor does.
  [[nodiscard]] bool write(std::uint64_t writer, std::string_view text);

  /// The line that stands open is `writer`'s.
  [[nodiscard]] bool is_open(std::uint64_t writer);

  [[nodiscard]] bool is_terminal() const noexcept { return terminal_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Why output was lost, in words; empty: none was. A reader that is gone is no problem.
  [[nodiscard]] std::string problem();

 private:
  static constexpr std::uint64_t nobody = ~std::uint64_t{0};

  const int descriptor_;
  const std::string name_;
  const os::UniqueFd owned_;  // the same, or none
  const bool terminal_;
  std::mutex mutex_;
  std::uint64_t open_ = nobody;  // whose line lacks its end
  int error_ = 0;
};

/// The writers' streams, by descriptor number.
enum class Channel : std::uint8_t { out = 1, error = 2 };

/// Where output goes and input comes from. Patterns: names of files in which {cid} is the cell's number; empty:
/// aprun's own streams.
struct OutputPlan {
  std::string output{};
  std::string error{};
  std::string input{};
  bool tags = false;  ///< Each line that goes where others' go too starts with "[cell] ".
  /// There is one cell only, unless a host program says otherwise: its lines need not be whole to be shown.
  bool sole = false;
};

/// Thread safety: all functions may be called from any thread.
class Output {
 public:
  static constexpr std::uint32_t host = 0xffff'ffff;  ///< As a cell: the host program.
  static constexpr std::size_t line_bytes_max = std::size_t{1} << 20;

  /// The descriptors stay the caller's.
  explicit Output(OutputPlan plan, int out = 1, int error = 2);
  ~Output() = default;

  /// Makes the output files of cells 0 .. cells - 1, empty, and looks whether their input files can be read, so
  /// that this fails before anything runs. Throws Error(failed) naming file and cause.
  void prepare(std::uint32_t cells, bool with_host);

  /// Who is told, once, when output is lost: a disk is full. On the thread that writes, which may be in a task.
  /// Before anything is written.
  void when_lost(std::function<void(const std::string& problem)> what) { lost_ = std::move(what); }

  /// The next bytes of a cell's stream.
  void write(std::uint32_t cell, Channel channel, std::string_view bytes);
  /// Shows what there is of a line, if that cuts no other line: of the host program, of a sole cell, and on
  /// terminals a line that is drawn again and again (it starts with a carriage return).
  void flush(std::uint32_t cell, Channel channel);
  /// The cell will write no more: shows what it left of a line; closes its files.
  void end(std::uint32_t cell);
  /// end() of everyone.
  void end_all();

  /// The descriptor that a cell reads, or -1 for an empty input. Stays valid until end(cell). A file that cannot be
  /// opened counts as empty, and as a problem().
  int input(std::uint32_t cell);

  /// Output that was lost and why, or nothing. The first of several.
  [[nodiscard]] std::string problem();

 private:
  /// What a cell has written of a line that is not complete.
  struct Line {
    std::string text;
    bool within = false;  // the start of this line was passed on already
  };
  struct Cell {
    std::array<Line, 2> lines;
    std::array<std::shared_ptr<Destination>, 2> destinations;
    std::optional<os::UniqueFd> input;  // once it was asked for; none: it cannot be opened
    std::mutex mutex;                   // a program's own threads write beside its tasks
  };

  static std::size_t slot(Channel channel) { return static_cast<std::size_t>(channel) - 1; }
  static std::uint64_t writer(std::uint32_t cell, Channel channel) {
    return std::uint64_t{cell} << 1 | static_cast<std::uint64_t>(slot(channel));
  }
  [[nodiscard]] bool exclusive(Channel channel) const;
  const std::string& pattern(Channel channel) const { return channel == Channel::out ? plan_.output : plan_.error; }

  std::shared_ptr<Cell> cell_at(std::uint32_t cell);
  Destination& destination(Cell& cell, std::uint32_t id, Channel channel);
  void pass(Cell& cell, std::uint32_t id, Channel channel, std::string_view text);
  void show(Cell& cell, std::uint32_t id, Channel channel);
  [[nodiscard]] int folder() const noexcept { return folder_ ? folder_.get() : AT_FDCWD; }
  void put(Destination& to, std::uint64_t writer, std::string_view text);
  void note(std::string problem);

  const OutputPlan plan_;
  std::function<void(const std::string&)> lost_;
  os::UniqueFd folder_;  // where names of files begin: a cell that asks may be elsewhere (--wd, chdir)
  bool with_host_ = false;
  std::uint32_t prepared_ = 0;  // cells whose files were made
  std::array<std::shared_ptr<Destination>, 2> standard_;
  std::mutex mutex_;  // of what follows
  std::unordered_map<std::uint32_t, std::shared_ptr<Cell>> cells_;
  std::map<std::string, std::weak_ptr<Destination>> files_;
  std::map<std::string, std::shared_ptr<Destination>> shared_files_;
  std::string problem_;
};

/// "3", or "host".
[[nodiscard]] std::string cell_text(std::uint32_t cell);

}  // namespace aplib::launch
