// SPDX-License-Identifier: MIT
// Messages while the machine runs and when it ends. protocol.hpp has their order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/wire/fields.hpp"
#include "launch/wire/protocol.hpp"

namespace aplib::launch::wire {

/// A piece of a kernel's note.
struct Note {
  static constexpr auto type = MessageType::note;
  bool last = true;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.last, self.bytes);
  }
};

struct OutputPiece {
  static constexpr auto type = MessageType::output;
  std::uint32_t cell = 0;
  bool error = false;  ///< It belongs to standard error.
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.cell, self.error, self.bytes);
  }
};

struct Flush {
  static constexpr auto type = MessageType::flush;
  std::uint32_t cell = 0;
  bool error = false;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.cell, self.error);
  }
};

struct EndedCell {
  static constexpr auto type = MessageType::ended;
  std::uint32_t cell = 0;
  std::int32_t status = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.cell, self.status);
  }
};

struct Warning {
  static constexpr auto type = MessageType::warning;
  std::string text{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.text);
  }
};

/// Output that has left the launcher, which makes room for as many new bytes.
struct Written {
  static constexpr auto type = MessageType::written;
  std::uint64_t bytes = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.bytes);
  }
};

/// There is room for this many more bytes of a cell's input.
struct WantInput {
  static constexpr auto type = MessageType::want_input;
  std::uint32_t cell = 0;
  std::uint64_t bytes = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.cell, self.bytes);
  }
};

struct InputPiece {
  static constexpr auto type = MessageType::input;
  std::uint32_t cell = 0;
  bool last = false;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.cell, self.last, self.bytes);
  }
};

struct Finished {
  static constexpr auto type = MessageType::finished;
  std::int32_t status = 0;
  std::string reason{};
  std::vector<std::int32_t> cell_status{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.status, self.reason, self.cell_status);
  }
};

/// The node's process ends for a reason from outside, and the run ends with it.
struct ToldToEnd {
  static constexpr auto type = MessageType::told_to_end;
  /// The signal. 0: the standard input has ended, which whoever started the node keeps open.
  std::int32_t signal = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.signal);
  }
};

/// A question to a node, for people who ask about a running machine. The answer has what the node knows.
struct Ask {
  static constexpr auto type = MessageType::ask;
  std::uint64_t question = 0;
  std::string what{};  ///< node_state_question
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.question, self.what);
  }
};

struct Answer {
  static constexpr auto type = MessageType::answer;
  std::uint64_t question = 0;
  std::span<const std::byte> bytes{};  ///< Empty: it does not know the question.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.question, self.bytes);
  }
};

}  // namespace aplib::launch::wire
