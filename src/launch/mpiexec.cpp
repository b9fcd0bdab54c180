// SPDX-License-Identifier: MIT
#include "launch/mpiexec.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>

#include "aplib/error.hpp"
#include "base/arguments.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/command_line.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch {
namespace {

[[noreturn]] void deny(const std::string& text) { throw Error(Errc::bad_option, text); }

// ---------------------------------------------------------------- the options

enum class Effect : std::uint8_t {
  count,
  hosts,
  host_file,
  per_host,
  folder,
  variable,
  setting,
  setting_of_all,
  variables,
  variables_of_all,
  all_variables,
  programs,
  tags,
  file,
  input,
  timeout,
  binding,
  processes,
  dry_run,
  quiet,
  none,    ///< What it asks for is so anyway.
  hint,    ///< It has no effect here, which a note says.
  refused  ///< The text says what to do instead.
};

struct MpiexecOption {
  std::string_view names;  ///< Parted by blanks; with one dash or two.
  int values;
  Effect effect;
  std::string_view text;
};

constexpr MpiexecOption mpiexec_options[] = {
    {"n np c", 1, Effect::count, "so many ranks; else one, or one for each slot of the hosts"},
    {"host hosts H", 1, Effect::hosts, "run on these hosts: a,b or, with slots, a:4,b:4"},
    {"hostfile machinefile f", 1, Effect::host_file, "the same from a file with a host a line: a, a:4 or a slots=4"},
    {"ppn npernode perhost N", 1, Effect::per_host, "so many ranks on each host"},
    {"pernode", 0, Effect::per_host, "one rank on each host"},
    {"wdir wd", 1, Effect::folder, "start in this folder; the path of a program that lies there counts from there"},
    {"x", 1, Effect::variable, "pass on this variable of the environment, or NAME=VALUE"},
    {"env", 2, Effect::setting, "set a variable: NAME VALUE"},
    {"genv", 2, Effect::setting_of_all, "the same for all programs"},
    {"configfile app", 1, Effect::programs, "programs with their options from a file, one a line; # begins a comment"},
    {"l prepend-rank tag-output", 0, Effect::tags, "start each line of output with its rank, as in [3]"},
    {"outfile-pattern", 1, Effect::file, "standard output of each rank to a file; %r in the name is the rank"},
    {"errfile-pattern", 1, Effect::file, "standard error likewise"},
    {"stdin", 1, Effect::input, "none: rank 0 reads nothing; 0: it has the standard input, as it has anyway"},
    {"timeout", 1, Effect::timeout, "end the run after so many seconds, with status 124; also MPIEXEC_TIMEOUT"},
    {"bind-to", 1, Effect::binding, "none: do not bind threads to cores; anything else: do"},
    {"processes", 0, Effect::processes, "each rank of the program is an ordinary process, not a cell"},
    {"dry-run", 0, Effect::dry_run, "print what would run where; run nothing"},
    {"quiet q", 0, Effect::quiet, "do not tell which options have no effect"},
    {"envlist", 1, Effect::variables, "pass on these variables of the environment: A,B"},
    {"genvlist", 1, Effect::variables_of_all, "the same for all programs"},
    {"envall genvall", 0, Effect::all_variables, "pass on all variables that do not belong to this host or login"},
    {"oversubscribe allow-run-as-root verbose v bind-to-core ordered-output print-all-exitcodes", 0, Effect::none,
     "so it is anyway"},
    {"map-by rank-by cpus-per-proc cpus-per-rank soft arch iface launcher bootstrap rmk", 1, Effect::hint,
     "no effect: a note says so"},
    {"nooversubscribe report-bindings display-map display-allocation bycore bynode byslot", 0, Effect::hint,
     "no effect: a note says so"},
    {"binding demux display personality prefix prepend-pattern report-pid topolib tune usize xterm", 1, Effect::hint,
     "no effect: a note says so"},
    {"bind-to-socket disable-auto-cleanup enable-recovery info merge-stderr-to-stdout nolocal print-rank-map", 0,
     Effect::hint, "no effect: a note says so"},
    {"skip-launch-node timestamp-output use-hwthread-cpus", 0, Effect::hint, "no effect: a note says so"},
    {"mca gmca prtemca pmixmca", 2, Effect::hint, "no effect: a note says so"},
    {"envnone genvnone", 0, Effect::refused, "run \"env -i NAME=VALUE mpiexec ...\" instead"},
    {"path gpath", 1, Effect::refused, "give the program's path, or set PATH"},
    {"rankfile", 1, Effect::refused, "name the hosts with their slots: -host a:4,b:4"},
    {"output-filename", 1, Effect::refused, "-outfile-pattern out.%r gives each rank a file"},
    {"gdb tv", 0, Effect::refused, "put the debugger before the program, as in mpiexec -n 2 xterm -e gdb ./x"},
    {"file", 1, Effect::refused, "give the options on the command line"},
    {"initial-errhandler", 1, Effect::refused, "errors are fatal; call MPI_Comm_set_errhandler in the program"},
};

/// Calls `action` with each word of `names`.
template <class Action>
void each_name(std::string_view names, Action action) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    action(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

const MpiexecOption& find_option(std::string_view name, const std::string& word) {
  std::vector<std::string_view> known;
  const MpiexecOption* found = nullptr;
  for (const MpiexecOption& option : mpiexec_options) {
    each_name(option.names, [&](std::string_view each) {
      known.push_back(each);
      if (each == name) found = &option;
    });
  }
  if (found != nullptr) return *found;
  const auto meant = text::nearest(name, known);
  deny(fmt::format("unknown option {}; {}--help lists those that there are", word,
                   meant ? fmt::format("did you mean -{}? ", *meant) : std::string()));
}

// ---------------------------------------------------------------- hosts

struct SlottedHost {
  std::string name;
  std::uint64_t slots = 1;
  bool slots_given = false;
  bool is_of_slurm = false;  ///< srun reaches it.
};

constexpr std::uint64_t ranks_max = 16384;

std::uint64_t read_count(std::string_view text, std::string_view subject) {
  const auto count = text::parse_number(text);
  if (!count || *count == 0 || *count > ranks_max)
    deny(fmt::format("{}: \"{}\" is not a number of ranks: use 1 .. {}", subject, text, ranks_max));
  return *count;
}

/// "name" or "name:slots", of `subject`.
SlottedHost read_host(std::string_view text, std::string_view subject) {
  SlottedHost host;
  const std::size_t colon = text.find(':');
  if (colon != text.npos && colon == text.rfind(':')) {  // several colons: an address of IPv6
    host.slots = read_count(text.substr(colon + 1), subject);
    host.slots_given = true;
    text = text.substr(0, colon);
  }
  constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-@:%";
  if (text.empty() || text.starts_with('-') || text.find_first_not_of(allowed) != text.npos)
    deny(fmt::format("{}: \"{}\" is not a host's name: use letters, digits and _.-@:%", subject, text));
  host.name = text;
  return host;
}

/// A host that is named again has more slots.
void add_host(std::vector<SlottedHost>& hosts, SlottedHost host) {
  const auto known = std::ranges::find(hosts, host.name, &SlottedHost::name);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    known->slots += host.slots;
    known->slots_given = true;
  }
}

void read_host_list(std::vector<SlottedHost>& hosts, std::string_view list, const std::string& subject) {
  for (;;) {
    const std::size_t comma = std::min(list.find(','), list.size());
    add_host(hosts, read_host(list.substr(0, comma), subject));
    if (comma == list.size()) return;
    list.remove_prefix(comma + 1);
  }
}

/// What stands behind a host's name, as slots=N, in files for Open MPI and MPICH; there some have - for _. The first
/// three mean the same; the others have no meaning here.
constexpr std::array<std::string_view, 20> host_keys{"slots",
                                                     "count",
                                                     "cpu",
                                                     "slots_max",
                                                     "max_slots",
                                                     "cpu_max",
                                                     "max_cpu",
                                                     "count_max",
                                                     "max_count",
                                                     "username",
                                                     "user_name",
                                                     "user",
                                                     "boards",
                                                     "sockets",
                                                     "sockets_per_board",
                                                     "cores",
                                                     "cores_per_socket",
                                                     "cpu_set",
                                                     "binding",
                                                     "ifname"};

/// A line of a host file: name, then slots=N and other keys.
void read_host_line(std::vector<SlottedHost>& hosts, std::string_view line, const std::string& subject) {
  std::optional<SlottedHost> host;
  line = line.substr(0, line.find('#'));
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty()) break;
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(word.size());
    if (!host) {
      host = read_host(word, subject);
    } else if (const std::size_t equals = word.find('='); equals != word.npos) {
      std::string key(word.substr(0, equals));
      std::ranges::replace(key, '-', '_');
      const auto known = std::ranges::find(host_keys, key);
      if (known == host_keys.end()) {
        const auto meant = text::nearest(key, host_keys);
        deny(fmt::format("{}: unknown key \"{}\": {}", subject, word.substr(0, equals),
                         meant ? fmt::format("did you mean {}?", *meant) : "write slots=N behind the host's name"));
      }
      if (known - host_keys.begin() > 2) continue;
      host->slots = read_count(word.substr(equals + 1), subject);
      host->slots_given = true;
    } else {
      deny(fmt::format("{}: \"{}\" behind the host's name: write slots=N there, and each host on a line of its own",
                       subject, word));
    }
  }
  if (host) add_host(hosts, std::move(*host));
}

void read_host_file(std::vector<SlottedHost>& hosts, const std::string& path, const std::string& subject) {
  const WaitNote note("mpiexec", wait_text(path));
  const auto content = os::read_file(path);
  if (!content) deny(fmt::format("{}: cannot read the host file {}: {}", subject, path, os::text_of(errno)));
  std::string_view rest = *content;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    read_host_line(hosts, rest.substr(0, end), fmt::format("{}:{}", path, number));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (hosts.empty()) deny(fmt::format("{}: the host file {} names no host", subject, path));
}

std::string text_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? std::string() : value;
}

/// Slurm's hosts, with as many slots as they have tasks: "2(x3),1" are 2 2 2 1. In a step that srun has started there
/// is a part of them, which is the business of who started it; an interactive one has all.
std::vector<SlottedHost> slurm_hosts() {
  constexpr std::string_view interactive_step = "4294967290";
  const std::string step = text_of("SLURM_STEP_ID");
  std::vector<SlottedHost> hosts;
  if (!step.empty() && step != interactive_step) return hosts;
  for (const std::string& name : start::slurm_hosts()) {
    hosts.push_back(read_host(name, "SLURM_JOB_NODELIST"));
    hosts.back().slots_given = true;
    hosts.back().is_of_slurm = true;
  }
  std::size_t at = 0;
  std::istringstream tasks(text_of("SLURM_TASKS_PER_NODE"));
  for (std::string item; std::getline(tasks, item, ',');) {
    const std::size_t times = item.find("(x");
    const auto slots = text::parse_number(std::string_view(item).substr(0, times));
    const auto count =
        times == item.npos ? 1 : text::parse_number(std::string_view(item).substr(times + 2, item.size() - times - 3));
    for (std::uint64_t i = 0; slots && *slots > 0 && i < count.value_or(0) && at < hosts.size(); ++i)
      hosts[at++].slots = std::min(*slots, ranks_max);
  }
  return hosts;
}

/// The hosts that a batch system has given to this job. None: there is no such job, or it does not say.
std::vector<SlottedHost> allocated_hosts() {
  std::vector<SlottedHost> hosts = slurm_hosts();
  for (const char* const variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {  // a line for each slot
    const std::string path = text_of(variable);
    if (hosts.empty() && !path.empty() && ::access(path.c_str(), R_OK) == 0) read_host_file(hosts, path, variable);
  }
  const auto engine = hosts.empty() ? os::read_file(text_of("PE_HOSTFILE")) : std::nullopt;  // "name slots queue ..."
  std::istringstream lines(engine.value_or(""));
  for (std::string line, name, slots; std::getline(lines, line);) {
    std::istringstream words(line);
    if (words >> name >> slots) {
      SlottedHost host = read_host(name, "PE_HOSTFILE");
      host.slots = read_count(slots, "PE_HOSTFILE");
      host.slots_given = true;
      add_host(hosts, std::move(host));
    }
  }
  return hosts;
}

// ---------------------------------------------------------------- the command line

using Words = std::vector<std::string>;

/// A program with its options, as colons part them.
struct Section {
  std::optional<std::uint64_t> count;
  std::vector<SlottedHost> hosts;  ///< Empty: those of the section before.
  wire::ProgramText program;       ///< `name` as the command line has it.
};

class MpiexecReader {
 public:
  explicit MpiexecReader(std::string_view own_name) : own_name_(own_name) {}

  Mpiexec read(std::span<const char* const> arguments);

 private:
  void read_sections(const Words& words);
  void read_file(const std::string& path);
  void apply(const MpiexecOption& option, const std::string& word, const Words& values, Section& section);
  void place_ranks();
  void give_programs();
  [[nodiscard]] bool is_this_computer(const SlottedHost& host) const {
    return host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1" || host.name == own_name_ ||
           host.name == own_name_.substr(0, own_name_.find('.'));
  }

  std::string_view own_name_;
  Mpiexec result_;
  std::vector<Section> sections_;
  std::optional<std::uint64_t> per_host_;
  Words without_effect_;
  bool all_variables_ = false;
  bool timeout_given_ = false;
  bool quiet_ = false;
  bool in_file_ = false;
};

wire::NamedValue variable(const std::string& word, std::string name, std::string value) {
  if (name.empty() || name.find('=') != name.npos)
    deny(fmt::format("{}: \"{}\" is not the name of a variable", word, name));
  return {std::move(name), std::move(value)};
}

/// MPICH's pattern of a file's name, as one of aprun's.
std::string file_of_each(std::string pattern) {
  for (std::size_t at = 0; (at = pattern.find("%r", at)) != pattern.npos;) pattern.replace(at, 2, "{cid}");
  return pattern;
}

/// Whether -stdin gives the input to no rank.
bool is_no_input(const std::string& whose, const std::string& word) {
  if (whose != "none" && whose != "0")
    deny(fmt::format("{}: \"{}\": standard input is rank 0's: use 0, or none", word, whose));
  return whose == "none";
}

void add_named(std::vector<wire::NamedValue>& variables, const std::string& list, const std::string& word) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) variables.push_back(named_variable(name, word));
}

/// Elsewhere ranks enter their folder before they look for the program. Where it is not there, it may be here.
void look_in_its_folder(wire::ProgramText& program) {
  if (program.folder.empty() || program.name.find('/') == program.name.npos || program.name.front() == '/') return;
  const std::filesystem::path there = std::filesystem::absolute(program.folder) / program.name;
  if (::access(there.c_str(), F_OK) == 0) program.name = there.lexically_normal();
}

void MpiexecReader::apply(const MpiexecOption& option, const std::string& word, const Words& values, Section& section) {
  Words& words = result_.words;
  switch (option.effect) {
    case Effect::count:
      section.count = read_count(values[0], word);
      break;
    case Effect::hosts:
      read_host_list(section.hosts, values[0], word);
      break;
    case Effect::host_file:
      read_host_file(section.hosts, values[0], word);
      break;
    case Effect::per_host:
      per_host_ = values.empty() ? 1 : read_count(values[0], word);
      break;
    case Effect::folder:
      section.program.folder = values[0];
      break;
    case Effect::variable:
      section.program.variables.push_back(named_variable(values[0], word));
      break;
    case Effect::setting:
      section.program.variables.push_back(variable(word, values[0], values[1]));
      break;
    case Effect::setting_of_all:
      result_.variables.push_back(variable(word, values[0], values[1]));
      break;
    case Effect::variables:
      add_named(section.program.variables, values[0], word);
      break;
    case Effect::variables_of_all:
      add_named(result_.variables, values[0], word);
      break;
    case Effect::all_variables:
      all_variables_ = true;
      break;
    case Effect::programs:
      read_file(values[0]);
      break;
    case Effect::tags:
    case Effect::dry_run:
      words.emplace_back(option.effect == Effect::tags ? "--tag-output" : "--dry-run");
      break;
    case Effect::file:
      words.insert(words.end(), {option.names.front() == 'o' ? "--output" : "--error", file_of_each(values[0])});
      break;
    case Effect::input:
      if (is_no_input(values[0], word)) words.insert(words.end(), {"--input", "/dev/null"});
      break;
    case Effect::timeout:
      words.insert(words.end(), {"--timeout", values[0]});
      timeout_given_ = true;
      break;
    case Effect::binding:
      words.insert(words.end(), {"--bind", values[0].starts_with("none") ? "off" : "on"});
      break;
    case Effect::processes:
      section.program.is_process = true;
      break;
    case Effect::quiet:
      quiet_ = true;
      break;
    case Effect::none:
      break;
    case Effect::hint:
      without_effect_.push_back(values.empty() ? word : fmt::format("{} {}", word, fmt::join(values, " ")));
      break;
    case Effect::refused:
      deny(fmt::format("option {} is not there: {}", word, option.text));
  }
}

/// How many of `count` ranks each host gets: they fill the slots in the order of the hosts. Those that are too many for
/// that are dealt out, one a host.
std::vector<std::uint64_t> fill(const std::vector<SlottedHost>& hosts, std::uint64_t count) {
  std::uint64_t left = count;
  std::vector<std::uint64_t> ranks;
  for (const SlottedHost& host : hosts) {
    ranks.push_back(std::min(left, host.slots));
    left -= ranks.back();
  }
  const std::uint64_t each = left / ranks.size();
  const std::uint64_t first = left % ranks.size();
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] += each + (i < first ? 1 : 0);
  return ranks;
}

/// Programs that name no hosts share those of the program before.
void MpiexecReader::place_ranks() {
  std::uint64_t count = 0;
  bool elsewhere = false;
  std::string hosts;
  std::map<std::string, int> processes;
  for (const Section& section : sections_)
    for (const SlottedHost& host : section.hosts) processes[host.name] = 0;
  for (auto section = sections_.begin(); section != sections_.end();) {
    std::vector<SlottedHost> group = section->hosts;
    if (group.empty()) group.push_back({.name = "localhost", .slots = per_host_.value_or(1)});
    std::uint64_t slots = 0;
    for (SlottedHost& host : group) slots += host.slots = per_host_.value_or(host.slots);
    std::uint64_t ranks = 0;
    const auto begin = section;
    do {
      section->program.first_cell = static_cast<std::uint32_t>(count + ranks);
      ranks += section->count.value_or(section == begin ? slots : 1);
      if (count + ranks > ranks_max)
        deny(fmt::format("{} ranks or more are asked for: at most {} can run; say how many: -n N", count + ranks,
                         ranks_max));
      ++section;
    } while (section != sections_.end() && section->hosts.empty());
    count += ranks;
    const std::vector<std::uint64_t> each = fill(group, ranks);
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (each[i] == 0) continue;
      const bool here = is_this_computer(group[i]);
      elsewhere = elsewhere || !here;
      std::string name = group[i].name;  // a process of its own each time, with a name of its own
      if (int& number = processes[name]; ++number > 1) {
        while (processes.contains(name = fmt::format("{}-{}", group[i].name, number))) ++number;
        name += fmt::format("\"\nssh = \"{}", group[i].name);
      }
      const char* const launch = here ? "launch = \"local\"\n" : group[i].is_of_slurm ? "launch = \"slurm\"\n" : "";
      hosts += fmt::format("[[host]]\nname = \"{}\"\ncells = {}\n{}", name, each[i], launch);
    }
  }
  if (elsewhere) {
    result_.hosts = fmt::format("[machine]\ncells = {}\n{}", count, hosts);
  } else {
    result_.words.insert(result_.words.end(), {"--cells", fmt::format("{}", count)});
  }
}

/// Of this host or login, or of what has started us: what runs on another host has its own.
bool stays_here(std::string_view name) {
  constexpr std::array<std::string_view, 18> names{
      "HOME", "USER",     "LOGNAME", "SHELL",      "PWD",    "OLDPWD", "SHLVL",    "_",  "HOSTNAME",
      "HOST", "HOSTTYPE", "TERM",    "XAUTHORITY", "TMPDIR", "MAIL",   "LD_AUDIT", "TZ", "GLIBC_TUNABLES"};
  constexpr std::array<std::string_view, 14> beginnings{"SSH_",  "XDG_",  "DBUS_",    "DISPLAY", "WAYLAND_",
                                                        "SLURM", "SRUN_", "PBS_",     "LSB_",    "PE_HOSTFILE",
                                                        "PMI",   "OMPI_", "MPIEXEC_", "AP_"};
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(beginnings, [name](std::string_view each) { return name.starts_with(each); });
}

/// The first program stands on aprun's command line.
void MpiexecReader::give_programs() {
  if (all_variables_ && !result_.hosts.empty()) {  // those that are set expressly come behind, and win
    std::vector<wire::NamedValue> all;
    for (char** each = ::environ; *each != nullptr; ++each) {
      const std::string_view text = *each;
      const std::size_t equals = std::min(text.find('='), text.size() - 1);
      const std::string_view name = text.substr(0, equals);
      if (!name.empty() && !stays_here(name)) all.emplace_back(std::string(name), std::string(text.substr(equals + 1)));
    }
    result_.variables.insert(result_.variables.begin(), all.begin(), all.end());
  }
  for (Section& section : sections_) {
    std::vector<wire::NamedValue>& own = section.program.variables;
    if (sections_.size() == 1) std::ranges::copy(std::exchange(own, {}), std::back_inserter(result_.variables));
    own.insert(own.begin(), result_.variables.begin(), result_.variables.end());
  }
  wire::ProgramText& first = sections_.front().program;
  if (!first.folder.empty()) result_.words.insert(result_.words.end(), {"--wd", first.folder});
  result_.words.insert(result_.words.end(), {"--", first.name});
  std::ranges::copy(first.arguments, std::back_inserter(result_.words));
  result_.own = std::move(first.variables);
  result_.processes = first.is_process;
  for (std::size_t i = 1; i < sections_.size(); ++i) result_.others.push_back(std::move(sections_[i].program));
}

void MpiexecReader::read_file(const std::string& path) {
  const WaitNote note("mpiexec", wait_text(path));
  const auto content = os::read_file(path);
  if (!content) deny(fmt::format("cannot read the file of programs {}: {}", path, os::text_of(errno)));
  in_file_ = true;
  std::istringstream lines(*content);
  std::string line;
  int number = 0;
  for (std::string part; std::getline(lines, part);) {
    ++number;
    line += part;
    if (line.ends_with('\\')) {
      line.back() = ' ';
      if (lines.peek() != std::istringstream::traits_type::eof()) continue;
    }
    const Words words = split_arguments(std::exchange(line, {}));
    if (words.empty() || words.front().starts_with('#')) continue;
    try {
      read_sections(words);
    } catch (const Error& error) {
      deny(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  in_file_ = false;
}

void MpiexecReader::read_sections(const Words& words) {
  for (std::size_t at = 0;; ++at) {  // over the colon
    Section section;
    const std::size_t known = sections_.size();
    for (; at < words.size(); ++at) {
      const std::string& word = words[at];
      if (word.size() < 2 || !word.starts_with('-')) break;
      std::string_view name = std::string_view(word).substr(word.starts_with("--") ? 2 : 1);
      if (name.empty()) {  // "--": the program follows
        ++at;
        break;
      }
      Words values;
      if (const std::size_t equals = name.find('='); word.starts_with("--") && equals != name.npos) {
        values.emplace_back(name.substr(equals + 1));
        name = name.substr(0, equals);
      }
      const MpiexecOption& option = find_option(name, word);
      const auto wanted = static_cast<std::size_t>(option.values);
      while (values.size() < wanted && at + 1 < words.size()) values.emplace_back(words[++at]);
      if (values.size() != wanted)
        deny(fmt::format("option {} takes {} value{}, not {}", word, wanted, wanted == 1 ? "" : "s", values.size()));
      if (option.effect == Effect::programs && in_file_)
        deny(fmt::format("option {}: a file of programs cannot name another one", word));
      apply(option, word, values, section);
    }
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = std::find(begin, words.end(), ":");
    if (begin != end) {
      section.program.name = *begin;
      section.program.arguments.assign(begin + 1, end);
      look_in_its_folder(section.program);
      sections_.push_back(std::move(section));
    } else if (sections_.size() == known) {
      deny(words.end() == end && known == 0 ? "no program is given: name it behind the options"
                                            : "no program is given on one side of \":\"");
    } else if (section.count || !section.hosts.empty() || !section.program.folder.empty() ||
               !section.program.variables.empty() || section.program.is_process) {
      deny("options beside a file of programs, which has the options of each: write them there");
    }
    if (end == words.end()) return;
    at = static_cast<std::size_t>(end - words.begin());
  }
}

Mpiexec MpiexecReader::read(std::span<const char* const> arguments) {
  read_sections({arguments.begin(), arguments.end()});
  if (const char* limit = std::getenv("MPIEXEC_TIMEOUT"); limit != nullptr && *limit != '\0' && !timeout_given_)
    result_.words.insert(result_.words.end(), {"--timeout", limit});
  if (sections_.front().hosts.empty()) sections_.front().hosts = allocated_hosts();
  place_ranks();
  give_programs();
  if (!without_effect_.empty() && !quiet_)
    result_.note = fmt::format("without effect here: {}", fmt::join(without_effect_, ", "));
  return std::move(result_);
}

}  // namespace

std::string_view mpiexec_name(std::string_view argv0) {
  std::string_view name = argv0.substr(argv0.rfind('/') + 1);
  if (name.ends_with(".aplib")) name.remove_suffix(6);
  return name == "mpiexec" || name == "mpirun" ? name : std::string_view();
}

Mpiexec read_mpiexec(std::span<const char* const> arguments, std::string_view own_name) {
  return MpiexecReader(own_name).read(arguments);
}

std::string mpiexec_help() {
  std::string text =
      "usage: mpiexec [options] program [arguments of the program...] [: [options] program ...]...\n"
      "Runs an MPI program made by mpicc. Each rank is a cell of a machine that aprun builds. Options have one dash or "
      "two.\n";
  for (const MpiexecOption& option : mpiexec_options) {
    std::string names;
    each_name(option.names, [&names](std::string_view name) { names += fmt::format(" -{}", name); });
    text += fmt::format(" {}\n      {}{}\n", names, option.effect == Effect::refused ? "refused: " : "", option.text);
  }
  return text + "  --help, --version\naprun's own options are in APLIB_... variables: docs/options.md.\n";
}

}  // namespace aplib::launch
