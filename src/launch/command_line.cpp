// SPDX-License-Identifier: MIT
#include "launch/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "aplib/command_line.hpp"
#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/text.hpp"
#include "kernel/programs.hpp"
#include "launch/files/manifest.hpp"
#include "launch/pool/pool.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch {
namespace {

constexpr int usage = static_cast<int>(ExitStatus::usage);
constexpr double timeout_max = 1e8;  // three years

int refuse(const std::string& text) {
  tell_user("aprun", text + "\nRun with --help for more information.");
  return usage;
}

std::optional<double> parse_seconds(std::string_view text) {
  double seconds = 0;
  if (text.ends_with('s')) text.remove_suffix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || stop != text.data() + text.size() || !(seconds > 0) || seconds > timeout_max)
    return std::nullopt;
  return seconds;
}

/// What is wrong with a file's or folder's name in which {cid} stands for the cell; empty: nothing.
std::string name_problem(const std::string& name) {
  if (name.empty()) return "a name is missing";
  constexpr std::array<std::string_view, 1> known{"cid"};
  constexpr std::array<std::string_view, 3> of_arguments{"x", "y", "ncel"};
  for (std::size_t open = name.find('{'); open != name.npos; open = name.find('{', open + 1)) {
    const std::size_t close = name.find('}', open);
    if (close == name.npos) break;
    const std::string word = name.substr(open + 1, close - open - 1);
    if (std::ranges::count(of_arguments, std::string_view(word)) != 0)
      return fmt::format("{{{}}} is for arguments of the program (--expand); names of files know {{cid}} alone", word);
    if (word != "cid" && text::nearest(word, known)) return fmt::format("{{{}}}: did you mean {{cid}}?", word);
  }
  return {};
}

/// What is wrong with a PATH[:TARGET]; empty: nothing.
std::string sent_problem(const std::string& text) {
  const auto [path, target] = split_place(text);
  if (path.empty()) return "a name is missing";
  if (target.empty() || files::is_safe_path(target)) return {};
  return fmt::format(
      "\"{}\" is not in the working folder of a host: use a relative path without ..; folder = \"...\" "
      "of [[host]] chooses another working folder",
      target);
}

class HelpPage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: aprun [OPTIONS] program [arguments of the program...]\n"
           "       aprun -f CLUSTER.toml [OPTIONS] [program [arguments of the program...]]\n";
  }
};

/// aprun's options as CLI11 knows them, and where they put what they read.
class Parser {
 public:
  explicit Parser(CommandLine& into);
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  std::optional<int> parse(int argc, const char* const* argv);
  [[nodiscard]] std::string help() const { return app_.help(); }

 private:
  /// Where the program's name stands (argc: nowhere); options before it go to own_, those of --args to their place.
  /// Else the exit status.
  std::optional<int> take_entry_arguments(std::string_view entry, int argc, const char* const* argv, int& at);
  std::optional<int> split(int argc, const char* const* argv, int& program);
  [[nodiscard]] bool takes_value(std::string_view option) const;
  void add_program_options();
  void add_machine_options();
  void note_given();

  CommandLine& into_;
  CLI::App app_;
  std::vector<const char*> own_;
  std::vector<std::string> private_;
  std::vector<std::string> shared_;
  std::string entry_arguments_;  // only for the help: split() takes them
};

Parser::Parser(CommandLine& into)
    : into_(into),
      app_(
          "aprun: runs a program on all cells of a machine, each cell with globals of its own: on this computer, or "
          "with -f "
          "on the hosts of a cluster file.") {
  app_.formatter(std::make_shared<HelpPage>());
  app_.set_version_flag("--version", fmt::format("aprun (APlib) {}", version));
  app_.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("aprun: {}\nRun with --help for more information.\n", error.what());
  });
  add_machine_options();
  app_.add_option("-f,--file", into.cluster_file,
                  "Run on the hosts that this cluster file names; the command line overrides the file.")
      ->type_name("FILE");
  app_.add_option(
          "--in", into.pool,
          "Run on the hosts of this pool, which apctl up has made of a cluster file; the file counts, as for -f.")
      ->type_name("POOL")
      ->check([](const std::string& text) { return pool::Pool::name_problem(text); });
  app_.add_option("--entry", into.entry,
                  "Start at this function instead of cell_main, main or MAIN__, for example solve(int,double)->int, or "
                  "solve where the file's debug information has the types. A result of type int is the cell's status; "
                  "another is printed.")
      ->type_name("SIGNATURE");
  app_.add_option("--args", entry_arguments_,
                  "The arguments of the --entry before it: as many as its types, or up to --.")
      ->type_name("VALUE...");
  add_program_options();
  app_.add_option_function<std::string>(
          "--timeout", [&into](const std::string& text) { into.timeout = parse_seconds(text); },
          "End the run after this many seconds, with status 124.")
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        return parse_seconds(text)
                   ? std::string{}
                   : fmt::format("\"{}\" is not a time: use seconds above 0, for example 90 or 0.5", text);
      });
  app_.add_option("--send", into.sent,
                  "With -f: a file or folder that each host gets in its working folder before anything starts, under "
                  "its own path or TARGET; may be repeated.")
      ->type_name("PATH[:TARGET]")
      ->allow_extra_args(false)
      ->check(sent_problem);
  app_.add_flag("--replace", into.replace, "Let --send replace files that are there and differ.");
  app_.add_option(
          "--fetch", into.fetched,
          "With -f: files of the hosts' working folders that come here, or into FOLDER, when all has ended; may "
          "be repeated.")
      ->type_name("PATTERN[:FOLDER]")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return split_place(text).first.empty() ? "a name is missing" : ""; });
  app_.add_flag("--processes", into.processes,
                "Run each cell as an ordinary process, for programs that cannot be loaded: interpreters and scripts, "
                "static ones, those that fork.");
  app_.add_flag("--dry-run", into.dry_run, "Print what would run where; run nothing.");
  app_.add_flag("--list-modules", into.list_modules,
                "Show the modules that can carry messages between processes here, and why others cannot; run nothing.");
  // aprun starts itself on hosts with these. They are not for people: a group without a name is not shown.
  app_.add_option("--node", into.node)->group("");
  app_.add_option("--process", into.process)->group("");
}

void Parser::add_program_options() {
  CommandLine& into = into_;
  app_.add_flag("--expand", into.expand,
                "Replace {cid}, {x}, {y} and {ncel} in the program's arguments, cell by cell.");
  app_.add_option("--output", into.output.output, "File for standard output; {cid}: a file for each cell.")
      ->type_name("FILE")
      ->check(name_problem);
  app_.add_option("--error", into.output.error, "The same for standard error.")->type_name("FILE")->check(name_problem);
  app_.add_option("--input", into.output.input, "File that each cell reads as standard input; {cid} as above.")
      ->type_name("FILE")
      ->check(name_problem);
  app_.add_option("--wd", into.folder, "Folder in which each cell starts, made if missing; {cid} as above.")
      ->type_name("FOLDER")
      ->check(name_problem);
  app_.add_option_function<std::vector<std::string>>(
          "-x",
          [&into](const std::vector<std::string>& all) {
            for (const std::string& text : all) into.variables.push_back(named_variable(text, "-x"));
          },
          "Pass on this variable of the environment, also to other hosts, or set it there; may be repeated.")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
}

void Parser::add_machine_options() {
  Options& machine = into_.machine;
  add_options(app_, machine);
  const auto set_cells = [&machine](const std::string& value) { machine.set("cells", value); };
  auto* count = app_.add_option_function<std::string>("-n", set_cells, "Number of cells, in one row.");
  count->type_name("N")->group("Machine")->take_last();
  count->check([](const std::string& text) {
    if (text.find_first_not_of("0123456789") != text.npos)
      return fmt::format("\"{}\" is not a number of cells: use 1 .. 16384, or -g 4x2 for a grid", text);
    return detail::option_problem("cells", text);
  });
  auto* grid = app_.add_option_function<std::string>("-g,--grid", set_cells, "The same as --cells.");
  grid->type_name("NXxNY")->group("Machine")->take_last();
  grid->check([](const std::string& text) { return detail::option_problem("cells", text); });
  grid->excludes(count);
  app_.get_option("--cells")->excludes(count)->excludes(grid);

  // These are flags here, because a value would swallow the program's name.
  const std::string tags_help = app_.get_option("--tag-output")->get_description();
  app_.remove_option(app_.get_option("--tag-output"));
  app_.add_flag("--tag-output", machine.tag_output, tags_help)->group("Machine");
  const std::string heap_help = app_.get_option("--account-heap")->get_description();
  app_.remove_option(app_.get_option("--account-heap"));
  app_.add_flag("--account-heap", machine.account_heap, heap_help)->group("Machine");

  const auto add_names = [this](const char* name, const char* option, std::vector<std::string>& names) {
    app_.add_option(name, names, fmt::format("One more of --{}; may be repeated.", option))
        ->type_name("NAME")
        ->allow_extra_args(false)
        ->group("Machine")
        ->check([option](const std::string& text) { return detail::option_problem(option, text); });
  };
  add_names("--private", "private-libraries", private_);
  add_names("--shared", "shared-libraries", shared_);
}

bool Parser::takes_value(std::string_view option) const {
  const CLI::Option* known = app_.get_option_no_throw(std::string(option));
  return known != nullptr && known->get_items_expected_max() > 0;
}

/// argv[at] is --args or --args=VALUE. Where the entry's signature has no types, the program's file says how many there
/// are, and that is not known yet.
std::optional<int> Parser::take_entry_arguments(std::string_view entry, int argc, const char* const* argv, int& at) {
  const std::string_view word = argv[at++];
  std::optional<std::size_t> count;
  try {
    count = entry_arguments(entry);
  } catch (const Error& error) {
    return refuse(error.what());
  }
  if (count == 0) return refuse(fmt::format("--entry {} takes no --args", entry));
  std::size_t left = count.value_or(0);
  if (const std::size_t equals = word.find('='); equals != word.npos) {
    into_.entry_arguments.emplace_back(word.substr(equals + 1));
    if (left > 0) --left;
  } else if (!count) {
    const char* const* const end = std::find(argv + at, argv + argc, std::string_view("--"));
    if (end == argv + argc) {
      return refuse(
          fmt::format("--entry {} does not say where --args end: write -- behind them, before the program, or "
                      "the types",
                      entry));
    }
    left = static_cast<std::size_t>(end - (argv + at));
  }
  for (; left > 0 && at < argc; --left) into_.entry_arguments.emplace_back(argv[at++]);
  return std::nullopt;
}

std::optional<int> Parser::split(int argc, const char* const* argv, int& program) {
  std::string_view entry;
  own_.push_back(argc > 0 ? argv[0] : "aprun");
  int at = 1;
  while (at < argc) {
    const std::string_view word = argv[at];
    if (word == "--") {
      ++at;
      break;
    }
    if (!word.starts_with('-') || word == "-") break;
    const std::size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
    const std::string_view name = word.substr(0, word.starts_with("--") ? equals : 2);
    if (name == "--args") {
      if (entry.empty())
        return refuse("--args are the arguments of a function named by --entry, which must come first");
      if (const auto status = take_entry_arguments(entry, argc, argv, at)) return status;
      continue;
    }
    own_.push_back(argv[at]);
    const bool joined = equals != word.npos || (!word.starts_with("--") && word.size() > 2);
    if (!joined && takes_value(name) && at + 1 < argc) own_.push_back(argv[++at]);
    if (name == "--entry") entry = equals != word.npos ? word.substr(equals + 1) : std::string_view(argv[at]);
    ++at;
  }
  program = at;
  return std::nullopt;
}

std::optional<int> Parser::parse(int argc, const char* const* argv) {
  int program = argc;
  if (const auto status = split(argc, argv, program)) return status;
  std::string environment_problem;
  try {
    into_.machine.set_from_environment();
  } catch (const Error& error) {
    environment_problem = error.what();  // kept, so that --help works in a wrong environment
  }
  try {
    app_.parse(static_cast<int>(own_.size()), own_.data());
  } catch (const CLI::ExtrasError&) {
    return refuse(unknown_option(app_, app_.remaining().front()));
  } catch (const CLI::ParseError& error) {
    return app_.exit(error) == 0 ? finish_output("aprun") : usage;
  }
  if (!into_.node.empty()) return std::nullopt;
  if (!environment_problem.empty()) return refuse(environment_problem);
  if (into_.list_modules) return std::nullopt;
  if (!into_.cluster_file.empty() && !into_.pool.empty())
    return refuse("-f and --in both name hosts: leave one of them out");
  if (program >= argc && into_.cluster_file.empty() && into_.pool.empty()) return refuse("no program is given");
  for (auto* names : {&private_, &shared_}) {
    auto& all = names == &private_ ? into_.machine.private_libraries : into_.machine.shared_libraries;
    for (std::string& name : *names) all.push_back(std::move(name));
  }
  if (program < argc) {
    into_.program = into_.program_name = argv[program];
    into_.arguments.assign(argv + program + 1, argv + argc);
  }
  note_given();
  return std::nullopt;
}

/// Notes which options of the machine the command line has, and their values.
void Parser::note_given() {
  const auto counts = [this](const char* name) { return app_.get_option(name)->count() > 0; };
  for (const OptionInfo& info : option_table()) {
    const std::string name(info.name);
    const bool given = counts(("--" + name).c_str()) || (name == "cells" && (counts("-n") || counts("--grid"))) ||
                       (name == "private-libraries" && !private_.empty()) ||
                       (name == "shared-libraries" && !shared_.empty());
    if (given) into_.given.emplace_back(name, into_.machine.get(name));
  }
}

/// "--direct FILE ARGV0 arguments...": how a program made by apcc comes here when it is executed itself.
std::optional<int> read_direct(int argc, const char* const* argv, CommandLine& into) {
  if (argc < 4) return refuse("--direct is for programs that are executed themselves; run them by aprun program");
  try {
    into.machine.set_from_environment();
  } catch (const Error& error) {
    tell_user(argv[3], error.what());
    return usage;
  }
  into.direct = true;
  into.program = argv[2];
  into.program_name = argv[3];
  into.arguments.assign(argv + 4, argv + argc);
  return std::nullopt;
}

}  // namespace

wire::NamedValue named_variable(const std::string& text, std::string_view option) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  const char* const value = std::getenv(name.c_str());
  if (name.empty())
    throw Error(Errc::bad_option, fmt::format("{}: \"{}\" has no name; write {} NAME=VALUE", option, text, option));
  if (equals == text.size() && value == nullptr) {
    throw Error(Errc::bad_option, fmt::format("{} {}: there is no such variable; set it, or write {} {}=VALUE", option,
                                              name, option, name));
  }
  return {name, equals == text.size() ? value : text.substr(equals + 1)};
}

std::pair<std::string, std::string> split_place(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::optional<int> read_command_line(int argc, const char* const* argv, CommandLine& into) {
  std::optional<int> status;
  if (argc > 1 && std::string_view(argv[1]) == "--direct") {
    status = read_direct(argc, argv, into);
  } else {
    status = Parser(into).parse(argc, argv);
  }
  into.output.tags = into.machine.tag_output;
  return status;
}

std::string help_text() {
  CommandLine line;
  return Parser(line).help();
}

}  // namespace aplib::launch
