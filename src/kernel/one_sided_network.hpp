// SPDX-License-Identifier: MIT
// OneSidedNetwork: one-sided communication between processes by frames. It is a part of ModuleNetwork, which says who
// calls what.
//
//   put          label: address, target cell, its flag, asking cell. Body: the data; large frames bring it straight to
//                its place.
//   put_blocks   the same with strides. Body: BlocksHead, then the items one behind the other. A put that does not fit
//                is several frames; flags come with the last.
//   get          label: as put. Body: GetRequest. Answered by a reply.
//   fetch        label: as put. Body: FetchRequest. Answered by a reply.
//   reply        label: number of the request, asking cell. Body: what was asked for. The asking process's own table
//                says where it goes, so no peer can write elsewhere.
//   put_landed   label: asking cell. Answers a put that wanted to be acknowledged.
//   carried_out  label: how many data frames of the peer have been carried out; reply and put_landed say so, too.
//   memory_request, memory_key   for remote_memory.hpp, which carries large data where the module can.
//   heap_request, heap_place     for mapped_heaps.hpp: what lies there needs no frames.
//
// Frames between two processes arrive in order, and each is carried out before the next is looked at. So what one cell
// does to another's memory happens in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cell/one_sided.hpp"
#include "comm/module.hpp"
#include "kernel/mapped_heaps.hpp"
#include "kernel/remote_memory.hpp"
#include "memory/slot.hpp"

namespace aplib {

enum class FrameKind : std::uint32_t;
class ModuleNetwork;
struct Domain;

// ---------------------------------------------------------------- bodies and labels of the frames
// All processes run the same build, so numbers lie as they do in memory.

struct BlocksHead {
  std::uint64_t bytes;
  std::uint64_t count;
  std::int64_t stride;
};

struct GetRequest {
  BlocksHead blocks;
  std::uint64_t id;
};

struct FetchRequest {
  static constexpr std::uint32_t signed_bit = 0x100;
  std::uint64_t operand;
  std::uint64_t expected;
  std::uint64_t id;
  std::uint32_t what;
  std::uint32_t word;  ///< Bytes, and signed_bit.
};

struct OneSidedFrame {
  /// In Label::extra, beside the asking cell.
  static constexpr std::uint32_t acknowledge_bit = 0x8000'0000U;
  static constexpr std::uint32_t note_bit = 0x4000'0000U;  ///< Answer how many data frames have been carried out.
  static constexpr std::uint32_t cell_mask = 0x3fff'ffffU;
  /// A body that is not large, whatever head is in front.
  static constexpr std::size_t small_body_max = comm::Module::large_from_bytes - 64;

  /// Label::task: which word of the cell's slot is the flag, from 1; 0: none.
  static constexpr std::uint64_t flag_words = SlotPlan::bytes / sizeof(std::int32_t);
  static_assert(flag_words < 0xffff'ffffU);
  static std::uintptr_t slot_of(std::uint32_t cell) noexcept { return SlotPlan::at(cell); }
  static std::uint32_t flag_word(std::uint32_t cell, const std::int32_t* flag) noexcept {
    if (flag == nullptr) return 0;
    return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(flag) - slot_of(cell)) / sizeof *flag) + 1;
  }
  static std::int32_t* flag_at(std::uint32_t cell, std::uint32_t word) noexcept {
    return word == 0 ? nullptr : reinterpret_cast<std::int32_t*>(slot_of(cell)) + (word - 1);
  }
  /// Of what a request asks for: to the cell that asks, with the number of the cell that it asks about.
  static comm::Label answer_to(const comm::Label& request) noexcept {
    comm::Label answer = request;
    answer.cell = request.extra & cell_mask;
    answer.extra = request.cell;
    return answer;
  }
};

/// What this thread is doing to a cell's memory for a cell of another process. Should the memory not be there, the
/// thread that polls the network faults, whatever task it runs: the report (signals.cpp) must name who asked.
struct RemoteAccess {
  const char* what;          ///< "put"
  std::uint32_t by;          ///< Cell that asked.
  std::uint32_t cell;        ///< Cell whose memory it is.
  const std::byte* address;  ///< Where it begins.
  std::uint64_t bytes;
};

namespace detail {
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const RemoteAccess* current_remote_access;
}

/// Says so while it lives.
class RemoteAccessScope {
 public:
  explicit RemoteAccessScope(const RemoteAccess& access) noexcept
      : outer_(std::exchange(detail::current_remote_access, &access)) {}
  ~RemoteAccessScope() { detail::current_remote_access = outer_; }
  RemoteAccessScope(const RemoteAccessScope&) = delete;
  RemoteAccessScope& operator=(const RemoteAccessScope&) = delete;

  /// Touches each page, so that what is not there faults here, and not in a system call of the module, to which it
  /// would look like a lost peer.
  static void touch_to_read(const RemoteAccess& access) noexcept;
  static void touch_to_write(const RemoteAccess& access) noexcept;
  /// Raises a flag in `cell`; null: none. `what`: "the flag of a put".
  static void raise(std::int32_t* flag, const char* what, std::uint32_t by, std::uint32_t cell) noexcept;

 private:
  const RemoteAccess* const outer_;
};

class OneSidedNetwork {
 public:
  OneSidedNetwork(ModuleNetwork& network, Domain& domain, std::uint32_t processes);

  // Network's, for tasks.
  void put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge);
  void get(TaskControl& self, const char* call, const one_sided::Copy& copy);
  std::uint64_t fetch(TaskControl& self, const char* call, const one_sided::Operation& operation);

  // The receiver's, while the network is polled. False: the frame made no sense, and that has been told.
  bool frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  std::byte* large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes);
  bool large_end(comm::Peer from, const comm::Label& label, std::size_t bytes);
  RemoteMemory& memory() noexcept { return memory_; }
  /// Frames were sent since the last time it was asked.
  bool has_answered() noexcept { return std::exchange(answered_, false); }

 private:
  /// What a reply brings and where it goes. `id`: the index in the table below, and how often that place has been
  /// used above, so that no late reply is taken for another's.
  struct Request {
    std::uint32_t use = 0;
    bool open = false;
    std::uint32_t process = 0;  ///< Who answers.
    std::uint32_t cell = 0;     ///< Whose task asked.
    std::byte* local = nullptr;
    one_sided::Blocks blocks;
    std::int32_t* flag = nullptr;
  };

  /// All of the copy's remote memory is mapped here. What is done there by frames must be done first:
  /// RemoteMemory::is_settled().
  bool is_mapped(const TaskControl& self, const one_sided::Copy& copy);
  /// A call that needed no frame. Who makes only such calls polls nothing, so this looks now and then what has come.
  void count_mapped() noexcept;
  /// Behind what was done to mapped memory: raises the flag, null for none, and wakes those who wait for flags.
  void arrive(TaskControl& self, const char* call, std::uint32_t cell, std::int32_t* flag);
  class OpenRequest;
  std::uint64_t open_request(const Request& request);
  /// Null: there is no such request of that peer, or it expects another number of bytes. Under requests_mutex_.
  Request* find_request(comm::Peer from, std::uint64_t id, std::size_t bytes) noexcept;
  void close_request(Request& request, std::uint64_t id) noexcept;
  void wait_for_replies(TaskControl& self, std::uint32_t process, std::size_t bytes);
  void send_get(TaskControl& self, const char* call, const one_sided::Copy& copy);
  void finish_put(comm::Peer from, const comm::Label& label);

  // What a label says, checked. False: nonsense.
  bool is_access(comm::Peer from, const comm::Label& label, const one_sided::Blocks& blocks);
  bool put_blocks(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  bool answer_get(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  bool answer_fetch(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  bool take_reply(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  bool put_landed(comm::Peer from, const comm::Label& label);
  /// Answers a frame with this label.
  void answer(comm::Peer to, FrameKind kind, const comm::Label& asked, std::uint64_t key,
              std::span<const std::byte> body);

  ModuleNetwork& network_;
  Domain& domain_;
  RemoteMemory memory_;
  MappedHeaps heaps_;
  std::atomic<std::uint32_t> mapped_calls_{0};
  bool answered_ = false;  // by who polls
  std::mutex requests_mutex_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_requests_;
  std::unique_ptr<std::atomic<std::size_t>[]> expected_bytes_;  // by process: of replies that have not come
};

}  // namespace aplib
