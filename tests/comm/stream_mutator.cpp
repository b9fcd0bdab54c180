// SPDX-License-Identifier: MIT
#include "stream_mutator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/frame.hpp"

namespace aplib::comm::test {

std::vector<std::byte> StreamMutator::sound() {
  std::vector<std::byte> stream;
  headers_.clear();
  const auto append = [&](const FrameHeader& header) {
    headers_.push_back(stream.size());
    stream.resize(stream.size() + frame_header_bytes);
    encode(header, std::span<std::byte, frame_header_bytes>(stream.end() - frame_header_bytes, stream.end()));
    // The body is a count, so that misplaced bytes show.
    const std::size_t at = stream.size();
    stream.resize(at + header.body_bytes);
    for (std::size_t i = at; i < stream.size(); ++i) stream[i] = static_cast<std::byte>(i * 7);
  };
  for (std::uint64_t count = below(9); count != 0; --count) {
    const std::uint64_t share = below(20);
    std::uint64_t bytes = below(60);
    if (share < 3) bytes = below(1'500);
    if (share == 3 || share == 4) bytes = Module::large_from_bytes - 20 + below(40);
    append({{random_(), draw(), draw(), draw(), draw()}, bytes});
  }
  if (below(3) == 0) append({{}, 0, true});
  return stream;
}

std::string StreamMutator::mutate(std::vector<std::byte>& stream) {
  if (stream.empty() || headers_.empty()) return "nothing to mutate";
  constexpr std::array<std::uint64_t, 12> edges{0,           1,
                                                2,           39,
                                                40,          Module::large_from_bytes - 1,
                                                16 * 1024,   1ULL << 20U,
                                                1ULL << 40U, (1ULL << 40U) + 1,
                                                1ULL << 63U, ~0ULL};
  const std::size_t header = headers_[below(headers_.size())];
  switch (below(8)) {
    case 0: {
      const std::size_t at = below(stream.size());
      stream[at] ^= static_cast<std::byte>(1U << below(8));
      return fmt::format("a bit at {} flipped", at);
    }
    case 1: {
      stream.resize(below(stream.size()));
      return fmt::format("cut off at {}", stream.size());
    }
    case 2: {
      const std::size_t at = below(stream.size());
      const std::size_t bytes = 1 + below(100);
      stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(at), bytes, static_cast<std::byte>(below(256)));
      return fmt::format("{} bytes inserted at {}", bytes, at);
    }
    case 3: {
      const std::size_t at = below(stream.size());
      const std::size_t bytes = 1 + below(std::min<std::size_t>(stream.size() - at, 100));
      stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(at),
                   stream.begin() + static_cast<std::ptrdiff_t>(at + bytes));
      return fmt::format("{} bytes removed at {}", bytes, at);
    }
    case 4: {
      const std::size_t at = header + below(8);
      if (at < stream.size()) stream[at] = static_cast<std::byte>(below(256));
      return fmt::format("byte {} of the header at {} changed", at - header, header);
    }
    case 5: {
      const std::uint64_t bytes = edges[below(edges.size())] + (below(2) == 0 ? 0 : below(3) - 1);
      if (header + 16 <= stream.size()) std::memcpy(&stream[header + 8], &bytes, 8);
      return fmt::format("body of the frame at {}: {} bytes", header, bytes);
    }
    case 6: {
      // A second copy of a header somewhere, often an end mark in the middle.
      if (header + frame_header_bytes > stream.size()) return "nothing";
      const std::vector<std::byte> copy(stream.begin() + static_cast<std::ptrdiff_t>(header),
                                        stream.begin() + static_cast<std::ptrdiff_t>(header + frame_header_bytes));
      const std::size_t at = headers_[below(headers_.size())];
      stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(std::min(at, stream.size())), copy.begin(),
                    copy.end());
      return fmt::format("header at {} repeated at {}", header, at);
    }
    default:
      return "nothing";
  }
}

std::vector<std::byte> StreamMutator::next(std::string& description) {
  std::vector<std::byte> stream = sound();
  description.clear();
  for (std::uint64_t count = below(4); count != 0; --count) description += mutate(stream) + "; ";
  return stream;
}

}  // namespace aplib::comm::test
