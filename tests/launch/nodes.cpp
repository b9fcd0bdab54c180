// SPDX-License-Identifier: MIT
#include "nodes.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace aplib::test {
namespace {

constexpr std::chrono::milliseconds pause{2};

/// Empty if the process ends meanwhile: reading then fails, and a string made from the stream's iterators would throw.
std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// State and parent of a process. State 'X': it has ended.
std::pair<char, pid_t> look_at(pid_t process) {
  const std::string stat = text_of("/proc/" + std::to_string(process) + "/stat");
  const std::size_t end = stat.rfind(") ");  // the name before it may contain anything
  if (end == stat.npos) return {'X', 0};
  std::istringstream rest(stat.substr(end + 2));
  char state = 'X';
  pid_t parent = 0;
  rest >> state >> parent;
  return {state, parent};
}

/// The arguments of a process.
Strings arguments_of(pid_t process) {
  Strings arguments;
  std::istringstream stream(text_of("/proc/" + std::to_string(process) + "/cmdline"));
  for (std::string word; std::getline(stream, word, '\0');) arguments.push_back(word);
  return arguments;
}

}  // namespace

std::string local_cluster(const Folder& folder, unsigned hosts, unsigned cells, const std::string& machine,
                          const std::string& comm) {
  std::string text = "[machine]\ngrid = \"" + std::to_string(hosts * cells) + "x1\"\nlaunch = \"local\"\n" + machine +
                     "\n[comm]\n" + comm + "\n";
  for (unsigned host = 0; host < hosts; ++host) {
    text += std::string("[[host]]\nname = \"") + static_cast<char>('a' + host) +
            "\"\ncells = " + std::to_string(cells) + "\n";
  }
  return folder.write("cluster.toml", text);
}

Ended aprun_cluster(const std::string& file, const Strings& arguments, Start start) {
  start.arguments = {APRUN_PROGRAM, "-f", file};
  start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
  return run(start);
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t process = 0;
    const std::string name = entry.path().filename();
    if (std::from_chars(name.data(), name.data() + name.size(), process).ec != std::errc{}) continue;
    if (look_at(process).second == parent) children.push_back(process);
  }
  return children;
}

std::vector<pid_t> nodes_of(pid_t launcher, std::size_t count) {
  for (;;) {
    std::map<unsigned, pid_t> nodes;
    for (const pid_t process : children_of(launcher)) {
      const Strings arguments = arguments_of(process);
      const auto number = std::ranges::find(arguments, "--process");
      if (number != arguments.end() && number + 1 != arguments.end())
        nodes[static_cast<unsigned>(std::stoul(*(number + 1)))] = process;
    }
    if (nodes.size() == count) {
      std::vector<pid_t> all;
      for (const auto& [number, process] : nodes) all.push_back(process);
      return all;
    }
    std::this_thread::sleep_for(pause);
  }
}

void wait_gone(pid_t process) {
  for (;;) {
    const char state = look_at(process).first;
    if (state == 'X' || state == 'Z') return;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace aplib::test
