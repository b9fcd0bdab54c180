// SPDX-License-Identifier: MIT
// ModuleKind: a module as a host knows it before any machine is there. From kind to module in three steps, because
// each process must know the others' endpoints first:
//
//   const ModuleKind& kind = ...;                        // one of find_modules()
//   if (auto why = kind.unusable(settings)) ...          // "no RDMA device"
//   std::unique_ptr<Port> port = kind.open(settings);    // listens; port->endpoint() goes to the others
//   std::unique_ptr<Module> module = port->join(...);    // theirs are known: the module
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"

namespace aplib::comm {

/// What a process knows of itself before it knows the others.
struct PortSettings {
  std::string address;  ///< Of this host, to listen on: "10.0.0.1". Empty: none is needed or known.
  std::string ports;    ///< "5100-5120", or empty: the system chooses.
  std::string host;     ///< Equal for two processes exactly when they share a kernel and its shared memory.
  JobKey key;           ///< Proves to others that we belong to the job.
  Secure secure = Secure::auth;
  std::uint32_t streams = 0;  ///< Option of tcp.
  std::string provider;       ///< Option of rdma: libfabric's provider, or empty: the best.
  std::chrono::milliseconds peer_timeout{10'000};
  std::chrono::milliseconds resume_time{30'000};  ///< Option of tcp.
};

/// How a process and another one come to their connection, as this process sees it. The launcher finds out which ways
/// there are, and decides.
struct Way {
  enum class Kind : std::uint8_t {
    direct,  ///< Whoever sends first calls.
    calls,   ///< Reverse: only this process reaches the other, so it calls at once.
    called,  ///< Reverse: only the other reaches this process, and calls.
    relay,   ///< Neither reaches the other: both call a relay at once (comm/connect/relay_call.hpp).
    last = relay,
  };
  Kind kind = Kind::direct;
  std::string place{};  ///< Kind::relay: where this process calls it.
  std::string relay{};  ///< Kind::relay: its name, for people.
};

/// What a process knows once the others have spoken.
struct JoinSettings {
  std::string machine;  ///< Name of the run, the same in all processes.
  Peer self = 0;
  std::vector<std::string>
      endpoints;  ///< By process: what its port said. Empty: it has none, no frame goes there by this module.
  std::vector<std::string> names;  ///< By process, for messages: "ws1".
  std::vector<Way> ways{};         ///< By process. Empty: all direct.

  [[nodiscard]] Way way(Peer peer) const { return peer < ways.size() ? ways[peer] : Way{}; }
};

class Port {
 public:
  virtual ~Port() = default;
  /// For the others; printable, without blanks, commas and semicolons.
  [[nodiscard]] virtual std::string endpoint() const = 0;
  /// The socket that listens there, on which nobody answers before join(); -1: there is none. It stays the port's.
  [[nodiscard]] virtual int listening() const { return -1; }
  /// Once. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<Module> join(const JoinSettings& settings) = 0;
};

class ModuleKind {
 public:
  virtual ~ModuleKind() = default;
  /// "tcp": what users write in module = "...".
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::string version() const = 0;
  /// One line for people: "frames over TCP, anywhere".
  [[nodiscard]] virtual std::string description() const = 0;
  /// Of two modules that reach a peer, "auto" takes the higher one: shm 300, rdma 200, tcp 100.
  [[nodiscard]] virtual int rank() const = 0;
  /// It joins processes of one host alone.
  [[nodiscard]] virtual bool one_host() const { return false; }
  /// It has remote memory.
  [[nodiscard]] virtual bool has_remote_memory() const = 0;
  /// It keeps `secure`: auth and tls mean something. One that cannot is not taken where more is asked for than it has.
  [[nodiscard]] virtual bool keeps(Secure secure) const = 0;
  /// Why it cannot be used here and now: "no RDMA device is there". Nothing: it can.
  [[nodiscard]] virtual std::optional<std::string> unusable(const PortSettings& settings) const = 0;
  /// Throws Error.
  [[nodiscard]] virtual std::unique_ptr<Port> open(const PortSettings& settings) const = 0;
  /// Can two processes with these endpoints exchange frames by it? The same answer on both sides, given (a, b) or
  /// (b, a).
  [[nodiscard]] virtual bool joins(const std::string& endpoint, const std::string& other) const = 0;
};

// The kinds of modules that this host has.

// One function per kind of ours, in its own folder. Each is made a shared object (src/comm/CMakeLists.txt):
// processes find it there, by find_modules(), and do not link it.
[[nodiscard]] std::unique_ptr<ModuleKind> tcp_kind();
[[nodiscard]] std::unique_ptr<ModuleKind> rdma_kind();  ///< Only where libfabric was there at build time.
[[nodiscard]] std::unique_ptr<ModuleKind> shm_kind();

/// What a module of APlib's own exports, as aplib_own_module (own_module.cpp). It shares the classes of these
/// headers with the program that loads it: so both must be of one build. Modules of others speak C instead
/// (src/comm/plugin).
struct OwnModule {
  char build[64];  ///< First in every build; the rest may be touched when this is the program's own.
  std::unique_ptr<ModuleKind> (*make_kind)();
};

/// A module's file, and what it is: a kind, or not.
struct FoundModule {
  std::string file;                  ///< "/usr/lib/aplib/modules/tcp.so".
  std::unique_ptr<ModuleKind> kind;  ///< Null: refused.
  std::string refusal{};             ///< Why: "built for plug-in interface 3.0, this APlib has 1.1: rebuild it".
};

/// Opens the file, runs its constructors, and checks what it exports: a module of ours of the same build, or a
/// plug-in. One that was accepted stays open for the life of the process. Call from: any thread.
[[nodiscard]] FoundModule open_module(const std::string& file);

/// Opens the modules of the folders in `module_path` (option module-path, "FOLDER:FOLDER"), and then of
/// lib/aplib/modules beside the running program's bin/. The first of a name wins, later ones are refused. In the
/// order of rank, best first, refused ones last. What is opened stays in the process. Costs a dlopen() each: once
/// per process, at its start. `only`: a name; others are not opened where the file's name tells (NAME.so). Call
/// from: any thread. Throws nothing but for memory: what is wrong with a file is its refusal.
[[nodiscard]] std::vector<FoundModule> find_modules(const std::string& module_path, const std::string& only = {});

/// The kind of that name; null: there is none.
[[nodiscard]] const ModuleKind* kind_of(std::span<const FoundModule> found, const std::string& name);

/// What to tell a person who asked for a module that is not there or was refused: "there is no module "tpc"; did
/// you mean "tcp"? Known: shm, rdma, tcp".
[[nodiscard]] std::string unknown_module(std::span<const FoundModule> found, const std::string& name);

}  // namespace aplib::comm
