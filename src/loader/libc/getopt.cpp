// SPDX-License-Identifier: MIT
// Getopt, getopt_long and getopt_long_only with their variables, and argp, per instance.
//
// They behave as those of glibc 2.26 and later, down to the wording of complaints (its manual, "Parsing program options
// using getopt", and getopt(3)). libc's own catalogue translates the words.
#include "loader/libc/getopt.hpp"

#include <argp.h>
#include <errno.h>
#include <libintl.h>
#include <sysexits.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"

namespace aplib::loader::libc {

struct GetoptPrivate {
  enum class Order { permute, stop_at_operand, return_operands };
  bool started = false;
  Order order = Order::permute;
  int offender = 0;      ///< What optopt is set to after each call; 0 until there was one, as in libc.
  char* rest = nullptr;  ///< What is left of a cluster of short options ("-abc"); null or empty: next word.
  // Operands skipped so far stand in argv[operands_begin, operands_end), before optind.
  int operands_begin = 1;
  int operands_end = 1;
};

namespace {

constexpr int finished = -1;
constexpr int operand_in_order = 1;

bool is_option_word(const char* word) { return word[0] == '-' && word[1] != '\0'; }

class Scanner {
 public:
  Scanner(LibcState& state, int argc, char** argv, const GetoptCall& call)
      : optarg_(*state.optarg),
        optind_(*state.optind),
        opterr_(*state.opterr),
        state_(state),
        own_(state.getopt.get()),
        argc_(argc),
        argv_(argv),
        call_(call),
        options_(call.short_options) {}

  int next() {
    optarg_ = nullptr;
    if (optind_ == 0 || !own_.started) start();
    if (*options_ == '-' || *options_ == '+') ++options_;
    quiet_ = *options_ == ':' || opterr_ == 0;

    if (own_.rest == nullptr || *own_.rest == '\0') {
      if (const int result = advance(); result != continue_with_short) return result;
    }
    return short_option();
  }

 private:
  static constexpr int continue_with_short = -2;

  void start() {
    if (optind_ == 0) optind_ = 1;
    own_.operands_begin = own_.operands_end = optind_;
    own_.rest = nullptr;
    own_.started = true;
    using enum GetoptPrivate::Order;
    own_.order = *options_ == '-'                                                 ? return_operands
                 : *options_ == '+' || call_.keeps_order || call_.posixly_correct ? stop_at_operand
                                                                                  : permute;
  }

  /// A program that never names stderr gets it here.
  [[nodiscard]] std::FILE* errors() const {
    if (call_.instance != nullptr) return stream_of(*call_.instance, Stream::err);
    return *state_.err != nullptr ? *state_.err : stderr;
  }

  // To the next word that is an option. Leaves own_.rest at its letters.
  int advance() {
    // The program may have set optind back.
    own_.operands_end = std::min(own_.operands_end, optind_);
    own_.operands_begin = std::min(own_.operands_begin, optind_);

    if (own_.order == GetoptPrivate::Order::permute) {
      if (!move_operands_behind()) own_.operands_begin = optind_;
      while (optind_ < argc_ && !is_option_word(argv_[optind_])) ++optind_;
      own_.operands_end = optind_;
    }
    if (optind_ < argc_ && std::strcmp(argv_[optind_], "--") == 0) {
      ++optind_;
      if (own_.operands_begin == own_.operands_end) {
        own_.operands_begin = optind_;
      } else {
        move_operands_behind();
      }
      own_.operands_end = optind_ = argc_;
    }
    if (optind_ >= argc_) {
      if (own_.operands_begin != own_.operands_end) optind_ = own_.operands_begin;
      return finished;
    }
    char* word = argv_[optind_];
    if (!is_option_word(word)) {
      if (own_.order == GetoptPrivate::Order::stop_at_operand) return finished;
      optarg_ = argv_[optind_++];
      return operand_in_order;
    }
    if (call_.long_options != nullptr) {
      if (word[1] == '-') {
        own_.rest = word + 2;
        return long_option("--", call_.single_dash);
      }
      // "-f" that is a short option stays one.
      if (call_.single_dash && (word[2] != '\0' || std::strchr(options_, word[1]) == nullptr)) {
        own_.rest = word + 1;
        const int result = long_option("-", true);
        if (result != finished) return result;
      }
    }
    own_.rest = word + 1;
    return continue_with_short;
  }

  // Options seen since the last operands change places with those. False: nothing between the two.
  bool move_operands_behind() {
    if (own_.operands_end == optind_) return true;
    if (own_.operands_begin == own_.operands_end) return false;
    std::rotate(argv_ + own_.operands_begin, argv_ + own_.operands_end, argv_ + optind_);
    own_.operands_begin += optind_ - own_.operands_end;
    own_.operands_end = optind_;
    return true;
  }

  int short_option() {
    const char letter = *own_.rest++;
    const char* spec = std::strchr(options_, letter);
    if (*own_.rest == '\0') ++optind_;
    if (spec == nullptr || letter == ':' || letter == ';') {
      if (!quiet_) std::fprintf(errors(), dgettext("libc", "%s: invalid option -- '%c'\n"), argv_[0], letter);
      own_.offender = letter;
      return '?';
    }
    if (spec[0] == 'W' && spec[1] == ';' && call_.long_options != nullptr) {
      if (*own_.rest == '\0') {
        if (optind_ == argc_) return missing_argument(letter);
        own_.rest = argv_[optind_];
      }
      optarg_ = nullptr;
      return long_option("-W ", false);
    }
    if (spec[1] != ':') return letter;
    const bool optional = spec[2] == ':';
    int result = letter;
    if (*own_.rest != '\0') {
      optarg_ = own_.rest;
      ++optind_;
    } else if (!optional) {
      if (optind_ == argc_) {
        result = missing_argument(letter);
      } else {
        optarg_ = argv_[optind_++];
      }
    }
    own_.rest = nullptr;
    return result;
  }

  int missing_argument(char letter) {
    if (!quiet_)
      std::fprintf(errors(), dgettext("libc", "%s: option requires an argument -- '%c'\n"), argv_[0], letter);
    own_.offender = letter;
    return *options_ == ':' ? ':' : '?';
  }

  // own_.rest is the name, perhaps with "=value". `finished`: no long option, but perhaps a short one.
  int long_option(const char* prefix, bool single_dash) {
    const std::string_view word(own_.rest);
    const std::string_view name = word.substr(0, word.find('='));
    std::vector<const option*> candidates;
    const option* found = find_long(name, single_dash, candidates);

    if (candidates.size() > 1) {
      if (!quiet_) complain_ambiguous(prefix, candidates);
      own_.rest += word.size();
      ++optind_;
      own_.offender = 0;
      return '?';
    }
    if (found == nullptr) {
      if (single_dash && argv_[optind_][1] != '-' && std::strchr(options_, *own_.rest) != nullptr) {
        return finished;
      }
      if (!quiet_) {
        std::fprintf(errors(), dgettext("libc", "%s: unrecognized option '%s%s'\n"), argv_[0], prefix, own_.rest);
      }
      own_.rest = nullptr;
      ++optind_;
      own_.offender = 0;
      return '?';
    }
    return take_long(*found, prefix, name.size() < word.size() ? own_.rest + name.size() + 1 : nullptr);
  }

  int take_long(const option& found, const char* prefix, char* value) {
    ++optind_;
    own_.rest = nullptr;
    if (value != nullptr && found.has_arg == no_argument) {
      if (!quiet_) {
        std::fprintf(errors(), dgettext("libc", "%s: option '%s%s' doesn't allow an argument\n"), argv_[0], prefix,
                     found.name);
      }
      own_.offender = found.val;
      return '?';
    }
    if (value == nullptr && found.has_arg == required_argument) {
      if (optind_ >= argc_) {
        if (!quiet_) {
          std::fprintf(errors(), dgettext("libc", "%s: option '%s%s' requires an argument\n"), argv_[0], prefix,
                       found.name);
        }
        own_.offender = found.val;
        return *options_ == ':' ? ':' : '?';
      }
      value = argv_[optind_++];
    }
    optarg_ = value;
    if (call_.long_index != nullptr) *call_.long_index = static_cast<int>(&found - call_.long_options);
    if (found.flag == nullptr) return found.val;
    *found.flag = found.val;
    return 0;
  }

  // The option of that name, else the only one that begins so. Options that do the same do not stand in each
  // other's way.
  const option* find_long(std::string_view name, bool single_dash, std::vector<const option*>& candidates) {
    const option* first = nullptr;
    for (const option* each = call_.long_options; each->name != nullptr; ++each) {
      if (name == each->name) {
        candidates.clear();
        return each;
      }
      if (!std::string_view(each->name).starts_with(name)) continue;
      if (first == nullptr) {
        first = each;
        candidates.push_back(each);
      } else if (single_dash || first->has_arg != each->has_arg || first->flag != each->flag ||
                 first->val != each->val) {
        candidates.push_back(each);
      }
    }
    return first;
  }

  void complain_ambiguous(const char* prefix, const std::vector<const option*>& candidates) {
    std::FILE* out = errors();
    flockfile(out);
    std::fprintf(out, dgettext("libc", "%s: option '%s%s' is ambiguous; possibilities:"), argv_[0], prefix, own_.rest);
    for (const option* each : candidates) std::fprintf(out, " '%s%s'", prefix, each->name);
    std::fputc('\n', out);
    funlockfile(out);
  }

  char*& optarg_;
  int& optind_;
  const int& opterr_;
  const LibcState& state_;
  GetoptPrivate& own_;
  int argc_;
  char** argv_;
  const GetoptCall& call_;
  const char* options_;
  bool quiet_ = false;
};

int next_of(Instance& instance, int argc, char* const* argv, GetoptCall call) {
  call.posixly_correct = find_variable(instance.libc(), "POSIXLY_CORRECT") != nullptr;
  call.instance = &instance;
  return next_option(instance.libc(), argc, const_cast<char**>(argv), call);
}

// --- what programs call; the arguments are libc's

int own_getopt(Instance& instance, int argc, char* const* argv, const char* options) {
  return next_of(instance, argc, argv, {.short_options = options});
}

int own_posix_getopt(Instance& instance, int argc, char* const* argv, const char* options) {
  return next_of(instance, argc, argv, {.short_options = options, .keeps_order = true});
}

int own_getopt_long(Instance& instance, int argc, char* const* argv, const char* options, const option* long_options,
                    int* long_index) {
  return next_of(instance, argc, argv,
                 {.short_options = options, .long_options = long_options, .long_index = long_index});
}

int own_getopt_long_only(Instance& instance, int argc, char* const* argv, const char* options,
                         const option* long_options, int* long_index) {
  return next_of(
      instance, argc, argv,
      {.short_options = options, .long_options = long_options, .long_index = long_index, .single_dash = true});
}

}  // namespace

int next_option(LibcState& state, int argc, char** argv, const GetoptCall& call) {
  if (argc < 1) return finished;
  const int result = Scanner(state, argc, argv, call).next();
  *state.optopt = state.getopt.get().offender;
  return result;
}

void complain_of_option(std::array<char*, 2> words, const GetoptCall& call) {
  LibcState other;
  std::array<char*, 3> argv{words[0], words[1], nullptr};
  static_cast<void>(next_option(other, 2, argv.data(), call));
}

std::span<const Binding> getopt_bindings() {
  static const std::array table{
      bound<::getopt, own_getopt>("getopt"),
      bound<::getopt, own_posix_getopt>("__posix_getopt"),
      bound<::getopt_long, own_getopt_long>("getopt_long"),
      bound<::getopt_long_only, own_getopt_long_only>("getopt_long_only"),
      variable<&LibcState::optarg>("optarg"),
      variable<&LibcState::optind>("optind"),
      variable<&LibcState::opterr>("opterr"),
      variable<&LibcState::optopt>("optopt"),
  };
  return table;
}

// ---------------------------------------------------------------- argp
// A program's --help, and its wrong options, end the program and not the process.
//
// libc parses, and is told not to exit. Its own parser of --help, --usage and --version would do so, hence ours takes
// its place, with the same options. A root above the program's parser gives all of them the instance's streams. By
// what is written to the stream of errors we learn that libc would have exited for a wrong option. Its getopt would
// complain to the process's stderr, so an option ':' of the root keeps that quiet, and ours complains.

using VersionHook = void (*)(std::FILE*, argp_state*);

struct ArgpPrivate {
  ArgpPrivate() = default;
  ~ArgpPrivate() {
    if (errors != nullptr) std::fclose(errors);
  }
  ArgpPrivate(const ArgpPrivate&) = delete;
  ArgpPrivate& operator=(const ArgpPrivate&) = delete;

  Variable<const char*> version;
  Variable<VersionHook> version_hook;
  Variable<const char*> bug_address;
  Variable<error_t> error_status{EX_USAGE};
  std::FILE* errors = nullptr;  ///< Leads to the instance's stderr.
  bool has_advised = false;     ///< "Try ... --help or ... --usage" was written there.
  argp_state* state = nullptr;  ///< Of the running argp_parse().
};

namespace {

constexpr char keeps_quiet = ':';  // in front of the others

ArgpPrivate& argp_of(Instance& instance) { return shared_part(instance.libc().argp); }

/// A variable of the program's own, as most programs that set it have, or the instance's.
template <class T>
T value_of(Instance& instance, const char* name, Variable<T>& variable) {
  const Program::Definition own = instance.program().find(name);
  return own ? *reinterpret_cast<T*>(instance.address_of(own)) : *variable;
}

int error_status(Instance& instance) {
  return value_of(instance, "argp_err_exit_status", argp_of(instance).error_status);
}

/// The beginning of what libc keeps for a call of argp_parse(), the same in all its releases.
struct LibcParser {
  const argp* root;
  const char* short_options;
  const option* long_options;
  // of getopt
  int next_word;
  int complains;
  int wrong_option;  // a short one's letter, a long one's value, 0: an unknown long one, -1: none is wrong
};

const LibcParser& parser_of(const argp_state& state) { return *static_cast<const LibcParser*>(state.pstate); }

/// Of the option that libc's getopt has refused, if it was that one.
void complain(Instance& instance, const argp_state& state) {
  const LibcParser& parser = parser_of(state);
  if (parser.root != state.root_argp || parser.wrong_option == -1) return;
  constexpr int letters = 256;
  const bool is_letter = 0 < parser.wrong_option && parser.wrong_option < letters;
  std::string word{'-', static_cast<char>(parser.wrong_option)};
  std::string short_options(parser.short_options);
  short_options.erase(short_options.find(keeps_quiet), 1);
  GetoptCall call{.short_options = short_options.c_str(), .instance = &instance};
  if (!is_letter) call.long_options = parser.long_options;
  call.single_dash = (state.flags & ARGP_LONG_ONLY) != 0;
  complain_of_option({state.argv[0], is_letter ? word.data() : state.argv[parser.next_word - 1]}, call);
}

ssize_t write_error(void* cookie, const char* bytes, std::size_t count) {
  auto& instance = *static_cast<Instance*>(cookie);
  const std::string_view text(bytes, count);
  ArgpPrivate& own = argp_of(instance);
  if (text.find("--usage") != text.npos) {
    own.has_advised = true;
    if (own.state != nullptr) complain(instance, *own.state);
  }
  say(instance, text);
  return static_cast<ssize_t>(count);
}

std::FILE* errors_of(Instance& instance) {
  ArgpPrivate& own = argp_of(instance);
  if (own.errors == nullptr) {
    own.errors = ::fopencookie(&instance, "w", {nullptr, write_error, nullptr, nullptr});
    if (own.errors == nullptr) return stream_of(instance, Stream::err);
    ::setvbuf(own.errors, nullptr, _IONBF, 0);
  }
  return own.errors;
}

constexpr std::array<argp_option, 2> root_options{{{nullptr, keeps_quiet, nullptr, OPTION_HIDDEN, nullptr, 0}, {}}};

/// A call of argp_parse().
struct Parse {
  argp root{};  ///< First: libc's state points to it.
  std::array<argp_child, 4> children{};
  unsigned flags = 0;  ///< The program's.
  Instance* instance = nullptr;
};

error_t begin_parse(int key, char* /*argument*/, argp_state* state) {
  Instance& instance = *reinterpret_cast<const Parse*>(state->root_argp)->instance;
  if (key == keeps_quiet) {  // so getopt tells then that an argument is missing
    ::argp_state_help(state, state->err_stream, ARGP_HELP_SEE);
    return EINVAL;
  }
  if (key != ARGP_KEY_INIT) return ARGP_ERR_UNKNOWN;
  state->child_inputs[0] = state->input;
  state->out_stream = stream_of(instance, Stream::out);
  state->err_stream = errors_of(instance);
  argp_of(instance).state = state;
  return 0;
}

/// Libc, or the program, would exit where it is told to.
bool exits(const argp_state* state) noexcept {
  if (state == nullptr) return true;
  const bool is_ours = state->root_argp != nullptr && state->root_argp->parser == begin_parse;
  const unsigned flags = is_ours ? reinterpret_cast<const Parse*>(state->root_argp)->flags : state->flags;
  return (flags & (ARGP_NO_EXIT | ARGP_NO_ERRS)) == 0;
}

/// Calls libc with the program's address for bugs, which libc reads from a variable of the process.
template <class Call>
void with_bug_address(Instance& instance, const Call& call) {
  static std::mutex changing;
  const std::lock_guard lock(changing);
  const char* const before = std::exchange(
      argp_program_bug_address, value_of(instance, "argp_program_bug_address", argp_of(instance).bug_address));
  call();
  argp_program_bug_address = before;
}

void show_help(Instance& instance, const argp_state* state, std::FILE* stream, unsigned flags) {
  with_bug_address(instance, [=] {
    ::argp_state_help(state, stream, flags & ~static_cast<unsigned>(ARGP_HELP_EXIT_ERR | ARGP_HELP_EXIT_OK));
  });
  if (stream == nullptr || !exits(state)) return;
  if ((flags & ARGP_HELP_EXIT_ERR) != 0) exit_instance(instance, error_status(instance));
  if ((flags & ARGP_HELP_EXIT_OK) != 0) exit_instance(instance, 0);
}

// --- the options that libc adds

constexpr int usage_key = -3;

error_t parse_help(int key, char* /*argument*/, argp_state* state) {
  Instance& instance = *reinterpret_cast<const Parse*>(state->root_argp)->instance;
  if (key == '?') {
    show_help(instance, state, state->out_stream, ARGP_HELP_STD_HELP);
  } else if (key == usage_key) {
    show_help(instance, state, state->out_stream, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
  } else {
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

error_t parse_version(int key, char* /*argument*/, argp_state* state) {
  if (key != 'V') return ARGP_ERR_UNKNOWN;
  Instance& instance = *reinterpret_cast<const Parse*>(state->root_argp)->instance;
  ArgpPrivate& own = argp_of(instance);
  if (const VersionHook hook = value_of(instance, "argp_program_version_hook", own.version_hook); hook != nullptr) {
    hook(state->out_stream, state);
  } else {
    std::fprintf(state->out_stream, "%s\n", value_of(instance, "argp_program_version", own.version));
  }
  if (exits(state)) exit_instance(instance, 0);
  return 0;
}

constexpr std::array<argp_option, 3> help_options{{{"help", '?', nullptr, 0, "Give this help list", -1},
                                                   {"usage", usage_key, nullptr, 0, "Give a short usage message", 0},
                                                   {}}};
constexpr std::array<argp_option, 2> version_options{{{"version", 'V', nullptr, 0, "Print program version", -1}, {}}};
constexpr argp help_parser{help_options.data(), parse_help, nullptr, nullptr, nullptr, nullptr, "libc"};
constexpr argp version_parser{version_options.data(), parse_version, nullptr, nullptr, nullptr, nullptr, "libc"};

// --- what programs call

error_t own_argp_parse(Instance& instance, const argp* parser, int argc, char** argv, unsigned flags, int* end,
                       void* input) {
  ArgpPrivate& own = argp_of(instance);
  Parse parse{.flags = flags, .instance = &instance};
  parse.root.options = root_options.data();
  parse.root.parser = begin_parse;
  parse.root.children = parse.children.data();
  std::size_t count = 0;
  parse.children[count++].argp = parser;
  if ((flags & ARGP_NO_HELP) == 0) {
    parse.children[count++].argp = &help_parser;
    if (value_of(instance, "argp_program_version", own.version) != nullptr ||
        value_of(instance, "argp_program_version_hook", own.version_hook) != nullptr)
      parse.children[count++].argp = &version_parser;
  }
  const bool outer_has_advised = std::exchange(own.has_advised, false);
  argp_state* const outer = std::exchange(own.state, nullptr);
  const error_t error = ::argp_parse(&parse.root, argc, argv, flags | ARGP_NO_EXIT | ARGP_NO_HELP, end, input);
  own.state = outer;
  const bool has_advised = std::exchange(own.has_advised, outer_has_advised);
  if (error == EINVAL && has_advised && (flags & (ARGP_NO_EXIT | ARGP_NO_ERRS)) == 0)
    exit_instance(instance, error_status(instance));
  return error;
}

void own_argp_help(Instance& instance, const argp* parser, std::FILE* stream, unsigned flags, char* name) {
  with_bug_address(instance, [=] { ::argp_help(parser, stream, flags, name); });
}

void own_argp_usage(Instance& instance, const argp_state* state) {
  show_help(instance, state, stream_of(instance, Stream::err), ARGP_HELP_STD_USAGE);
}

/// Calls libc with `text` and a state that does not exit.
template <class Call>
void tell(Instance& instance, const argp_state* state, const char* format, va_list arguments, const Call& call) {
  argp_state none{};
  none.flags = ARGP_NO_EXIT;
  none.name = *instance.libc().program_short_name;
  none.err_stream = errors_of(instance);
  char* text = nullptr;
  if (format != nullptr && ::vasprintf(&text, format, arguments) < 0) text = nullptr;
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  call(state != nullptr ? state : &none, text);
}

void own_argp_error(const argp_state* state, const char* format, ...) {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();
  va_list arguments;
  va_start(arguments, format);
  tell(*instance, state, format, arguments,
       [](const argp_state* told, const char* text) { ::argp_error(told, "%s", text != nullptr ? text : ""); });
  va_end(arguments);
  if (exits(state)) exit_instance(*instance, error_status(*instance));
}

void own_argp_failure(const argp_state* state, int status, int error, const char* format, ...) {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) std::abort();
  va_list arguments;
  va_start(arguments, format);
  tell(*instance, state, format, arguments, [error](const argp_state* told, const char* text) {
    if (text != nullptr) {
      ::argp_failure(told, 0, error, "%s", text);
    } else {
      ::argp_failure(told, 0, error, nullptr);
    }
  });
  va_end(arguments);
  if (status != 0 && exits(state)) exit_instance(*instance, status);
}

template <auto Member>
auto& part(Instance& instance) {
  return argp_of(instance).*Member;
}

}  // namespace

std::span<const Binding> argp_bindings() {
  static const Binding table[] = {
      bound<::argp_parse, own_argp_parse>("argp_parse"),
      bound<::argp_help, own_argp_help>("argp_help"),
      bound<::argp_state_help, show_help>("argp_state_help"),
      bound<::argp_usage, own_argp_usage>("argp_usage"),
      Binding::of("argp_error", own_argp_error),
      Binding::of("argp_failure", own_argp_failure),
      variable<part<&ArgpPrivate::version>>("argp_program_version"),
      variable<part<&ArgpPrivate::version_hook>>("argp_program_version_hook"),
      variable<part<&ArgpPrivate::bug_address>>("argp_program_bug_address"),
      variable<part<&ArgpPrivate::error_status>>("argp_err_exit_status"),
  };
  return table;
}

}  // namespace aplib::loader::libc
