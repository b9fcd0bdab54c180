// SPDX-License-Identifier: MIT
#include "stream_promises.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/frame.hpp"

namespace aplib::comm::test {
namespace {

constexpr Peer from = 7;

/// An upcall that must come exactly when that many bytes of the stream have arrived.
struct Event {
  enum class Kind : std::uint8_t { frame, large_begin, large_end, refusal } kind;
  std::size_t due;  // Bytes of the stream.
  Label label;
  std::size_t body = 0;  // Its place in the stream.
  std::size_t bytes = 0;
};

/// All events of a stream, by a simple parser with its own code for headers.
std::vector<Event> events_of(std::span<const std::byte> stream) {
  std::vector<Event> events;
  const auto number = [&](std::size_t at, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- != 0;) value = value << 8U | std::to_integer<std::uint64_t>(stream[at + i]);
    return value;
  };
  std::size_t at = 0;
  while (stream.size() - at >= frame_header_bytes) {
    const std::size_t behind = at + frame_header_bytes;
    const std::uint64_t bytes = number(at + 8, 8);
    const Label label{number(at + 16, 8), static_cast<std::uint32_t>(number(at + 24, 4)),
                      static_cast<std::uint32_t>(number(at + 28, 4)), static_cast<std::uint32_t>(number(at + 32, 4)),
                      static_cast<std::uint32_t>(number(at + 36, 4))};
    const bool end = number(at + 3, 1) == 1;
    const bool sane = number(at, 2) == 0xa91b && number(at + 2, 1) == 1 && number(at + 3, 1) <= 1 &&
                      number(at + 4, 4) == 0 && bytes <= std::uint64_t{1} << 40U &&
                      !(end && (bytes != 0 || label != Label{}));
    if (!sane || bytes > accepted_bytes_max) {
      events.push_back({.kind = Event::Kind::refusal, .due = behind, .label = {}});
      return events;
    }
    if (end) {
      if (stream.size() != behind) events.push_back({.kind = Event::Kind::refusal, .due = behind + 1, .label = {}});
      return events;
    }
    const bool large = bytes >= Module::large_from_bytes;
    if (large) events.push_back({Event::Kind::large_begin, behind, label, behind, bytes});
    if (stream.size() - behind < bytes) return events;
    at = behind + bytes;
    events.push_back({large ? Event::Kind::large_end : Event::Kind::frame, at, label, behind, bytes});
  }
  return events;
}

/// Compares the events with those that must come.
class Checker final : public Receiver {
 public:
  Checker(std::span<const std::byte> stream, std::vector<Event> events) : stream_(stream), events_(std::move(events)) {}

  bool wants(Peer /*peer*/) override { return complain("asked for its wishes"); }
  void peer_lost(Peer /*peer*/, const std::string& /*why*/) override {
    complain("a loss, which is the module's to tell");
  }

  void frame(Peer peer, const Label& label, std::span<const std::byte> body) override {
    expect(Event::Kind::frame, peer, label, body.size());
    compare(body);
  }
  std::byte* large_begin(Peer peer, const Label& label, std::size_t bytes) override {
    if (bytes > accepted_bytes_max) return nullptr;
    expect(Event::Kind::large_begin, peer, label, bytes);
    if (large_) complain("a large body inside another");
    large_bytes_ = bytes;
    large_ = std::make_unique_for_overwrite<std::byte[]>(bytes + guard.size());
    std::copy(guard.begin(), guard.end(), large_.get() + bytes);
    return large_.get();
  }
  void large_end(Peer peer, const Label& label, std::size_t bytes, bool complete) override {
    if (!large_) {
      complain("the end of no large body");
      return;
    }
    if (!std::equal(guard.begin(), guard.end(), large_.get() + large_bytes_))
      complain("bytes behind a large body were written");
    if (complete) {
      expect(Event::Kind::large_end, peer, label, bytes);
      compare({large_.get(), large_bytes_});
    } else {
      ++broken_;
    }
    large_ = nullptr;
  }

  /// The number of bytes of the stream given so far.
  void given(std::size_t bytes) { given_ = bytes; }
  /// Whether every event that is due has come.
  void settle(const FrameReader& reader) {
    if (next_ < events_.size() && events_[next_].due <= given_ && events_[next_].kind == Event::Kind::refusal) {
      if (reader.refusal().empty()) complain("not refused");
    } else if (!reader.refusal().empty()) {
      complain("refused: " + reader.refusal());
    } else if (next_ < events_.size() && events_[next_].due <= given_) {
      complain("an upcall is missing");
    }
  }
  bool complain(const std::string& what) {
    if (complaint_.empty())
      complaint_ = fmt::format("after {} of {} bytes, {} events: {}", given_, stream_.size(), next_, what);
    return true;
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] bool large_under_way() const { return large_ != nullptr; }
  [[nodiscard]] const std::byte* large() const { return large_.get(); }
  [[nodiscard]] std::size_t large_bytes() const { return large_bytes_; }
  [[nodiscard]] int broken() const { return broken_; }

 private:
  static constexpr std::array<std::byte, 8> guard{std::byte{0x5a}, std::byte{0xa5}, std::byte{1}, std::byte{2},
                                                  std::byte{3},    std::byte{4},    std::byte{5}, std::byte{6}};

  void expect(Event::Kind kind, Peer peer, const Label& label, std::size_t bytes) {
    if (next_ == events_.size()) {
      complain("more upcalls than frames");
      return;
    }
    const Event& event = events_[next_++];
    if (event.kind != kind || peer != from || event.label != label || event.bytes != bytes)
      complain("another upcall than was due");
    if (event.due > given_) complain("an upcall for bytes that have not come");
  }
  void compare(std::span<const std::byte> body) {
    if (next_ == 0) return;
    const Event& event = events_[next_ - 1];
    if (body.size() == event.bytes &&
        !std::equal(body.begin(), body.end(), stream_.begin() + static_cast<std::ptrdiff_t>(event.body)))
      complain("another body");
  }

  std::span<const std::byte> stream_;
  std::vector<Event> events_;
  std::size_t next_ = 0;
  std::size_t given_ = 0;
  std::unique_ptr<std::byte[]> large_;
  std::size_t large_bytes_ = 0;
  int broken_ = 0;
  std::string complaint_;
};

/// Gives the stream to the reader piece by piece.
class Feeder {
 public:
  Feeder(std::span<const std::byte> stream, const std::function<std::uint32_t()>& draw, Checker& checker,
         FrameReader& reader)
      : stream_(stream), draw_(draw), checker_(checker), reader_(reader) {}

  /// False: refused.
  bool step() {
    const std::uint32_t choice = draw_();
    const std::size_t left = stream_.size() - at_;
    // Pieces of a few bytes, of about a frame, or of about a read.
    const std::size_t most = std::size_t{1} << (choice >> 2U) % 17U;
    const std::size_t bytes = std::min(left, 1 + (choice >> 8U) % most);
    switch (choice % 4) {
      case 0:
        return take(bytes);
      case 1: {
        const FrameReader::Room room = reader_.room();
        return fill(room.body, room.buffer, bytes);
      }
      case 2:
        return fill(reader_.room().next(), {}, bytes);
      default:
        const std::span<std::byte> body = reader_.room_in_body();
        return body.empty() ? take(bytes) : fill(body, {}, bytes);
    }
  }
  [[nodiscard]] bool through() const { return at_ == stream_.size(); }

 private:
  bool take(std::size_t bytes) {
    // Memory of exactly this size, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> piece(stream_.begin() + static_cast<std::ptrdiff_t>(at_),
                                       stream_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes));
    at_ += bytes;
    checker_.given(at_);
    return reader_.take(piece);
  }
  bool fill(std::span<std::byte> first, std::span<std::byte> second, std::size_t bytes) {
    if (first.empty() && second.empty()) checker_.complain("no room");
    if (checker_.large_under_way() && first.data() + first.size() != checker_.large() + checker_.large_bytes())
      checker_.complain("the room in the body is not its rest");
    const std::size_t front = std::min(bytes, first.size());
    const std::size_t back = std::min(bytes - front, second.size());
    if (front != 0) std::memcpy(first.data(), stream_.data() + at_, front);
    if (back != 0) std::memcpy(second.data(), stream_.data() + at_ + front, back);
    at_ += front + back;
    checker_.given(at_);
    return reader_.filled(front + back);
  }

  std::span<const std::byte> stream_;
  const std::function<std::uint32_t()>& draw_;
  Checker& checker_;
  FrameReader& reader_;
  std::size_t at_ = 0;
};

}  // namespace

std::string broken_promise(std::span<const std::byte> stream, const std::function<std::uint32_t()>& draw,
                           StreamSummary* summary) {
  Checker checker(stream, events_of(stream));
  FrameReader reader(checker, from);
  Feeder feeder(stream, draw, checker, reader);
  while (!feeder.through() && checker.complaint().empty()) {
    const bool accepted = feeder.step();
    if (accepted != reader.refusal().empty()) checker.complain("its answer is not its state");
    checker.settle(reader);
    if (!accepted) break;
  }
  const std::byte more{};
  if (!reader.refusal().empty()) {
    if (reader.take({&more, 1}) || !reader.room().next().empty()) checker.complain("takes more after a refusal");
  } else if (checker.large_under_way() && !reader.inside_frame()) {
    checker.complain("does not know that it stands inside a large body");
  }
  const int broken = checker.large_under_way() ? 1 : 0;
  reader.end();
  reader.end();
  if (checker.broken() != broken) checker.complain("a large body under way was not ended once");
  if (summary != nullptr) *summary = {reader.frames(), !reader.refusal().empty(), reader.ended_in_order()};
  return checker.complaint();
}

}  // namespace aplib::comm::test
