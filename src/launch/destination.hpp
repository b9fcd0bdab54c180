// SPDX-License-Identifier: MIT
// Destination: a file, pipe or terminal that output goes to, shared by many writers. What one call writes stays together; a line that one writer has left open
// is ended before another writes.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace aplib::launch {

/// Writes all of `bytes`: goes on after interruptions, short writes, and on descriptors that do not block. Returns errno, or 0.
int write_all(int descriptor, std::string_view bytes) noexcept;

class Destination {
 public:
  /// `descriptor` stays the caller's unless `owned`. `name`: for messages, "standard output".
  Destination(int descriptor, std::string name, bool owned);
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  /// Writes `text`, the next bytes of `writer`, by one system call where the system takes them. Where `text` ends within a line, that line is the writer's until it goes on or another writer comes.
  /// False, once: from here on all is lost, and problem() says why. Call from: any thread. Blocks as the descriptor does.
  [[nodiscard]] bool write(std::uint64_t writer, std::string_view text);

  /// The line that stands open is `writer`'s.
  [[nodiscard]] bool is_open(std::uint64_t writer);

  [[nodiscard]] bool is_terminal() const noexcept { return terminal_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Why output was lost, in words; empty: none was. A reader who has gone is no problem.
  [[nodiscard]] std::string problem();

 private:
  static constexpr std::uint64_t nobody = ~std::uint64_t{0};

  const int descriptor_;
  const std::string name_;
  const bool owned_;
  const bool terminal_;
  std::mutex mutex_;
  std::uint64_t open_ = nobody;  // whose line lacks its end
  int error_ = 0;
};

}  // namespace aplib::launch
