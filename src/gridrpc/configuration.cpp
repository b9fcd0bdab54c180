// SPDX-License-Identifier: MIT
#include "gridrpc/configuration.hpp"

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/text.hpp"
#include "launch/cluster/document.hpp"

namespace aplib::gridrpc {
namespace {

namespace cluster = launch::cluster;
namespace fs = std::filesystem;

constexpr std::int64_t processes_max = 10'000;
constexpr std::array<std::string_view, 8> known_keys{"pool",      "host",      "name",    "program",
                                                     "arguments", "processes", "timeout", "start-timeout"};

/// One [[server]] of a file.
class EntryReader {
 public:
  EntryReader(const cluster::Section& section, const std::string& file) : section_(section), file_(file) {}

  ServerEntry read() {
    for (const cluster::Entry& each : section_.entries) read_key(each);
    if (entry_.program.empty()) refuse(section_.at, "it has no program: add program = \"PATH\"");
    if (entry_.pool.empty() && !entry_.host.empty())
      refuse(section_.at, "its host is of no pool: add pool = \"NAME\", or leave host out");
    if (entry_.name.empty()) entry_.name = fs::path(entry_.program).filename();
    return std::move(entry_);
  }

 private:
  void read_key(const cluster::Entry& key) {
    if (key.key == "name") {
      entry_.name = text(key);
    } else if (key.key == "program") {
      entry_.program = text(key);
      if (entry_.program.find('/') != std::string::npos)  // others are looked for in PATH
        entry_.program = (fs::absolute(file_).parent_path() / entry_.program).lexically_normal();
    } else if (key.key == "pool") {
      entry_.pool = text(key);
    } else if (key.key == "host") {
      entry_.host = text(key);
    } else if (key.key == "arguments") {
      const auto* const words = std::get_if<cluster::Value::Texts>(&key.value.content);
      if (words == nullptr) refuse_value(key, "use a list of texts: [\"a\", \"b\"]");
      entry_.arguments = *words;
    } else if (key.key == "processes") {
      const auto* const number = std::get_if<std::int64_t>(&key.value.content);
      if (number == nullptr || *number < 1 || *number > processes_max)
        refuse_value(key, fmt::format("use a number from 1 to {}", processes_max));
      entry_.processes = static_cast<unsigned>(*number);
    } else if (key.key == "timeout") {
      entry_.timeout = time(key);
    } else if (key.key == "start-timeout") {
      entry_.start_timeout = time(key);
    } else {
      const auto nearest = text::nearest(key.key, known_keys);
      refuse(key.at, fmt::format("there is no key {}: {}", key.key,
                                 nearest ? fmt::format("did you mean {}?", *nearest)
                                         : fmt::format("use {}", text::join(known_keys))));
    }
  }

  const std::string& text(const cluster::Entry& key) {
    const auto* const text = std::get_if<std::string>(&key.value.content);
    if (text == nullptr || text->empty()) refuse_value(key, "use a text in double quotes");
    return *text;
  }

  std::chrono::nanoseconds time(const cluster::Entry& key) {
    const auto time = text::parse_duration(text(key));
    if (!time || time->count() == 0) refuse_value(key, "use a time such as \"500ms\" or \"60s\"");
    return *time;
  }

  [[noreturn]] void refuse_value(const cluster::Entry& key, const std::string& remedy) const {
    refuse(key.value.at, fmt::format("{} = {}: {}", key.key, key.value.shown, remedy));
  }

  [[noreturn]] void refuse(cluster::Place at, const std::string& text) const {
    throw Error(Errc::bad_option, fmt::format("{}:{}:{}: [[server]]{}{}: {}", file_, at.line, at.column,
                                              entry_.name.empty() ? "" : " ", entry_.name, text));
  }

  const cluster::Section& section_;
  const std::string& file_;
  ServerEntry entry_{.name = {}, .program = {}, .processes = default_processes()};
};

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0 &&
         !fs::equivalent(path, "/proc/self/exe", error);
}

template <class T>
bool read_at(std::ifstream& file, std::uint64_t place, T& to) {
  return file.seekg(static_cast<std::streamoff>(place)) && file.read(reinterpret_cast<char*>(&to), sizeof to);
}

/// The file has the note of aplib/gridrpc_server.h.
bool is_server(const fs::path& path) {
  constexpr std::uint64_t longest_notes = 64 << 10;
  constexpr ElfW(Nhdr) wanted{.n_namesz = 6, .n_descsz = 4, .n_type = 2};
  struct Note {
    ElfW(Nhdr) head;
    char owner[8];
  } note{};
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) head{};
  if (!read_at(file, 0, head) || !std::ranges::equal(std::span(head.e_ident).first(SELFMAG), std::string_view(ELFMAG)))
    return false;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    if (!read_at(file, head.e_phoff + std::uint64_t{i} * sizeof segment, segment)) return false;
    if (segment.p_type != PT_NOTE) continue;
    const std::uint64_t bytes = std::min<std::uint64_t>(segment.p_filesz, longest_notes);
    const std::uint64_t unit = segment.p_align == 8 ? 8 : 4;
    const auto whole = [unit](std::uint64_t size) { return (size + unit - 1) / unit * unit; };
    for (std::uint64_t at = 0; at + sizeof note <= bytes;) {
      if (!read_at(file, segment.p_offset + at, note)) return false;
      if (std::memcmp(&note.head, &wanted, sizeof wanted) == 0 && std::memcmp(note.owner, "APlib", 6) == 0) return true;
      at += sizeof note.head + whole(note.head.n_namesz) + whole(note.head.n_descsz);
    }
  }
  return false;
}

}  // namespace

unsigned default_processes() {
  static const unsigned count = static_cast<unsigned>(usable_cpu_count(allowed_cpus().size(), cpu_quota()));
  return std::max(count, 1U);
}

std::vector<ServerEntry> read_configuration(std::string_view text, const std::string& name) {
  const cluster::Document document = cluster::read_document(text, name, "[[server]], once for each");
  if (!document.loose.empty()) {
    const cluster::Entry& first = document.loose.front();
    throw Error(Errc::bad_option, fmt::format("{}:{}:{}: {} stands before the servers: write [[server]] above it", name,
                                              first.at.line, first.at.column, first.key));
  }
  std::vector<ServerEntry> servers;
  for (const cluster::Section& section : document.sections) {
    if (section.name != "server" || !section.element) {
      throw Error(Errc::bad_option, fmt::format("{}:{}:{}: there is no table {}: write [[server]], once for each", name,
                                                section.at.line, section.at.column, section.name));
    }
    ServerEntry entry = EntryReader(section, name).read();
    if (std::ranges::find(servers, entry.name, &ServerEntry::name) != servers.end()) {
      throw Error(Errc::bad_option, fmt::format("{}:{}:{}: [[server]] {}: there are two of that name: use another one",
                                                name, section.at.line, section.at.column, entry.name));
    }
    servers.push_back(std::move(entry));
  }
  return servers;
}

std::vector<ServerEntry> servers_of_path(std::string_view path) {
  std::vector<ServerEntry> servers;
  const auto add = [&](const fs::path& file) {
    const std::string name = file.filename();
    if (is_program(file) && std::ranges::find(servers, name, &ServerEntry::name) == servers.end())
      servers.push_back({.name = name, .program = fs::absolute(file), .processes = default_processes()});
  };
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const fs::path each(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    std::error_code error;
    if (!fs::is_directory(each, error)) {
      add(each);
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(each, error)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) {
      if (is_server(file)) add(file);
    }
  }
  return servers;
}

}  // namespace aplib::gridrpc
