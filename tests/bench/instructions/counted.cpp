// SPDX-License-Identifier: MIT
// What instructions.py counts: `counted OPERATION TIMES` does it so often and nothing else that depends on TIMES. All
// cells are on one processor, so that each run takes the same path.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "aplib/aplib.hpp"

namespace {

constexpr std::int32_t data_type = 1;

bool is_first() { return aplib::index(aplib::this_cell::id()) == 0; }
aplib::CellId other() { return aplib::CellId{is_first() ? 1U : 0U}; }

/// Half of what one exchange costs is a message of 8 bytes, sent, received, and a switch.
void exchange(std::uint64_t times, bool posted) {
  std::uint64_t word = 0;
  aplib::Message message;
  const aplib::From from{.cell = other(), .type = data_type};
  const auto send = [&] { aplib::send(other(), word, {.type = data_type}); };
  const auto receive = [&] {
    if (posted) {
      aplib::receive_into(std::as_writable_bytes(std::span(&word, 1)), from);
    } else {
      aplib::receive(message, from);
    }
  };
  for (std::uint64_t i = 0; i < times; ++i) {
    if (is_first()) send();
    receive();
    if (!is_first()) send();
  }
}

/// As exchange(), but for the switches: 64 messages lie there when they are received.
void stream(std::uint64_t times) {
  constexpr int window = 64;
  aplib::Message message;
  for (std::uint64_t i = 0; i < times; ++i) {
    for (int j = 0; j < window; ++j) {
      if (is_first()) {
        aplib::send(other(), std::uint64_t{1}, {.type = data_type});
      } else {
        aplib::receive(message, {.cell = other(), .type = data_type});
      }
    }
    aplib::barrier();
  }
}

void yield(std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i) aplib::this_task::yield();
}

void spawn(std::uint64_t times) {
  std::array<aplib::Task, 16> tasks;
  for (std::uint64_t i = 0; i < times; ++i) {
    for (aplib::Task& task : tasks) task = aplib::spawn([] {});
    for (aplib::Task& task : tasks) task.join();
  }
}

void put(std::uint64_t times) {
  const auto word = aplib::make_symmetric<std::uint64_t>(0);
  aplib::barrier();
  for (std::uint64_t i = 0; i < times; ++i) {
    aplib::put(other(), 1, word.get(), {.acknowledge = true});
    aplib::wait_acknowledged();
  }
  aplib::barrier();
}

void barrier(std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i) aplib::barrier();
}

const std::map<std::string, std::function<void(std::uint64_t)>> operations{
    {"message", [](std::uint64_t times) { exchange(times, false); }},
    {"posted", [](std::uint64_t times) { exchange(times, true); }},
    {"stream", stream},
    {"switch", yield},
    {"spawn", spawn},
    {"put", put},
    {"barrier", barrier},
};

}  // namespace

int main(int count, char** words) {
  const auto operation = count == 3 ? operations.find(words[1]) : operations.end();
  if (operation == operations.end()) {
    std::cerr << "usage: counted OPERATION TIMES\n";
    return 2;
  }
  aplib::Options options = aplib::Options::from_environment();
  options.cells = {2, 1};
  options.threads = 1;
  aplib::Machine machine(options);
  const std::uint64_t times = std::strtoull(words[2], nullptr, 10);
  const aplib::Report report = machine.run([&] { operation->second(times); });
  if (report.exit_status != 0) std::cerr << report.reason << '\n';
  return report.exit_status;
}
