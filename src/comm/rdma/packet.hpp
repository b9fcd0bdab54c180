// SPDX-License-Identifier: MIT
// What goes over the fabric, little-endian: packets, each with a header of 24 bytes.
//
//   0  token, 8     12  credit, 4      20  kind, 1
//   8  from, 4      16  sequence, 4    21  version, 1; 22  reserved, 2, 0
//
// A packet of frames: frames one behind the other, each padded to 8 bytes: label (24), body bytes (4), flags (4),
// body. flags: 0; or 1: the body is large, and stays with the sender; a Rendezvous stands for it.
//
// token: agreed by the greeting, and known to the two alone; a packet with another one is a stranger's. In a greeting:
//   its number, drawn by the process that begins it.
// sequence: counts the packets of a pair after the greeting; a gap is a loss.
// credit: how many bytes of packets of frames have been consumed since the last packet.
//
// Every word is hostile until it is checked, also from a peer that has proved the key
// (tests/comm/rdma/hostile_test.cpp).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/module.hpp"

namespace aplib::comm::rdma {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

enum class PacketKind : std::uint8_t {
  frames = 1,
  greeting = 2,  ///< Bytes of a Greeting. Token: its number.
  knock = 3,     ///< "Greet me": the process with the lower number begins the greeting. Proves nothing.
  credit = 4,    ///< Nothing but the header.
  taken = 5,     ///< A large body was read: its number, 8 bytes.
  reset = 6,     ///< The sender gives the pair up: why, as text.
  end = 7,       ///< The sender has ended in order; all its frames came before. One byte: 1: it stays for the answer.
  ended = 8,     ///< The answer to an end.
  ask = 9,       ///< "Are you there, and has all arrived that was sent before?"
  here = 10,     ///< The answer to an ask, at once.
};

struct PacketHeader {
  static constexpr std::uint8_t this_version = 1;
  std::uint64_t token;
  std::uint32_t from;
  std::uint32_t credit;
  std::uint32_t sequence;
  PacketKind kind;
  std::uint8_t version;
  std::uint16_t reserved;
};
static_assert(sizeof(PacketHeader) == 24);

struct FrameHead {
  static constexpr std::uint32_t large = 1;
  Label label;
  std::uint32_t bytes;  ///< Of what follows here.
  std::uint32_t flags;
};
static_assert(sizeof(FrameHead) == 32);

/// Where a large body waits to be read.
struct Rendezvous {
  std::uint64_t bytes;
  std::uint64_t address;
  std::uint64_t key;
  std::uint64_t number;
};

/// Room that `bytes` of body take in a packet.
constexpr std::size_t frame_room(std::size_t bytes) noexcept { return sizeof(FrameHead) + (bytes + 7) / 8 * 8; }

inline void put_frame(std::byte* into, const Label& label, std::span<const std::byte> body,
                      std::uint32_t flags) noexcept {
  const FrameHead head{label, static_cast<std::uint32_t>(body.size()), flags};
  std::memcpy(into, &head, sizeof head);
  if (!body.empty()) std::memcpy(into + sizeof head, body.data(), body.size());
}

}  // namespace aplib::comm::rdma
