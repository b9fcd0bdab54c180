// SPDX-License-Identifier: MIT
// End: one of two processes that a module joins, with memory that the other may reach. It uses nothing of APlib but the
// module.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "../apbench/buffer.hpp"
#include "comm/kind.hpp"
#include "wire.hpp"

namespace bench_module {

class End final : public aplib::comm::Receiver {
 public:
  /// Connects to the other end, which does the same. Throws Error and std::runtime_error.
  End(const aplib::comm::ModuleKind& kind, const aplib::comm::PortSettings& settings, aplib::comm::Peer self,
      const Wire& wire);

  static constexpr std::size_t arena_bytes = 16U << 20;

  void send(std::span<const std::byte> body) { module_->send(peer_, {}, body); }
  void flush() { module_->flush(); }
  /// Polls until `count` more frames have arrived.
  void await_frames(std::uint64_t count);

  [[nodiscard]] bool reaches_memory() const { return theirs_.has_value(); }
  /// Write to and read from the start of the other's arena; `at` is the place in ours.
  void write(std::size_t bytes, std::size_t at);
  void read(std::size_t bytes, std::size_t at);
  /// Polls until `count` more writes and reads are done.
  void await_transfers(std::uint64_t count);
  /// Polls until the other has written `value`, or a greater one, at the start of our arena.
  void await_word(std::uint64_t value);

  /// The memory that write() sends and read() fills.
  [[nodiscard]] std::span<std::byte> local() { return local_.span(); }
  /// The memory that the other reaches.
  [[nodiscard]] std::span<std::byte> arena() { return arena_.span(); }

  void close() { module_->close(std::chrono::seconds(1)); }

 private:
  struct Opened {
    aplib::comm::MemoryKey key;
    std::uint64_t address = 0;
  };

  bool wants(aplib::comm::Peer) override { return true; }
  void frame(aplib::comm::Peer, const aplib::comm::Label&, std::span<const std::byte>) override { ++frames_; }
  std::byte* large_begin(aplib::comm::Peer, const aplib::comm::Label&, std::size_t bytes) override {
    return bytes <= posted_.size() ? posted_.data() : nullptr;
  }
  void large_end(aplib::comm::Peer, const aplib::comm::Label&, std::size_t, bool complete) override {
    frames_ += complete ? 1U : 0U;
  }
  void peer_lost(aplib::comm::Peer, const std::string& why) override { lost_ = why; }
  void memory_done(std::uint64_t, bool ok) override { ++(ok ? transfers_ : failed_); }

  void poll();

  const aplib::comm::Peer peer_;
  apbench::Buffer arena_{arena_bytes};
  apbench::Buffer local_{arena_bytes, 1};
  apbench::Buffer posted_{arena_bytes};  ///< Where large frames go.
  std::uint64_t frames_ = 0;
  std::uint64_t transfers_ = 0;
  std::uint64_t failed_ = 0;
  std::string lost_;
  std::optional<Opened> theirs_;
  std::unique_ptr<aplib::comm::Module> module_;  // destroyed first, because it calls us
};

}  // namespace bench_module
