// SPDX-License-Identifier: MIT
#include "mpi/error.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "kernel/api.hpp"
#include "kernel/program_threads.hpp"
#include "mpi/comm.hpp"
#include "mpi/file.hpp"
#include "mpi/layout.hpp"
#include "mpi/rank.hpp"
#include "mpi/session.hpp"
#include "mpi/window.hpp"

namespace aplib::mpi {

// ---------------------------------------------------------------- raising

std::string name_of_code(int code) {
  for (const Name* known = error_classes; known->name != nullptr; ++known) {
    if (known->value == code) return known->name;
  }
  return fmt::format("error code {}", code);
}

namespace {

/// A call outside of cells has no rank, hence no error handler: every error is fatal.
[[noreturn]] void end_process(const char* call, const std::string& text) {
  const char* const remedy = api::is_thread_of_program() ? "" : "; start the program with mpiexec or aprun";
  std::fputs(fmt::format("aplib: {}: {}{}\n", call, text, remedy).c_str(), stderr);
  std::exit(1);
}

/// The target of a call without one, or with a wrong one.
ErrorTarget& default_target(const char* call) { return Rank::of_caller(call).self(); }

ErrorTarget& target_of(const char* call, MPI_Comm handle) {
  Comm* const comm = find_comm(Rank::of_caller(call), handle);
  return comm != nullptr ? *comm : default_target(call);
}
ErrorTarget& target_of(const char* call, MPI_File handle) { return find_file(Rank::of_caller(call), handle); }
ErrorTarget& target_of(const char* call, MPI_Win handle) {
  Win* const win = find_made<Win>(handle);
  return win != nullptr ? *win : default_target(call);
}
ErrorTarget& target_of(const char* call, MPI_Session handle) {
  Session* const session = find_made<Session>(handle);
  return session != nullptr ? *session : default_target(call);
}

template <class... Handle>
ErrorTarget& target_of(const char* call, const Failure& failure, Handle... handle) {
  if (failure.on != nullptr) return *failure.on;
  if constexpr (sizeof...(Handle) == 0) {
    return default_target(call);
  } else {
    return target_of(call, handle...);
  }
}

template <class... Handle>
int raise_on(const char* call, Failure* given, Handle... handle) {
  const Failure failure = std::move(*given);
  delete given;
  Alarm alarm;
  int code = failure.code;
  {
    const api::InCell inside;
    if (!inside.is_inside()) {
      api::fail_on_thread(call, failure.text);
      end_process(call, failure.text);
    }
    alarm = target_of(call, failure, handle...).raise(call, failure);
  }
  // The program's function is outside of the call: it may make threads, and leave by a jump. It may change the code.
  if (Errhandler* const handler = alarm.handler; handler != nullptr && handler->caller != nullptr) {
    handler->caller(handler->function, &alarm.object, &code, alarm.text.c_str());
  } else if (handler != nullptr) {
    reinterpret_cast<void (*)(void**, int*, ...)>(handler->function)(&alarm.object, &code, alarm.text.c_str());
  }
  if (const api::InCell inside; inside.is_inside()) {
    if (alarm.handler != nullptr) alarm.handler->release();
    if (failure.on != nullptr) failure.on->release();
  }
  return failure.is_asked_for ? MPI_SUCCESS : code;
}

template <class... Handle>
int raise_missing(const char* call, Handle... handle) {
  return raise_on(call,
                  new Failure{MPI_ERR_UNSUPPORTED_OPERATION, "this version of APlib does not have this function yet"},
                  handle...);
}

}  // namespace

Failure* caught() {
  try {
    throw;
  } catch (Failure& failure) {
    return new Failure(std::move(failure));
  } catch (const std::bad_alloc&) {
    return new Failure{MPI_ERR_NO_MEM, std::string("there is no memory") + os::memory_remedy};
  } catch (const DatatypeError& error) {
    return new Failure{error.error_class(), error.what()};
  } catch (const Error& error) {
    return new Failure{error.code() == Errc::ended ? MPI_ERR_PROC_ABORTED : MPI_ERR_OTHER, error.what()};
  } catch (...) {
    api::end_stopped_thread();
    throw;
  }
}

int raise(const char* call, Failure* failure) { return raise_on(call, failure); }
int raise(const char* call, Failure* failure, MPI_Comm comm) { return raise_on(call, failure, comm); }
int raise(const char* call, Failure* failure, MPI_Win win) { return raise_on(call, failure, win); }
int raise(const char* call, Failure* failure, MPI_File file) { return raise_on(call, failure, file); }
int raise(const char* call, Failure* failure, MPI_Session session) { return raise_on(call, failure, session); }

int missing(const char* call) { return raise_missing(call); }
int missing(const char* call, MPI_Comm comm) { return raise_missing(call, comm); }
int missing(const char* call, MPI_Win win) { return raise_missing(call, win); }
int missing(const char* call, MPI_File file) { return raise_missing(call, file); }
int missing(const char* call, MPI_Session session) { return raise_missing(call, session); }

Alarm ErrorTarget::raise(const char* call, const Failure& failure) {
  switch (handler_->action) {
    case Errhandler::Action::unset:
      if (ErrorTarget& world = rank().world(); world.handler_->action != Errhandler::Action::unset)
        return world.raise(call, failure);
      [[fallthrough]];
    case Errhandler::Action::fatal:
    case Errhandler::Action::abort: {
      const std::string text =
          fmt::format("{}: {} ({} on {})", call, failure.text, name_of_code(failure.code), title());
      if (failure.code == MPI_ERR_PROC_ABORTED) {
        if (const auto failed = api::failed_cell(call); failed)
          api::end_machine(call, failed->status, fmt::format("{}; {}", text, failed->text()));
      }
      api::end_machine(call, 1, text);
    }
    case Errhandler::Action::return_code:
      api::debug(call, fmt::format("{} ({} on {})", failure.text, name_of_code(failure.code), title()));
      return {};
    case Errhandler::Action::call:
      break;
  }
  handler_->hold();  // the function may free it, or set another
  return {handler_, handle(), fmt::format("{}: {}", call, failure.text)};
}

// ---------------------------------------------------------------- error handlers

void ErrorTarget::set_handler(Errhandler& handler) {
  if (handler.action == Errhandler::Action::call && handler.handles != object_kind())
    fail(MPI_ERR_ERRHANDLER, "the error handler was made for another kind of object; make one for this kind");
  handler.hold();
  handler_->release();
  handler_ = &handler;
}

Errhandler& errhandler_of(const Call& call, const char* parameter, MPI_Errhandler handle) {
  if (handle == MPI_ERRORS_ARE_FATAL) return call.rank().fatal();
  if (handle == MPI_ERRORS_ABORT) return call.rank().aborting();
  if (handle == MPI_ERRORS_RETURN) return call.rank().returning();
  return object_of<Errhandler>(MPI_ERR_ERRHANDLER, parameter, handle, "an error handler");
}

namespace {

template <class Function>
void create(const Call& call, ObjectKind handles, const char* parameter, Function* function, MPI_Errhandler* place) {
  check_place(call, parameter, reinterpret_cast<const void*>(function));
  auto* const handler = new Errhandler(call.rank(), Errhandler::Action::call);
  handler->handles = handles;
  handler->function = reinterpret_cast<void (*)()>(function);
  *place = handle_of<MPI_Errhandler>(*handler);
}

/// The program's handle of the target's error handler, which the program must free.
MPI_Errhandler handle_of_handler(const ErrorTarget& target) {
  switch (target.handler().action) {
    case Errhandler::Action::unset:
    case Errhandler::Action::fatal:
      return MPI_ERRORS_ARE_FATAL;
    case Errhandler::Action::abort:
      return MPI_ERRORS_ABORT;
    case Errhandler::Action::return_code:
      return MPI_ERRORS_RETURN;
    case Errhandler::Action::call:
      break;
  }
  target.handler().hold();
  return handle_of<MPI_Errhandler>(target.handler());
}

/// A file, or MPI_FILE_NULL.
ErrorTarget& file_target(const Call& call, const char* parameter, MPI_File handle) {
  if (handle == MPI_FILE_NULL) return call.rank().no_file();
  return file_of(call, parameter, handle);
}

}  // namespace

void comm_create_errhandler(const Call& call, MPI_Comm_errhandler_function* function, MPI_Errhandler* place) {
  create(call, ObjectKind::comm, "comm_errhandler_fn", function, place);
}
void win_create_errhandler(const Call& call, MPI_Win_errhandler_function* function, MPI_Errhandler* place) {
  create(call, ObjectKind::win, "win_errhandler_fn", function, place);
}
void file_create_errhandler(const Call& call, MPI_File_errhandler_function* function, MPI_Errhandler* place) {
  create(call, ObjectKind::file, "file_errhandler_fn", function, place);
}
void session_create_errhandler(const Call& call, MPI_Session_errhandler_function* function, MPI_Errhandler* place) {
  create(call, ObjectKind::session, "session_errhandler_fn", function, place);
}

void comm_set_errhandler(const Call&, Comm& comm, Errhandler& handler) { comm.set_handler(handler); }
void comm_get_errhandler(const Call&, Comm& comm, MPI_Errhandler* place) { *place = handle_of_handler(comm); }
void win_set_errhandler(const Call&, Win& win, Errhandler& handler) { win.set_handler(handler); }
void win_get_errhandler(const Call&, Win& win, MPI_Errhandler* place) { *place = handle_of_handler(win); }
void session_set_errhandler(const Call&, Session& session, Errhandler& handler) { session.set_handler(handler); }
void session_get_errhandler(const Call&, Session& session, MPI_Errhandler* place) {
  *place = handle_of_handler(session);
}

void errhandler_free(const Call& call, MPI_Errhandler* place) {
  Errhandler& handler = errhandler_of(call, "errhandler", *place);
  if (handler.action == Errhandler::Action::call) handler.release();
  *place = MPI_ERRHANDLER_NULL;
}

void file_set_errhandler(const Call& call, MPI_File file, Errhandler& handler) {
  file_target(call, "file", file).set_handler(handler);
}
void file_get_errhandler(const Call& call, MPI_File file, MPI_Errhandler* place) {
  *place = handle_of_handler(file_target(call, "file", file));
}

namespace {

/// The program raises an error itself.
[[noreturn]] void raise_asked(const Call& call, ErrorTarget& target, int code) {
  const std::optional<std::string> text = call.rank().codes.text_of(code);
  if (!text) fail(MPI_ERR_ARG, fmt::format("there is no error code {}", code));
  target.hold();
  throw Failure{code, *text, &target, true};
}

}  // namespace

void comm_call_errhandler(const Call& call, Comm& comm, int code) { raise_asked(call, comm, code); }
void win_call_errhandler(const Call& call, Win& win, int code) { raise_asked(call, win, code); }
void session_call_errhandler(const Call& call, Session& session, int code) { raise_asked(call, session, code); }
void file_call_errhandler(const Call& call, MPI_File file, int code) {
  raise_asked(call, file_target(call, "fh", file), code);
}

// ---------------------------------------------------------------- classes, codes and texts

ErrorCodes::Added& ErrorCodes::added(int code) {
  const auto place = added_.find(code);
  if (place == added_.end())
    fail(MPI_ERR_ARG, fmt::format("{} is no error class or code that the program has added", code));
  return place->second;
}

int ErrorCodes::add_class() {
  ++last_;
  added_[last_] = {last_, ""};
  return last_;
}

int ErrorCodes::add_code(int error_class) {
  if (class_of(error_class) != error_class) fail(MPI_ERR_ARG, fmt::format("{} is no error class", error_class));
  ++last_;
  added_[last_] = {error_class, ""};
  return last_;
}

void ErrorCodes::set_text(int code, const char* text) { added(code).text = text; }
void ErrorCodes::remove_text(int code) { added(code).text.clear(); }

void ErrorCodes::remove_class(int error_class) {
  if (added(error_class).error_class != error_class)
    fail(MPI_ERR_ARG, fmt::format("{} is an error code; remove it by MPI_Remove_error_code", error_class));
  for (const auto& [code, added] : added_) {
    if (added.error_class == error_class && code != error_class)
      fail(MPI_ERR_ARG, fmt::format("error class {} has codes; remove those first", error_class));
  }
  if (!added(error_class).text.empty())
    fail(MPI_ERR_ARG,
         fmt::format("error class {} has a text; remove that by MPI_Remove_error_string first", error_class));
  added_.erase(error_class);
}

void ErrorCodes::remove_code(int code) {
  if (added(code).error_class == code)
    fail(MPI_ERR_ARG, fmt::format("{} is an error class; remove it by MPI_Remove_error_class", code));
  if (!added(code).text.empty())
    fail(MPI_ERR_ARG, fmt::format("error code {} has a text; remove that by MPI_Remove_error_string first", code));
  added_.erase(code);
}

std::optional<int> ErrorCodes::class_of(int code) const {
  if (const auto place = added_.find(code); place != added_.end()) return place->second.error_class;
  for (const Name* known = error_classes; known->name != nullptr; ++known) {
    if (known->value == code) return code;
  }
  return std::nullopt;
}

std::optional<std::string> ErrorCodes::text_of(int code) const {
  if (const auto place = added_.find(code); place != added_.end()) return place->second.text;
  for (const Name* known = error_classes; known->name != nullptr; ++known) {
    if (known->value == code)
      return code == MPI_SUCCESS ? known->text : fmt::format("{}: {}", known->name, known->text);
  }
  return std::nullopt;
}

void error_class(const Call& call, int code, int* place) {
  const std::optional<int> found = call.rank().codes.class_of(code);
  if (!found) fail(MPI_ERR_ARG, fmt::format("there is no error code {}", code));
  *place = *found;
}

void error_string(const Call& call, int code, char* text, int* length) {
  const std::optional<std::string> found = call.rank().codes.text_of(code);
  if (!found) fail(MPI_ERR_ARG, fmt::format("there is no error code {}", code));
  give_string(*found, text, MPI_MAX_ERROR_STRING, length);
}

void add_error_class(const Call& call, int* place) { *place = call.rank().codes.add_class(); }
void add_error_code(const Call& call, int error_class, int* place) { *place = call.rank().codes.add_code(error_class); }
void add_error_string(const Call& call, int code, const char* text) { call.rank().codes.set_text(code, text); }
void remove_error_class(const Call& call, int error_class) { call.rank().codes.remove_class(error_class); }
void remove_error_code(const Call& call, int code) { call.rank().codes.remove_code(code); }
void remove_error_string(const Call& call, int code) { call.rank().codes.remove_text(code); }

}  // namespace aplib::mpi
