// SPDX-License-Identifier: MIT
// apctl: a look into the machines that this user runs on this computer, and a hand on them. docs/apctl.md says what
// it does.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/own_folder.hpp"
#include "base/text.hpp"
#include "launch/ctl/pool_verbs.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/ctl/status.hpp"
#include "launch/net/net.hpp"
#include "launch/program_path.hpp"
#include "launch/terminal.hpp"
#include "launch/web/web.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::ctl {
namespace {

using Words = std::vector<std::string>;

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::bad_argument, text); }

/// An aprun that does not answer by then is stopped (SIGSTOP), or a debugger holds it.
constexpr int status_seconds_max = 10;

wire::MachineStatus status_of(const std::string& folder, std::uint32_t job) {
  auto status = wire::decode<wire::MachineStatus>(ask_job(folder, job, {"status"}, status_seconds_max));
  if (!status)
    throw Error(Errc::failed,
                fmt::format("job {} speaks another language: are apctl and aprun of the same installation?", job));
  return *std::move(status);
}

/// The job of that number. Without a number, the only job there is.
std::uint32_t chosen_job(const std::string& folder, const std::string& text) {
  if (!text.empty()) {
    const auto number = text::parse_number(text);
    if (!number || *number > 0xffff'ffffU) refuse(fmt::format("\"{}\" is not a number of a job: see apctl list", text));
    return static_cast<std::uint32_t>(*number);
  }
  const std::vector<std::uint32_t> jobs = registered_jobs(folder);
  if (jobs.empty()) throw Error(Errc::failed, "no machine of this user runs on this computer");
  if (jobs.size() > 1) {
    refuse(fmt::format("{} machines run: say which one, by the number that apctl list shows ({}{})", jobs.size(),
                       fmt::join(jobs.begin(), jobs.begin() + std::min<std::ptrdiff_t>(std::ssize(jobs), 8), ", "),
                       jobs.size() > 8 ? ", ..." : ""));
  }
  return jobs.front();
}

int list(const std::string& folder) {
  // All at once: one that is stopped holds up nobody but itself, as long as there are threads.
  std::map<std::uint32_t, std::future<wire::MachineStatus>> answers;
  for (const std::uint32_t job : registered_jobs(folder))
    answers[job] = std::async(std::launch::async | std::launch::deferred, status_of, folder, job);
  std::vector<std::pair<std::uint32_t, wire::MachineStatus>> jobs;
  for (auto& [job, answer] : answers) {
    try {
      jobs.emplace_back(job, answer.get());
    } catch (const Error& error) {
      // A job that has ended since is no news. One that hangs is.
      wire::MachineStatus unknown;
      unknown.state = "no answer";
      if (std::filesystem::exists(job_socket(folder, job))) jobs.emplace_back(job, unknown);
    }
  }
  return print("apctl", jobs.empty() ? "no machine of this user runs on this computer\n" : job_list_text(jobs));
}

int show_tasks(const std::string& folder, std::uint32_t job) {
  return print("apctl", printable(text_of(ask_job(folder, job, {"tasks"}))));
}

/// [JOB] PROGRAM [ARGUMENTS...]
int load(const std::string& folder, Words words, const std::string& task) {
  std::string job;
  if (!words.empty() && text::parse_number(words.front())) {
    job = words.front();
    words.erase(words.begin());
  }
  if (words.empty()) refuse("a program is missing: apctl load [JOB] PROGRAM [ARGUMENTS...]");
  const std::uint32_t number = chosen_job(folder, job);
  const char* search = std::getenv("PATH");
  const std::string file = std::filesystem::absolute(find_program(words.front(), search != nullptr ? search : ""));
  Words request{"load", file, task.empty() ? "auto" : task};
  request.insert(request.end(), words.begin() + 1, words.end());
  const std::string number_of_task = text_of(ask_job(folder, number, request));
  return print("apctl",
               printable(fmt::format("{} is task {} of all cells of job {}\n", words.front(), number_of_task, number)));
}

/// aprun has what measures, and lies beside this program. Returns only if it cannot be executed.
int execute_net(char** words) {
  const std::string aprun = std::filesystem::path(os::own_program()).parent_path() / "aprun";
  std::string verb = net::verb;
  std::vector<char*> arguments{words[0], verb.data()};
  for (char** word = words + 2; *word != nullptr; ++word) arguments.push_back(*word);
  arguments.push_back(nullptr);
  ::execv(aprun.c_str(), arguments.data());
  throw Error(Errc::failed, fmt::format("{} cannot be executed: {}", aprun, std::strerror(errno)));
}

constexpr std::array<std::string_view, 14> commands{"list", "status", "tasks", "load", "stop", "web",  "net",
                                                    "up",   "down",   "hosts", "put",  "get",  "sync", "exec"};

std::string unknown_command(std::string_view word) {
  const auto meant = text::nearest(word, commands);
  return fmt::format("unknown command {}: {}\nRun with --help for more information.", word,
                     meant ? fmt::format("did you mean {}?", *meant) : "use " + text::join(commands));
}

struct PoolWords {
  UpRequest up{};
  std::string pool{};
  bool json = false;
  bool speed = false;
  Words files{};
  unsigned number = 0;
};

/// `words` and `action` outlive the parsing.
void add_pool_commands(CLI::App& app, PoolWords& words, std::function<int(const std::string&)>& action) {
  CLI::App* up = app.add_subcommand(
      "up", "Makes a pool of the hosts of a cluster file, or of a batch job, or repairs one that stands.");
  UpRequest& request = words.up;
  up->add_option("-f,--file", request.file, "The cluster file.")->type_name("FILE");
  up->add_option("POOL,--name", request.name, "The pool's name; default: the file's.");
  up->add_flag("--submit{auto}", request.submit,
               "The hosts are those of a job that is submitted: --submit=slurm, or sge. What follows --, as in -- "
               "--nodes=4, are options of sbatch or qsub.")
      ->type_name("[=SYSTEM]");
  up->add_option("--folder", request.folder,
                 "For the files of the job, where its hosts find them, too; default: ~/.aplib.")
      ->type_name("FOLDER");
  up->callback([&request, &action] {
    if (request.file.empty() && request.name.empty())
      refuse("a cluster file is missing: apctl up -f FILE; apctl up POOL repairs one");
    action = [&request](const std::string&) { return pool_up(request); };
  });
  CLI::App* down = app.add_subcommand("down", "Ends a pool, with what runs in it.");
  down->add_option("POOL", words.pool, "Its name.")->required();
  down->callback([&words, &action] { action = [&words](const std::string&) { return pool_down(words.pool); }; });
  CLI::App* hosts = app.add_subcommand("hosts", "What the hosts of a pool are, and how they are at the moment.");
  hosts->add_option("POOL", words.pool, "Its name; default: all pools.");
  hosts->add_flag("--json", words.json, "For programs: one object a host.");
  hosts->add_flag("--speed", words.speed,
                  "Measures how fast they are, which keeps their processors busy for a moment.");
  hosts->callback([&words, &action] {
    action = [&words](const std::string&) { return pool_hosts(words.pool, words.json, words.speed); };
  });
}

void add_exec_command(CLI::App& app, PoolWords& words, std::function<int(const std::string&)>& action) {
  CLI::App* command = app.add_subcommand(
      "exec", "Runs a program on a host of a pool, with these standard streams: apctl exec POOL[:HOST] PROGRAM ...");
  command->prefix_command();
  command->add_option("--number", words.number, "Without a host: which one, in turn; default: the first, 0.");
  command->callback([&words, &action, command] {
    words.files = command->remaining();
    action = [&words](const std::string&) { return exec_in_pool(words.files, words.number); };
  });
}

void add_file_commands(CLI::App& app, PoolWords& words, std::function<int(const std::string&)>& action) {
  const auto add = [&](const char* name, const char* help, std::function<int(Words)> what) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("FILES", words.files, "As above.")->required();
    command->callback(
        [&words, &action, what] { action = [&words, what](const std::string&) { return what(words.files); }; });
  };
  add("put", "Files to the hosts of a pool: apctl put FILE... POOL[:HOST]:FOLDER",
      [](Words files) { return put_files(std::move(files), files::Existing::refuse); });
  add("sync", "The same, where files that are there and differ are replaced.",
      [](Words files) { return put_files(std::move(files), files::Existing::replace); });
  add("get", "Files from the hosts of a pool: apctl get POOL[:HOST]:PATTERN... FOLDER",
      [](Words files) { return get_files(std::move(files)); });
  add_exec_command(app, words, action);
}

/// `options` and `action` outlive the parsing.
void add_web_command(CLI::App& app, web::WebOptions& options, std::function<int(const std::string&)>& action) {
  CLI::App* page = app.add_subcommand("web", "A page of what runs, for a browser; prints its address. Ctrl-C ends it.");
  page->add_option("--port", options.port, "On the loopback; default: any that is free.")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  page->add_option("--socket", options.socket, "At a Unix socket instead.")->type_name("PATH");
  page->add_flag("--control", options.control, "The page may end machines and farms. Without, it only shows.");
  page->callback([&options, &action] {
    action = [&options](const std::string& folder) {
      if (!options.socket.empty() && options.port != 0) refuse("--socket and --port contradict each other");
      return web::serve_page(options, folder);
    };
  });
}

/// What follows -- in apctl up are another command's options. Returns how many words are left.
int take_up_options(int argc, char** argv, Words& options) {
  char** const end = argv + argc;
  char** const behind = std::find(argv, end, std::string_view("--"));
  if (argc < 2 || argv[1] != std::string_view("up") || behind == end) return argc;
  options.assign(behind + 1, end);
  return static_cast<int>(behind - argv);
}

int run(int argc, char** argv) {
  CLI::App app("apctl: a look into the machines that this user runs on this computer, and a hand on them.", "apctl");
  app.set_version_flag("--version", fmt::format("apctl (APlib) {}", version));
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("apctl: {}\nRun with --help for more information.\n", error.what());
  });
  std::string job;
  std::string task;
  std::string cells;
  Words words;
  std::function<int(const std::string&)> action;
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("JOB", job, "Number of the machine, as list shows it. May be left out when there is one only.");
    return command;
  };
  app.add_subcommand("list", "Machines that run.")->callback([&] {
    action = [](const std::string& folder) { return list(folder); };
  });
  add("status", "One machine: its processes, where they are, which cells they carry, what they have sent.")
      ->callback([&] {
        action = [&](const std::string& folder) {
          const std::uint32_t number = chosen_job(folder, job);
          return print("apctl", job_status_text(number, status_of(folder, number)));
        };
      });
  add("tasks", "Every task of every cell, and what it waits for.")->callback([&] {
    action = [&](const std::string& folder) { return show_tasks(folder, chosen_job(folder, job)); };
  });
  add("stop", "Ends a machine, as Ctrl-C does.")->callback([&] {
    action = [&](const std::string& folder) {
      static_cast<void>(ask_job(folder, chosen_job(folder, job), {"stop"}));
      return 0;
    };
  });
  CLI::App* loading = app.add_subcommand(
      "load", "Starts a further program on all cells of a running machine: apctl load [JOB] PROGRAM [ARGUMENTS...]");
  loading->prefix_command();
  loading->add_option("--task", task, "Its task id on each cell; default: 1000 and higher.");
  loading->add_option("--cells", cells, "Where: all (the default).")->check([](const std::string& text) {
    return text == "all" ? std::string()
                         : fmt::format("\"{}\": programs are loaded on all cells: use all, or leave it out", text);
  });
  loading->callback([&] {
    words = loading->remaining();
    action = [&](const std::string& folder) { return load(folder, words, task); };
  });
  app.add_subcommand("net",
                     "Round trips and rates between all hosts of a cluster file or a pool: apctl net -f FILE | POOL");
  if (argc > 1 && argv[1] == std::string_view("net")) return execute_net(argv);
  web::WebOptions of_page;
  add_web_command(app, of_page, action);
  PoolWords of_pool;
  add_pool_commands(app, of_pool, action);
  add_file_commands(app, of_pool, action);
  if (argc > 1 && argv[1][0] != '-' && std::ranges::count(commands, std::string_view(argv[1])) == 0) {
    tell_user("apctl", unknown_command(argv[1]));
    return static_cast<int>(ExitStatus::usage);
  }
  try {
    app.parse(take_up_options(argc, argv, of_pool.up.options), argv);
    return action(registry_folder());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? finish_output("apctl") : static_cast<int>(ExitStatus::usage);
  } catch (const Error& error) {
    tell_user("apctl", error.what());
    return static_cast<int>(error.code() == Errc::failed ? ExitStatus::program_failed : ExitStatus::usage);
  }
}

}  // namespace
}  // namespace aplib::launch::ctl

int main(int argc, char** argv) {
  using aplib::launch::tell_user;
  aplib::launch::open_standard_streams();
  try {
    return aplib::launch::ctl::run(argc, argv);
  } catch (const std::exception& error) {
    tell_user("apctl", aplib::launch::failure_text(error));
    return 1;
  }
}
