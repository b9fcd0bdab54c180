// SPDX-License-Identifier: MIT
// Errors: what a call throws, what becomes of it, and the classes, codes and texts of errors. A predefined code is its
// class.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "mpi/handles.hpp"
#include "mpi/object.hpp"

namespace aplib::mpi {

class ErrorTarget;

/// What is wrong with a call: the class of the standard, and in words what was given and what is allowed.
struct Failure {
  int code;
  std::string text;
  /// Held: the object to raise it on, if it is none of the call's.
  ErrorTarget* on = nullptr;
  bool is_asked_for = false;  ///< The program wants to have it raised, so its call succeeds.
};

[[noreturn]] inline void fail(int code, std::string text) { throw Failure{code, std::move(text)}; }

/// "MPI_ERR_RANK"; of a code that the program has made, "error code 16385".
std::string name_of_code(int code);

/// An error handler: a predefined one, or a function of the program.
struct Errhandler : Object {
  static constexpr ObjectKind kind = ObjectKind::errhandler;
  /// unset: what MPI_COMM_WORLD's does.
  enum class Action : std::uint8_t { unset, fatal, abort, return_code, call };

  Errhandler(Rank& rank, Action what) : Object(rank, kind), action(what) {}

  Action action;
  /// For Action::call: whose errors it handles, and the function, which has the type for that.
  ObjectKind handles = ObjectKind::none;
  void (*function)() = nullptr;
  AplibMpiErrorCaller* caller = nullptr;  ///< Of `function`; null: this library.
};

/// What is left to do for an error: to call a function of the program.
struct Alarm {
  Errhandler* handler = nullptr;  ///< Held; null: nothing is left.
  void* object = nullptr;         ///< The handle of what the error is raised on.
  std::string text;
};

/// An object on which errors are raised: communicator, window, file or session.
class ErrorTarget : public Object {
 public:
  ErrorTarget(Rank& rank, ObjectKind kind, Errhandler& handler) : Object(rank, kind), handler_(&handler) {
    handler_->hold();
  }
  ~ErrorTarget() override { let_go(*handler_); }

  /// For messages: "MPI_COMM_WORLD", "the file data.bin".
  [[nodiscard]] virtual std::string title() const = 0;
  /// The program's.
  [[nodiscard]] virtual void* handle() noexcept { return this; }

  [[nodiscard]] Errhandler& handler() const noexcept { return *handler_; }
  /// Fails unless `handler` is predefined or was made for objects of this kind.
  void set_handler(Errhandler& handler);
  /// Does what the error handler says, but for calling a function of the program, which is the caller's to do. Returns
  /// if the program is to go on.
  [[nodiscard]] Alarm raise(const char* call, const Failure& failure);

 private:
  Errhandler* handler_;
};

/// The classes and codes that a program has added.
class ErrorCodes {
 public:
  int add_class();
  int add_code(int error_class);
  void set_text(int code, const char* text);
  void remove_class(int error_class);
  void remove_code(int code);
  void remove_text(int code);
  /// Empty: there is no such code.
  [[nodiscard]] std::optional<int> class_of(int code) const;
  [[nodiscard]] std::optional<std::string> text_of(int code) const;
  /// Value of the attribute MPI_LASTUSEDCODE.
  [[nodiscard]] const int& last_used() const noexcept { return last_; }

 private:
  struct Added {
    int error_class;
    std::string text;
  };
  Added& added(int code);

  std::map<int, Added> added_;
  int last_ = MPI_ERR_LASTCODE;
};

}  // namespace aplib::mpi
