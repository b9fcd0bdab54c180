// SPDX-License-Identifier: MIT
// The one table of options. To add an option: a field in Options (include/aplib/options.hpp) and a row here; the
// command line, APLIB_* variables, --help and docs/options.md follow (a test tells how to regenerate the page).
#include "aplib/options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/ids.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace aplib {

namespace {

/// A row: what people see, and how text becomes the field's value and back.
struct OptionRow {
  OptionInfo info;
  /// Stores the value and returns "", or leaves the options alone and returns what is wrong and what to write instead.
  std::string (*apply)(Options& options, std::string_view value);
  /// Text that apply() accepts.
  std::string (*print)(const Options& options);
};

using namespace std::chrono_literals;

constexpr std::uint32_t threads_max = 4096;
constexpr std::uint32_t debugger_images_max = 1'000'000;
constexpr std::size_t stack_bytes_min = 8 * 1024;
constexpr std::size_t stack_bytes_max = 1024 * 1024 * 1024;
constexpr std::chrono::nanoseconds poll_time_max = 10s;

static_assert(cell_count_max == 16384, "the texts of option cells name this limit");

std::string apply_cells(Options& options, std::string_view value) {
  constexpr std::string_view remedy = "use NXxNY with at least 1 cell and at most 16384 in all, for example 4x2 or 8";
  const std::size_t cross = value.find_first_of("xX");
  const auto nx = text::parse_number(value.substr(0, cross));
  const auto ny = cross == value.npos ? std::optional<std::uint64_t>(1) : text::parse_number(value.substr(cross + 1));
  if (!nx || !ny || *nx == 0 || *ny == 0) return fmt::format("\"{}\" is not a grid: {}", value, remedy);
  // Compared by division: the product of two numbers that people can type may not fit.
  if (*nx > cell_count_max / *ny) return fmt::format("\"{}\" is too large a grid: {}", value, remedy);
  options.cells = {static_cast<std::uint32_t>(*nx), static_cast<std::uint32_t>(*ny)};
  return {};
}

std::string print_cells(const Options& options) { return fmt::format("{}x{}", options.cells.nx, options.cells.ny); }

std::string apply_threads(Options& options, std::string_view value) {
  const auto number = text::parse_number(value);
  if (text::equal_ignoring_case(value, "auto")) {
    options.threads = Options::threads_auto;
  } else if (text::equal_ignoring_case(value, "per-cell")) {
    options.threads = Options::threads_per_cell;
  } else if (number && *number >= 1 && *number <= threads_max) {
    options.threads = static_cast<std::uint32_t>(*number);
  } else {
    return fmt::format("\"{}\" is {}: use 1 .. {}, auto or per-cell", value,
                       number ? "out of range" : "not a number of threads", threads_max);
  }
  return {};
}

std::string print_threads(const Options& options) {
  if (options.threads == Options::threads_auto) return "auto";
  if (options.threads == Options::threads_per_cell) return "per-cell";
  return fmt::format("{}", options.threads);
}

template <std::size_t Options::*field>
std::string apply_stack_size(Options& options, std::string_view value) {
  const auto bytes = text::parse_size(value);
  if (!bytes || *bytes < stack_bytes_min || *bytes > stack_bytes_max) {
    return fmt::format("\"{}\" is {}: use {} .. {}, for example 256k", value, bytes ? "out of range" : "not a size",
                       text::print_size(stack_bytes_min), text::print_size(stack_bytes_max));
  }
  options.*field = static_cast<std::size_t>(*bytes);
  return {};
}

template <std::size_t Options::*field>
std::string print_stack_size(const Options& options) {
  return text::print_size(options.*field);
}

std::string apply_poll_time(Options& options, std::string_view value) {
  if (text::equal_ignoring_case(value, "auto")) {
    options.poll_time.reset();
    return {};
  }
  const auto time = text::parse_duration(value);
  if (!time || *time > poll_time_max) {
    return fmt::format("\"{}\" is {}: use 0 .. {} with a unit (ns, us, ms, s), for example 20us, or auto", value,
                       time ? "out of range" : "not a time", text::print_duration(poll_time_max));
  }
  options.poll_time = *time;
  return {};
}

std::string print_poll_time(const Options& options) {
  return options.poll_time ? text::print_duration(*options.poll_time) : "auto";
}

template <bool Options::*field>
std::string apply_switch(Options& options, std::string_view value) {
  const auto on = text::parse_switch(value);
  if (!on) return fmt::format("\"{}\" is not a switch: use on or off", value);
  options.*field = *on;
  return {};
}

template <bool Options::*field>
std::string print_switch(const Options& options) {
  return text::print_switch(options.*field);
}

template <std::vector<std::string> Options::*field>
std::string apply_names(Options& options, std::string_view value) {
  std::vector<std::string> names;
  for (std::size_t at = 0; !value.empty() && at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    // A name of wildcards alone would take the C library too.
    const std::string_view name = value.substr(at, end - at);
    if (name.find_first_not_of("*?") == name.npos || name.find('/') != name.npos) {
      return fmt::format(
          "\"{}\" is not a list of libraries: use file names with commas between them, for example "
          "libfft.so,libgmp.so*",
          value);
    }
    names.emplace_back(name);
    at = end + 1;
  }
  options.*field = std::move(names);
  return {};
}

template <std::vector<std::string> Options::*field>
std::string print_names(const Options& options) {
  return fmt::format("{}", fmt::join(options.*field, ","));
}

std::string apply_debugger_images(Options& options, std::string_view value) {
  const auto number = text::parse_number(value);
  if (!number || *number > debugger_images_max) {
    return fmt::format("\"{}\" is {}: use 0 .. {}", value, number ? "out of range" : "not a number of files",
                       debugger_images_max);
  }
  options.debugger_images = static_cast<std::uint32_t>(*number);
  return {};
}

std::string print_debugger_images(const Options& options) { return fmt::format("{}", options.debugger_images); }

std::string apply_log_level(Options& options, std::string_view value) {
  const auto level = parse_log_level(value);
  if (!level) return fmt::format("\"{}\" is not a level: use one of {}", value, text::join(log_level_names));
  options.log_level = log_level_names[static_cast<std::size_t>(*level)];
  return {};
}

std::string apply_module(Options& options, std::string_view value) {
  constexpr std::size_t name_max = 32;
  std::string names(value);
  for (char& c : names)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string_view name = std::string_view(names).substr(at, end - at);
    if (name.empty() || name.size() > name_max || (name == "auto" && name != names) ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != name.npos) {
      return fmt::format(
          "\"{}\" is not a name of a module: use auto, or names that aprun --list-modules shows, with commas between "
          "them",
          value);
    }
    at = end + 1;
  }
  options.module = std::move(names);
  return {};
}

template <std::string Options::*field>
std::string print_string(const Options& options) {
  return options.*field;
}

std::string apply_module_path(Options& options, std::string_view value) {
  // A relative folder would mean another one in each process.
  for (std::size_t at = 0; !value.empty() && at <= value.size();) {
    const std::size_t end = std::min(value.find(':', at), value.size());
    if (value.substr(at, 1) != "/") {
      return fmt::format(
          "\"{}\" is not a list of folders: use absolute paths with colons between them, for example "
          "/opt/modules:/srv/modules",
          value);
    }
    at = end + 1;
  }
  options.module_path = value;
  return {};
}

std::string apply_provider(Options& options, std::string_view value) {
  constexpr std::size_t provider_max = 64;
  if (value.size() > provider_max ||
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.;") != value.npos) {
    return fmt::format("\"{}\" is not a name of a provider: use one that fi_info -l shows, for example verbs", value);
  }
  options.provider = value;
  return {};
}

/// Sets `field` to the one of `words` that `value` is. `kind`: what these are, and which, for a message.
std::string apply_word(std::string& field, std::string_view value, std::initializer_list<std::string_view> words,
                       std::string_view kind) {
  for (const std::string_view word : words) {
    if (text::equal_ignoring_case(value, word)) {
      field = word;
      return {};
    }
  }
  return fmt::format("\"{}\" is not {}", value, kind);
}

std::string apply_heap(Options& options, std::string_view value) {
  return apply_word(options.heap, value, {"auto", "slot", "libc"}, "a place for heaps: use auto, slot or libc");
}

std::string apply_low_memory(Options& options, std::string_view value) {
  return apply_word(options.low_memory, value, {"auto", "on", "off"}, "a switch: use auto, on or off");
}

std::string apply_ports(Options& options, std::string_view value) {
  if (!value.empty()) {
    constexpr std::uint64_t port_max = 65535;
    const std::size_t dash = value.find('-');
    const auto first = text::parse_number(value.substr(0, dash));
    const auto last = dash == value.npos ? first : text::parse_number(value.substr(dash + 1));
    if (!first || !last || *first == 0 || *last > port_max || *first > *last) {
      return fmt::format(
          "\"{}\" is not a range of ports: use two numbers of 1 .. {} with a dash, for example 5100-5120", value,
          port_max);
    }
  }
  options.ports = value;
  return {};
}

std::string apply_secure(Options& options, std::string_view value) {
  return apply_word(options.secure, value, {"auth", "tls", "off"}, "a kind of security: use auth, tls or off");
}

std::string apply_streams(Options& options, std::string_view value) {
  constexpr std::uint32_t streams_max = 64;
  const auto number = text::parse_number(value);
  if (text::equal_ignoring_case(value, "auto")) {
    options.streams = Options::streams_auto;
  } else if (number && *number >= 1 && *number <= streams_max) {
    options.streams = static_cast<std::uint32_t>(*number);
  } else {
    return fmt::format("\"{}\" is {}: use 1 .. {} or auto", value,
                       number ? "out of range" : "not a number of connections", streams_max);
  }
  return {};
}

std::string print_streams(const Options& options) {
  return options.streams == Options::streams_auto ? "auto" : fmt::format("{}", options.streams);
}

constexpr std::size_t limit_bytes_min = std::size_t{1} << 20;
constexpr std::size_t limit_bytes_max = std::size_t{1} << 40;

template <std::size_t Options::*field>
std::string apply_limit(Options& options, std::string_view value) {
  const auto bytes = text::parse_size(value);
  if (!bytes || *bytes < limit_bytes_min || *bytes > limit_bytes_max) {
    return fmt::format("\"{}\" is {}: use {} .. {}, for example 256m", value, bytes ? "out of range" : "not a size",
                       text::print_size(limit_bytes_min), text::print_size(limit_bytes_max));
  }
  options.*field = static_cast<std::size_t>(*bytes);
  return {};
}

constexpr std::chrono::nanoseconds wait_min = 100ms;
constexpr std::chrono::nanoseconds wait_max = 3600s;

template <std::chrono::nanoseconds Options::*field>
std::string apply_wait(Options& options, std::string_view value) {
  const auto time = text::parse_duration(value);
  if (!time || *time < wait_min || *time > wait_max) {
    return fmt::format("\"{}\" is {}: use {} .. {}, for example 10s", value, time ? "out of range" : "not a time",
                       text::print_duration(wait_min), text::print_duration(wait_max));
  }
  options.*field = *time;
  return {};
}

template <std::chrono::nanoseconds Options::*field>
std::string print_wait(const Options& options) {
  return text::print_duration(options.*field);
}

// A row's first part: name, variable, values, default, unit, range, help.
constexpr std::array rows{
    OptionRow{{"cells", "APLIB_CELLS", "NXxNY", "1x1", "cells", "1x1 .. 16384 cells in all",
               "Grid of cells: 4x2 has 4 columns and 2 rows, 8 means 8x1."},
              apply_cells,
              print_cells},
    OptionRow{
        {"threads", "APLIB_THREADS", "N|auto|per-cell", "auto", "threads", "1 .. 4096",
         "Threads that carry the cells, at most one per cell; auto: one per usable core; per-cell: one per cell."},
        apply_threads,
        print_threads},
    OptionRow{{"stack-size", "APLIB_STACK_SIZE", "SIZE", "256k", "bytes", "8k .. 1g",
               "Address space of each task's stack, committed as it is touched."},
              apply_stack_size<&Options::stack_bytes>,
              print_stack_size<&Options::stack_bytes>},
    OptionRow{{"poll-time", "APLIB_POLL_TIME", "TIME|auto", "auto", "time", "0 .. 10s",
               "How long an idle thread polls before it sleeps; auto: 50us to 4ms, as it learns; 20us under a CPU "
               "quota."},
              apply_poll_time,
              print_poll_time},
    OptionRow{{"bind", "APLIB_BIND", "on|off", "on", "", "",
               "Bind each thread to its own core if there are enough cores and no CPU quota."},
              apply_switch<&Options::bind>,
              print_switch<&Options::bind>},
    OptionRow{
        {"balance", "APLIB_BALANCE", "on|off", "on", "", "", "Let idle threads take over runnable cells of busy ones."},
        apply_switch<&Options::balance>,
        print_switch<&Options::balance>},
    OptionRow{{"deadlock-report", "APLIB_DEADLOCK_REPORT", "on|off", "on", "", "",
               "End with a report when every task waits for something that cannot come."},
              apply_switch<&Options::deadlock_report>,
              print_switch<&Options::deadlock_report>},
    OptionRow{{"log-level", "APLIB_LOG_LEVEL", "LEVEL", "warn", "", "trace, debug, info, warn, error, off",
               "Least important kind of message to write to stderr."},
              apply_log_level,
              print_string<&Options::log_level>},
    OptionRow{{"program-stack", "APLIB_PROGRAM_STACK", "SIZE", "8m", "bytes", "8k .. 1g",
               "Loaded programs: address space of the stack of each task that runs one, committed as it is touched."},
              apply_stack_size<&Options::program_stack_bytes>,
              print_stack_size<&Options::program_stack_bytes>},
    OptionRow{{"private-libraries", "APLIB_PRIVATE_LIBRARIES", "NAME,...", "", "", "file names, * and ? allowed",
               "Loaded programs: libraries of which every cell gets its own copy, whatever shared-libraries says."},
              apply_names<&Options::private_libraries>,
              print_names<&Options::private_libraries>},
    OptionRow{{"shared-libraries", "APLIB_SHARED_LIBRARIES", "NAME,...", "", "", "file names, * and ? allowed",
               "Loaded programs: libraries that all cells share, as they share libc."},
              apply_names<&Options::shared_libraries>,
              print_names<&Options::shared_libraries>},
    OptionRow{
        {"heap", "APLIB_HEAP", "auto|slot|libc", "auto", "", "",
         "Loaded programs: where malloc takes memory from; slot: each cell's own heap, which other cells can "
         "name in put and get; libc: the process's heap; auto: slot for programs that use CellOS or put and get."},
        apply_heap,
        print_string<&Options::heap>},
    OptionRow{{"low-memory", "APLIB_LOW_MEMORY", "auto|on|off", "auto", "", "",
               "Loaded programs: keep globals, heap and bodies of messages below 2 GiB, where a pointer fits into an "
               "int; auto: for programs that apcc --old has compiled and that do not use put or get."},
              apply_low_memory,
              print_string<&Options::low_memory>},
    OptionRow{{"account-heap", "APLIB_ACCOUNT_HEAP", "on|off", "off", "", "",
               "Loaded programs: count what each cell allocates, and report it when the cell ends."},
              apply_switch<&Options::account_heap>,
              print_switch<&Options::account_heap>},
    OptionRow{{"tag-output", "APLIB_TAG_OUTPUT", "on|off", "off", "", "",
               "Loaded programs: start each line of output with the number of its cell, as in [3]."},
              apply_switch<&Options::tag_output>,
              print_switch<&Options::tag_output>},
    OptionRow{{"debugger-images", "APLIB_DEBUGGER_IMAGES", "N", "64", "files", "0 .. 1000000",
               "Loaded programs: how many of their files, counted over all cells, a debugger sees; many make it slow."},
              apply_debugger_images,
              print_debugger_images},
    OptionRow{{"module", "APLIB_MODULE", "auto|NAME,...", "auto", "", "tcp and others: aprun --list-modules",
               "Several processes: what carries messages between them; auto: for each pair, the best that both ends "
               "have; names: the best of these, which every host must have.",
               "comm"},
              apply_module,
              print_string<&Options::module>},
    OptionRow{{"module-path", "APLIB_MODULE_PATH", "FOLDER:...", "", "", "absolute paths",
               "Several processes: folders with further modules, searched before APlib's own folder.", "comm"},
              apply_module_path,
              print_string<&Options::module_path>},
    OptionRow{
        {"provider", "APLIB_PROVIDER", "NAME", "", "", "",
         "Several processes: the provider of libfabric for module rdma, such as verbs or tcp; empty: the best one.",
         "comm"},
        apply_provider,
        print_string<&Options::provider>},
    OptionRow{{"ports", "APLIB_PORTS", "FIRST-LAST", "", "ports", "1 .. 65535",
               "Several processes: the ports on which they listen, one each; empty: the system chooses.", "comm"},
              apply_ports,
              print_string<&Options::ports>},
    OptionRow{{"secure", "APLIB_SECURE", "auth|tls|off", "auth", "", "",
               "Several processes: auth: both ends of a connection prove that they know the job's key; tls: everything "
               "is encrypted, too; off: neither.",
               "comm"},
              apply_secure,
              print_string<&Options::secure>},
    OptionRow{{"streams", "APLIB_STREAMS", "N|auto", "auto", "connections", "1 .. 64",
               "Several processes: connections between two of them for large messages; auto: more where the round trip "
               "is long.",
               "comm"},
              apply_streams,
              print_streams},
    OptionRow{
        {"resume-time", "APLIB_RESUME_TIME", "TIME", "30s", "time", "100ms .. 3600s",
         "Several processes far apart, or joined by a relay: for so long a cut connection may come back; then its "
         "other end is lost.",
         "comm"},
        apply_wait<&Options::resume_time>,
        print_wait<&Options::resume_time>},
    OptionRow{
        {"send-limit", "APLIB_SEND_LIMIT", "SIZE", "256m", "bytes", "1m .. 1024g",
         "Several processes: bytes that may wait in one of them until another takes them; beyond that, sends wait.",
         "comm"},
        apply_limit<&Options::send_limit_bytes>,
        print_stack_size<&Options::send_limit_bytes>},
    OptionRow{{"send-wait", "APLIB_SEND_WAIT", "TIME", "60s", "time", "100ms .. 3600s",
               "How long a send at send-limit or unread-limit waits while nothing is taken; then it is an error. Those "
               "of MPI go on without: their limits yield.",
               "comm"},
              apply_wait<&Options::send_wait>,
              print_wait<&Options::send_wait>},
    OptionRow{{"unread-limit", "APLIB_UNREAD_LIMIT", "SIZE", "1g", "bytes", "1m .. 1024g",
               "Bytes of messages that may wait in one process to be received; beyond that, sends wait.", "comm"},
              apply_limit<&Options::unread_limit_bytes>,
              print_stack_size<&Options::unread_limit_bytes>},
    OptionRow{{"peer-timeout", "APLIB_PEER_TIMEOUT", "TIME", "10s", "time", "100ms .. 3600s",
               "Several processes: a process that is silent for that long counts as dead.", "comm"},
              apply_wait<&Options::peer_timeout>,
              print_wait<&Options::peer_timeout>},
};

constexpr auto infos = [] {
  std::array<OptionInfo, rows.size()> all{};
  std::ranges::transform(rows, all.begin(), &OptionRow::info);
  return all;
}();

}  // namespace

std::span<const OptionInfo> option_table() noexcept { return infos; }

// ---------------------------------------------------------------- reading and printing

namespace {

constexpr std::string_view variable_prefix = "APLIB_";

const OptionRow* find_row(std::string_view name, std::string_view OptionInfo::*column) {
  for (const OptionRow& row : rows) {
    if (row.info.*column == name) return &row;
  }
  return nullptr;
}

/// What a mistyped name is compared as: "APLIB_Stack_Size" as "stack-size".
std::string plain_name(std::string_view name) {
  if (name.starts_with(variable_prefix)) name.remove_prefix(variable_prefix.size());
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return plain;
}

/// unknown option "thread": did you mean "threads"? known options: cells, threads, ...
[[noreturn]] void throw_unknown(std::string_view kind, std::string_view name, std::string_view OptionInfo::*column) {
  std::vector<std::string_view> names, spellings;
  for (const OptionRow& row : rows) {
    names.push_back(row.info.name);
    spellings.push_back(row.info.*column);
  }
  std::string hint;
  if (const auto meant = text::nearest(plain_name(name), names)) {
    hint = fmt::format(" did you mean \"{}\"?", find_row(*meant, &OptionInfo::name)->info.*column);
  }
  throw Error(Errc::bad_option,
              fmt::format("unknown {} \"{}\":{} known {}s: {}", kind, name, hint, kind, text::join(spellings)));
}

const OptionRow& row_of(std::string_view name) {
  const OptionRow* row = find_row(name, &OptionInfo::name);
  if (row == nullptr) throw_unknown("option", name, &OptionInfo::name);
  return *row;
}

void apply(const OptionRow& row, std::string_view subject, Options& options, std::string_view value) {
  const std::string problem = row.apply(options, value);
  if (!problem.empty()) throw Error(Errc::bad_option, fmt::format("{}: {}", subject, problem));
}

}  // namespace

void Options::set(std::string_view name, std::string_view value) {
  apply(row_of(name), fmt::format("option {}", name), *this, value);
}

std::string Options::get(std::string_view name) const { return row_of(name).print(*this); }

void Options::check() const {
  Options scratch;
  for (const OptionRow& row : rows) {
    apply(row, fmt::format("option {}", row.info.name), scratch, row.print(*this));
  }
}

void Options::set_from_environment() {
  Options changed = *this;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with(variable_prefix) || equals == text.npos) continue;
    const std::string_view variable = text.substr(0, equals);
    const std::string_view value = text.substr(equals + 1);
    if (variable == "APLIB_GRIDRPC_PATH") continue;  // a library's that programs may use in cells
    const OptionRow* row = find_row(variable, &OptionInfo::variable);
    if (row == nullptr) throw_unknown("variable", variable, &OptionInfo::variable);
    if (!value.empty()) apply(*row, variable, changed, value);
  }
  *this = std::move(changed);
}

Options Options::from_environment() {
  Options options;
  options.set_from_environment();
  return options;
}

}  // namespace aplib
