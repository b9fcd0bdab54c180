// SPDX-License-Identifier: MIT
// The input and output of a node's cells, on the way from and to the launcher. InputPipes brings their input piece by
// piece, as fast as they read. NodeSink brings pieces of output to the launcher, which joins them to lines. A node has
// at most window_bytes on their way; a cell that prints faster waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "kernel/programs.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/event_loop.hpp"
#include "launch/wire/run_messages.hpp"

namespace aplib::launch::node {

class InputPipes {
 public:
  /// `want` asks the launcher for this many more bytes of a cell's input. Any thread.
  InputPipes(wire::EventLoop& loop, std::function<void(std::uint32_t cell, std::uint64_t bytes)> want);
  ~InputPipes();
  InputPipes(const InputPipes&) = delete;
  InputPipes& operator=(const InputPipes&) = delete;

  /// The descriptor that the cell reads, the same each time; -1: no more descriptors. Any thread.
  int open(std::uint32_t cell);
  /// Input that has arrived for a cell. Loop's thread.
  void take(std::uint32_t cell, std::span<const std::byte> bytes, bool last);
  /// No more input comes: readers see its end. Any thread.
  void close_all();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class NodeSink final : public OutputSink {
 public:
  static constexpr std::size_t window_bytes = std::size_t{1} << 20;

  /// Both outlive it. `input_for_all`: each cell has an input, not only the first.
  NodeSink(wire::Connection& connection, InputPipes& input, bool input_for_all)
      : connection_(connection), input_(input), input_for_all_(input_for_all) {}

  void begin(bool with_host) override { with_host_ = with_host; }
  void write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) override;
  void flush(std::uint32_t cell, loader::Stream stream) override {
    connection_.send(wire::Flush{cell, stream == loader::Stream::err});
  }
  int input(std::uint32_t cell) override;
  void ended(std::uint32_t cell, int status) override { connection_.send(wire::EndedCell{cell, status}); }
  void warn(const std::string& line) override { connection_.send(wire::Warning{line}); }

  /// The launcher has passed on this many bytes. Loop's thread.
  void written(std::uint64_t bytes);
  /// Discards output from now on, so that no writer waits for a launcher that is gone. Any thread.
  void drop();

 private:
  wire::Connection& connection_;
  InputPipes& input_;
  const bool input_for_all_;
  bool with_host_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable room_;
  std::uint64_t under_way_ = 0;
  bool dropped_ = false;
};

}  // namespace aplib::launch::node
