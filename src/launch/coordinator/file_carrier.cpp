// SPDX-License-Identifier: MIT
#include "launch/coordinator/file_carrier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::coordinator {
namespace {

/// Of a process: a window, and the answers of a receiver about as many files as there may be.
constexpr std::size_t untaken_max = files::window_bytes + (std::size_t{256} << 20);

/// Where a process has a file of that path.
struct Found {
  const files::Entry* entry = nullptr;
  const std::string* host = nullptr;
};

/// On one computer the system says so. On several that share a file system, the file's number there, its size and its
/// time do.
bool is_same_file(const Found& a, const Found& b) {
  using files::EntryKind;
  if (a.entry->kind != b.entry->kind) return false;
  if (a.entry->kind == EntryKind::folder) return true;
  if (a.entry->inode != b.entry->inode || a.entry->time != b.entry->time || a.entry->bytes != b.entry->bytes)
    return false;
  return *a.host != *b.host || a.entry->device == b.entry->device;
}

}  // namespace

FileCarrier::FileCarrier(Events events, std::string host) : events_(std::move(events)), host_(std::move(host)) {}

FileCarrier::~FileCarrier() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FileCarrier::order(std::function<void()> what) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(what));
    if (!thread_.joinable()) thread_ = os::quiet_thread("aprun-files", [this] { run(); });
  }
  changed_.notify_all();
}

void FileCarrier::send(std::uint32_t process, std::uint32_t transfer, std::shared_ptr<const files::Manifest> manifest,
                       files::Sender::Settings settings) {
  order([this, process, transfer, manifest = std::move(manifest), settings] {
    senders_.erase({process, transfer});
    senders_.try_emplace({process, transfer}, manifest, settings);
  });
}

void FileCarrier::expect(std::uint32_t transfer, Fetch fetch) {
  order([this, transfer, fetch = std::move(fetch)] {
    Fetching& fetching = fetches_[transfer];
    fetching.fetch = fetch;
    for (const auto& [process, name] : fetch.processes) fetching.processes[process].name = name;
  });
}

bool FileCarrier::take(std::uint32_t process, std::uint32_t transfer, std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    std::size_t& untaken = untaken_[process];
    if (untaken > untaken_max) return false;
    untaken += bytes.size();
  }
  order([this, process, transfer, copy = wire::Bytes(bytes.begin(), bytes.end())] {
    {
      const std::lock_guard lock(mutex_);
      untaken_[process] -= copy.size();
    }
    take_now(process, transfer, copy);
  });
  return true;
}

void FileCarrier::lose(std::uint32_t process) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;  // nothing was ordered, and nobody needs a thread to hear of it
  }
  order([this, process] {
    std::erase_if(senders_, [process](const auto& each) { return each.first.first == process; });
    for (auto& [transfer, fetching] : fetches_) {
      const auto found = fetching.processes.find(process);
      if (found == fetching.processes.end() || found->second.over) continue;
      found->second.receiver.reset();
      found->second.over = true;
      decide(transfer, fetching);
    }
  });
}

void FileCarrier::run() {
  try {
    carry();
  } catch (const std::bad_alloc&) {
    events_.failed(no_memory_text);
  } catch (const Error& error) {
    events_.failed(error.what());
  }
}

/// Carries out what was ordered; in between, each transfer that goes out gets its turn.
void FileCarrier::carry() {
  for (bool busy = false;;) {
    std::deque<std::function<void()>> orders;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || busy || !orders_.empty(); });
      if (closing_) return;
      orders.swap(orders_);
    }
    for (const std::function<void()>& each : orders) each();
    busy = pump();
  }
}

/// Makes the next bytes of one transfer. False: none has any now.
bool FileCarrier::pump() {
  auto each = senders_.upper_bound(last_sent_);
  for (std::size_t tried = 0; tried < senders_.size(); ++tried, ++each) {
    if (each == senders_.end()) each = senders_.begin();
    wire::Bytes bytes = each->second.next();
    if (bytes.empty()) continue;
    last_sent_ = each->first;
    events_.say(last_sent_.first, last_sent_.second, std::move(bytes));
    return true;
  }
  return false;
}

void FileCarrier::take_now(std::uint32_t process, std::uint32_t transfer, const wire::Bytes& bytes) {
  if (const auto sender = senders_.find({process, transfer}); sender != senders_.end()) {
    sender->second.take(bytes);
    if (!sender->second.ended()) return;
    senders_.erase(sender);  // what went wrong, the node says
    return events_.ended(process, transfer);
  }
  if (const auto fetching = fetches_.find(transfer); fetching != fetches_.end())
    take_fetched(process, transfer, fetching->second, bytes);
}

void FileCarrier::take_fetched(std::uint32_t process, std::uint32_t transfer, Fetching& fetching,
                               const wire::Bytes& bytes) {
  const auto found = fetching.processes.find(process);
  if (found == fetching.processes.end() || found->second.over) return;
  Fetched& fetched = found->second;
  if (!fetched.receiver) {
    fetched.receiver.emplace(
        files::Receiver::Settings{.existing = files::Existing::replace, .host = host_, .waits = true});
  }
  fetched.receiver->take(bytes);
  if (fetched.receiver->offered() && !fetching.decided) decide(transfer, fetching);
  if (!fetched.over) say_replies(process, transfer, fetched);
  if (fetched.over) decide(transfer, fetching);  // if nothing was offered
}

/// When all have said what they have, decides whether they share the folder.
void FileCarrier::decide(std::uint32_t transfer, Fetching& fetching) {
  const auto is_open = [](const auto& each) {
    return !each.second.over && !(each.second.receiver && each.second.receiver->offered());
  };
  if (fetching.decided || std::ranges::any_of(fetching.processes, is_open)) return;
  fetching.decided = true;
  std::map<std::string_view, Found> known;
  std::vector<std::uint32_t> same;  // processes whose files are all those of others
  bool collide = false;
  bool any_lost = false;
  for (auto& [process, fetched] : fetching.processes) {
    any_lost = any_lost || fetched.over;
    if (fetched.over) continue;
    bool all_known = true;
    for (const files::Entry& entry : fetched.receiver->entries()) {
      const Found found{&entry, &fetched.receiver->sender_host()};
      const auto [first, is_new] = known.try_emplace(entry.path, found);
      all_known = all_known && !is_new;
      collide = collide || (!is_new && !is_same_file(first->second, found));
    }
    if (all_known) same.push_back(process);
  }
  if (known.empty() && !any_lost)
    events_.complain(fmt::format("no host has a file {} to fetch", files::shown(fetching.fetch.pattern)));
  for (auto& [process, fetched] : fetching.processes) {
    if (fetched.over) continue;
    if (!collide && std::ranges::count(same, process) != 0) {
      fetched.receiver->decline("");
    } else {
      const std::string name = files::is_safe_path(fetched.name) ? fetched.name : fmt::format("process-{}", process);
      fetched.receiver->accept(collide ? fetching.fetch.folder + "/" + name : fetching.fetch.folder);
    }
    say_replies(process, transfer, fetched);
  }
}

void FileCarrier::say_replies(std::uint32_t process, std::uint32_t transfer, Fetched& fetched) {
  if (wire::Bytes replies = fetched.receiver->reply(); !replies.empty())
    events_.say(process, transfer, std::move(replies));
  if (!fetched.receiver->ended()) return;
  const files::Outcome outcome = fetched.receiver->outcome();
  fetched.receiver.reset();
  fetched.over = true;
  for (const std::string& problem : outcome.problems) events_.complain(fmt::format("{}: {}", fetched.name, problem));
  if (outcome.more_problems != 0)
    events_.complain(fmt::format("{}: and {} more files", fetched.name, outcome.more_problems));
  events_.ended(process, transfer);
}

}  // namespace aplib::launch::coordinator
