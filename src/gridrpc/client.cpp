// SPDX-License-Identifier: MIT
#include "gridrpc/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include "aplib/gridrpc.h"
#include "base/os/thread.hpp"
#include "base/text.hpp"
#include "calls/idl.hpp"

namespace aplib::gridrpc {
namespace {

constexpr std::size_t remembered_sessions_max = 65536;
/// A process may have died since its last call. When those that are started die, too, that is no accident.
constexpr int tries_max = 3;

/// What the user's structure holds. They begin anywhere, so that what it held before, or holds by chance, is no handle.
std::uint64_t next_handle_number() {
  static std::atomic<std::uint64_t> next = (std::uint64_t{std::random_device()()} << 32 | std::random_device()()) | 1;
  return next.fetch_add(2, std::memory_order_relaxed);
}

std::string_view without_module(std::string_view name, const Interface& interface) {
  const std::size_t slash = name.rfind('/');
  if (slash == name.npos) return name;
  return name.substr(0, slash) == interface.name ? name.substr(slash + 1) : std::string_view();
}

std::string names_of(const Interface& interface, HandleKind kind) {
  std::vector<std::string_view> names;
  if (kind == HandleKind::function)
    for (const Function& each : interface.functions) names.push_back(each.name);
  else
    for (const ObjectClass& each : interface.classes) names.push_back(each.name);
  return names.empty() ? "none" : text::join(names);
}

}  // namespace

void Client::drop_all() {
  std::vector<HandlePointer> handles;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, handle] : handles_) handles.push_back(handle);
    handles_.clear();
  }
  for (const HandlePointer& handle : handles) empty(handle);
}

// --- Handles ---

std::shared_ptr<const Offer> Client::offer_of(const ServerEntry& entry, const ServerProcess& process) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = offers_.find(subject_of(entry));
    if (known != offers_.end() && known->second->idl == process.idl()) return known->second;
  }
  const auto offer = std::make_shared<Offer>();
  offer->idl = process.idl();
  try {
    offer->interface = read_interface(offer->idl, entry.name, Bodies::none);
  } catch (const Error& error) {
    throw Failure(GRPC_RPC_REFUSED,
                  fmt::format("{}: what it offers cannot be read: {}", subject_of(entry), error.what()));
  }
  offer->functions = functions_of(offer->interface);
  const std::lock_guard lock(mutex_);
  offers_[subject_of(entry)] = offer;
  return offer;
}

/// A handle with its first process; nothing: the server does not have the name.
Client::HandlePointer Client::bind(HandleKind kind, const ServerEntry& entry, const std::string& name) {
  auto process = std::make_unique<ServerProcess>(entry, next_process_++);
  const auto handle = std::make_shared<Handle>();
  handle->kind = kind;
  handle->entry = entry;
  handle->name = name;
  handle->offer = offer_of(entry, *process);
  const Interface& interface = handle->offer->interface;
  const std::string_view plain = without_module(name, interface);
  bool found = false;
  if (kind == HandleKind::function) {
    handle->limit = std::max(entry.processes, 1U);
    const auto at = std::ranges::find(interface.functions, plain, &Function::name);
    found = at != interface.functions.end();
    handle->function_number = static_cast<std::uint32_t>(at - interface.functions.begin());
  } else {
    const auto at = std::ranges::find(interface.classes, plain, &ObjectClass::name);
    found = at != interface.classes.end();
    if (found) handle->object = &*at;
    handle->had_object = true;
  }
  if (!found) return nullptr;
  handle->processes = 1;
  handle->idle.push_back(std::move(process));
  return handle;
}

std::uint64_t Client::make_handle(HandleKind kind, const std::string& server, const std::string& name, void* owner) {
  const std::string what = kind == HandleKind::function ? "function" : "class";
  HandlePointer handle;
  if (!server.empty()) {
    const auto at = std::ranges::find(servers_, server, &ServerEntry::name);
    const bool is_path = server.find('/') != std::string::npos;
    if (at == servers_.end() && !is_path) {
      std::vector<std::string_view> known;
      for (const ServerEntry& each : servers_) known.push_back(each.name);
      throw Failure(GRPC_SERVER_NOT_FOUND, fmt::format("there is no server {}: known ones are {}; a path has a slash",
                                                       server, known.empty() ? "none" : text::join(known)));
    }
    const ServerEntry entry =
        at != servers_.end() ? *at : ServerEntry{.name = server, .program = server, .processes = default_processes()};
    handle = bind(kind, entry, name);
    if (!handle) {
      const std::lock_guard lock(mutex_);
      throw Failure(GRPC_FUNCTION_NOT_FOUND, fmt::format("server {} has no {} {}: it has {}", server, what, name,
                                                         names_of(offers_.at(subject_of(entry))->interface, kind)));
    }
  } else {
    if (servers_.empty())
      throw Failure(GRPC_SERVER_NOT_FOUND,
                    "there are no servers: name a file in grpc_initialize(), or programs in APLIB_GRIDRPC_PATH. Of "
                    "the programs in a folder, servers are those that this version's apgen has written the main part "
                    "of: compile older ones again, or name them one by one");
    std::exception_ptr problem;
    for (const ServerEntry& entry : servers_) {
      try {
        handle = bind(kind, entry, name);
      } catch (const Failure&) {  // another may have it
        if (!problem) problem = std::current_exception();
      }
      if (handle) break;
    }
    if (!handle && problem) std::rethrow_exception(problem);
    if (!handle) throw Failure(GRPC_FUNCTION_NOT_FOUND, fmt::format("no server has a {} {}", what, name));
  }
  handle->owner = owner;
  handle->number = next_handle_number();
  const std::lock_guard lock(mutex_);
  handles_.emplace(handle->number, handle);
  return handle->number;
}

Client::HandlePointer Client::handle_of(HandleKind kind, std::uint64_t number) {
  const auto at = handles_.find(number);
  if (at == handles_.end() || at->second->kind != kind) {
    throw Failure(GRPC_INVALID_FUNCTION_HANDLE,
                  kind == HandleKind::function ? "this is no function handle: make it by grpc_function_handle_init()"
                                               : "this is no object handle: make it by grpc_object_handle_init_np()");
  }
  return at->second;
}

void Client::drop_handle(HandleKind kind, std::uint64_t number) {
  HandlePointer handle;
  {
    const std::lock_guard lock(mutex_);
    handle = handle_of(kind, number);
    handles_.erase(number);
  }
  empty(handle);
}

/// Nobody finds the handle any more: its sessions, threads and processes end.
void Client::empty(const HandlePointer& handle) {
  std::list<std::thread> threads;
  std::vector<std::unique_ptr<ServerProcess>> idle;
  {
    Lock lock(mutex_);
    handle->dropped = true;
    handle->owner = nullptr;
    for (const SessionPointer& session : handle->line) cancel_if_open(*session);
    for (const SessionPointer& session : handle->running) cancel_if_open(*session);
    handle->changed.notify_all();
    over_.wait(lock, [&] { return handle->line.empty() && handle->processes == handle->idle.size(); });
    threads.swap(handle->threads);
    idle.swap(handle->idle);
    handle->processes = 0;
  }
  for (std::thread& each : threads) each.join();
}

// --- Calls ---

SessionPointer Client::prepare(HandleKind kind, std::uint64_t number, const char* method) {
  auto session = std::make_shared<Session>();
  const std::lock_guard lock(mutex_);
  const HandlePointer handle = handle_of(kind, number);
  session->handle = number;
  session->function_number = handle->function_number;
  if (kind == HandleKind::object) {
    const std::string_view wanted = method == nullptr ? "" : method;
    const auto& methods = handle->object->methods;
    const auto at = std::ranges::find(methods, wanted, &Function::name);
    if (at == methods.end()) {
      std::vector<std::string_view> names;
      for (const Function& each : methods) names.push_back(each.name);
      throw Failure(GRPC_FUNCTION_NOT_FOUND,
                    fmt::format("class {} has no method {}: it has {}", handle->name, wanted, text::join(names)));
    }
    const auto& functions = handle->offer->functions;
    session->function_number = static_cast<std::uint32_t>(std::ranges::find(functions, &*at) - functions.begin());
  }
  session->function = handle->offer->functions[session->function_number];
  return session;
}

/// Waits until it is the session's turn and a process is free, or may be started. Throws Failure.
std::unique_ptr<ServerProcess> Client::take_process(Handle& handle, const SessionPointer& session, Lock& lock) {
  const auto is_free = [&] { return !handle.idle.empty() || handle.processes < handle.limit; };
  handle.changed.wait(lock, [&] { return session->cancelled || (handle.line.front() == session && is_free()); });
  std::erase(handle.line, session);
  handle.changed.notify_all();
  if (session->cancelled) throw Failure(GRPC_CANCELED_NP, "the call was cancelled before it began");
  std::unique_ptr<ServerProcess> process;
  if (!handle.idle.empty()) {
    process = std::move(handle.idle.back());
    handle.idle.pop_back();
  } else if (handle.kind == HandleKind::object && handle.had_object && handle.processes == 0) {
    throw Failure(GRPC_INVALID_FUNCTION_HANDLE,
                  fmt::format("the object of class {} was lost with its process: make another handle", handle.name));
  } else {
    ++handle.processes;
    lock.unlock();
    try {
      process = std::make_unique<ServerProcess>(handle.entry, next_process_++);
    } catch (...) {
      lock.lock();
      --handle.processes;
      handle.changed.notify_all();
      throw;
    }
    const bool same = process->idl() == handle.offer->idl;
    lock.lock();
    if (!same) {
      give_back(handle, std::move(process), lock);
      throw Failure(
          GRPC_COMMUNICATION_FAILED,
          fmt::format("{}: the program offers something else now: make another handle", subject_of(handle.entry)));
    }
  }
  session->process = process.get();
  session->state = Session::State::running;
  handle.running.push_back(session);
  if (handle.dropped) session->cancelled = true;  // while the process was started
  if (session->cancelled) process->kill();
  return process;
}

/// Keeps the process for the next call, or ends it.
void Client::give_back(Handle& handle, std::unique_ptr<ServerProcess> process, Lock& lock) {
  if (!process->is_broken() && process->idl() == handle.offer->idl) {
    handle.idle.push_back(std::move(process));
  } else {
    lock.unlock();
    process.reset();
    lock.lock();
    --handle.processes;
  }
  handle.changed.notify_all();
  if (handle.dropped) over_.notify_all();
}

/// One try. False: the process had died before, and another one is needed. Throws Failure.
bool Client::try_out(Handle& handle, const SessionPointer& session, Lock& lock) {
  std::unique_ptr<ServerProcess> process;
  try {
    process = take_process(handle, session, lock);
  } catch (...) {
    if (handle.dropped) over_.notify_all();
    throw;
  }
  lock.unlock();
  bool begun = true;
  std::exception_ptr problem;
  try {
    process->call(*session->function, session->function_number, session->arguments.addresses(), handle.entry.timeout);
  } catch (const NotBegun&) {
    begun = false;
  } catch (const Failure&) {
    problem = std::current_exception();
  } catch (const std::exception&) {  // no memory: nobody knows what has been sent
    process->kill();
    problem = std::current_exception();
  }
  lock.lock();
  session->process = nullptr;
  session->state = Session::State::waiting;
  std::erase(handle.running, session);
  if (!begun) handle.line.push_front(session);
  const bool cancelled = session->cancelled && problem;
  give_back(handle, std::move(process), lock);
  if (cancelled) throw Failure(GRPC_CANCELED_NP, fmt::format("{} was cancelled", session->function->name));
  if (problem) std::rethrow_exception(problem);
  return begun;
}

/// The session stands in the handle's line. Throws Failure.
void Client::carry_out(Handle& handle, const SessionPointer& session) {
  Lock lock(mutex_);
  for (int tries = 0; !try_out(handle, session, lock);) {
    if (++tries < tries_max) continue;
    std::erase(handle.line, session);
    handle.changed.notify_all();
    throw Failure(
        GRPC_COMMUNICATION_FAILED,
        fmt::format("{} at {}: {} processes ended before they had the arguments: their standard error may say why",
                    session->function->name, subject_of(handle.entry), tries));
  }
}

void Client::call(const SessionPointer& session) {
  HandlePointer handle;
  {
    const std::lock_guard lock(mutex_);
    const auto at = handles_.find(session->handle);
    if (at == handles_.end())
      throw Failure(GRPC_INVALID_FUNCTION_HANDLE, "the handle was destructed while the call was made");
    handle = at->second;
    handle->line.push_back(session);
  }
  carry_out(*handle, session);
}

int Client::call_later(const SessionPointer& session) {
  const std::lock_guard lock(mutex_);
  const auto at = handles_.find(session->handle);
  if (at == handles_.end())
    throw Failure(GRPC_INVALID_FUNCTION_HANDLE, "the handle was destructed while the call was made");
  const HandlePointer& handle = at->second;
  if (handle->threads_free <= handle->later.size() && handle->threads.size() < handle->limit) {
    try {
      handle->threads.push_back(os::quiet_thread("aplib-gridrpc", [this, handle] { work(handle); }));
      ++handle->threads_free;
    } catch (const std::exception& error) {
      if (handle->threads.empty())
        throw Failure(GRPC_OTHER_ERROR_CODE, fmt::format("no thread for a session: {}", error.what()));
    }
  }
  session->number = next_session_;
  next_session_ = next_session_ == INT32_MAX ? 0 : next_session_ + 1;
  sessions_.emplace(session->number, session);
  ++uncollected_;
  handle->line.push_back(session);
  handle->later.push_back(session);
  handle->changed.notify_all();
  return session->number;
}

/// A thread for sessions of a handle.
void Client::work(const HandlePointer& handle) {
  for (;;) {
    SessionPointer session;
    {
      Lock lock(mutex_);
      handle->changed.wait(lock, [&] { return handle->dropped || !handle->later.empty(); });
      if (handle->later.empty()) return;
      session = std::move(handle->later.front());
      handle->later.pop_front();
      --handle->threads_free;
    }
    int code = GRPC_NO_ERROR;
    std::string text;
    try {
      carry_out(*handle, session);
    } catch (const Failure& failure) {
      code = failure.number();
      text = failure.what();
    } catch (const std::exception& error) {
      code = GRPC_OTHER_ERROR_CODE;
      text = error.what();
    }
    const std::lock_guard lock(mutex_);
    ++handle->threads_free;
    end(session, code, std::move(text));
  }
}

void Client::end(const SessionPointer& session, int code, std::string text) {
  session->state = Session::State::over;
  session->code = code;
  session->text = std::move(text);
  session->arguments = {};
  fresh_.push_back(session);
  over_.notify_all();
}

// --- Sessions ---

SessionPointer Client::session_of(int number) {
  const auto at = sessions_.find(number);
  if (at == sessions_.end())
    throw Failure(GRPC_INVALID_SESSION_ID, fmt::format("there is no session {}: grpc_call_async() gives them", number));
  return at->second;
}

void* Client::owner_of(HandleKind kind, int session) {
  const std::lock_guard lock(mutex_);
  const auto at = handles_.find(session_of(session)->handle);
  if (at == handles_.end() || at->second->kind != kind) {
    throw Failure(GRPC_INVALID_SESSION_ID, fmt::format("session {} has no {} handle any more, or never had", session,
                                                       kind == HandleKind::function ? "function" : "object"));
  }
  return at->second->owner;
}

bool Client::is_over(int session) {
  const std::lock_guard lock(mutex_);
  return session_of(session)->state == Session::State::over;
}

void Client::cancel_if_open(Session& session) {
  if (session.state == Session::State::over) return;
  session.cancelled = true;
  if (session.process != nullptr) session.process->kill();
  if (const auto at = handles_.find(session.handle); at != handles_.end()) at->second->changed.notify_all();
}

void Client::cancel(int session) {
  const std::lock_guard lock(mutex_);
  cancel_if_open(*session_of(session));
}

void Client::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, session] : sessions_) cancel_if_open(*session);
}

int Client::result_of(int session, std::string* text) {
  const std::lock_guard lock(mutex_);
  const SessionPointer found = session_of(session);
  if (text != nullptr) *text = found->text;
  return found->state == Session::State::over ? found->code : GRPC_NOT_COMPLETED;
}

/// Somebody has waited for it: it is forgotten when many others have come after it. Returns its number.
int Client::collect(const SessionPointer& session) {
  if (std::exchange(session->collected, true)) return session->number;
  --uncollected_;
  while (!fresh_.empty() && fresh_.front()->collected) fresh_.pop_front();
  remembered_.push_back(session->number);
  if (remembered_.size() > remembered_sessions_max) {
    sessions_.erase(remembered_.front());
    remembered_.pop_front();
  }
  return session->number;
}

int Client::any_of(std::span<const int> sessions, bool waits) {
  Lock lock(mutex_);
  std::vector<SessionPointer> wanted;
  for (const int each : sessions) wanted.push_back(session_of(each));
  const auto over = [&] {
    return std::ranges::find(wanted, Session::State::over, [](const SessionPointer& each) { return each->state; });
  };
  if (!waits) {
    const auto at = over();
    return at == wanted.end() ? -1 : (*at)->number;
  }
  if (wanted.empty()) return -1;
  over_.wait(lock, [&] { return over() != wanted.end(); });
  return collect(*over());
}

int Client::any() {
  Lock lock(mutex_);
  over_.wait(lock, [&] { return uncollected_ == 0 || !fresh_.empty(); });
  return uncollected_ == 0 ? -1 : collect(SessionPointer(fresh_.front()));
}

std::vector<int> Client::all_of(std::span<const int> sessions) {
  Lock lock(mutex_);
  std::vector<SessionPointer> wanted;
  for (const int each : sessions) wanted.push_back(session_of(each));
  std::vector<int> failed;
  for (const SessionPointer& session : wanted) {
    over_.wait(lock, [&] { return session->state == Session::State::over; });
    collect(session);
    if (session->code != GRPC_NO_ERROR) failed.push_back(session->number);
  }
  return failed;
}

std::vector<int> Client::all() {
  std::vector<int> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, session] : sessions_)
      if (!session->collected) open.push_back(number);
  }
  return all_of(open);
}

}  // namespace aplib::gridrpc
