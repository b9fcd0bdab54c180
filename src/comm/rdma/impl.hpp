// SPDX-License-Identifier: MIT
// The implementation of RdmaModule. One lock orders all calls of the provider, which therefore needs none of its own;
// upcalls are made without it. rdma_module.cpp holds what the kernel calls, the upcalls, remote memory and the end;
// packets.cpp what goes over the fabric.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/rdma/fabric.hpp"
#include "comm/rdma/link.hpp"
#include "comm/rdma/rdma_module.hpp"
#include "comm/rdma/registered_memory.hpp"

namespace aplib::comm::rdma {

class RdmaModule::Impl {
 public:
  using Clock = Link::Clock;
  static constexpr std::uint64_t window_bytes = 128 * 1024;  // On the way to a peer that has not consumed them.
  static constexpr std::size_t packet_bytes_max = sizeof(PacketHeader) + frame_room(Module::large_from_bytes - 1);
  static constexpr std::size_t gathered_bytes = 8 * 1024;  // Waiting frames are gathered into packets of this size.
  static constexpr std::size_t bytes_per_poll = 64 * 1024;
  // A question and its answer wait behind no more than this of remote memory, so that a slow network is no dead peer.
  static constexpr std::size_t transfer_bytes_max = 16 * 1024 * 1024;
  static constexpr std::size_t transfer_part_max = 4 * 1024 * 1024;
  static constexpr std::uint64_t polls_per_look = 64;  // At the clock.

  explicit Impl(Settings settings);
  ~Impl();

  // What the kernel calls, checked.
  void start(Receiver& receiver);
  [[nodiscard]] bool reaches(Peer peer) const noexcept;
  void check(Peer peer, const char* call) const;
  [[nodiscard]] Link& link(Peer peer) noexcept { return links_[peer]; }
  [[nodiscard]] const Link& link(Peer peer) const noexcept { return links_[peer]; }
  [[nodiscard]] std::uint32_t processes() const noexcept { return count_; }
  [[nodiscard]] const std::shared_ptr<Fabric>& fabric() const noexcept { return settings_.fabric; }
  [[nodiscard]] Peer self() const noexcept { return settings_.self; }
  [[nodiscard]] std::string name_of(Peer peer) const;
  [[nodiscard]] Traffic traffic() const noexcept;
  [[nodiscard]] std::string describe(Peer peer) const;
  void let_go() noexcept;
  [[nodiscard]] bool close(std::chrono::nanoseconds linger);
  void abandon();

  void send(Peer to, const Label& label, std::span<const std::byte> body);
  void flush() noexcept;

  bool poll();

  MemoryKey expose(Peer peer, std::span<std::byte> memory);
  void conceal(const MemoryKey& key) noexcept;
  void transfer(Peer peer, Transfer::Kind kind, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                std::uint64_t context);

  // sleeping
  bool arm();
  void disarm() noexcept { sleep_.disarm(); }
  void wait(std::optional<std::chrono::nanoseconds> timeout);
  [[nodiscard]] int descriptor() const noexcept;
  [[nodiscard]] Sleep& sleep() noexcept { return sleep_; }

 private:
  /// What the provider is told to do, and tells of when it is done. The context comes first: the provider writes there.
  struct Operation {
    fi_context2 context;
    Peer peer;
    bool is_packet;
    Transfer transfer;
    PacketBuffers::Buffer* buffer;
    std::size_t bytes;
    std::shared_ptr<Registration> local;
    bool out = false;       ///< The provider has it, or is about to.
    bool given_up = false;  ///< It was told to be over.
  };
  struct Arrival {
    Peer peer;
    PacketBuffers::Buffer* buffer;
    std::size_t bytes;
    std::vector<std::byte> owned;  ///< Where it is, if there is no buffer.
    bool kept = false;             ///< Some of it is in the inbox.
    [[nodiscard]] std::span<const std::byte> frames() const noexcept {
      return std::span(buffer != nullptr ? buffer->memory : owned.data(), bytes).subspan(sizeof(PacketHeader));
    }
  };
  struct Done {
    std::uint64_t context;
    bool ok;
  };

  // Under the lock. Frames out: packets.cpp
  void send_large(Link& link, Peer to, const Label& label, std::span<const std::byte> body);
  void append(Link& link, Peer to, const Label& label, std::span<const std::byte> body, std::uint32_t flags);
  bool post_frame(Link& link, Peer to, const Label& label, std::span<const std::byte> body, std::uint32_t flags);
  bool post_packet(Link& link, Peer to, std::span<std::byte> packet, std::uint64_t token, PacketKind kind);
  bool hand_over(Link& link, Peer to, std::span<std::byte> packet, PacketBuffers::Buffer* in, std::size_t body_bytes);
  [[nodiscard]] PacketHeader header(Link& link, PacketKind kind) const noexcept;
  [[nodiscard]] bool may_pass(const Link& link, std::uint64_t after_writes) const noexcept;
  void control(Link& link, Peer to, PacketKind kind, std::span<const std::byte> content, std::uint64_t token = 0);
  void pump(Link& link, Peer to);
  void pump_all();
  void check_patience(Link& link, Peer peer);
  [[nodiscard]] bool transfers_stand_still(const Link& link) const;
  void note_busy(Link& link, Peer peer);
  void note_sent(Link& link, Peer to);
  void look_for_silence();
  [[nodiscard]] std::chrono::nanoseconds question_after() const noexcept { return settings_.peer_timeout / 8; }
  [[nodiscard]] static bool has_room(const Link& link, std::size_t bytes) noexcept {
    return link.transfers_out == 0 || link.transfer_bytes_out + bytes <= transfer_bytes_max;
  }
  void unstick(Link& link) noexcept;
  bool stick(Link& link, Peer to, int error, const char* call);
  // Greetings: packets.cpp
  void need_greeting(Link& link, Peer to);
  void receive_greeting(Link& link, Peer from, std::uint64_t number, std::span<const std::byte> bytes);
  bool follow(Link& link, Peer from, Greeting& greeting, std::uint64_t number);
  // Packets in, and what completes: packets.cpp
  void take_completions();
  void take_error(fid_cq* queue);
  void over(Operation& operation, int error);
  bool take_packets(std::size_t& bytes);
  void take_packet(PacketBuffers::Buffer* buffer, std::size_t bytes);
  void take_in_order(Link& link, const PacketHeader& head, std::span<const std::byte> packet, Arrival arrival);
  void take_control(Link& link, Peer from, PacketKind kind, std::span<const std::byte> content);
  void give_back(PacketBuffers::Buffer* buffer);
  void fail(Link& link, Peer peer, const std::string& why);
  void ask(Link& link, Peer peer);
  void give_up_transfers(Peer peer);
  void give_credit(Link& link, Peer to);
  void lose(Link& link, Peer peer, const std::string& why, bool tell_it);
  void end(Link& link);
  void drop_queued(Link& link);
  void release_arrivals();
  void release_delivered();
  // Remote memory: rdma_module.cpp
  bool post_transfer(Link& link, Peer peer, const Transfer& transfer);
  void transfer_over(Link& link, Peer peer, const Transfer& transfer, bool ok);
  [[nodiscard]] std::size_t part_bytes() const noexcept;

  // Upcalls, without the lock, on the thread that polls: rdma_module.cpp
  bool deliver(Peer from, std::span<const std::byte> frames, std::size_t credit, bool& called);
  std::size_t deliver_some(Peer from, std::span<const std::byte> frames, bool& called);
  bool deliver_inbox();
  bool tell();
  void begin_large(Peer from, const Label& label, const Rendezvous& rendezvous, bool& called);
  bool wanted(Peer from);

  // The end: rdma_module.cpp
  void discard(Peer from, std::span<const std::byte> frames);
  bool progress_closing();
  [[nodiscard]] bool all_out() const;
  void progress_until(Clock::time_point limit, const std::function<bool()>& done);
  void end_endpoint() noexcept;
  void end_fabric();
  void tell_ends();
  bool arm_locked();
  [[nodiscard]] std::optional<std::chrono::nanoseconds> time_to_sleep(std::optional<std::chrono::nanoseconds> timeout);

  Operation* take_operation();
  void give_operation(Operation* operation) noexcept;

  Settings settings_;
  const std::uint32_t count_;
  Fabric& fabric_;
  const bool sends_after_writes_;  // The provider keeps frames behind writes.
  Receiver* receiver_ = nullptr;
  std::mutex mutex_;
  LinkReports reports_;
  std::deque<Link> links_;
  std::vector<Peer> busy_;
  std::vector<Peer> watched_;
  std::vector<Peer> with_inbox_;  // Thread that polls.
  std::vector<Peer> changed_;     // Links with an end of a large body to tell.
  std::vector<Done> done_;
  std::vector<Done> telling_;           // Thread that polls.
  std::atomic<bool> delivered_{false};  // arrivals_ and freed_ are behind their upcalls: anyone's, under the lock.
  std::vector<Arrival> arrivals_;       // Thread that polls.
  std::vector<std::pair<Peer, std::size_t>> freed_;  // Thread that polls: credit of what left an inbox.
  std::atomic<bool> news_{false};                    // done_, changed_ or reports_ hold something.
  std::size_t operations_out_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_operations_;
  PacketBuffers incoming_;
  PacketBuffers outgoing_;
  RegisteredPool pool_;
  std::unique_ptr<RegistrationCache> cache_;  // Where local buffers must be registered.
  struct Exposure {
    Fid<fid_mr> region;
    std::size_t times = 0;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Exposure> exposed_;  // By address and bytes.
  std::uint64_t polls_ = 0;
  bool closing_ = false;
  bool ended_ = false;
  bool cut_ = false;                // let_go() has closed all connections, and every link is over.
  std::atomic<int> idle_polls_{0};  // Waits since something came, where nobody wakes us.
  Sleep sleep_;

  std::atomic<std::uint64_t> frames_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> frames_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace aplib::comm::rdma
