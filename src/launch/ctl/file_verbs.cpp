// SPDX-License-Identifier: MIT
#include "launch/ctl/file_verbs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "aplib/error.hpp"
#include "launch/ctl/on_hosts.hpp"
#include "launch/files/manifest.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"
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
  Place place{.pool = Pool::reach(text.substr(0, colon)), .path = text.substr(colon + 1)};
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
  const HostWork work{.words =
                          [&](std::size_t) {
                            return std::vector<std::string>{"--receive", place.path, how};
                          },
                      .here =
                          [&](std::size_t, const os::Ends& ends, pool::LaneSource* lanes) {
                            files::Sender sender(manifest, {});
                            // What its end finds wrong, that one says.
                            const bool is_well = pool::carry(sender, ends, lanes).empty() || sender.ended();
                            return std::vector<std::string>(is_well ? 0 : 1, "the way to it broke");
                          },
                      .takes_lanes = true};
  const bool all_well = run_on_hosts(place.pool, place.hosts, work);
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

int get_files(std::vector<std::string> words) {
  if (words.size() < 2) refuse_words("a place and a folder are needed: apctl get POOL[:HOST]:PATTERN... FOLDER");
  const std::string folder = words.back();
  words.pop_back();
  bool all_well = true;
  for (const std::string& word : words) {
    const Place place = place_of(word);
    const auto receive = [&](std::size_t host, const os::Ends& ends, pool::LaneSource* lanes) {
      // Hosts may have files of the same name.
      const std::string into =
          place.names_host || place.hosts.size() == 1 ? folder : folder + "/" + place.pool.hosts()[host].name;
      files::Receiver receiver(
          {.folder = into, .existing = files::Existing::replace, .resume = true, .host = describe_this_host().host_id});
      return pool::carry(receiver, ends, lanes);
    };
    const auto words_there = [&](std::size_t) { return std::vector<std::string>{"--serve", place.path}; };
    all_well &= run_on_hosts(place.pool, place.hosts, {.words = words_there, .here = receive, .takes_lanes = true});
  }
  return all_well ? 0 : static_cast<int>(ExitStatus::program_failed);
}

}  // namespace aplib::launch::ctl
