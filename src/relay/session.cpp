// SPDX-License-Identifier: MIT
#include "relay/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "comm/connect/greeter.hpp"

namespace aplib::relay {
namespace {

using boost::system::error_code;

/// A longer line ends the session.
constexpr std::size_t line_bytes_max = 4096;
/// The other side reads, or the session ends.
constexpr std::size_t waiting_lines_max = 100'000;

}  // namespace

struct Session::Impl : std::enable_shared_from_this<Session::Impl> {
  Impl(boost::asio::io_context& io, Relay& its_relay, os::Ends ends, std::function<void()> its_ended)
      : relay(its_relay), streams(io, std::move(ends)), ended(std::move(its_ended)) {}

  void listen();
  void take(const std::string& line);
  void dial(std::istringstream& words);
  void reach(std::istringstream& words);
  void tell_counts();
  void say(const std::string& line);
  void write();
  void end();

  Relay& relay;
  comm::connect::DescriptorPair streams;
  std::function<void()> ended;
  std::array<char, 1024> input{};
  std::string line;
  std::deque<std::string> output;
  std::vector<std::string> jobs;
  bool over = false;
};

void Session::Impl::listen() {
  streams.async_read_some(boost::asio::buffer(input),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            if (self->over) return;
                            if (error) return self->end();
                            for (std::size_t i = 0; i < bytes && !self->over; ++i) {
                              if (self->input[i] == '\n') {
                                self->take(std::exchange(self->line, {}));
                              } else if (self->line.size() < line_bytes_max) {
                                self->line += self->input[i];
                              } else {
                                return self->end();
                              }
                            }
                            if (!self->over) self->listen();
                          });
}

void Session::Impl::take(const std::string& text) {
  std::istringstream words(text);
  std::string verb;
  words >> verb;
  if (verb == "job") {
    std::string machine;
    std::string hex;
    words >> machine >> hex;
    const auto key = comm::JobKey::from_hex(hex);
    if (!key || machine.size() > comm::Introduction::machine_bytes_max) return say("wrong job");
    relay.add_job(machine, *key, [weak = weak_from_this()](const PairName& name) {
      if (const auto self = weak.lock(); self && !self->over)
        self->say(fmt::format("again {} {} {}", name.machine, name.self, name.peer));
    });
    jobs.push_back(machine);
  } else if (verb == "dial") {
    dial(words);
  } else if (verb == "reach") {
    reach(words);
  } else if (verb == "status") {
    tell_counts();
  } else {
    say("wrong " + verb.substr(0, 20));
  }
}

void Session::Impl::dial(std::istringstream& words) {
  std::string place;
  PairName name;
  words >> place >> name.machine >> name.self >> name.peer;
  if (!words || std::ranges::find(jobs, name.machine) == jobs.end()) return say("wrong dial");
  relay.dial(place, name, [weak = weak_from_this(), name](const std::string& why) {
    if (const auto self = weak.lock(); self && !self->over)
      self->say(fmt::format("failed {} {} {} {}", name.machine, name.self, name.peer, why));
  });
}

void Session::Impl::reach(std::istringstream& words) {
  std::string list;
  std::string machine;
  std::uint32_t tag = 0;
  words >> list >> machine >> tag;
  if (!words || std::ranges::find(jobs, machine) == jobs.end()) return say("wrong reach");
  std::vector<std::string> places;
  std::istringstream each(list);
  for (std::string place; std::getline(each, place, ',');) places.push_back(place);
  relay.reach(places, machine, [weak = weak_from_this(), machine, tag](const std::string& place) {
    if (const auto self = weak.lock(); self && !self->over)
      self->say(fmt::format("reached {} {}{}{}", machine, tag, place.empty() ? "" : " ", place));
  });
}

void Session::Impl::tell_counts() {
  const Counts counts = relay.counts();
  const std::pair<const char*, std::uint64_t> all[] = {
      {"pairs", counts.pairs},       {"joined", counts.joined}, {"alone", counts.alone},
      {"given-up", counts.given_up}, {"bytes", counts.bytes},   {"strangers", counts.strangers},
      {"refused", counts.refused},
  };
  for (const auto& [name, number] : all) say(fmt::format("count {} {}", name, number));
  relay.list([this](const PairName& name, bool joined) {
    say(fmt::format("pair {} {} {} {}", name.machine, name.self, name.peer, joined ? "joined" : "waits"));
  });
  say("end");
}

void Session::Impl::say(const std::string& text) {
  if (output.size() >= waiting_lines_max) return;  // nobody reads
  output.push_back("aprelay " + text + "\n");
  if (output.size() == 1) write();
}

void Session::Impl::write() {
  boost::asio::async_write(streams, boost::asio::buffer(output.front()),
                           [self = shared_from_this()](const error_code& error, std::size_t) {
                             if (self->over) return;
                             if (error) return self->end();
                             self->output.pop_front();
                             if (!self->output.empty()) self->write();
                           });
}

void Session::Impl::end() {
  const auto self = shared_from_this();
  if (std::exchange(over, true)) return;
  streams.close();
  for (const std::string& machine : std::exchange(jobs, {})) relay.remove_job(machine);
  if (const auto tell = std::exchange(ended, nullptr)) tell();
}

Session::Session(boost::asio::io_context& io, Relay& relay, os::Ends ends, const std::string& ready,
                 std::function<void()> ended)
    : impl_(std::make_shared<Impl>(io, relay, std::move(ends), std::move(ended))) {
  impl_->say("ready " + ready);
  impl_->listen();
}

Session::~Session() {
  impl_->ended = nullptr;
  impl_->end();
}

}  // namespace aplib::relay
