// SPDX-License-Identifier: MIT
// OneSidedNetwork: one-sided communication between processes by frames. Part of ModuleNetwork, which see for who calls what.
//
//   put          label: address, target cell, its flag, asking cell. Body: the data, which large frames bring straight to its place.
//   put_blocks   the same with strides. Body: BlocksHead, the items one behind the other. A put of more than fits is several frames; flags come with the last.
//   get          label: as put. Body: BlocksHead, GetTail. Answered by a reply.
//   fetch        label: as put. Body: FetchRequest. Answered by a reply.
//   reply        label: number of the request, asking cell. Body: what was asked for. Where it goes is in the asking process's own table, so no peer can write elsewhere.
//   put_landed   label: asking cell. Answers a put that wanted to be acknowledged.
//   carried_out  label: how many data frames of the peer have been carried out; so do replies and put_landed say. This and
//   memory_request, memory_key: for remote_memory.hpp, which carries large ones where the module can.
//
// All frames of two processes arrive in order, and each is carried out before the next is looked at: so is what one cell does to another's memory in order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cell/one_sided.hpp"
#include "comm/module.hpp"
#include "kernel/remote_memory.hpp"

namespace aplib {

enum class FrameKind : std::uint32_t;
class ModuleNetwork;
struct Domain;

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
  /// Frames were sent since the last time it was asked.
  RemoteMemory& memory() noexcept { return memory_; }
  bool has_answered() noexcept { return std::exchange(answered_, false); }

 private:
  /// What a reply brings and where it goes. `id`: the index in the table below, and how often that place has been used above, so that no late reply is taken for another's.
  struct Request {
    std::uint32_t use = 0;
    bool open = false;
    std::uint32_t process = 0;  ///< Who answers.
    std::uint32_t cell = 0;     ///< Whose task asked.
    std::byte* local = nullptr;
    one_sided::Blocks blocks;
    std::int32_t* flag = nullptr;
  };

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
  bool answered_ = false;  // by who polls
  std::mutex requests_mutex_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_requests_;
  std::unique_ptr<std::atomic<std::size_t>[]> expected_bytes_;  // by process: of replies that have not come
};

}  // namespace aplib
