// SPDX-License-Identifier: MIT
// Knock: what a launcher says first to the keeper of a host. A keeper answers nobody who does not know its pool's key.
//
//   length of the body (4 bytes), keeper_version (4), the key (32), the body
//
// The key goes as it is: the way is a socket that only this user can open, and between computers ssh encrypts it. A
// run takes two connections with one token, in any order. The first has the node's words: the keeper's marks
// (start/launch_method.hpp) and the node's standard error. The second has its standard input and output, which the
// launcher may write behind its knock. When one of them closes, the node ends; when the node has ended, both close.
// Connections that name the token of a run later are its lanes (file_pipe.hpp): the keeper passes them to the process
// by a socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/version.hpp"
#include "comm/job_key.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::launch::pool {

/// Of what keepers understand. The head of a knock is the same in all versions.
inline constexpr std::uint32_t keeper_version = 3;

struct Knock {
  enum class Purpose : std::uint8_t {
    words,    ///< Of a run.
    streams,  ///< Of the same run.
    facts,    ///< Asks what the host is: HostFacts, behind their length (4 bytes). A byte that comes then goes back.
    lane,     ///< Of a run that is there, or soon will be.
    end,      ///< Asks the keeper to end, and what it has started. The connection closes when it has.
    last = end
  };
  Purpose purpose = Purpose::facts;
  std::uint64_t token = 0;             ///< Of the run.
  std::vector<std::string> command{};  ///< words: argv; [0] is a path.
  std::string folder{};                ///< words: in which the command runs.
  bool needs_folder = false;           ///< words: it must be there. Else the keeper's own does, too.
  bool takes_lanes = false;            ///< words: the command reads lanes from lanes_descriptor.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.purpose, self.token, self.command, self.folder, self.needs_folder, self.takes_lanes);
  }
};

inline constexpr std::size_t knock_bytes_max = std::size_t{64} << 10;  ///< Of the body.

struct KnockHead {
  static constexpr std::size_t bytes = 4 + 4 + comm::JobKey::size;
  std::uint32_t body_bytes = 0;
  std::uint32_t version = 0;
  std::span<const std::byte> key{};  ///< A view.
};

/// REQUIRES: KnockHead::bytes.
[[nodiscard]] inline KnockHead read_knock_head(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  KnockHead head;
  head.body_bytes = reader.number<std::uint32_t>();
  head.version = reader.number<std::uint32_t>();
  head.key = bytes.subspan(KnockHead::bytes - comm::JobKey::size, comm::JobKey::size);
  return head;
}

/// A whole knock.
[[nodiscard]] inline wire::Bytes encode_knock(const Knock& knock, const comm::JobKey& key) {
  const wire::Bytes body = wire::encode(knock);
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(body.size()));
  writer.number(keeper_version);
  writer.raw(key.secret());
  writer.raw(body);
  return writer.take();
}

/// By which a process gets lanes.
inline constexpr int lanes_descriptor = 3;

/// A line of a keeper that knows the key and does not do what is asked; the reason follows.
inline constexpr std::string_view refusal_mark = "aplib-keeper refuses: ";
/// A line of apkeeper, when one stands; the path of its socket follows.
inline constexpr std::string_view stands_mark = "aplib-keeper stands ";

/// What a host is, and how it is at the moment.
struct HostFacts {
  std::string version = aplib::version;  ///< Of the keeper.
  std::string host{};                    ///< Its own name.
  std::string host_id{};                 ///< The same for all that is on one computer.
  std::string kernel{};                  ///< "Linux 6.1.0"
  std::string architecture{};            ///< "x86_64"
  std::string cpu_model{};
  std::vector<std::uint32_t> cpus{};  ///< That it may use.
  double cores = 0;                   ///< That it may use at once, also by its quota.
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  double load1 = 0;
  double load5 = 0;
  double load15 = 0;
  std::vector<std::string> gpus{};
  std::vector<std::string> modules{};  ///< That can be used there.
  std::uint64_t keeper = 0;            ///< Its process.
  std::uint32_t runs = 0;              ///< Nodes that run.
  std::uint64_t started = 0;           ///< Nodes that were started.
  std::uint64_t strangers = 0;         ///< Who did not know the key.
  std::string socket{};                ///< At which it listens; empty: it was passed one.
  std::string local{};                 ///< The address at which sshd was called; empty: unknown.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.version, self.host, self.host_id, self.kernel, self.architecture, self.cpu_model, self.cpus, self.cores,
           self.memory_bytes, self.free_bytes, self.load1, self.load5, self.load15, self.gpus, self.modules,
           self.keeper, self.runs, self.started, self.strangers, self.socket, self.local);
  }
};
inline constexpr std::size_t facts_bytes_max = std::size_t{1} << 20;

}  // namespace aplib::launch::pool
