// SPDX-License-Identifier: MIT
#include "comm/frame.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/cpu.hpp"

namespace aplib::comm {

std::string explain_refusal(std::span<const std::byte, frame_header_bytes> bytes) {
  wire_detail::Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != frame_magic) {
    return fmt::format(
        "no frame begins with {:#06x} ({:#06x} expected): not an APlib process, or the stream is damaged", layout.magic,
        frame_magic);
  }
  if (layout.version != frame_version) {
    return fmt::format("a frame of version {}, this process knows version {}: install the same APlib on all hosts",
                       layout.version, frame_version);
  }
  if (layout.flags > 1 || layout.reserved != 0) {
    return fmt::format("a frame with flags {:#04x} and reserved {:#x}, which are 0 or 1 and 0: the stream is damaged",
                       layout.flags, layout.reserved);
  }
  if (layout.body_bytes > Module::body_bytes_max) {
    return fmt::format("a frame with a body of {} bytes, at most {} are allowed: the stream is damaged",
                       layout.body_bytes, Module::body_bytes_max);
  }
  return "an end mark with a label or a body: the stream is damaged";
}

static_assert(FrameReader::buffer_bytes >= frame_header_bytes + Module::large_from_bytes, "holds any small frame");
static_assert(FrameReader::buffer_after_large_bytes >= frame_header_bytes, "holds any header");

FrameReader::Room FrameReader::room() {
  if (!refusal_.empty()) return {};
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(buffer_bytes);
  const std::size_t limit = after_large_ ? buffer_after_large_bytes : buffer_bytes;
  return {room_in_body(), {buffer_.get() + held_, limit - held_}};
}

bool FrameReader::filled(std::size_t bytes) {
  if (!refusal_.empty()) return false;
  if (large_at_ != nullptr) {
    const std::size_t into_body = std::min(bytes, large_left_);
    fill_large(into_body);
    bytes -= into_body;
  }
  if (bytes == 0) return true;
  const std::size_t all = held_ + bytes;
  const std::size_t used = parse(buffer_.get(), all);
  if (!refusal_.empty()) return false;
  // Less than one small frame is left, and nothing moves while one frame comes in many pieces.
  held_ = all - used;
  if (held_ != 0 && used != 0) std::memmove(buffer_.get(), buffer_.get() + used, held_);
  return true;
}

bool FrameReader::take(std::span<const std::byte> bytes) {
  if (!refusal_.empty()) return false;
  while (!bytes.empty()) {
    if (large_at_ != nullptr) {
      const std::size_t part = std::min(bytes.size(), large_left_);
      copy_long(large_at_, bytes.data(), part);
      bytes = bytes.subspan(part);
      fill_large(part);
    } else if (held_ != 0) {
      if (!take_held(bytes)) return false;
    } else {
      const std::size_t used = parse(bytes.data(), bytes.size());
      if (!refusal_.empty()) return false;
      bytes = bytes.subspan(used);
      if (!bytes.empty()) {
        hold(bytes);
        return true;
      }
    }
  }
  return true;
}

void FrameReader::end() {
  held_ = 0;
  if (large_at_ == nullptr) return;
  large_at_ = nullptr;
  large_left_ = 0;
  receiver_.large_end(from_, large_.label, large_.body_bytes, false);
}

/// Completes the frame at the front of the buffer with as few bytes as it needs, so that the bytes after it are parsed
/// in place.
bool FrameReader::take_held(std::span<const std::byte>& bytes) {
  std::size_t needed = frame_header_bytes;
  if (held_ >= frame_header_bytes) {
    // parse() has seen this header, and left it because the body of a small frame is not whole.
    needed += decode(std::span<const std::byte, frame_header_bytes>(buffer_.get(), frame_header_bytes))->body_bytes;
  }
  const std::size_t part = std::min(bytes.size(), needed - held_);
  hold(bytes.first(part));
  bytes = bytes.subspan(part);
  const std::size_t all = std::exchange(held_, 0);
  const std::size_t used = parse(buffer_.get(), all);
  if (!refusal_.empty()) return false;
  held_ = all - used;  // All of it, or nothing.
  return true;
}

void FrameReader::hold(std::span<const std::byte> bytes) {
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(buffer_bytes);
  std::memcpy(buffer_.get() + held_, bytes.data(), bytes.size());
  held_ += bytes.size();
}

/// Delivers whole frames, and returns how many bytes they had. The beginning of a small frame or of a header remains.
std::size_t FrameReader::parse(const std::byte* at, std::size_t bytes) {
  std::size_t used = 0;
  while (bytes - used >= frame_header_bytes) {
    const std::span<const std::byte, frame_header_bytes> head(at + used, frame_header_bytes);
    const std::optional<FrameHeader> header = ended_ ? std::nullopt : decode(head);
    if (!header) {
      refuse(ended_ ? "more bytes after the end mark: the stream is damaged" : explain_refusal(head));
      return used;
    }
    const std::byte* body = at + used + frame_header_bytes;
    const std::size_t behind = bytes - used - frame_header_bytes;
    if (header->body_bytes >= Module::large_from_bytes) {
      used += frame_header_bytes + begin_large(*header, body, behind);
      if (!refusal_.empty()) return used;
      continue;
    }
    after_large_ = false;
    if (header->end) {
      ended_ = true;
      used += frame_header_bytes;
      continue;
    }
    if (behind < header->body_bytes) break;
    used += frame_header_bytes + header->body_bytes;
    ++frames_;
    bytes_ += header->body_bytes;
    receiver_.frame(from_, header->label, {body, header->body_bytes});
  }
  if (ended_ && used != bytes) refuse("more bytes after the end mark: the stream is damaged");
  return used;
}

/// Begins a large body. Its first bytes, or all of it and more, are the `bytes` bytes at `body`. Returns how many of
/// them belong to it.
std::size_t FrameReader::begin_large(const FrameHeader& header, const std::byte* body, std::size_t bytes) {
  after_large_ = true;
  std::byte* const into = receiver_.large_begin(from_, header.label, header.body_bytes);
  if (into == nullptr) {
    refuse("a large frame was not accepted here");
    return 0;
  }
  large_ = header;
  large_at_ = into;
  large_left_ = header.body_bytes;
  const std::size_t part = std::min(bytes, large_left_);
  if (part != 0) copy_long(into, body, part);
  fill_large(part);
  return part;
}

/// Notes that `bytes` more bytes of the large body lie in place.
void FrameReader::fill_large(std::size_t bytes) {
  large_at_ += bytes;
  large_left_ -= bytes;
  if (large_left_ != 0) return;
  large_at_ = nullptr;
  ++frames_;
  bytes_ += large_.body_bytes;
  receiver_.large_end(from_, large_.label, large_.body_bytes, true);
}

void FrameReader::refuse(std::string why) {
  held_ = 0;
  refusal_ = std::move(why);
}

}  // namespace aplib::comm
