// SPDX-License-Identifier: MIT
// Transfers from one folder to another in one process: the streams of bytes are strings that the test cuts as it likes.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::test {

namespace files = launch::files;
namespace fs = std::filesystem;

inline void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline std::string random_text(std::mt19937_64& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// What is in a folder, in words, by path: kind, permissions, time, size and hash of the contents.
inline std::map<std::string, std::string> tree_of(const fs::path& root) {
  std::map<std::string, std::string> tree;
  for (const auto& each : fs::recursive_directory_iterator(root)) {
    struct stat status {};
    if (::lstat(each.path().c_str(), &status) != 0) continue;
    const std::string what = S_ISLNK(status.st_mode) ? "link to " + fs::read_symlink(each.path()).string()
                             : S_ISDIR(status.st_mode)
                                 ? fmt::format("folder {:o} {}", status.st_mode & 0777U, files::time_of(status))
                                 : fmt::format("file {:o} {} {} {:x}", status.st_mode & 0777U, files::time_of(status),
                                               status.st_size, std::hash<std::string>()(read_file(each.path())));
    tree[each.path().lexically_relative(root).string()] = what;
  }
  return tree;
}

/// What differs between two folders, a line each; empty: nothing.
inline std::string differences(const fs::path& a, const fs::path& b) {
  const auto of_a = tree_of(a);
  const auto of_b = tree_of(b);
  std::string text;
  for (const auto& [path, what] : of_a) {
    const auto found = of_b.find(path);
    const std::string other = found == of_b.end() ? "nothing" : found->second;
    if (other != what) text += fmt::format("{}: {} became {}\n", files::shown(path), what, other);
  }
  for (const auto& [path, what] : of_b)
    if (!of_a.contains(path)) text += fmt::format("{}: {} came from nowhere\n", files::shown(path), what);
  return text;
}

struct Transferred {
  files::Outcome sender;
  files::Outcome receiver;
  std::uint64_t bytes = 0;      ///< Of the sender's stream.
  std::uint64_t under_way = 0;  ///< At most at a time.
  bool ended = true;            ///< False: it was cut off.
};

struct How {
  files::Receiver::Settings receiver{};
  files::Sender::Settings sender{};
  std::mt19937_64* random = nullptr;             ///< Cuts the streams.
  std::uint64_t cut_off = ~std::uint64_t{0};     ///< After so many bytes of the sender's stream nothing comes any more.
  std::function<void(std::uint64_t)> between{};  ///< Called with the number of bytes that the sender has made.
};

/// In pieces of any size.
template <class End>
void give(End& end, std::span<const std::byte> bytes, std::mt19937_64* random) {
  while (!bytes.empty()) {
    const std::size_t some =
        random == nullptr ? bytes.size() : std::min<std::size_t>(bytes.size(), 1 + (*random)() % 9000);
    end.take(bytes.first(some));
    bytes = bytes.subspan(some);
  }
}

inline Transferred transfer(files::Manifest manifest, const How& how) {
  files::Sender sender(std::make_shared<files::Manifest>(std::move(manifest)), how.sender);
  files::Receiver receiver(how.receiver);
  Transferred done;
  std::vector<std::byte> under_way;
  while (!sender.ended()) {
    std::vector<std::byte> bytes = sender.next();
    if (how.between) how.between(done.bytes);
    done.bytes += bytes.size();
    under_way.insert(under_way.end(), bytes.begin(), bytes.end());
    done.under_way = std::max<std::uint64_t>(done.under_way, under_way.size());
    if (done.bytes > how.cut_off) {
      done.ended = false;
      break;
    }
    // The link is slow: it delivers when the sender waits, or now and then.
    if (!bytes.empty() && (how.random == nullptr || (*how.random)() % 4 != 0)) continue;
    if (bytes.empty() && under_way.empty()) {
      ADD_FAILURE() << "both ends wait";
      done.ended = false;
      break;
    }
    give(receiver, under_way, how.random);
    under_way.clear();
    give(sender, receiver.reply(), how.random);
  }
  done.sender = sender.outcome();
  done.receiver = receiver.outcome();
  return done;
}

}  // namespace aplib::test
