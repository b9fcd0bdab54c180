// SPDX-License-Identifier: MIT
#include "launch/control/node_sink.hpp"

#include <algorithm>

namespace aplib::launch {

void NodeSink::write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_bytes_max));
    bytes = bytes.subspan(piece.size());
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return dropped_ || under_way_ + piece.size() <= window_bytes; });
      if (dropped_) return;
      under_way_ += piece.size();
    }
    connection_.send(OutputPiece{cell, stream == loader::Stream::err, std::as_bytes(piece)});
  }
}

int NodeSink::input(std::uint32_t cell) {
  const bool has_input = cell == host || input_for_all_ || (cell == 0 && !with_host_);
  return has_input ? input_.open(cell) : -1;
}

void NodeSink::written(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    under_way_ -= std::min(under_way_, bytes);
  }
  room_.notify_all();
}

void NodeSink::drop() {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  room_.notify_all();
}

}  // namespace aplib::launch
