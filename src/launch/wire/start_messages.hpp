// SPDX-License-Identifier: MIT
// Messages by which nodes come to a common start and get the files that they lack. protocol.hpp has their order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/wire/fields.hpp"
#include "launch/wire/protocol.hpp"
#include "launch/wire/way_messages.hpp"

namespace aplib::launch::wire {

/// What two files that are the same program have in common.
struct FileIdentity {
  std::string build_id{};   ///< Hexadecimal; empty: it has none.
  std::uint64_t bytes = 0;  ///< Without a build-id, size and sum count.
  std::uint64_t sum = 0;    ///< 0: it has a build-id.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.build_id, self.bytes, self.sum);
  }
  /// Whether they are the same program.
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
  std::string version{};  ///< APlib's: "0.1.0".
  std::uint32_t process = 0;
  std::string host{};     ///< Its own name.
  std::string host_id{};  ///< The same for all processes on one computer.
  /// The address of this end of the connection, or else the one at which sshd was called; empty: unknown.
  std::string local{};
  std::uint64_t pid = 0;
  std::vector<std::uint32_t> cpus{};  ///< CPUs that it may use.
  std::uint32_t heap_layout = 0;      ///< As the kernel's function says; 0: its keeper has spoken for it.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.control, self.version, self.process, self.host, self.host_id, self.local, self.pid, self.cpus,
           self.heap_layout);
  }
};

/// The beginning of every version's Hello.
struct HelloStart {
  std::uint32_t control = 0;
  std::string version{};
};

/// The part of a Hello that all versions share. Nothing: it is not a Hello of any version.
[[nodiscard]] std::optional<HelloStart> read_hello_start(std::span<const std::byte> body);

struct MeasureSpeed {
  static constexpr auto type = MessageType::measure;
  std::uint8_t kind = 0;  ///< Speed::Kind
  double number = 0;
  std::string command{};
  std::string threads{};              ///< In the form of the option.
  bool needed = false;                ///< False: the number of threads is enough.
  std::vector<std::uint32_t> cpus{};  ///< CPUs to use; empty: all.
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

/// Of an option, or of a variable of the environment.
struct NamedValue {
  std::string name{};
  std::string value{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.name, self.value);
  }
};

/// A program of the machine, as a command line names it. The next one's first cell ends its cells.
struct ProgramText {
  std::uint32_t first_cell = 0;
  std::uint32_t file = 0;  ///< Its place in Prepare::files.
  std::string name{};      ///< argv[0]
  std::vector<std::string> arguments{};
  std::string folder{};                 ///< --wd: a pattern; empty: the process's folder.
  std::vector<NamedValue> variables{};  ///< Set in its environment.
  bool is_process = false;              ///< Each of its cells is an ordinary process.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.first_cell, self.file, self.name, self.arguments, self.folder, self.variables, self.is_process);
  }
};

/// The program of a cell.
[[nodiscard]] inline const ProgramText& program_of(const std::vector<ProgramText>& programs, std::uint32_t cell) {
  std::size_t at = programs.size() - 1;
  while (at != 0 && programs[at].first_cell > cell) --at;
  return programs[at];
}

/// Files of the user that go along with a machine, or that come back when it has ended.
struct TransferText {
  enum class Kind : std::uint8_t { send, replace, fetch, last = fetch };
  std::uint32_t number = 0;  ///< Of the transfer; below own_transfers.
  Kind kind = Kind::send;    ///< To the host, also over what is there; or from it.
  std::string pattern{};     ///< Kind::fetch: of names in the working folder.
  std::uint64_t window = 0;  ///< Kind::fetch: bytes that may be under way.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.number, self.kind, self.pattern, self.window);
  }
};
/// Numbers from here on are those that nodes give.
inline constexpr std::uint32_t own_transfers = std::uint32_t{1} << 16;

struct Prepare {
  static constexpr auto type = MessageType::prepare;
  std::vector<NamedValue> options{};
  std::string address{};                ///< To listen on for data; empty: the one from which it reaches the first of
  std::vector<std::string> others{};    ///< these, to which it has a route.
  std::vector<FileRef> files{};         ///< Of the programs, and of their libraries of which each cell has a copy.
  std::vector<ProgramText> programs{};  ///< At least one.
  std::string entry{};                  ///< Of the first program.
  std::vector<std::string> entry_arguments{};
  bool expand = false;
  bool input_for_all = false;               ///< Every cell has an input, not only the first one.
  std::vector<std::uint32_t> cpus{};        ///< CPUs to use; empty: all.
  std::vector<std::uint32_t> host_cells{};  ///< Of all processes on the host, ascending.
  bool keeps = false;                       ///< The node keeps an ordinary process, which is the cell:
  std::uint32_t cell = 0;
  std::vector<TransferText> transfers{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.options, self.address, self.others, self.files, self.programs, self.entry, self.entry_arguments,
           self.expand, self.input_for_all, self.cpus, self.host_cells, self.keeps, self.cell, self.transfers);
  }
};

/// A node's word to the process that it keeps, when that joins the machine.
struct Welcome {
  static constexpr auto type = MessageType::welcome;
  std::uint32_t process = 0;  ///< Its number.
  std::string key{};          ///< The job's.
  std::vector<NamedValue> options{};
  std::string address{};                     ///< To listen on for data.
  std::vector<std::uint32_t> first_cells{};  ///< Of the machine's programs.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.process, self.key, self.options, self.address, self.first_cells);
  }
};

/// The host lacks files of Prepare or ProgramIs. They come in that order, each under its own name.
struct WantFiles {
  static constexpr auto type = MessageType::want_files;
  std::uint32_t transfer = 0;        ///< The number that the transfer shall have.
  std::vector<std::string> paths{};  ///< The paths in that message.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.transfer, self.paths);
  }
};

/// Bytes of one end of a transfer of files for the other end.
struct Transfer {
  static constexpr auto type = MessageType::transfer;
  std::uint32_t number = 0;
  std::span<const std::byte> bytes{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.number, self.bytes);
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
  std::string endpoint{};                 ///< By module: "shm=4f1c;tcp=10.0.0.1:5100".
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
  std::vector<PlannedWay> ways{};  ///< To all others it is the direct one.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.machine, self.endpoints, self.cells, self.names, self.ways);
  }
};

/// The node cannot go on. Nothing of it runs yet.
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

/// Asks which file a further program's name means.
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
  std::string problem{};  ///< Not empty: why the launcher has none.
  std::vector<FileRef> files{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.problem, self.files);
  }
};

}  // namespace aplib::launch::wire
