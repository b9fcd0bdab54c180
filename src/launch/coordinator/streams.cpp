// SPDX-License-Identifier: MIT
#include "launch/coordinator/streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "launch/wire/protocol.hpp"

namespace aplib::launch::coordinator {

InputCarrier::InputCarrier(Output& output, Deliver deliver) : output_(output), deliver_(std::move(deliver)) {}

InputCarrier::~InputCarrier() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.signal();
  if (thread_.joinable()) thread_.join();
}

void InputCarrier::want(std::uint32_t process, std::uint32_t cell, std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = sources_.try_emplace(cell);
    Source& source = entry->second;
    if (is_new) {
      const int descriptor = output_.input(cell);
      source.process = process;
      source.descriptor.reset(descriptor < 0 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
    }
    source.wanted += bytes;
    if (!thread_.joinable()) thread_ = os::quiet_thread("aprun-input", [this] { carry(); });
  }
  wake_.signal();
}

void InputCarrier::carry() {
  for (;;) {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    std::vector<std::uint32_t> cells;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> without;  // cell, process
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      for (auto& [cell, source] : sources_) {
        if (source.ended || source.wanted == 0) continue;
        if (!source.descriptor) {
          without.emplace_back(cell, source.process);
          source.ended = true;
          continue;
        }
        fds.push_back({source.descriptor.get(), POLLIN, 0});
        cells.push_back(cell);
      }
    }
    for (const auto& [cell, process] : without) deliver_(process, cell, {}, true);
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    wake_.clear();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (fds[i + 1].revents == 0) continue;
      std::unique_lock lock(mutex_);
      Source& source = sources_.at(cells[i]);
      lock.unlock();  // elements of a map stay; other threads use only `wanted`
      read(cells[i], source);
    }
  }
}

void InputCarrier::read(std::uint32_t cell, Source& source) {
  std::array<std::byte, wire::piece_bytes_max> bytes;
  std::size_t most = 0;
  {
    const std::lock_guard lock(mutex_);
    most = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), source.wanted));
  }
  const ssize_t count = ::read(source.descriptor.get(), bytes.data(), most);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  const auto got = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  {
    const std::lock_guard lock(mutex_);
    source.wanted -= got;
    source.ended = got == 0;
  }
  deliver_(source.process, cell, std::span(bytes).first(got), got == 0);
}

OutputCarrier::OutputCarrier(Output& output, std::function<void(std::uint32_t, std::uint64_t)> written)
    : output_(output), written_(std::move(written)), thread_(os::quiet_thread("aprun-output", [this] { carry(); })) {}

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
    constexpr std::uint64_t tell_from = 64 << 10;  // an acknowledgement for each line would cost more than the line
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

}  // namespace aplib::launch::coordinator
