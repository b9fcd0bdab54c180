// SPDX-License-Identifier: MIT
// Getopt, getopt_long and getopt_long_only with their variables, per instance.
//
// They behave as those of glibc 2.26 and later, down to the wording of complaints (its manual, "Parsing program options
// using getopt", and getopt(3)). libc's own catalogue translates the words.
#include "loader/libc/getopt.hpp"

#include <libintl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
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

}  // namespace aplib::loader::libc
