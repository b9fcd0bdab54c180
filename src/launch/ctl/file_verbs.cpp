// SPDX-License-Identifier: MIT
#include "launch/ctl/file_verbs.hpp"
#include "launch/program_path.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "launch/files/manifest.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"

namespace aplib::launch::ctl {

namespace {

using pool::Pool;

[[noreturn]] void refuse_words(const std::string& text) { throw Error(Errc::bad_argument, text); }

/// POOL:PATH or POOL:HOST:PATH.
struct Place {
  Pool pool;
  std::vector<std::size_t> hosts{};  ///< Of the pool's.
  std::string path{};
  bool names_host = false;
};

Place place_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos || colon + 1 == text.size())
    refuse_words(fmt::format("{}: not a place in a pool: write POOL:PATH, or POOL:HOST:PATH", text));
  Place place{.pool = Pool::open(text.substr(0, colon)), .path = text.substr(colon + 1)};
  const std::size_t second = place.path.find(':');
  const std::string host = place.path.substr(0, second);
  for (std::size_t i = 0; i < place.pool.hosts().size(); ++i) {
    const pool::PoolHost& each = place.pool.hosts()[i];
    const bool is_meant = second != place.path.npos && std::ranges::any_of(each.members, [&](std::size_t member) {
                            return place.pool.cluster().hosts[member].name == host;
                          });
    if (is_meant) place.hosts.push_back(i);
  }
  place.names_host = !place.hosts.empty();
  if (place.names_host) place.path.erase(0, second + 1);
  if (!place.names_host)
    for (std::size_t i = 0; i < place.pool.hosts().size(); ++i) place.hosts.push_back(i);
  return place;
}

/// One end of a transfer with a host, on a thread of its own. Returns what went wrong.
using Work = std::function<std::vector<std::string>(std::size_t host, const os::Ends& ends)>;

/// Runs apkeeper with these words on the hosts of `place`, all at once, and `work` here. Tells the user what went
/// wrong. True: all went well.
bool run_on_hosts(const Place& place, const std::vector<std::string>& words, const Work& work) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t over = 0;
  bool all_well = true;
  const auto complain = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    tell_user("apctl", printable(text));
    all_well = false;
  };
  const auto end = [&] {
    const std::lock_guard lock(mutex);
    ++over;
    changed.notify_all();
  };
  const auto name = [&](std::uint32_t host) { return place.pool.hosts()[host].name; };
  std::list<std::thread> threads;
  start::StartEvents events;
  events.said = [&](std::uint32_t host, const std::string& line) { complain(fmt::format("{}: {}", name(host), line)); };
  events.failed = [&](std::uint32_t /*host*/, const std::string& text) {
    complain(text);
    end();
  };
  events.ended = [&](std::uint32_t host, int status, const std::string& said) {
    if (status != 0 && said.empty())
      complain(fmt::format("{}: its end of the transfer {}", name(host), start::how_it_ended(status)));
    end();
  };
  events.greets = [&](start::Contact contact) {
    const auto ends = std::make_shared<os::Ends>(std::move(contact.ends));
    threads.push_back(os::quiet_thread("apctl-files", [&, ends, host = contact.process] {
      try {
        for (const std::string& problem : work(host, *ends)) complain(fmt::format("{}: {}", name(host), problem));
      } catch (const std::exception& error) {
        complain(fmt::format("{}: {}", name(host), error.what()));
      }
      *ends = {};
    }));
  };
  const std::string folder = std::filesystem::path(own_program()).parent_path().string();
  const cluster::Cluster standing = place.pool.standing_cluster();
  std::vector<start::NodeStart> starts;
  for (const std::size_t host : place.hosts) {
    start::NodeStart start{.process = static_cast<std::uint32_t>(host),
                           .host = standing.hosts[place.pool.hosts()[host].members.front()],
                           .command = {place.pool.keeper_program(host, folder)},
                           .input = {}};
    start.host.folder = "/";  // what is relative begins at the user's own folder
    start.command.insert(start.command.end(), words.begin(), words.end());
    starts.push_back(std::move(start));
  }
  const std::unique_ptr<start::Starter> starter = start::make_starter();
  starter->start(std::move(starts), std::move(events));
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over == place.hosts.size(); });
  }
  for (std::thread& thread : threads) thread.join();
  return all_well;
}

}  // namespace

int put_files(std::vector<std::string> words, files::Existing existing) {
  if (words.size() < 2) refuse_words("files and a place are needed: apctl put FILE... POOL[:HOST]:FOLDER");
  const Place place = place_of(words.back());
  words.pop_back();
  std::vector<files::Source> sources;
  for (const std::string& word : words) {
    // As cp has it: the last name counts, and a folder's content for "." and what ends in a slash.
    const std::filesystem::path path = std::filesystem::absolute(word).lexically_normal();
    sources.push_back({word, (path.has_filename() ? path : path.parent_path()).filename().string()});
  }
  const auto manifest = std::make_shared<const files::Manifest>(files::gather(sources, describe_this_host().host_id));
  if (!manifest->problems.empty()) refuse_words(fmt::format("{}", fmt::join(manifest->problems, "\n")));
  const char* const how = existing == files::Existing::replace ? "replace" : "refuse";
  const bool all_well = run_on_hosts(place, {"--receive", place.path, how}, [&](std::size_t, const os::Ends& ends) {
    files::Sender sender(manifest, {});
    // What its end finds wrong, that one says.
    return pool::carry(sender, ends).empty() || sender.ended() ? std::vector<std::string>()
                                                               : std::vector<std::string>{"the way to it broke"};
  });
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

int get_files(std::vector<std::string> words) {
  if (words.size() < 2) refuse_words("a place and a folder are needed: apctl get POOL[:HOST]:PATTERN... FOLDER");
  const std::string folder = words.back();
  words.pop_back();
  bool all_well = true;
  for (const std::string& word : words) {
    const Place place = place_of(word);
    all_well &= run_on_hosts(place, {"--serve", place.path}, [&](std::size_t host, const os::Ends& ends) {
      // Hosts may have files of the same name.
      const std::string into =
          place.names_host || place.hosts.size() == 1 ? folder : folder + "/" + place.pool.hosts()[host].name;
      files::Receiver receiver(
          {.folder = into, .existing = files::Existing::replace, .resume = true, .host = describe_this_host().host_id});
      return pool::carry(receiver, ends);
    });
  }
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

}  // namespace aplib::launch::ctl
