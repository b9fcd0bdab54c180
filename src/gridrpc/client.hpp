// SPDX-License-Identifier: MIT
// Client: the servers, handles and sessions of a program. The C interface (gridrpc.cpp) has one.
//
// A handle has processes of its server, started when they are needed, up to a limit; each carries out one call at a
// time. A synchronous call speaks to one on the caller's thread; sessions have threads of their handle for that. Calls
// of a handle begin in the order in which they were made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "calls/interface.hpp"
#include "gridrpc/arguments.hpp"
#include "gridrpc/configuration.hpp"
#include "gridrpc/server_process.hpp"

namespace aplib::gridrpc {

/// What a server offers, as its first process has said. Never changes.
struct Offer {
  std::string idl;
  Interface interface;
  std::vector<const Function*> functions;  ///< By their numbers.
};

enum class HandleKind : bool { function, object };

/// One call.
struct Session {
  enum class State : std::uint8_t { waiting, running, over };

  int number = -1;  ///< -1: synchronous, nobody knows it.
  std::uint64_t handle = 0;
  const Function* function = nullptr;
  std::uint32_t function_number = 0;
  Arguments arguments{};
  // Guarded by the client's mutex:
  State state = State::waiting;
  bool cancelled = false;
  bool collected = false;            ///< Somebody has waited for it.
  ServerProcess* process = nullptr;  ///< While it runs.
  int code = 0;
  std::string text{};
};
using SessionPointer = std::shared_ptr<Session>;

class Client {
 public:
  explicit Client(std::vector<ServerEntry> servers) : servers_(std::move(servers)) {}
  ~Client() { drop_all(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Returns a handle's number. `server`: empty: the first that has `name`. `owner`: the user's structure. Throws
  /// Failure.
  std::uint64_t make_handle(HandleKind kind, const std::string& server, const std::string& name, void* owner);
  /// Cancels its sessions. Throws Failure(GRPC_INVALID_FUNCTION_HANDLE).
  void drop_handle(HandleKind kind, std::uint64_t number);

  /// All handles.
  void drop_all();

  /// A call of the handle's function, or of a method of its object, without arguments yet. Throws Failure.
  [[nodiscard]] SessionPointer prepare(HandleKind kind, std::uint64_t handle, const char* method);
  /// Carries it out on this thread. Throws Failure.
  void call(const SessionPointer& session);
  /// Returns the session's number at once. Throws Failure.
  int call_later(const SessionPointer& session);

  // Throw Failure(GRPC_INVALID_SESSION_ID).
  [[nodiscard]] void* owner_of(HandleKind kind, int session);
  [[nodiscard]] bool is_over(int session);
  void cancel(int session);
  void cancel_all();
  /// GRPC_...; GRPC_NOT_COMPLETED.
  [[nodiscard]] int result_of(int session, std::string* text = nullptr);

  /// Returns which one is over; -1: none. Waits for one: `waits`. Throws as above.
  int any_of(std::span<const int> sessions, bool waits);
  /// The same of all that nobody has waited for; -1: there are none.
  int any();
  /// Waits for all. Returns those that failed.
  std::vector<int> all_of(std::span<const int> sessions);
  std::vector<int> all();

 private:
  struct Handle {
    HandleKind kind = HandleKind::function;
    std::uint64_t number = 0;
    void* owner = nullptr;
    ServerEntry entry{};
    std::shared_ptr<const Offer> offer{};
    std::string name{};
    std::uint32_t function_number = 0;
    const ObjectClass* object = nullptr;
    unsigned limit = 1;  ///< Of processes.

    // Guarded by the client's mutex:
    std::vector<std::unique_ptr<ServerProcess>> idle{};
    unsigned processes = 0;  ///< Idle, in use, or being started.
    bool had_object = false;
    bool dropped = false;
    std::deque<SessionPointer> line{};   ///< Calls that have not begun, in their order.
    std::deque<SessionPointer> later{};  ///< Those of them that no thread has taken yet.
    std::vector<SessionPointer> running{};
    unsigned threads_free = 0;
    std::list<std::thread> threads{};
    std::condition_variable changed{};
  };
  using HandlePointer = std::shared_ptr<Handle>;
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] HandlePointer handle_of(HandleKind kind, std::uint64_t number);
  [[nodiscard]] SessionPointer session_of(int number);
  HandlePointer bind(HandleKind kind, const ServerEntry& entry, const std::string& name);
  std::shared_ptr<const Offer> offer_of(const ServerEntry& entry, const ServerProcess& process);

  std::unique_ptr<ServerProcess> take_process(Handle& handle, const SessionPointer& session, Lock& lock);
  void give_back(Handle& handle, std::unique_ptr<ServerProcess> process, Lock& lock);
  bool try_out(Handle& handle, const SessionPointer& session, Lock& lock);
  void carry_out(Handle& handle, const SessionPointer& session);
  void work(const HandlePointer& handle);
  void end(const SessionPointer& session, int code, std::string text);
  void cancel_if_open(Session& session);
  int collect(const SessionPointer& session);
  void empty(const HandlePointer& handle);

  std::vector<ServerEntry> servers_;  // never changes
  std::atomic<unsigned> next_process_ = 0;
  std::mutex mutex_;
  std::condition_variable over_;  // a session is over
  std::unordered_map<std::uint64_t, HandlePointer> handles_;
  std::map<std::string, std::shared_ptr<const Offer>> offers_;  // by server
  std::map<int, SessionPointer> sessions_;
  std::size_t uncollected_ = 0;       // of sessions_
  std::deque<SessionPointer> fresh_;  // over; perhaps collected meanwhile, but for the first
  std::deque<int> remembered_;        // collected, oldest first
  int next_session_ = 0;
};

}  // namespace aplib::gridrpc
