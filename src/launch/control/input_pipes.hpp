// SPDX-License-Identifier: MIT
// InputPipes: what cells of a node read as standard input. It comes from the launcher, piece by piece, as fast as it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "launch/control/event_loop.hpp"

namespace aplib::launch {

class InputPipes {
 public:
  /// `want` asks the launcher for so many more bytes of a cell's input; any thread.
  InputPipes(EventLoop& loop, std::function<void(std::uint32_t cell, std::uint64_t bytes)> want);
  ~InputPipes();
  InputPipes(const InputPipes&) = delete;
  InputPipes& operator=(const InputPipes&) = delete;

  /// The descriptor that the cell reads, the same each time; -1: no more descriptors. Any thread.
  int open(std::uint32_t cell);
  /// What has come for a cell. Loop's thread.
  void take(std::uint32_t cell, std::span<const std::byte> bytes, bool last);
  /// Nothing comes any more: who reads sees the end. Any thread.
  void close_all();

 private:
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

}  // namespace aplib::launch
