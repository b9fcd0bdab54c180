// SPDX-License-Identifier: MIT
// The C interface: finds the program's client, and makes codes of exceptions.
#include "aplib/gridrpc.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "gridrpc/client.hpp"

/// Of the C interface.
struct grpc_arg_stack_s {
  std::size_t most;
  std::vector<void*> arguments;
};

namespace aplib::gridrpc {
namespace {

/// The interface has one client for the program.
struct Program {
  std::mutex mutex;
  std::shared_ptr<Client> client;
  std::deque<int> failed;  ///< What grpc_get_failed_sessionid() has not told yet.
};

Program& program() {
  static Program one;
  return one;
}

/// Of this thread's latest call.
struct LastError {
  int code = GRPC_NO_ERROR;
  std::string text;
};
thread_local LastError last_error;

int note(int code, std::string text) noexcept {
  last_error.code = code;
  last_error.text = std::move(text);
  return code;
}

std::shared_ptr<Client> client() {
  const std::lock_guard lock(program().mutex);
  if (!program().client) throw Failure(GRPC_NOT_INITIALIZED, "GridRPC is not initialized: call grpc_initialize()");
  return program().client;
}

/// Runs what throws. Returns its code, or GRPC_NO_ERROR.
template <class Run>
int run(Run run) noexcept {
  try {
    return run();
  } catch (const Failure& failure) {
    return note(failure.number(), failure.what());
  } catch (const std::exception& error) {
    return note(GRPC_OTHER_ERROR_CODE, error.what());
  }
}

[[noreturn]] void refuse_null(const char* what) {
  throw Failure(GRPC_OTHER_ERROR_CODE, fmt::format("{} is NULL", what));
}

std::string text_of(const char* text, const char* what) {
  if (text == nullptr) refuse_null(what);
  return text;
}

std::span<const int> list_of(const int* sessions, std::size_t count) {
  if (sessions == nullptr && count != 0) refuse_null("the list of sessions");
  return {sessions, count};
}

int tell_failed(const std::vector<int>& failed) {
  const std::lock_guard lock(program().mutex);
  program().failed.assign(failed.begin(), failed.end());
  if (failed.empty()) return GRPC_NO_ERROR;
  return note(GRPC_SESSION_FAILED, fmt::format("{} of the sessions failed: grpc_get_failed_sessionid() names them, "
                                               "grpc_get_error() has the reasons",
                                               failed.size()));
}

/// What waiting for one session returns.
int tell_result(Client& client, int session) {
  std::string text;
  const int code = client.result_of(session, &text);
  if (code == GRPC_NO_ERROR) return code;
  return note(GRPC_SESSION_FAILED, std::move(text));
}

/// What this thread could not make last. Programs that do not look at that hear it from the handle's calls.
struct Unmade {
  const void* handle = nullptr;
  std::string why;
};
thread_local Unmade unmade;

template <class Handle>
int make_handle(HandleKind kind, Handle* handle, const char* server, const char* name) {
  if (handle == nullptr) refuse_null("the handle");
  handle->number = 0;
  if (unmade.handle == handle) unmade = {};
  const std::string wanted = text_of(name, kind == HandleKind::function ? "the function's name" : "the class's name");
  try {
    handle->number = client()->make_handle(kind, server == nullptr ? "" : server, wanted, handle);
  } catch (const Failure& failure) {
    unmade = {handle, failure.what()};
    throw;
  }
  return GRPC_NO_ERROR;
}

template <class Handle>
int drop_handle(HandleKind kind, Handle* handle) {
  if (handle == nullptr) refuse_null("the handle");
  client()->drop_handle(kind, std::exchange(handle->number, 0));
  return GRPC_NO_ERROR;
}

template <class Handle>
int make_handles(HandleKind kind, Handle* handles, std::size_t count, const char* server, const char* name) {
  for (std::size_t i = 0; i < count; ++i) {
    try {
      make_handle(kind, handles + i, server, name);
    } catch (...) {
      while (i > 0) static_cast<void>(run([&] { return drop_handle(kind, handles + --i); }));
      throw;
    }
  }
  return GRPC_NO_ERROR;
}

template <class Handle>
int drop_handles(HandleKind kind, Handle* handles, std::size_t count) {
  int code = GRPC_NO_ERROR;
  for (std::size_t i = 0; i < count; ++i) {
    const int each = run([&] { return drop_handle(kind, handles + i); });
    if (code == GRPC_NO_ERROR) code = each;
  }
  return code;
}

template <class Handle>
std::uint64_t number_of(const Handle* handle) {
  if (handle == nullptr) return 0;
  if (handle->number == 0 && handle == unmade.handle)
    throw Failure(GRPC_INVALID_FUNCTION_HANDLE, "the handle could not be made: " + unmade.why);
  return handle->number;
}

/// A call with its arguments, which `take` gives it.
template <class Handle, class Take>
SessionPointer prepare(Client& client, HandleKind kind, const Handle* handle, const char* method, Take take) {
  SessionPointer session = client.prepare(kind, number_of(handle), method);
  try {
    take(session->arguments, *session->function);
  } catch (const Error& error) {
    throw Failure(GRPC_OTHER_ERROR_CODE, error.what());
  }
  return session;
}

auto taker(grpc_arg_stack_t* stack) {
  return [stack](Arguments& arguments, const Function& function) {
    if (stack == nullptr) refuse_null("the argument stack");
    arguments.take(function, std::span<void* const>(stack->arguments));
  };
}

template <class Handle, class Take>
int call(HandleKind kind, const Handle* handle, const char* method, Take take) {
  const std::shared_ptr<Client> with = client();
  with->call(prepare(*with, kind, handle, method, take));
  return GRPC_NO_ERROR;
}

template <class Handle, class Take>
int call_later(HandleKind kind, const Handle* handle, const char* method, int* session, Take take) {
  if (session == nullptr) refuse_null("where the session's number goes");
  *session = GRPC_SESSIONID_VOID;
  const std::shared_ptr<Client> with = client();
  *session = with->call_later(prepare(*with, kind, handle, method, take));
  return GRPC_NO_ERROR;
}

std::vector<ServerEntry> servers_of(const char* file) {
  if (file == nullptr) {
    const char* const path = std::getenv("APLIB_GRIDRPC_PATH");
    return servers_of_path(path == nullptr ? "" : path);
  }
  const auto text = os::read_file(file);
  if (!text) {
    throw Failure(GRPC_CONFIGFILE_NOT_FOUND,
                  fmt::format("the file of servers {} cannot be read: {}", file, os::text_of(errno)));
  }
  try {
    return read_configuration(*text, file);
  } catch (const Error& error) {
    throw Failure(GRPC_CONFIGFILE_ERROR, error.what());
  }
}

struct CodeRow {
  int code;
  const char* text;
};
constexpr std::array code_rows{
    CodeRow{GRPC_NO_ERROR, "no error"},
    CodeRow{GRPC_NOT_INITIALIZED, "GridRPC is not initialized"},
    CodeRow{GRPC_CONFIGFILE_NOT_FOUND, "the configuration file was not found"},
    CodeRow{GRPC_CONFIGFILE_ERROR, "the configuration file has an error"},
    CodeRow{GRPC_SERVER_NOT_FOUND, "the server was not found"},
    CodeRow{GRPC_FUNCTION_NOT_FOUND, "the function was not found"},
    CodeRow{GRPC_INVALID_FUNCTION_HANDLE, "the handle is invalid"},
    CodeRow{GRPC_INVALID_SESSION_ID, "the session ID is invalid"},
    CodeRow{GRPC_RPC_REFUSED, "the call was refused"},
    CodeRow{GRPC_COMMUNICATION_FAILED, "the communication with the server failed"},
    CodeRow{GRPC_SESSION_FAILED, "the session failed"},
    CodeRow{GRPC_NOT_COMPLETED, "the session is not completed"},
    CodeRow{GRPC_NONE_COMPLETED, "no session is completed"},
    CodeRow{GRPC_OTHER_ERROR_CODE, "another error"},
    CodeRow{GRPC_ALREADY_INITIALIZED, "GridRPC is initialized already"},
    CodeRow{GRPC_CANCELED_NP, "the session was canceled"},
    CodeRow{GRPC_TIMEOUT_NP, "the session took too long"},
};

}  // namespace
}  // namespace aplib::gridrpc

using namespace aplib::gridrpc;  // NOLINT

// Calls `take` with what follows `last`; the list ends with the statement.
#define TAKE_LIST(last, statement)                                                                           \
  std::va_list list;                                                                                         \
  va_start(list, last);                                                                                      \
  const auto take = [&](Arguments& arguments, const Function& function) { arguments.take(function, list); }; \
  const int code = run([&] { return statement; });                                                           \
  va_end(list);                                                                                              \
  return code

extern "C" {

grpc_error_t grpc_initialize(const char* config_file_name) {
  return run([&]() -> int {
    const std::lock_guard lock(program().mutex);
    if (program().client)
      throw Failure(GRPC_ALREADY_INITIALIZED, "GridRPC is initialized already: call grpc_finalize() first");
    program().client = std::make_shared<Client>(servers_of(config_file_name));
    program().failed.clear();
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_finalize(void) {
  return run([&]() -> int {
    const std::shared_ptr<Client> last = client();
    last->drop_all();
    const std::lock_guard lock(program().mutex);
    if (program().client == last) program().client.reset();
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_function_handle_default(grpc_function_handle_t* handle, const char* func_name) {
  return run([&] { return make_handle(HandleKind::function, handle, nullptr, func_name); });
}

grpc_error_t grpc_function_handle_init(grpc_function_handle_t* handle, const char* server_name, const char* func_name) {
  return run([&] {
    return make_handle(HandleKind::function, handle, text_of(server_name, "the server's name").c_str(), func_name);
  });
}

grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t* handle) {
  return run([&] { return drop_handle(HandleKind::function, handle); });
}

grpc_error_t grpc_get_handle(grpc_function_handle_t** handle, grpc_sessionid_t session) {
  return run([&]() -> int {
    if (handle == nullptr) refuse_null("where the handle goes");
    *handle = static_cast<grpc_function_handle_t*>(client()->owner_of(HandleKind::function, session));
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t* handles, size_t count,
                                                   const char* func_name) {
  return run([&] { return make_handles(HandleKind::function, handles, count, nullptr, func_name); });
}

grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t* handles, size_t count, const char* server_name,
                                                const char* func_name) {
  return run([&] {
    return make_handles(HandleKind::function, handles, count, text_of(server_name, "the server's name").c_str(),
                        func_name);
  });
}

grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t* handles, size_t count) {
  return drop_handles(HandleKind::function, handles, count);
}

grpc_error_t grpc_call(grpc_function_handle_t* handle, ...) {
  TAKE_LIST(handle, call(HandleKind::function, handle, nullptr, take));
}

grpc_error_t grpc_call_async(grpc_function_handle_t* handle, grpc_sessionid_t* session, ...) {
  TAKE_LIST(session, call_later(HandleKind::function, handle, nullptr, session, take));
}

grpc_arg_stack_t* grpc_arg_stack_new(int max_args) {
  grpc_arg_stack_t* stack = nullptr;
  static_cast<void>(run([&]() -> int {
    if (max_args < 0) throw Failure(GRPC_OTHER_ERROR_CODE, "an argument stack has no fewer than 0 arguments");
    stack = new grpc_arg_stack_t{.most = static_cast<std::size_t>(max_args), .arguments = {}};
    return GRPC_NO_ERROR;
  }));
  return stack;
}

int grpc_arg_stack_push_arg(grpc_arg_stack_t* stack, void* arg) {
  return run([&]() -> int {
           if (stack == nullptr) refuse_null("the argument stack");
           if (stack->arguments.size() >= stack->most)
             throw Failure(GRPC_OTHER_ERROR_CODE,
                           fmt::format("the argument stack is full: it was made for {} arguments", stack->most));
           stack->arguments.push_back(arg);
           return GRPC_NO_ERROR;
         }) == GRPC_NO_ERROR
             ? 0
             : -1;
}

void* grpc_arg_stack_pop_arg(grpc_arg_stack_t* stack) {
  if (stack == nullptr || stack->arguments.empty()) return nullptr;
  void* const last = stack->arguments.back();
  stack->arguments.pop_back();
  return last;
}

int grpc_arg_stack_destruct(grpc_arg_stack_t* stack) {
  delete stack;
  return 0;
}

grpc_error_t grpc_call_arg_stack(grpc_function_handle_t* handle, grpc_arg_stack_t* stack) {
  return run([&] { return call(HandleKind::function, handle, nullptr, taker(stack)); });
}

int grpc_call_arg_stack_async(grpc_function_handle_t* handle, grpc_arg_stack_t* stack) {
  int session = GRPC_SESSIONID_VOID;
  static_cast<void>(run([&] { return call_later(HandleKind::function, handle, nullptr, &session, taker(stack)); }));
  return session;
}

grpc_error_t grpc_probe(grpc_sessionid_t session) {
  return run([&]() -> int { return client()->is_over(session) ? GRPC_NO_ERROR : GRPC_NOT_COMPLETED; });
}

grpc_error_t grpc_probe_or(grpc_sessionid_t* sessions, size_t count, grpc_sessionid_t* over) {
  return run([&]() -> int {
    if (over == nullptr) refuse_null("where the session's number goes");
    *over = client()->any_of(list_of(sessions, count), false);
    return *over == GRPC_SESSIONID_VOID ? GRPC_NONE_COMPLETED : GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_cancel(grpc_sessionid_t session) {
  return run([&]() -> int {
    client()->cancel(session);
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_cancel_all(void) {
  return run([&]() -> int {
    client()->cancel_all();
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_wait(grpc_sessionid_t session) {
  return run([&]() -> int {
    const std::shared_ptr<Client> with = client();
    return tell_result(*with, with->any_of(std::span<const int>(&session, 1), true));
  });
}

grpc_error_t grpc_wait_and(grpc_sessionid_t* sessions, size_t count) {
  return run([&]() -> int { return tell_failed(client()->all_of(list_of(sessions, count))); });
}

grpc_error_t grpc_wait_or(grpc_sessionid_t* sessions, size_t count, grpc_sessionid_t* over) {
  return run([&]() -> int {
    if (over == nullptr) refuse_null("where the session's number goes");
    const std::shared_ptr<Client> with = client();
    *over = with->any_of(list_of(sessions, count), true);
    return *over == GRPC_SESSIONID_VOID ? GRPC_NONE_COMPLETED : tell_result(*with, *over);
  });
}

grpc_error_t grpc_wait_all(void) {
  return run([&]() -> int { return tell_failed(client()->all()); });
}

grpc_error_t grpc_wait_any(grpc_sessionid_t* over) {
  return run([&]() -> int {
    if (over == nullptr) refuse_null("where the session's number goes");
    const std::shared_ptr<Client> with = client();
    *over = with->any();
    return *over == GRPC_SESSIONID_VOID ? GRPC_NONE_COMPLETED : tell_result(*with, *over);
  });
}

grpc_error_t grpc_get_error(grpc_sessionid_t session) {
  return run([&]() -> int { return client()->result_of(session); });
}

const char* grpc_error_string(grpc_error_t code) {
  for (const CodeRow& row : code_rows)
    if (row.code == code) return row.text;
  return "an unknown error code";
}

grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t* session) {
  return run([&]() -> int {
    if (session == nullptr) refuse_null("where the session's number goes");
    static_cast<void>(client());
    const std::lock_guard lock(program().mutex);
    *session = GRPC_SESSIONID_VOID;
    if (program().failed.empty()) return GRPC_NO_ERROR;
    *session = program().failed.front();
    program().failed.pop_front();
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_perror_np(const char* prefix) {
  const bool has_prefix = prefix != nullptr && *prefix != '\0';
  std::fprintf(stderr, "%s%s%s\n", has_prefix ? prefix : "", has_prefix ? ": " : "", grpc_last_error_text_np());
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_perror(const char* prefix) { return grpc_perror_np(prefix); }

grpc_error_t grpc_last_error_get_np(void) { return last_error.code; }

const char* grpc_last_error_text_np(void) {
  return last_error.text.empty() ? grpc_error_string(last_error.code) : last_error.text.c_str();
}

const char* grpc_session_error_text_np(grpc_sessionid_t session) {
  static thread_local std::string text;
  text.clear();
  static_cast<void>(run([&] { return client()->result_of(session, &text); }));
  return text.c_str();
}

grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np* handle, const char* class_name) {
  return run([&] { return make_handle(HandleKind::object, handle, nullptr, class_name); });
}

grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np* handle, const char* server_name,
                                        const char* class_name) {
  return run([&] {
    return make_handle(HandleKind::object, handle, text_of(server_name, "the server's name").c_str(), class_name);
  });
}

grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np* handle) {
  return run([&] { return drop_handle(HandleKind::object, handle); });
}

grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np* handles, size_t count,
                                                 const char* class_name) {
  return run([&] { return make_handles(HandleKind::object, handles, count, nullptr, class_name); });
}

grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np* handles, size_t count, const char* server_name,
                                              const char* class_name) {
  return run([&] {
    return make_handles(HandleKind::object, handles, count, text_of(server_name, "the server's name").c_str(),
                        class_name);
  });
}

grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np* handles, size_t count) {
  return drop_handles(HandleKind::object, handles, count);
}

grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np** handle, grpc_sessionid_t session) {
  return run([&]() -> int {
    if (handle == nullptr) refuse_null("where the handle goes");
    *handle = static_cast<grpc_object_handle_t_np*>(client()->owner_of(HandleKind::object, session));
    return GRPC_NO_ERROR;
  });
}

grpc_error_t grpc_invoke_np(grpc_object_handle_t_np* handle, const char* method_name, ...) {
  TAKE_LIST(method_name, call(HandleKind::object, handle, method_name, take));
}

grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np* handle, const char* method_name, grpc_sessionid_t* session,
                                  ...) {
  TAKE_LIST(session, call_later(HandleKind::object, handle, method_name, session, take));
}

grpc_error_t grpc_invoke_arg_stack_np(grpc_object_handle_t_np* handle, const char* method_name,
                                      grpc_arg_stack_t* stack) {
  return run([&] { return call(HandleKind::object, handle, method_name, taker(stack)); });
}

int grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np* handle, const char* method_name, grpc_arg_stack_t* stack) {
  int session = GRPC_SESSIONID_VOID;
  static_cast<void>(run([&] { return call_later(HandleKind::object, handle, method_name, &session, taker(stack)); }));
  return session;
}

}  // extern "C"
