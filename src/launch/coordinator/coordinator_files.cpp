// SPDX-License-Identifier: MIT
// Files on their way to nodes before a machine runs, and from them when it has ended.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/wire/files.hpp"

namespace aplib::launch::coordinator {
namespace {

constexpr std::chrono::seconds fetch_patience{30};  // without any byte of a file
constexpr std::chrono::seconds leave_patience{1};   // for nodes that have nothing more to do

/// Of the windows of all nodes together, which may all wait in our memory.
constexpr std::size_t windows_max = std::size_t{512} << 20;
constexpr std::size_t window_min = 4 * files::chunk_bytes;

std::size_t window_for(std::size_t nodes) {
  return std::clamp(windows_max / std::max<std::size_t>(nodes, 1), window_min, files::window_bytes);
}

}  // namespace

FileCarrier::Events Coordinator::Impl::carrier_events() {
  FileCarrier::Events events;
  events.say = [this](std::uint32_t process, std::uint32_t transfer, wire::Bytes bytes) {
    loop.post([this, process, transfer, bytes = std::move(bytes)] { tell(process, wire::Transfer{transfer, bytes}); });
  };
  events.ended = [this](std::uint32_t process, std::uint32_t transfer) {
    loop.post([this, process, transfer] { transfer_ended(process, transfer); });
  };
  events.complain = [this](const std::string& problem) { loop.post([this, problem] { not_fetched(problem); }); };
  events.failed = [this](const std::string& why) {
    loop.post([this, why] { fail(static_cast<int>(ExitStatus::program_failed), why); });
  };
  return events;
}

/// First those to the hosts, then those from them.
std::vector<wire::TransferText> Coordinator::Impl::transfers_of(std::uint32_t process) const {
  using Kind = wire::TransferText::Kind;
  std::vector<wire::TransferText> texts;
  std::uint32_t number = 0;
  for (const SentFiles& files : job.sent) {
    if (files.hosts[process]) texts.push_back({number, files.replace ? Kind::replace : Kind::send, {}, 0});
    ++number;
  }
  for (const FetchedFiles& files : job.fetched) {
    if (files.hosts[process]) texts.push_back({number, Kind::fetch, files.pattern, window_for(nodes.size())});
    ++number;
  }
  return texts;
}

void Coordinator::Impl::expect_files() {
  auto number = static_cast<std::uint32_t>(job.sent.size());
  for (const FetchedFiles& files : job.fetched) {
    FileCarrier::Fetch fetch{.pattern = files.pattern, .folder = files.folder};
    for (std::uint32_t process = 0; process < nodes.size(); ++process) {
      if (!files.hosts[process]) continue;
      fetch.processes.emplace_back(process, nodes[process]->name);
      ++nodes[process]->unfetched;
    }
    file_carrier.expect(number++, std::move(fetch));
  }
}

void Coordinator::Impl::send_files(std::uint32_t process) {
  for (std::uint32_t number = 0; number < job.sent.size(); ++number) {
    if (job.sent[number].hosts[process])
      file_carrier.send(process, number, job.sent[number].manifest, {.window = window_for(nodes.size())});
  }
}

/// Sends a node the program files that its host lacks. False: that makes no sense.
bool Coordinator::Impl::send_programs(std::uint32_t process, const wire::WantFiles& want) {
  const auto is_offered = [this](const std::string& path) { return offered.contains(path); };
  if (want.transfer < wire::own_transfers || !std::ranges::all_of(want.paths, is_offered)) return false;
  deadline_moves();
  constexpr std::uint32_t mode = 0700;
  const std::vector<std::string> names = wire::names_of(want.paths);
  std::vector<files::Source> sources;
  for (std::size_t i = 0; i < names.size(); ++i) sources.push_back({want.paths[i], names[i], mode});
  // The folder there is new: nothing has to be asked.
  file_carrier.send(process, want.transfer,
                    std::make_shared<files::Manifest>(files::gather(sources, nodes[process]->hello.host_id)),
                    {.window = window_for(nodes.size()), .pushes = true});
  return true;
}

void Coordinator::Impl::take_transfer(std::uint32_t process, const wire::Transfer& transfer) {
  deadline_moves();
  fetch_moves();
  if (!file_carrier.take(process, transfer.number, transfer.bytes)) misspoken(process);
}

/// A node has finished. It leaves when its files have been fetched.
void Coordinator::Impl::let_go(std::uint32_t process) {
  if (nodes[process]->unfetched == 0) return tell(process, wire::Leave{});
  ran = true;
  fetch_moves();
}

void Coordinator::Impl::transfer_ended(std::uint32_t process, std::uint32_t transfer) {
  KnownNode& node = *nodes[process];
  const bool is_fetch = transfer >= job.sent.size() && transfer < job.sent.size() + job.fetched.size();
  if (!is_fetch || node.unfetched == 0 || --node.unfetched != 0) return;
  if (node.stage != Stage::finished) return;
  tell(process, wire::Leave{});
  if (phase == Phase::ending && by_force && !fetches()) ending.start(leave_patience, [this] { loop.stop(); });
}

void Coordinator::Impl::not_fetched(const std::string& problem) {
  if (!ran) return;  // of a start that is called off, nobody waits for files
  not_all_fetched = true;
  actions.say(problem);
}

bool Coordinator::Impl::fetches() const {
  return std::ranges::any_of(nodes,
                             [](const auto& node) { return node->stage == Stage::finished && node->unfetched != 0; });
}

/// As long as files come, their nodes are waited for.
void Coordinator::Impl::fetch_moves() {
  if (!fetches()) return;
  const bool all_finished = std::ranges::all_of(nodes, [](const auto& node) { return node->stage >= Stage::finished; });
  if (phase == Phase::ending) {
    if (by_force) ending.start(fetch_patience, [this] { loop.stop(); });
  } else if (all_finished) {
    deadline.start(fetch_patience, [this] { loop.stop(); });
  } else if (all_ended && !keeps_any()) {
    deadline.start(fetch_patience, [this] { too_late(); });
  }
}

}  // namespace aplib::launch::coordinator
