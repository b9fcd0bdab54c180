// SPDX-License-Identifier: MIT
// apfarm: runs a command for each of many values, in GNU Parallel's words. docs/farm.md says what it does.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
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
/// Of a command that takes as many values as it can (-X): a shell gets it as one word, which may have twice that.
constexpr std::size_t command_bytes_max = 65536;
[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::bad_option, text); }

/// Seconds, also with s, m, h or d.
Time parse_seconds(const char* option, const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1;
  if (unit == "m") factor = 60;
  if (unit == "h") factor = 3600;
  if (unit == "d") factor = 86400;
  if (error != std::errc() || factor == 0 || !(seconds >= 0) || seconds * factor > 1e9)
    refuse(fmt::format("{} {}: use seconds, such as 10 or 0.5, or a number with s, m, h or d", option, text));
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
  int nice = 0;
  std::string timeout;
  std::string delay;
  std::string halt;
  std::string separator = "\\n";
  std::string header;
  std::string results;
  std::optional<std::string> tag;
  std::size_t group = 0;  // -n, -N, -L; 0: not said
  bool many = false;      // -m, -X
  bool xargs = false;
  bool null = false;
  bool accepted = false;  // what changes nothing
  std::string total;      // the same
  bool resume = false;
  bool resume_failed = false;
};

void add_pool_options(CLI::App& app, CommandLine& line) {
  app.add_option("--in", line.pool, "Run jobs on the hosts of this pool (apctl up).");
  app.add_flag("--cells", line.cells, "Run programs as cells, without a process for each, where they can be loaded.");
  app.add_option("--entry", line.entry,
                 "Call a function of the program, such as solve(int,double)->double, with the other words.");
  app.add_option("--basefile,--bf", line.base_files, "With --in: a file or folder that goes to each host first.")
      ->allow_extra_args(false);
  app.add_option("--transferfile,--transfer-file,--transferfiles,--transfer-files,--tf", line.sent_files,
                 "With --in: a file or folder that goes to the job first.")
      ->allow_extra_args(false);
  app.add_flag("--transfer", line.transfer, "The same as --transferfile {}.");
  app.add_option("--return", line.returned_files, "With --in: a file or folder that comes back from the job.")
      ->allow_extra_args(false);
  app.add_flag("--cleanup", line.cleanup, "Remove files of --transferfile and --return when the job has ended.");
  app.add_option("--trc", line.moved_files, "The same as --transfer --return FILE --cleanup.")->allow_extra_args(false);
  app.add_option("--wd,--workdir,--work-dir", line.folder, "With --in: the folder in which jobs run.");
}

void add_value_options(CLI::App& app, CommandLine& line) {
  const auto repeats = [&line](bool lines) {
    return [&line, lines](std::size_t count) {
      line.group = count;
      line.command.context = true;
      line.inputs.lines = lines;
    };
  };
  const CLI::Range counts(1, 1'000'000);
  app.add_option("-a,--arg-file,--argfile", line.files, "A file of values, one a line; -: standard input.")
      ->allow_extra_args(false);
  app.add_flag("-0,--null", line.null, "Values end with a zero byte.");
  app.add_option("-d,--delimiter", line.separator, "Values end with this text.");
  app.add_option("-C,--colsep,--col-sep", line.inputs.columns,
                 "Values have several values, {1} {2} ..., with what this regular expression matches between.");
  app.add_option("--header", line.header, "With \":\": the first value of each source is a name, as in {name}.");
  app.add_flag("--link,--xapply", line.inputs.linked, "Sources go along with each other; short ones begin again.");
  app.add_option("-E,--eof", line.inputs.last, "The value that ends a source.");
  app.add_flag("-r,--no-run-if-empty,--norunifempty", line.inputs.skips_blank,
               "Leave out values that are empty, or blank.");
  app.add_flag("--shuf", line.inputs.shuffled, "Run jobs in a random order.");
  app.add_option("-n,--max-args,--maxargs", line.group, "Values for each job.")->check(counts);
  app.add_option_function<std::size_t>("-N,--max-replace-args,--maxreplaceargs", repeats(false),
                                       "The same; what stands around {} is repeated for each value.")
      ->check(counts);
  app.add_option_function<std::size_t>("-L", repeats(true), "As -N, of lines; one that ends with a blank goes on.")
      ->check(counts);
  app.add_flag("-m", line.many, "As many values for each job as it takes, the last ones spread over all slots.");
  app.add_flag_callback(
      "-X", [&line] { line.many = line.command.context = true; }, "The same; what stands around {} is repeated.");
  app.add_flag("--xargs", line.xargs, "As many values for each job as it takes.");
  app.add_option("-I", line.command.placeholder, "What stands for the value, in place of {}.");
  app.add_flag("--plus", line.command.plus, "Also {..} {...} {+/} {+.} {+..} {+...} {/..} {/...}.");
  app.add_flag("-q,--quote", line.command.quote, "The command's words are literal, for the shell too.");
}

void add_output_options(CLI::App& app, CommandLine& line) {
  SessionOptions& session = line.session;
  app.add_flag("-k,--keep-order,--keeporder", session.keep_order, "Print in the order of the values.");
  app.add_flag_callback(
      "--no-keep-order,--nokeeporder,--nok,--no-k", [&session] { session.keep_order = false; }, "Print as they end.");
  app.add_flag_callback(
      "--tag", [&line] { line.tag = line.tag.value_or(line.command.placeholder); },
      "Each line of output begins with the values.");
  app.add_option("--tagstring,--tag-string", line.tag, "The same with this text.");
  app.add_flag("-u,--ungroup", session.ungroup, "Jobs write where apfarm does, while they run.");
  app.add_flag("--json", session.json, "A line of JSON for each job, with its output.");
  app.add_option("--results,--result,--res", line.results,
                 "Write outputs to files in this folder, or with this name, instead.");
  app.add_flag("--dry-run,--dryrun,--dr", session.dry_run, "Print the commands only.");
  app.add_flag("-t,--verbose", session.verbose, "Print each command on standard error when it starts.");
  app.add_flag("-v", session.prints_commands, "Print each command before its output.");
  app.add_flag("--bar", session.bar, "Show how far it is, on standard error.");
  app.add_flag("--progress", session.progress, "Show the numbers of jobs, on standard error.");
  app.add_flag("--eta", session.eta, "Show how long it takes, on standard error.");
  // What apfarm does anyway, or has none of.
  app.add_flag(
      "--group,--line-buffer,--line-buffered,--linebuffer,--linebuffered,--lb,--silent,--will-cite,--willcite,"
      "--no-notice,--nonotice,--nn,--gnu,--plain,-M,--controlmaster",
      line.accepted, "Taken for GNU Parallel's sake: outputs come when jobs have ended.");
}

void add_run_options(CLI::App& app, CommandLine& line) {
  SessionOptions& session = line.session;
  app.add_option("--total-jobs,--totaljobs,--total", line.total, "Taken for GNU Parallel's sake.");
  app.add_option("-j,--jobs,-P,--max-procs,--maxprocs", line.jobs,
                 "Jobs at once, on each host: N, N% of the cores, +N, -N; 0: many. Default: 100%.");
  app.add_option("--joblog,--jl", session.joblog, "Write a line for each job that has ended; +FILE: append it.");
  app.add_flag("--resume", line.resume, "Leave out the jobs that the joblog has.");
  app.add_flag("--resume-failed,--resumefailed", line.resume_failed,
               "Leave out the jobs that did not fail, by the joblog.");
  app.add_option("--retries", session.tries, "Run a failing job so many times at most.")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--copies", session.copies, "At the end, idle slots run once more what others have for long.");
  app.add_option("--timeout", line.timeout, "End a job that runs for longer: seconds, or with m, h, d.");
  app.add_option("--delay", line.delay, "Let so much time pass between the starts of jobs.");
  app.add_option("--nice", line.nice, "Run jobs with this niceness.")->check(CLI::Range(0, 19));
  app.add_option("--halt,--halt-on-error,--haltonerror", line.halt, "never, or now|soon,fail|success|done=N or N%.");
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

/// What the words say that are checked one by one.
void read_words(CommandLine& line) {
  SessionOptions& session = line.session;
  if (!line.timeout.empty()) session.timeout = parse_seconds("--timeout", line.timeout);
  if (!line.timeout.empty() && session.timeout == Time{0}) refuse("--timeout 0: leave it out, and jobs have any time");
  if (!line.delay.empty()) session.delay = parse_seconds("--delay", line.delay);
  if (!line.halt.empty()) {
    const auto halt = Halt::parse(line.halt);
    if (!halt)
      refuse(fmt::format("--halt {}: use never, now,fail=1, soon,success=3, now,done=50% or the like", line.halt));
    session.halt = *halt;
  }
  if (line.resume || line.resume_failed) session.resume = line.resume_failed ? Resume::failed : Resume::rest;
  if (session.resume != Resume::no && session.joblog.empty())
    refuse("--resume needs to know what has been done: name the file by --joblog FILE");
  if (session.joblog == "-")
    refuse("--joblog -: standard output has what jobs print: name a file, such as /dev/stderr");
  if (session.ungroup && (line.tag || session.json || session.keep_order || !line.results.empty()))
    refuse("-u leaves the output to the jobs: it does not go with --tag, --json, --results or --keep-order");
  if (session.json && !line.results.empty()) refuse("--json prints outputs, which --results keeps in files: use one");
  if (!line.pool.empty() && session.ungroup)
    refuse("-u leaves the output to the jobs, which write on other hosts: it does not go with --in");
  if (line.pool.empty() && !(line.folder.empty() && line.base_files.empty()))
    refuse("--wd and --basefile are for the hosts of a pool: name that by --in POOL");
  if (line.command.placeholder.empty()) refuse("-I \"\": use a text that stands for the value");
  if (!line.header.empty() && line.header != ":")
    refuse(fmt::format("--header {}: use \":\" for names in the first value of each source", line.header));
  for (const char* const ending : {".csv", ".tsv", ".json"}) {
    if (line.results.ends_with(ending)) refuse("--results: a file of all outputs is that of --json: use --json > FILE");
  }
  line.inputs.named = !line.header.empty();
  line.inputs.trims = line.inputs.columns.has_value();
  if (line.inputs.named && !line.inputs.columns) line.inputs.columns = "\t";
  line.inputs.separator = line.null ? std::string(1, '\0') : parse_separator(line.separator);
  const bool fills = line.many || line.xargs;
  line.inputs.group = line.group == 0 && !fills ? 1 : line.group;
}

/// Templates of what the names of values are known for.
void make_templates(CommandLine& line) {
  SessionOptions& session = line.session;
  session.files = files_of(line);
  if (line.tag) {
    std::string text = *line.tag;
    for (std::size_t at = 0; (at = text.find("\\t", at)) != text.npos;) text.replace(at, 2, "\t");
    session.tag = CommandTemplate::of_name(text, line.command);
  }
  if (!line.results.empty())
    session.results =
        Results{.place = CommandTemplate::of_name(line.results, line.command), .names = line.command.names};
}

struct Missing {
  std::string_view names;  ///< Those of one letter have one dash.
  std::string_view instead;
};

/// GNU Parallel's options that are not there.
constexpr std::array<Missing, 36> missing_options{{
    {"pipe spreadstdin pipepart pipe-part block blocksize block-size block-timeout blocktimeout bt cat fifo tee "
     "shard bin group-by groupby recstart recend regexp regex remove-rec-sep removerecsep rrs round-robin "
     "roundrobin round",
     "split -l 1000 FILE part. makes files for apfarm 'COMMAND < {}' ::: part.*"},
    {"S sshlogin slf sshloginfile ssh sshdelay ssh-delay rsync-opts rsyncopts filter-hosts filterhosts "
     "filter-host hgrp hostgrp hostgroup hostgroups sql sqlmaster sql-master sqlworker sql-worker sqlandworker "
     "sql-and-worker",
     "other computers are those of a pool: --in POOL"},
    {"onall nonall", "apctl exec POOL:HOST COMMAND runs it on one host, and apctl hosts POOL lists them"},
    {"env record-env recordenv session",
     "jobs have apfarm's environment; for hosts of --in, write env NAME=VALUE before the command"},
    {"files output-as-files outputasfiles", "--results FOLDER keeps outputs in files"},
    {"compress compress-program compressprogram use-compress-program usecompressprogram decompress-program "
     "decompressprogram use-decompress-program usedecompressprogram tmpdir tempdir",
     "outputs wait in TMPDIR, as they are: name a folder with room there"},
    {"tmux tmuxpane tmux-pane latest-line latestline ll", "-u shows outputs while jobs run"},
    {"tty open-tty o interactive p", "jobs ask nobody; --dry-run shows their commands"},
    {"color colour ctag ctagstring ctag-string", "--tag and --tagstring mark lines without color"},
    {"color-failed colour-failed colorfailed colourfailed color-fail colour-fail colorfail colourfail cf",
     "--joblog FILE tells which jobs have failed"},
    {"load noswap memfree memsuspend limit use-sockets-instead-of-threads usesocketsinsteadofthreads "
     "use-cores-instead-of-threads usecoresinsteadofthreads use-cpus-instead-of-cores usecpusinsteadofcores",
     "-j N limits the jobs at once"},
    {"s max-chars maxchars x exit", "-n N limits the values of a job"},
    {"l max-lines maxlines", "write -L N"},
    {"i replace", "write -I TEXT"},
    {"e", "write -E TEXT"},
    {"rpl parens U extensionreplace er basenamereplace bnr dirnamereplace dnr basenameextensionreplace bner "
     "template tmpl",
     "it needs Perl: {.} {/} {//} {/.} and those of --plus are there, and the command may change a value"},
    {"seqreplace slotreplace", "write {#} for the job's number, {%} for the slot's"},
    {"process-slot-var processslotvar", "write NAME={%} before the command"},
    {"trim", "sed 's/^ *//; s/ *$//' takes blanks from values"},
    {"csv", "--colsep , parts values at commas, if none is in quotes"},
    {"skip-first-line skipfirstline", "tail -n +2 FILE leaves it out, and --header : takes it for names"},
    {"arg-sep argsep", "write :::"},
    {"arg-file-sep argfilesep", "write ::::"},
    {"linkinputsource xapplyinputsource", "--link is for all sources, :::+ and ::::+ for one"},
    {"filter", "let the command begin with it: 'test {1} -lt {2} || exit 0; ...'"},
    {"retry-failed retryfailed", "--resume-failed with the same values runs them again"},
    {"term-seq termseq", "a job that is ended gets SIGTERM, and 0.2 s later SIGKILL"},
    {"semaphore semaphore-name semaphorename id semaphore-timeout semaphoretimeout st fg bg wait",
     "flock FILE COMMAND lets one run at a time"},
    {"profile J", "give the options on the command line: no configuration is read"},
    {"shell-quote shellquote shell_quote", "printf %q of bash quotes"},
    {"number-of-cpus numberofcpus number-of-sockets numberofsockets number-of-cores numberofcores "
     "number-of-threads numberofthreads",
     "nproc tells it"},
    {"max-line-length-allowed maxlinelengthallowed show-limits showlimits", "getconf ARG_MAX tells it"},
    {"min-version minversion", "--version tells apfarm's own"},
    {"citation bibtex bug debug D shell-completion shellcompletion", "it is GNU Parallel's own affair: leave it out"},
    {"shebang hashbang embed", "start apfarm in a script of a shell"},
    {"B H T W Y g tollef ctrlc ctrl-c noctrlc no-ctrlc no-ctrl-c", "GNU Parallel has given it up, too: leave it out"},
}};

/// What to do instead; empty: it is none of GNU Parallel's options.
std::string_view instead_of(std::string_view word) {
  std::string_view name = word.substr(0, word.find('='));
  const bool is_long = name.starts_with("--");
  name.remove_prefix(is_long ? 2 : 1);
  if (!is_long) name = name.substr(0, 1);  // its value may stand behind it
  for (const Missing& each : missing_options)
    if (fmt::format(" {} ", each.names).find(fmt::format(" {} ", name)) != std::string::npos) return each.instead;
  return {};
}

std::string unknown_option(const CLI::App& app, const std::string& word) {
  if (const std::string_view instead = instead_of(word); !instead.empty())
    return fmt::format("{} is not there: {}", word, instead);
  return launch::unknown_option(app, word) + "\nRun with --help for more information.";
}

std::vector<std::unique_ptr<JobHost>> make_hosts(const CommandLine& line, std::size_t slots) {
  if (!line.pool.empty()) {
    return hosts_of_pool({.pool = line.pool,
                          .jobs = line.jobs,
                          .folder = line.folder,
                          .cells = line.cells,
                          .nice = line.nice,
                          .entry = line.entry,
                          .files = line.base_files});
  }
  std::vector<std::unique_ptr<JobHost>> hosts;
  hosts.push_back(std::make_unique<JobRunner>(JobRunner::Settings{.slots = slots,
                                                                  .captures = !line.session.ungroup,
                                                                  .shell = usual_shell(),
                                                                  .owner = fmt::format("{}", ::getpid()),
                                                                  .cells = line.cells,
                                                                  .nice = line.nice,
                                                                  .entry = line.entry}));
  return hosts;
}

int run(int argc, char** argv) {
  CLI::App app(
      "apfarm: runs a command for each value, several at once, in GNU Parallel's words.\n"
      "  apfarm [OPTIONS] COMMAND... ::: VALUE...     or :::: FILE..., or values from standard input\n"
      "In the command: {} value, {.} without extension, {/} without folder, {//} folder, {/.} both,\n"
      "{1} {2} ... of several sources, {-1} the last one, {#} number of the job, {%} of the slot.",
      "apfarm");
  app.set_version_flag("-V,--version", fmt::format("apfarm (APlib) {}", version));
  app.prefix_command();
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("apfarm: {}\nRun with --help for more information.\n", error.what());
  });
  CommandLine line;
  add_pool_options(app, line);
  add_value_options(app, line);
  add_output_options(app, line);
  add_run_options(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? launch::finish_output("apfarm") : usage_status;
  }
  const std::size_t slots = slots_of(line.jobs);
  read_words(line);
  Words words = split_words(app.remaining(), line.files);
  if (!words.command.empty() && words.command[0] == "--")
    words.command.erase(words.command.begin());
  else if (!words.command.empty() && words.command[0].starts_with("-"))
    refuse(unknown_option(app, words.command[0]));
  line.session.title = words.command.empty() ? "commands" : fmt::format("{}", fmt::join(words.command, " "));
  Inputs inputs(std::move(words.sources), line.inputs);
  line.command.names = inputs.names();
  const CommandTemplate commands(words.command, line.command);
  make_templates(line);
  auto hosts = make_hosts(line, slots);
  if (line.many || line.xargs) {
    const std::size_t least = commands.make({}, 1, 1).text.size();
    inputs.fill(command_bytes_max - std::min(command_bytes_max, least), line.many ? slots * hosts.size() : 0,
                [&commands, least](const std::vector<std::string>& values) {
                  return commands.make(values, 1, 1).text.size() - least + 1;
                });
  }
  return run_session(commands, inputs, line.session, std::move(hosts));
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
  } catch (const std::exception& error) {
    tell_user("apfarm", aplib::launch::failure_text(error));
  }
  return aplib::farm::usage_status;
}
