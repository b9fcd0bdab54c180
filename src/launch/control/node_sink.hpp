// SPDX-License-Identifier: MIT
// NodeSink: output of a node's cells on its way to the launcher, which puts the pieces together to lines. A node has at most window_bytes under way; who prints faster waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "kernel/programs.hpp"
#include "launch/control/connection.hpp"
#include "launch/control/input_pipes.hpp"

namespace aplib::launch {

class NodeSink final : public OutputSink {
 public:
  static constexpr std::size_t window_bytes = std::size_t{1} << 20;

  /// Both outlive it. `input_for_all`: each cell has an input, not the first alone.
  NodeSink(Connection& connection, InputPipes& input, bool input_for_all)
      : connection_(connection), input_(input), input_for_all_(input_for_all) {}

  void begin(bool with_host) override { with_host_ = with_host; }
  void write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) override;
  void flush(std::uint32_t cell, loader::Stream stream) override {
    connection_.send(Flush{cell, stream == loader::Stream::err});
  }
  int input(std::uint32_t cell) override;
  void ended(std::uint32_t cell, int status) override { connection_.send(EndedCell{cell, status}); }
  void warn(const std::string& line) override { connection_.send(Warning{line}); }

  /// The launcher has passed on so many bytes. Loop's thread.
  void written(std::uint64_t bytes);
  /// Nobody takes output any more: it goes nowhere, and nobody waits. Any thread.
  void drop();

 private:
  Connection& connection_;
  InputPipes& input_;
  const bool input_for_all_;
  bool with_host_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable room_;
  std::uint64_t under_way_ = 0;
  bool dropped_ = false;
};

}  // namespace aplib::launch
