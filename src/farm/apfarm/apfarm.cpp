// SPDX-License-Identifier: MIT
// apfarm: runs a command for each of many values, in GNU Parallel's words. docs/farm.md says what it does.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "farm/apfarm/command_template.hpp"
#include "farm/apfarm/host_worker.hpp"
#include "farm/apfarm/inputs.hpp"
#include "farm/apfarm/job_runner.hpp"
#include "farm/apfarm/remote_host.hpp"
#include "farm/apfarm/session.hpp"
#include "launch/terminal.hpp"

namespace aplib::farm {
namespace {

/// As GNU Parallel's, for whatever is no job's failure.
constexpr int usage_status = 255;
[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::bad_option, text); }

/// Seconds, also with s, m, h or d.
Time parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1;
  if (unit == "m") factor = 60;
  if (unit == "h") factor = 3600;
  if (unit == "d") factor = 86400;
  if (error != std::errc() || factor == 0 || !(seconds > 0) || seconds * factor > 1e9)
    refuse(fmt::format("--timeout {}: use seconds, such as 10 or 0.5, or a number with s, m, h or d", text));
  return Time(static_cast<Time::rep>(seconds * factor * 1e9));
}

/// As GNU Parallel's: \\n, \\t, \\0 and other octal numbers.
std::string parse_separator(const std::string& text) {
  std::string separator;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      separator += text[i];
      continue;
    }
    const char c = text[++i];
    constexpr std::string_view names = "ntrabfv\\";
    constexpr std::string_view meant = "\n\t\r\a\b\f\v\\";
    if (const std::size_t at = names.find(c); at != names.npos) {
      separator += meant[at];
      continue;
    }
    unsigned value = 0;
    const auto [end, error] = std::from_chars(&text[i], &text[i] + std::min<std::size_t>(3, text.size() - i), value, 8);
    if (error != std::errc() || value > 255)
      refuse(fmt::format("-d '{}': after \\ stands n, t or an octal number", text));
    separator += static_cast<char>(value);
    i = static_cast<std::size_t>(end - text.data()) - 1;
  }
  if (separator.empty()) refuse("-d '': use the text that ends a value, such as , or \\t or \\0");
  return separator;
}

struct Words {
  std::vector<std::string> command;
  std::vector<InputSource> sources;
};

/// COMMAND... ::: value... :::: file... :::+ value...
Words split_words(const std::vector<std::string>& words, const std::vector<std::string>& files) {
  Words result;
  for (const std::string& file : files) result.sources.push_back({.file = file});
  bool in_files = false;
  bool in_sources = false;
  bool linked = false;
  for (const std::string& word : words) {
    const bool values = word == ":::" || word == ":::+";
    if (values || word == "::::" || word == "::::+") {
      in_sources = true;
      in_files = !values;
      linked = word.ends_with('+');
      if (linked && result.sources.empty())
        refuse(fmt::format("{}: there is no source before it to go along with", word));
      if (values) result.sources.push_back({.linked = linked});
    } else if (!in_sources) {
      result.command.push_back(word);
    } else if (in_files) {
      result.sources.push_back({.file = word, .linked = linked});
    } else {
      result.sources.back().words.push_back(word);
    }
  }
  return result;
}

struct CommandLine {
  SessionOptions session;
  CommandTemplate::Style command;
  Inputs::Style inputs;
  std::vector<std::string> files;
  std::string jobs = "100%";
  std::string pool;
  std::string folder;
  std::vector<std::string> base_files;
  std::vector<std::string> sent_files;
  std::vector<std::string> returned_files;
  std::vector<std::string> moved_files;  // --trc
  bool transfer = false;
  bool cleanup = false;
  bool cells = false;
  std::string entry;
  std::string timeout;
  std::string halt;
  std::string separator = "\\n";
  bool null = false;
  bool resume = false;
  bool resume_failed = false;
};

void add_options(CLI::App& app, CommandLine& line) {
  SessionOptions& session = line.session;
  app.add_option("-j,--jobs,-P", line.jobs,
                 "Jobs at once, on each host: N, N% of the cores, +N, -N; 0: many. Default: 100%.");
  app.add_option("--in", line.pool, "Run jobs on the hosts of this pool (apctl up).");
  app.add_flag("--cells", line.cells, "Run programs as cells, without a process for each, where they can be loaded.");
  app.add_option("--entry", line.entry,
                 "Call a function of the program, such as solve(int,double)->double, with the other words.");
  app.add_option("--basefile,--bf", line.base_files, "With --in: a file or folder that goes to each host first.")
      ->allow_extra_args(false);
  app.add_option("--transferfile,--tf", line.sent_files, "With --in: a file or folder that goes to the job first.")
      ->allow_extra_args(false);
  app.add_flag("--transfer", line.transfer, "The same as --transferfile {}.");
  app.add_option("--return", line.returned_files, "With --in: a file or folder that comes back from the job.")
      ->allow_extra_args(false);
  app.add_flag("--cleanup", line.cleanup, "Remove files of --transferfile and --return when the job has ended.");
  app.add_option("--trc", line.moved_files, "The same as --transfer --return FILE --cleanup.")->allow_extra_args(false);
  app.add_option("--wd,--workdir", line.folder, "With --in: the folder in which jobs run.");
  app.add_option("-a,--arg-file", line.files, "A file of values, one a line; -: standard input.")
      ->allow_extra_args(false);
  app.add_flag("-0,--null", line.null, "Values end with a zero byte.");
  app.add_option("-d,--delimiter", line.separator, "Values end with this text.");
  app.add_option("-C,--colsep", line.inputs.columns,
                 "Values have several values, {1} {2} ..., with what this regular expression matches between.");
  app.add_option("-n,--max-args", line.inputs.group, "Values for each job.")->check(CLI::Range(1, 1'000'000));
  app.add_option_function<std::size_t>(
         "-N,--max-replace-args",
         [&line](std::size_t count) {
           line.inputs.group = count;
           line.command.context = true;
         },
         "The same; what stands around {} is repeated for each value.")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("-I", line.command.placeholder, "What stands for the value, in place of {}.");
  app.add_flag("-q,--quote", line.command.quote, "The command's words are literal, for the shell too.");
  app.add_flag("-k,--keep-order", session.keep_order, "Print in the order of the values.");
  app.add_flag("--tag", session.tag, "Each line of output begins with the values.");
  app.add_flag("-u,--ungroup", session.ungroup, "Jobs write where apfarm does, while they run.");
  app.add_flag("--json", session.json, "A line of JSON for each job, with its output.");
  app.add_flag("--dry-run", session.dry_run, "Print the commands only.");
  app.add_flag("-t,--verbose", session.verbose, "Print each command on standard error when it starts.");
  app.add_option("--joblog", session.joblog, "Write a line for each job that has ended.");
  app.add_flag("--resume", line.resume, "Leave out the jobs that the joblog has.");
  app.add_flag("--resume-failed", line.resume_failed, "Leave out the jobs that did not fail, by the joblog.");
  app.add_option("--retries", session.tries, "Run a failing job so many times at most.")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--copies", session.copies, "At the end, idle slots run once more what others have for long.");
  app.add_option("--timeout", line.timeout, "End a job that runs for longer: seconds, or with m, h, d.");
  app.add_option("--halt", line.halt, "never, or now|soon,fail|success|done=N or N%.");
  app.add_flag("--bar", session.bar, "Show how far it is, on standard error.");
  app.add_flag("--progress", session.progress, "Show the numbers of jobs, on standard error.");
}

FileTemplates files_of(CommandLine& line) {
  FileTemplates files{.cleanup = line.cleanup || !line.moved_files.empty()};
  if (line.transfer || !line.moved_files.empty()) line.sent_files.push_back(line.command.placeholder);
  line.returned_files.insert(line.returned_files.end(), line.moved_files.begin(), line.moved_files.end());
  for (const std::string& each : line.sent_files) files.sends.push_back(CommandTemplate::of_name(each, line.command));
  for (const std::string& each : line.returned_files)
    files.returns.push_back(CommandTemplate::of_name(each, line.command));
  return files;
}

int run(int argc, char** argv) {
  CLI::App app(
      "apfarm: runs a command for each value, several at once, in GNU Parallel's words.\n"
      "  apfarm [OPTIONS] COMMAND... ::: VALUE...     or :::: FILE..., or values from standard input\n"
      "In the command: {} value, {.} without extension, {/} without folder, {//} folder, {/.} both,\n"
      "{1} {2} ... of several sources, {#} number of the job, {%} of the slot.",
      "apfarm");
  app.set_version_flag("--version", fmt::format("apfarm (APlib) {}", version));
  app.prefix_command();
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("apfarm: {}\nRun with --help for more information.\n", error.what());
  });
  CommandLine line;
  add_options(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? launch::finish_output("apfarm") : usage_status;
  }
  SessionOptions& session = line.session;
  const std::size_t slots = slots_of(line.jobs);
  if (!line.timeout.empty()) session.timeout = parse_seconds(line.timeout);
  if (!line.halt.empty()) {
    const auto halt = Halt::parse(line.halt);
    if (!halt)
      refuse(fmt::format("--halt {}: use never, now,fail=1, soon,success=3, now,done=50% or the like", line.halt));
    session.halt = *halt;
  }
  if (line.resume || line.resume_failed) session.resume = line.resume_failed ? Resume::failed : Resume::rest;
  if (session.resume != Resume::no && session.joblog.empty())
    refuse("--resume needs to know what has been done: name the file by --joblog FILE");
  if (session.ungroup && (session.tag || session.json || session.keep_order))
    refuse("-u leaves the output to the jobs: it does not go with --tag, --json or --keep-order");
  if (line.command.placeholder.empty()) refuse("-I \"\": use a text that stands for the value");
  line.inputs.separator = line.null ? std::string(1, '\0') : parse_separator(line.separator);
  if (!line.pool.empty() && session.ungroup)
    refuse("-u leaves the output to the jobs, which write on other hosts: it does not go with --in");
  if (line.pool.empty() && !(line.folder.empty() && line.base_files.empty()))
    refuse("--wd and --basefile are for the hosts of a pool: name that by --in POOL");
  Words words = split_words(app.remaining(), line.files);
  if (!words.command.empty() && words.command[0].starts_with("-"))
    refuse(fmt::format("unknown option {}; run with --help for those there are", words.command[0]));
  session.title = words.command.empty() ? "commands" : fmt::format("{}", fmt::join(words.command, " "));
  const CommandTemplate commands(words.command, line.command);
  session.files = files_of(line);
  Inputs inputs(std::move(words.sources), line.inputs);
  std::vector<std::unique_ptr<JobHost>> hosts;
  if (line.pool.empty()) {
    hosts.push_back(std::make_unique<JobRunner>(JobRunner::Settings{.slots = slots,
                                                                    .captures = !session.ungroup,
                                                                    .shell = usual_shell(),
                                                                    .owner = fmt::format("{}", ::getpid()),
                                                                    .cells = line.cells,
                                                                    .entry = line.entry}));
  } else {
    hosts = hosts_of_pool({.pool = line.pool,
                           .jobs = line.jobs,
                           .folder = line.folder,
                           .cells = line.cells,
                           .entry = line.entry,
                           .files = line.base_files});
  }
  return run_session(commands, inputs, session, std::move(hosts));
}

}  // namespace
}  // namespace aplib::farm

int main(int argc, char** argv) {
  using aplib::launch::tell_user;
  aplib::launch::open_standard_streams();
  ::signal(SIGXFSZ, SIG_IGN);  // to write fails instead, which is told; jobs have it as ever
  try {
    if (argc == 2 && argv[1] == std::string_view("--worker")) return aplib::farm::run_worker();
    return aplib::farm::run(argc, argv);
  } catch (const std::bad_alloc&) {
    tell_user("apfarm", aplib::launch::no_memory_text);
  } catch (const std::exception& error) {
    tell_user("apfarm", error.what());
  }
  return aplib::farm::usage_status;
}
