// SPDX-License-Identifier: MIT
// Output: carries what cells write to aprun's standard streams or to files, in whole lines, and finds the cells'
// inputs. A Destination is one such file, pipe or terminal, which many writers share. What one call writes stays
// together. A line that one writer has left open is ended before another writes. Invariants of Output: (1) bytes of one
// cell and stream arrive in order; (2) another cell's output never cuts a line of up to line_bytes_max bytes, unless
// flush() has shown its beginning; it may cut a longer one; (3) each cell holds at most line_bytes_max bytes per stream
// here, whatever it writes.
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

  /// Writes `text`, the next bytes of `writer`, by one system call if the system takes them all. If `text` ends within
  /// a line, that line is the writer's until it continues or another writer comes. False, once: from here on everything
  /// is lost, and problem() says why. Call from: any thread. Blocks as the descriptor does.
  [[nodiscard]] bool write(std::uint64_t writer, std::string_view text);

  /// Whether the open line is `writer`'s.
  [[nodiscard]] bool is_open(std::uint64_t writer);

  [[nodiscard]] bool is_terminal() const noexcept { return terminal_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Why output was lost, for people. Empty: none was. A reader that is gone is not a problem.
  [[nodiscard]] std::string problem();

 private:
  static constexpr std::uint64_t nobody = ~std::uint64_t{0};

  const int descriptor_;
  const std::string name_;
  const os::UniqueFd owned_;  // the same, or none
  const bool terminal_;
  std::mutex mutex_;
  std::uint64_t open_ = nobody;  // the writer whose line is open
  int error_ = 0;
};

/// The writers' streams, by descriptor number.
enum class Channel : std::uint8_t { out = 1, error = 2 };

/// Where output goes and input comes from. Patterns are names of files in which {cid} is the cell's number. Empty:
/// aprun's own streams.
struct OutputPlan {
  std::string output{};
  std::string error{};
  std::string input{};
  bool tags = false;  ///< Each line in a shared destination starts with "[cell] ".
  /// There is only one cell, unless a host program says otherwise, so incomplete lines may be shown.
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

  /// Makes empty output files of cells 0 .. cells - 1 and checks that their input files can be read, so that a failure
  /// comes before anything runs. Throws Error(failed), which names the file and the cause.
  void prepare(std::uint32_t cells, bool with_host);

  /// Sets the function that is called once when output is lost, for example on a full disk. It is called on the thread
  /// that writes, which may be in a task. Call this before anything is written.
  void when_lost(std::function<void(const std::string& problem)> what) { lost_ = std::move(what); }

  /// The next bytes of a cell's stream.
  void write(std::uint32_t cell, Channel channel, std::string_view bytes);
  /// Shows an incomplete line of the host program and of an only cell. On terminals also that of the cell that reads
  /// standard input, which may be a prompt, and one that starts with a carriage return, such as a progress bar.
  void flush(std::uint32_t cell, Channel channel);
  /// The cell writes no more: shows its incomplete line and closes its files.
  void end(std::uint32_t cell);
  /// Calls end() for all cells.
  void end_all();

  /// The descriptor that a cell reads, or -1 for an empty input. Stays valid until end(cell). A file that cannot be
  /// opened counts as empty, and as a problem().
  int input(std::uint32_t cell);

  /// The first output that was lost and why, or nothing.
  [[nodiscard]] std::string problem();

 private:
  /// The incomplete line of a cell.
  struct Line {
    std::string text;
    bool within = false;  // the start of this line was passed on
  };
  struct Cell {
    std::array<Line, 2> lines;
    std::array<std::shared_ptr<Destination>, 2> destinations;
    std::optional<os::UniqueFd> input;  // after the first request; none: it cannot be opened
    std::mutex mutex;                   // a program's own threads write too, beside its tasks
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
  os::UniqueFd folder_;  // where relative names begin, because a cell that asks may be elsewhere (--wd, chdir)
  bool with_host_ = false;
  std::uint32_t prepared_ = 0;  // cells whose files were made
  std::array<std::shared_ptr<Destination>, 2> standard_;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint32_t, std::shared_ptr<Cell>> cells_;
  std::map<std::string, std::weak_ptr<Destination>> files_;
  std::map<std::string, std::shared_ptr<Destination>> shared_files_;
  std::string problem_;
};

/// "3", or "host".
[[nodiscard]] std::string cell_text(std::uint32_t cell);

}  // namespace aplib::launch
