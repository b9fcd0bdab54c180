// SPDX-License-Identifier: MIT
// What the two ends of a transfer say to each other: frames in two streams of bytes, one each way, which whoever
// carries them may cut anywhere.
//
//   sender                                receiver
//     Begin, Entries ...             ->                       the manifest
//                                    <-  Answers ...          in order, for each entry: what of it is there
//     FileBegin, data, hole ...,     ->                       the files that are lacking, one behind the other
//       FileEnd
//     FileEnd                        ->                       of one that is there, as its sum says
//                                    <-  Taken                now and then: so many bytes of the stream are written
//     Done                           ->
//                                    <-  Finished             instead of any of the above: it goes no further
//
// A sender that pushes does not wait for the answers. A frame is 4 bytes of length, 1 byte of type, and the structure's
// fields; data is the bytes themselves.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/digest.hpp"
#include "launch/files/manifest.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::launch::files {

/// Bytes of a frame without its head.
inline constexpr std::size_t frame_bytes_max = std::size_t{256} << 10;
inline constexpr std::size_t frame_head_bytes = 5;
/// Problems that are told; more are counted.
inline constexpr std::size_t problems_max = 20;

enum class FrameType : std::uint8_t {
  begin,
  entries,
  answers,
  file_begin,
  data,
  hole,
  file_end,
  taken,
  done,
  finished,
  last = finished
};

struct Begin {
  static constexpr auto type = FrameType::begin;
  std::string host{};  ///< Manifest::host
  bool pushes = false;
  std::uint64_t window = 0;  ///< The sender waits when so many bytes of the stream are not Taken, or fewer.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.host, self.pushes, self.window);
  }
};

struct Entries {
  static constexpr auto type = FrameType::entries;
  std::vector<Entry> entries{};
  bool last = false;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.entries, self.last);
  }
};

/// Of an entry.
struct Answer {
  enum class Kind : std::uint8_t {
    nothing,  ///< Nothing of it is asked for: it is no file, it is there, or it cannot be placed.
    whole,
    rest,          ///< The first `bytes` are there if they have this sum.
    compare,       ///< All of it is there if it has this sum; otherwise it is asked for.
    compare_only,  ///< The same, but if not, it is not asked for.
    last = compare_only
  };
  Kind kind = Kind::nothing;
  std::uint64_t bytes = 0;
  wire::Bytes digest{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.kind, self.bytes, self.digest);
  }
};

struct Answers {
  static constexpr auto type = FrameType::answers;
  std::vector<Answer> answers{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.answers);
  }
};

struct FileBegin {
  static constexpr auto type = FrameType::file_begin;
  std::uint32_t entry = 0;
  std::uint64_t from = 0;   ///< What comes first: the bytes before are there.
  std::uint64_t bytes = 0;  ///< The file's size. It may have changed since the manifest.
  std::int64_t time = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.entry, self.from, self.bytes, self.time);
  }
};

/// So many zeros that take no room on the disk.
struct Hole {
  static constexpr auto type = FrameType::hole;
  static constexpr std::uint64_t bytes_max = std::uint64_t{64} << 20;  ///< The sum of zeros takes its time, too.
  std::uint64_t bytes = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.bytes);
  }
};

struct FileEnd {
  static constexpr auto type = FrameType::file_end;
  enum class Verdict : std::uint8_t {
    good,     ///< All of it came, and has this sum.
    same,     ///< Nothing came: what is there is the same.
    differs,  ///< Nothing came: what is there differs.
    dropped,  ///< What came is no whole file: it changed, or could not be read.
    last = dropped
  };
  std::uint32_t entry = 0;
  Verdict verdict = Verdict::good;
  wire::Bytes digest{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.entry, self.verdict, self.digest);
  }
};

struct Taken {
  static constexpr auto type = FrameType::taken;
  std::uint64_t bytes = 0;  ///< Since the beginning.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.bytes);
  }
};

/// How one end of a transfer sees it when it is over.
struct Outcome {
  std::vector<std::string> problems{};  ///< The first ones: a file and why it did not come. Empty: all is well.
  std::uint64_t more_problems = 0;
  std::uint64_t placed = 0;  ///< Entries that were made.
  std::uint64_t kept = 0;    ///< Entries that were there.

  [[nodiscard]] bool good() const noexcept { return problems.empty(); }
  void add(std::string problem) {
    if (problems.size() < problems_max) {
      problems.push_back(std::move(problem));
    } else {
      ++more_problems;
    }
  }
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.problems, self.more_problems, self.placed, self.kept);
  }
};

struct Done {
  static constexpr auto type = FrameType::done;
  Outcome outcome{};  ///< The sender's problems.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.outcome);
  }
};

struct Finished {
  static constexpr auto type = FrameType::finished;
  Outcome outcome{};  ///< Of both.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.outcome);
  }
};

inline void append_head(wire::Bytes& to, FrameType type, std::size_t bytes) {
  const auto length = static_cast<std::uint32_t>(bytes);
  for (std::size_t i = 0; i < sizeof length; ++i) to.push_back(std::byte(length >> (8 * i) & 0xff));
  to.push_back(static_cast<std::byte>(type));
}

template <class Body>
void append_frame(wire::Bytes& to, const Body& body) {
  const wire::Bytes bytes = wire::encode(body);
  append_head(to, Body::type, bytes.size());
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Nothing: not of a digest's size.
[[nodiscard]] inline std::optional<comm::Digest> digest_of(std::span<const std::byte> bytes) {
  comm::Digest digest;
  if (bytes.size() != digest.size()) return std::nullopt;
  std::ranges::copy(bytes, digest.begin());
  return digest;
}

struct Frame {
  FrameType type = FrameType::begin;
  std::span<const std::byte> body{};
};

/// Finds the frames in a stream that comes in pieces.
class FrameReader {
 public:
  /// `bytes` follow those before.
  void add(std::span<const std::byte> bytes) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// The next frame, valid until add(); nothing: it has not come yet, or bad().
  [[nodiscard]] std::optional<Frame> next() {
    const std::span<const std::byte> rest = std::span(bytes_).subspan(at_);
    if (bad_ || rest.size() < frame_head_bytes) return std::nullopt;
    std::uint32_t length = 0;
    std::memcpy(&length, rest.data(), sizeof length);
    const auto type = std::to_integer<std::uint8_t>(rest[sizeof length]);
    bad_ = length > frame_bytes_max || type > static_cast<std::uint8_t>(FrameType::last);
    if (bad_ || rest.size() - frame_head_bytes < length) return std::nullopt;
    at_ += frame_head_bytes + length;
    return Frame{static_cast<FrameType>(type), rest.subspan(frame_head_bytes, length)};
  }
  /// What came is no stream of frames.
  [[nodiscard]] bool bad() const noexcept { return bad_; }

 private:
  wire::Bytes bytes_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

}  // namespace aplib::launch::files
