// SPDX-License-Identifier: MIT
#include "launch/start/relay_process.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/os/descriptor.hpp"
#include "comm/connect/greeter.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::start {
namespace {

using boost::system::error_code;

constexpr std::string_view prefix = "aprelay ";
constexpr std::string_view ready = "ready ";
constexpr std::size_t line_bytes_max = 8192;
/// From the end of its output to that of the process.
constexpr std::chrono::milliseconds last_words_time{200};

}  // namespace

struct RelayProcess::Impl : std::enable_shared_from_this<RelayProcess::Impl> {
  Impl(wire::EventLoop& loop, const std::vector<std::string>& command, Events its_events)
      : child(std::make_unique<Child>(command, "")),
        streams(loop.io(), child->release_streams()),
        events(std::move(its_events)),
        last_words(loop) {}

  void listen();
  void take(std::string line);
  void write();
  void output_ended();

  std::unique_ptr<Child> child;  // Null: ended.
  comm::connect::DescriptorPair streams;
  const Events events;
  wire::Timer last_words;
  std::array<char, 4096> input{};
  std::string line;
  std::string writing;
  std::string unwritten;
  bool over = false;
};

void RelayProcess::Impl::listen() {
  streams.async_read_some(boost::asio::buffer(input),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            if (self->over) return;
                            if (error) return self->output_ended();
                            for (std::size_t i = 0; i < bytes && !self->over; ++i) {
                              const char c = self->input[i];
                              if (c == '\n') {
                                self->take(std::exchange(self->line, {}));
                              } else if (self->line.size() < line_bytes_max) {
                                self->line += c;
                              }
                            }
                            if (!self->over) self->listen();
                          });
}

/// Lines of a login shell mean nothing.
void RelayProcess::Impl::take(std::string text) {
  const std::size_t at = text.find(prefix);
  if (at == text.npos) return;
  text.erase(0, at + prefix.size());
  if (!text.starts_with(ready)) return events.said(text);
  events.ready(wire::split_list(std::string_view(text).substr(ready.size())));
}

void RelayProcess::Impl::write() {
  if (!writing.empty() || unwritten.empty()) return;
  writing = std::exchange(unwritten, {});
  boost::asio::async_write(streams, boost::asio::buffer(writing),
                           [self = shared_from_this()](const error_code& error, std::size_t) {
                             self->writing.clear();
                             if (!error && !self->over) self->write();  // else the end of its output tells
                           });
}

void RelayProcess::Impl::output_ended() {
  last_words.start(last_words_time, [self = shared_from_this()] {
    if (std::exchange(self->over, true)) return;
    std::string words = self->child->read(Child::error);
    while (words.ends_with('\n') || words.ends_with('\r')) words.pop_back();
    words = words.substr(words.rfind('\n') + 1);
    const auto status = self->child->ended();
    self->events.ended(fmt::format("{}{}{}", status ? how_it_ended(*status) : "has closed its output",
                                   words.empty() ? "" : ": ", words));
  });
}

RelayProcess::RelayProcess(wire::EventLoop& loop, const std::vector<std::string>& command, Events events)
    : impl_(std::make_shared<Impl>(loop, command, std::move(events))) {
  impl_->listen();
}

RelayProcess::~RelayProcess() {
  impl_->over = true;
  impl_->last_words.cancel();
  impl_->streams.close();
  impl_->child.reset();  // what still waits for the streams keeps the rest
}

void RelayProcess::tell(const std::string& line) {
  if (impl_->over) return;
  impl_->unwritten += line + "\n";
  impl_->write();
}

}  // namespace aplib::launch::start
