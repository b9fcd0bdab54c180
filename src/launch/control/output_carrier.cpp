// SPDX-License-Identifier: MIT
#include "launch/control/output_carrier.hpp"

#include <map>
#include <utility>

namespace aplib::launch {

OutputCarrier::OutputCarrier(Output& output, std::function<void(std::uint32_t, std::uint64_t)> written)
    : output_(output), written_(std::move(written)), thread_([this] { carry(); }) {}

OutputCarrier::~OutputCarrier() {
  {
    const std::lock_guard lock(mutex_);
    items_.clear();
  }
  finish();
}

void OutputCarrier::finish() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OutputCarrier::write(std::uint32_t process, std::uint32_t cell, Channel channel, std::string bytes) {
  add({Kind::bytes, process, cell, channel, std::move(bytes)});
}
void OutputCarrier::flush(std::uint32_t cell, Channel channel) { add({Kind::flush, 0, cell, channel}); }
void OutputCarrier::end(std::uint32_t cell) { add({Kind::end, 0, cell}); }

void OutputCarrier::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void OutputCarrier::carry() {
  for (;;) {
    std::deque<Item> items;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !items_.empty(); });
      if (items_.empty()) return;
      items.swap(items_);
    }
    std::map<std::uint32_t, std::uint64_t> done;
    constexpr std::uint64_t tell_from = 64 << 10;  // a word of thanks for each line would cost more than the line
    for (const Item& item : items) {
      pass(item);
      std::uint64_t& bytes = done[item.process];
      bytes += item.bytes.size();
      if (bytes >= tell_from) written_(item.process, std::exchange(bytes, 0));
    }
    for (const auto& [process, bytes] : done)
      if (bytes > 0) written_(process, bytes);
  }
}

void OutputCarrier::pass(const Item& item) {
  switch (item.kind) {
    case Kind::bytes:
      return output_.write(item.cell, item.channel, item.bytes);
    case Kind::flush:
      return output_.flush(item.cell, item.channel);
    case Kind::end:
      return output_.end(item.cell);
  }
}

}  // namespace aplib::launch
