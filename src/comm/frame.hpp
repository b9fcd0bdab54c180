// SPDX-License-Identifier: MIT
// The frame on the wire, little-endian: 40 bytes of header, then the body.
//
//   0  magic, 2 bytes      4  reserved, 4 bytes, 0      16  key       28  task    36  extra
//   2  version, 1          8  body bytes, 8             24  cell      32  kind    40  body
//   3  flags, 1
//
// flags: 0, or 1 in the last header of a stream that ends in order: a mark without body and with a label of zeros.
// A stream that ends without it was cut. What does not look so is refused: the stream has lost its place, or the
// peer is no peer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/module.hpp"

namespace aplib::comm {

inline constexpr std::size_t frame_header_bytes = 40;
inline constexpr std::uint8_t frame_version = 1;
inline constexpr std::uint16_t frame_magic = 0xa91b;

struct FrameHeader {
  Label label;
  std::uint64_t body_bytes = 0;
  bool end = false;  ///< The mark of an ordered end; then the rest is 0.
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

namespace wire_detail {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

struct Layout {
  std::uint16_t magic;
  std::uint8_t version;
  std::uint8_t flags;
  std::uint32_t reserved;
  std::uint64_t body_bytes;
  std::uint64_t key;
  std::uint32_t cell;
  std::uint32_t task;
  std::uint32_t kind;
  std::uint32_t extra;
};
static_assert(sizeof(Layout) == frame_header_bytes);

inline constexpr std::uint64_t first_word = frame_magic | std::uint64_t{frame_version} << 16U;
inline constexpr std::uint64_t end_flag = std::uint64_t{1} << 24U;

}  // namespace wire_detail

/// Writes the header's bytes.
inline void encode(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into) noexcept {
  const Label& label = header.label;
  const wire_detail::Layout layout{.magic = frame_magic,
                                   .version = frame_version,
                                   .flags = static_cast<std::uint8_t>(header.end ? 1 : 0),
                                   .reserved = 0,
                                   .body_bytes = header.body_bytes,
                                   .key = label.key,
                                   .cell = label.cell,
                                   .task = label.task,
                                   .kind = label.kind,
                                   .extra = label.extra};
  std::memcpy(into.data(), &layout, sizeof layout);
}

/// Reads a header; nothing: these bytes are none (explain_refusal() says why). Inline: it is on the path of every
/// frame, some 2 ns.
[[nodiscard]] inline std::optional<FrameHeader> decode(std::span<const std::byte, frame_header_bytes> bytes) noexcept {
  wire_detail::Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  // Magic, version, flags and reserved in one comparison.
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  const bool end = (word & wire_detail::end_flag) != 0;
  if ((word & ~wire_detail::end_flag) != wire_detail::first_word || layout.body_bytes > Module::body_bytes_max)
    return std::nullopt;
  const FrameHeader header{{layout.key, layout.cell, layout.task, layout.kind, layout.extra}, layout.body_bytes, end};
  if (end && (header.body_bytes != 0 || header.label != Label{})) return std::nullopt;
  return header;
}

/// Why decode() refuses these bytes, for people: "no frame begins with 0x4745 (0xa91b expected): not an APlib
/// process, or the stream is damaged".
[[nodiscard]] std::string explain_refusal(std::span<const std::byte, frame_header_bytes> bytes);

// FrameReader: makes upcalls of the bytes of one peer's stream, in whatever pieces they come. The bytes are
// hostile: what is no stream of frames is refused with words.
//
// Two ways in, which may be mixed from read to read:
//
//   take(bytes)              the bytes lie somewhere: in a buffer that all peers share, in the output of a cipher.
//                            Whole small frames are handed over where they lie.
//   room(), then filled(n)   the reader says where the next bytes of the stream go, so that a socket reads straight
//                            into a large body, with no copy:
//
//     FrameReader::Room room = reader.room();
//     iovec parts[] = {{room.body...}, {room.buffer...}};         // the body may be empty
//     n = readv(socket, parts, 2);                                // or read() into room.next()
//     if (!reader.filled(n)) lose(peer, reader.refusal());
//
// A frame of 48 bytes costs some 5 ns and the upcall; nothing is allocated after the first room() or piece of a
// frame.

/// Thread safety: none; the thread that polls. Upcalls come from take() and filled(), and large_end(complete =
/// false) from end(); Receiver::wants() and peer_lost() are the module's business. An upcall must not call the
/// reader that makes it.
class FrameReader {
 public:
  /// Holds at least any small frame. Touched from its front, so that a quiet peer costs a page.
  static constexpr std::size_t buffer_bytes = 64 * 1024;
  /// After a large body the buffer offers this much only: what of the next large body lands there is copied.
  static constexpr std::size_t buffer_after_large_bytes = 4 * 1024;

  /// `receiver` outlives the reader.
  FrameReader(Receiver& receiver, Peer from) noexcept : receiver_(receiver), from_(from) {}
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;
  ~FrameReader() = default;  // no upcall

  /// Where the next bytes of the stream go: first `body`, then `buffer`. Valid until the next call of the reader.
  struct Room {
    std::span<std::byte> body;    ///< The rest of the large body under way: the receiver's memory. Else empty.
    std::span<std::byte> buffer;  ///< The reader's. Never empty, unless the stream was refused.
    /// For those who read into one place.
    [[nodiscard]] std::span<std::byte> next() const noexcept { return body.empty() ? buffer : body; }
  };
  /// Throws std::bad_alloc the first time.
  [[nodiscard]] Room room();
  /// Only the first part of room(), for use with take(): makes no buffer.
  [[nodiscard]] std::span<std::byte> room_in_body() const noexcept { return {large_at_, large_left_}; }

  /// The first `bytes` bytes of the room are filled; body first, then buffer. False: refused, now or before;
  /// nothing more is taken.
  [[nodiscard]] bool filled(std::size_t bytes);
  /// The next bytes of the stream, all of them. False as above. May throw std::bad_alloc when it must keep part of
  /// a frame for the first time.
  [[nodiscard]] bool take(std::span<const std::byte> bytes);

  /// Nothing comes any more: ends the large body under way, if any, as incomplete. Once is enough; more does nothing.
  void end();

  /// The peer has said that its stream ends here, in order. More bytes are refused.
  [[nodiscard]] bool ended_in_order() const noexcept { return ended_; }
  /// The stream stands inside a frame.
  [[nodiscard]] bool inside_frame() const noexcept { return large_at_ != nullptr || held_ != 0; }
  /// Why the stream was refused, for people; "" while it is not.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  /// Whole frames so far, and the bytes of their bodies.
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t parse(const std::byte* at, std::size_t bytes);
  std::size_t begin_large(const FrameHeader& header, const std::byte* body, std::size_t bytes);
  void fill_large(std::size_t bytes);
  bool take_held(std::span<const std::byte>& bytes);
  void hold(std::span<const std::byte> bytes);
  void refuse(std::string why);

  Receiver& receiver_;
  Peer from_;
  bool ended_ = false;
  bool after_large_ = false;  // The last header was of a large frame.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t held_ = 0;           // Bytes at the front of buffer_: the beginning of a frame.
  std::byte* large_at_ = nullptr;  // Where the next byte of the large body under way goes.
  std::size_t large_left_ = 0;     // Not 0 while large_at_ is set.
  FrameHeader large_;
  std::uint64_t frames_ = 0;
  std::uint64_t bytes_ = 0;
  std::string refusal_;
};

}  // namespace aplib::comm
