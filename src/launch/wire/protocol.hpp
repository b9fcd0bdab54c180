// SPDX-License-Identifier: MIT
// The control protocol: what coordinator and nodes tell each other, on a connection that has proved the job's key (src/comm/greeting.hpp).
//
//   node                                  coordinator
//     Hello                          ->                       who I am
//                                    <-  Measure              only for cells = "auto"
//     Speed                          ->
//                                    <-  Prepare              options, program, arguments
//     WantFile                       ->                       where the host lacks it
//                                    <-  FilePiece ...
//     Prepared                       ->                       my address for data
//                                    <-  Plan                 everybody's
//     Ready                          ->                       loaded, made, nothing runs
//                                    <-  Go                   when all are ready; Refused at any time before
//     Note, Output, Ended, ...      <->  Note, Written, Input, ...
//                                    <-  Stop                 end within a second
//     ToldToEnd                      ->                       a signal came: the run shall end
//     Finished                       ->
//                                    <-  Leave
//
// A message is 4 bytes of length, 1 byte of type, and the structure's fields (fields.hpp). Hello and Refused keep their form for ever, so that versions can
// tell each other that they differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/wire/fields.hpp"

namespace aplib::launch::wire {

inline constexpr std::uint32_t control_version = 1;
/// Of a message, without its head. A longer one ends the connection. What may be longer travels in pieces.
inline constexpr std::size_t message_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t message_head_bytes = 5;
/// Of a piece of output, of input or of a note.
inline constexpr std::size_t piece_bytes_max = std::size_t{64} << 10;
/// Of a file that is sent: as much for each question.
inline constexpr std::size_t file_piece_bytes = std::size_t{1} << 20;
/// Of a note in all its pieces.
inline constexpr std::size_t note_bytes_max = std::size_t{256} << 20;

enum class MessageType : std::uint8_t {
  beat,  ///< Either way: I am here. No fields.
  note,  ///< Either way.
  hello,
  speed,
  want_file,
  prepared,
  ready,
  cannot,
  output,
  flush,
  ended,
  warning,
  want_input,
  find_program,
  finished,
  answer,
  refused,
  measure,
  prepare,
  file_piece,
  plan,
  go,
  written,
  input,
  stop,
  program,
  leave,
  ask,
  told_to_end,
  last = told_to_end,
};

/// What two files have in common that are one program.
struct FileIdentity {
  std::string build_id{};   ///< Hexadecimal; empty: it has none.
  std::uint64_t bytes = 0;  ///< Of files without build-id: size and sum count.
  std::uint64_t sum = 0;    ///< 0: it has a build-id.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.build_id, self.bytes, self.sum);
  }
  /// Are they one program?
  [[nodiscard]] bool same(const FileIdentity& other) const {
    return build_id.empty() ? other.build_id.empty() && bytes == other.bytes && sum == other.sum
                            : build_id == other.build_id;
  }
};

/// A file at the launcher.
struct FileRef {
  std::string path{};  ///< Absolute.
  FileIdentity identity{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.path, self.identity);
  }
};

struct Hello {
  static constexpr auto type = MessageType::hello;
  std::uint32_t control = control_version;
  std::string version{};  ///< Of APlib: "0.1.0".
  std::uint32_t process = 0;
  std::string host{};     ///< Its own name.
  std::string host_id{};  ///< The same for all processes on one computer.
  std::string local{};    ///< Address of this end of the connection.
  std::uint64_t pid = 0;
  std::vector<std::uint32_t> cpus{};  ///< That it may run on.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.control, self.version, self.process, self.host, self.host_id, self.local, self.pid, self.cpus);
  }
};

/// What every version begins with.
struct HelloStart {
  std::uint32_t control = 0;
  std::string version{};
};

struct MeasureSpeed {
  static constexpr auto type = MessageType::measure;
  std::uint8_t kind = 0;  ///< Speed::Kind
  double number = 0;
  std::string command{};
  std::string threads{};              ///< As the option.
  bool needed = false;                ///< Else the number of threads will do.
  std::vector<std::uint32_t> cpus{};  ///< To keep to; empty: all.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.kind, self.number, self.command, self.threads, self.needed, self.cpus);
  }
};

struct SpeedIs {
  static constexpr auto type = MessageType::speed;
  double speed = 0;
  std::uint32_t threads = 1;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.speed, self.threads);
  }
};

struct OptionValue {
  std::string name{};
  std::string value{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.name, self.value);
  }
};

struct Prepare {
  static constexpr auto type = MessageType::prepare;
  std::vector<OptionValue> options{};
  std::string address{};         ///< To listen on for data; empty: the one by which it reached the launcher.
  std::vector<FileRef> files{};  ///< The program, then its libraries of which each cell has a copy.
  std::string program_name{};
  std::vector<std::string> arguments{};
  std::string entry{};
  std::vector<std::string> entry_arguments{};
  bool expand = false;
  std::string cell_folder{};          ///< --wd
  bool input_for_all = false;         ///< Every cell has an input, not just the first one.
  std::vector<std::uint32_t> cpus{};  ///< To keep to; empty: all.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.options, self.address, self.files, self.program_name, self.arguments, self.entry, self.entry_arguments,
           self.expand, self.cell_folder, self.input_for_all, self.cpus);
  }
};

/// The host lacks a file of Prepare, or of ProgramIs: it wants the next piece, and asks again when it has it.
struct WantFile {
  static constexpr auto type = MessageType::want_file;
  std::string path{};  ///< As it was named.
  std::uint64_t at = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.path, self.at);
  }
};

struct FilePiece {
  static constexpr auto type = MessageType::file_piece;
  std::string problem{};  ///< Not empty: it cannot be read.
  bool last = false;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.problem, self.last, self.bytes);
  }
};

/// A module that a host cannot use.
struct LeftOutModule {
  std::string module{};
  std::string why{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.module, self.why);
  }
};

struct Prepared {
  static constexpr auto type = MessageType::prepared;
  std::string endpoint{};                 ///< By each module: "shm=4f1c;tcp=10.0.0.1:5100".
  std::vector<LeftOutModule> left_out{};  ///< With module = "auto".
  std::string warning{};                  ///< For the user, if not empty.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.endpoint, self.left_out, self.warning);
  }
};

struct Plan {
  static constexpr auto type = MessageType::plan;
  std::string machine{};  ///< Id of the machine, for the greetings of data connections.
  std::vector<std::string> endpoints{};
  CellMap cells{};  ///< Which process carries which cell.
  std::vector<std::string> names{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.machine, self.endpoints, self.cells, self.names);
  }
};

/// The node cannot go on, and nothing of it runs yet.
struct Cannot {
  static constexpr auto type = MessageType::cannot;
  std::string text{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.text);
  }
};

/// The start is called off.
struct Refused {
  static constexpr auto type = MessageType::refused;
  std::string text{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.text);
  }
};

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
  bool error = false;  ///< Of standard error.
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

/// Output that has left the launcher: room for as many new bytes.
struct Written {
  static constexpr auto type = MessageType::written;
  std::uint64_t bytes = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.bytes);
  }
};

/// There is room for so many more bytes of a cell's input.
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

/// Which file is meant by a further program's name?
struct FindProgram {
  static constexpr auto type = MessageType::find_program;
  std::string name{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.name);
  }
};

struct ProgramIs {
  static constexpr auto type = MessageType::program;
  std::string problem{};  ///< Not empty: there is none at the launcher.
  std::vector<FileRef> files{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.problem, self.files);
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

/// The node's process ends for a reason from outside, and the run with it.
struct ToldToEnd {
  static constexpr auto type = MessageType::told_to_end;
  std::int32_t signal =
      0;  ///< It came from outside; 0: the standard input has ended, which whoever started the node holds.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.signal);
  }
};

/// A question to a node, for people who ask about a running machine: what it knows goes into the answer.
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
  std::span<const std::byte> bytes{};  ///< Empty: it does not know such a question.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.question, self.bytes);
  }
};

/// A message without fields.
template <MessageType which>
struct Signal {
  static constexpr auto type = which;
  template <class Self, class Fields>
  static void list(Self&, Fields&&) {}
};
using Beat = Signal<MessageType::beat>;
using Ready = Signal<MessageType::ready>;
using Go = Signal<MessageType::go>;
using Stop = Signal<MessageType::stop>;
using Leave = Signal<MessageType::leave>;

/// Appends a whole message, head and all.
void append_message(Bytes& to, MessageType type, std::span<const std::byte> body);
template <class Message>
void append_message(Bytes& to, const Message& message) {
  append_message(to, Message::type, encode(message));
}

/// Of a message that begins at `bytes`, which has at least message_head_bytes.
struct MessageHead {
  std::size_t bytes = 0;  ///< Of the body.
  MessageType type = MessageType::beat;
};
/// Nothing: too long, or no type of ours.
[[nodiscard]] std::optional<MessageHead> read_head(std::span<const std::byte> bytes);

/// The part of a Hello that all versions share. Nothing: it is no Hello of any version.
[[nodiscard]] std::optional<HelloStart> read_hello_start(std::span<const std::byte> body);

/// Checks a message of `type` without using it: for tests of the decoder.
[[nodiscard]] bool is_message(MessageType type, std::span<const std::byte> body);

}  // namespace aplib::launch::wire
