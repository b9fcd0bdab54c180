// SPDX-License-Identifier: MIT
// A launcher without a machine. It starts the processes of a list and prints the events of its Starter, one per line.
// For tests with real servers.
//
//   start_driver SSH_COMMAND < list        each line: kind, host, address, folder, command, and the words to run,
//   with tabs between them
// Standard input is the list and an empty line; its end ends everything. A node that writes "arrived" has arrived.
#include <chrono>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "launch/start/starter.hpp"

namespace {

using namespace aplib::launch;

const std::map<std::string, cluster::LaunchKind> kinds{{"ssh", cluster::LaunchKind::ssh},
                                                       {"local", cluster::LaunchKind::local},
                                                       {"slurm", cluster::LaunchKind::slurm},
                                                       {"pmix", cluster::LaunchKind::pmix},
                                                       {"command", cluster::LaunchKind::command}};

start::NodeStart node_of(const std::string& line, std::uint32_t process) {
  std::istringstream words(line);
  std::string kind;
  start::NodeStart node;
  node.process = process;
  node.input = "the key of the job\n";
  std::getline(words, kind, '\t');
  std::getline(words, node.host.name, '\t');
  std::getline(words, node.host.address, '\t');
  std::getline(words, node.host.folder, '\t');
  std::getline(words, node.host.command, '\t');
  node.host.launch = kinds.at(kind);
  for (std::string word; std::getline(words, word, '\t');) node.command.push_back(word);
  return node;
}

std::string in_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = '|';
  }
  return text;
}

}  // namespace

int main(int, char** argv) {
  try {
    std::vector<start::NodeStart> nodes;
    std::string line;
    while (std::getline(std::cin, line) && !line.empty()) {
      nodes.push_back(node_of(line, static_cast<std::uint32_t>(nodes.size())));
    }
    std::mutex mutex;
    std::unique_ptr<start::Starter> owner = start::make_starter(argv[1]);
    start::Starter* const starter = owner.get();  // its events come until its destructor has returned
    const auto print = [&](const std::string& what, std::uint32_t process, const std::string& text) {
      const std::lock_guard lock(mutex);
      std::cout << what << ' ' << process << ' ' << in_one_line(text) << std::endl;
    };
    start::StartEvents events;
    events.failed = [&](std::uint32_t process, const std::string& text) { print("failed", process, text); };
    events.ended = [&](std::uint32_t process, int status, const std::string& words) {
      print("ended", process, std::to_string(status) + ' ' + words);
    };
    events.said = [&](std::uint32_t process, const std::string& text) {
      print("said", process, text);
      if (text == "arrived") starter->arrived(process);
    };
    starter->start(nodes, events);
    while (std::getline(std::cin, line)) {
    }
    owner.reset();
    std::cout << "gone" << std::endl;
  } catch (const aplib::Error& error) {
    std::cout << "error " << error.what() << std::endl;
    return 2;
  }
}
