// SPDX-License-Identifier: MIT
// A peer that has proved the key and then sends invalid data is lost, with a reason, and affects no other peer.
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "comm/rdma/packet.hpp"
#include "rdma_net.hpp"

namespace aplib::comm::test {
namespace {

using rdma::FrameHead;
using rdma::PacketHeader;
using rdma::PacketKind;

/// Plays process 0, packet by packet.
class RawPeer {
 public:
  RawPeer(RdmaNet& net, Node& victim)
      : key_(net.key()), victim_(victim), fabric_(net.fabric(0)), victim_at_(fabric_->insert(net.fabric(1)->name())) {
    int error = 0;
    memory_ = fabric_->enroll(coming_, FI_RECV | FI_SEND, error);
    receive();
  }

  /// With secure = "off" the token is the number of the greeting.
  void greet() {
    Greeting greeting(Greeting::Role::caller, key_,
                      {.secure = Secure::off, .self = 0, .peer = 1, .machine = "machine-of-the-test"});
    while (true) {
      if (const std::vector<std::byte> words = greeting.take_output(); !words.empty())
        put(PacketKind::greeting, words, 0, 0);
      if (greeting.state() != Greeting::State::going) break;
      std::vector<std::byte> packet = take();
      std::span<const std::byte> left = std::span(packet).subspan(sizeof(PacketHeader));
      while (!left.empty() && greeting.state() == Greeting::State::going) {
        const std::size_t part = std::min(left.size(), greeting.wants());
        greeting.receive(left.first(part));
        left = left.subspan(part);
      }
    }
    ASSERT_EQ(greeting.state(), Greeting::State::done) << greeting.words();
  }
  /// The next packet of the pair.
  void send(PacketKind kind, std::span<const std::byte> content = {}, std::uint32_t credit = 0) {
    put(kind, content, credit, sequence_++);
  }
  void put(PacketKind kind, std::span<const std::byte> content, std::uint32_t credit, std::uint32_t sequence) {
    const PacketHeader head{.token = token,
                            .from = 0,
                            .credit = credit,
                            .sequence = sequence,
                            .kind = kind,
                            .version = PacketHeader::this_version,
                            .reserved = 0};
    std::vector<std::byte> packet(sizeof head + content.size());
    std::memcpy(packet.data(), &head, sizeof head);
    if (!content.empty()) std::memcpy(packet.data() + sizeof head, content.data(), content.size());
    Sent& sent = sent_.emplace_back(Sent{{}, std::move(packet)});  // The provider keeps it for an unknown time.
    while (fi_send(fabric_->endpoint(), sent.packet.data(), sent.packet.size(), nullptr, victim_at_, &sent.context) ==
           -FI_EAGAIN) {
      turn();
    }
  }
  /// A frame as it lies in a packet; `bytes` may be wrong.
  static std::vector<std::byte> frame(std::uint32_t bytes, std::uint32_t flags, std::size_t there) {
    const FrameHead head{Label{}, bytes, flags};
    std::vector<std::byte> made(sizeof head + there);
    std::memcpy(made.data(), &head, sizeof head);
    return made;
  }

  static constexpr std::uint64_t token = 77;

 private:
  void turn() {
    victim_.poll();
    fi_cq_entry ignored{};
    static_cast<void>(fi_cq_read(fabric_->sent(), &ignored, 1));
  }
  void receive() {
    void* const descriptor = memory_ ? fi_mr_desc(memory_.get()) : nullptr;
    EXPECT_EQ(fi_recv(fabric_->endpoint(), coming_.data(), coming_.size(), descriptor, FI_ADDR_UNSPEC, &context_), 0);
  }
  std::vector<std::byte> take() {
    fi_cq_msg_entry entry{};
    while (fi_cq_read(fabric_->received(), &entry, 1) != 1) turn();
    std::vector<std::byte> packet(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(entry.len));
    receive();
    return packet;
  }

  struct Sent {
    fi_context2 context;
    std::vector<std::byte> packet;
  };

  JobKey key_;
  Node& victim_;
  std::list<Sent> sent_;
  std::shared_ptr<rdma::Fabric> fabric_;
  fi_addr_t victim_at_;
  std::vector<std::byte> coming_ = std::vector<std::byte>(20 * 1024);
  rdma::Fid<fid_mr> memory_;
  fi_context2 context_{};
  std::uint32_t sequence_ = 0;
};

struct Nonsense {
  std::string name;
  std::string reason;
  std::function<void(RawPeer&)> speak;
};

void PrintTo(const Nonsense& nonsense, std::ostream* out) { *out << nonsense.name; }

class Hostile : public testing::TestWithParam<Nonsense> {};

TEST_P(Hostile, IsLost) {
  RdmaNet net(3, {.secure = Secure::off, .mr_mode = FI_MR_LOCAL});
  Node victim(net, 1, 3);
  Node bystander(net, 2, 3);
  RawPeer raw(net, victim);
  ASSERT_NO_FATAL_FAILURE(raw.greet());
  raw.send(PacketKind::credit);
  victim.recorder().want(0, false);  // Frames are kept until they are wanted.
  for (int i = 0; i < 100; ++i) victim.poll();
  GetParam().speak(raw);
  const bool fills_the_window = GetParam().reason == "sends more than it may";  // as long as nobody wants its frames
  for (int i = 0; victim.recorder().lost(0) == 0; ++i) {
    victim.poll();
    if (i == 1'000 && !fills_the_window) victim.recorder().want(0, true);
  }
  ASSERT_EQ(victim.recorder().lost(0), 1U);
  EXPECT_NE(victim.recorder().why(0).find(GetParam().reason), std::string::npos) << victim.recorder().why(0);
  victim.send(2, 100);
  bystander.send(1, 100'000);
  while (bystander.recorder().frames(1) == 0 || victim.recorder().frames(2) == 0) {
    victim.poll();
    bystander.poll();
  }
  bystander.destroy();
  victim.destroy();
}

std::vector<Nonsense> nonsense() {
  const auto words = [](std::uint64_t number) {
    std::vector<std::byte> bytes(sizeof number);
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
  };
  std::vector<Nonsense> all{
      {"NoKind", "a packet of no kind", [](RawPeer& raw) { raw.send(static_cast<PacketKind>(200)); }},
      {"KindZero", "a packet of no kind", [](RawPeer& raw) { raw.send(PacketKind{}); }},
      {"TakenUnknown", "taken what is not there", [=](RawPeer& raw) { raw.send(PacketKind::taken, words(12)); }},
      {"TakenEmpty", "taken what is not there", [](RawPeer& raw) { raw.send(PacketKind::taken); }},
      {"TooMuchCredit", "consumed more", [](RawPeer& raw) { raw.send(PacketKind::credit, {}, 1); }},
      {"AllCredit", "consumed more", [](RawPeer& raw) { raw.send(PacketKind::credit, {}, ~0U); }},
      {"Repeated", "lost on the way", [](RawPeer& raw) { raw.put(PacketKind::credit, {}, 0, ~0U); }},
      {"FarAhead", "lost on the way", [](RawPeer& raw) { raw.put(PacketKind::credit, {}, 0, 100'000); }},
      {"HalfAHead", "does not fit",
       [](RawPeer& raw) { raw.send(PacketKind::frames, std::vector<std::byte>(sizeof(FrameHead) - 1)); }},
      {"LongerThanThePacket", "does not fit",
       [](RawPeer& raw) { raw.send(PacketKind::frames, RawPeer::frame(4'000, 0, 3'000)); }},
      {"LongestOfAll", "does not fit", [](RawPeer& raw) { raw.send(PacketKind::frames, RawPeer::frame(~0U, 0, 64)); }},
      {"UnknownFlags", "does not fit", [](RawPeer& raw) { raw.send(PacketKind::frames, RawPeer::frame(8, 2, 8)); }},
      {"ShortRendezvous", "does not fit", [](RawPeer& raw) { raw.send(PacketKind::frames, RawPeer::frame(8, 1, 8)); }},
      {"NoLargeSize", "no large size",
       [](RawPeer& raw) { raw.send(PacketKind::frames, RawPeer::frame(sizeof(rdma::Rendezvous), 1, 32)); }},
      {"IgnoresTheWindow", "sends more than it may",
       [](RawPeer& raw) {
         for (int i = 0; i < 200; ++i) raw.send(PacketKind::frames, RawPeer::frame(1'000, 0, 1'000));
       }},
      {"IgnoresTheWindowAhead", "sends more than it may",
       [](RawPeer& raw) {
         for (std::uint32_t i = 0; i < 200; ++i)
           raw.put(PacketKind::frames, RawPeer::frame(1'000, 0, 1'000), 0, 500 + i);
       }},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rdma, Hostile, testing::ValuesIn(nonsense()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace aplib::comm::test
