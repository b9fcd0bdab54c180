// SPDX-License-Identifier: MIT
// FileCarrier: the launcher's ends of all transfers of files. Its thread reads and writes the files, so that the
// coordinator's waits for no disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::launch::coordinator {

/// Thread safety: all functions may be called from any thread.
class FileCarrier {
 public:
  struct Events {
    /// For a process. At most a window of each transfer is under way.
    std::function<void(std::uint32_t process, std::uint32_t transfer, wire::Bytes bytes)> say{};
    /// A transfer is over. What went wrong the process knows, or `complain` has told it.
    std::function<void(std::uint32_t process, std::uint32_t transfer)> ended{};
    /// Something was not fetched.
    std::function<void(std::string problem)> complain{};
    /// There is no carrier any more.
    std::function<void(std::string why)> failed{};
  };
  /// Files that come from several processes into a folder. Where two of them have different files of one name, each
  /// gets a folder in it, with its name. Nothing is written before all have said what they have.
  struct Fetch {
    std::string pattern{};  ///< For messages.
    std::string folder{};
    std::vector<std::pair<std::uint32_t, std::string>> processes{};  ///< With their names.
  };

  /// `events` are called on the carrier's thread. `host`: this computer, as in files::Manifest.
  FileCarrier(Events events, std::string host);
  /// Drops what is under way.
  ~FileCarrier();
  FileCarrier(const FileCarrier&) = delete;
  FileCarrier& operator=(const FileCarrier&) = delete;

  void send(std::uint32_t process, std::uint32_t transfer, std::shared_ptr<const files::Manifest> manifest,
            files::Sender::Settings settings);
  void expect(std::uint32_t transfer, Fetch fetch);
  /// What a process says about a transfer. False: it says more than a window allows before anybody could hear it.
  [[nodiscard]] bool take(std::uint32_t process, std::uint32_t transfer, std::span<const std::byte> bytes);
  /// The process has gone, and nothing more comes of its files.
  void lose(std::uint32_t process);

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // process, transfer
  struct Fetched {
    std::string name{};
    std::optional<files::Receiver> receiver{};
    bool over = false;
  };
  struct Fetching {
    Fetch fetch{};
    std::map<std::uint32_t, Fetched> processes{};
    bool decided = false;
  };

  void order(std::function<void()> what);
  void run();
  void carry();
  bool pump();
  void take_now(std::uint32_t process, std::uint32_t transfer, const wire::Bytes& bytes);
  void take_fetched(std::uint32_t process, std::uint32_t transfer, Fetching& fetching, const wire::Bytes& bytes);
  void decide(std::uint32_t transfer, Fetching& fetching);
  void say_replies(std::uint32_t process, std::uint32_t transfer, Fetched& fetched);

  const Events events_;
  const std::string host_;
  // The thread's.
  std::map<Key, files::Sender> senders_;
  Key last_sent_{};
  std::map<std::uint32_t, Fetching> fetches_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> orders_;
  std::map<std::uint32_t, std::size_t> untaken_;  // bytes of a process in them
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace aplib::launch::coordinator
