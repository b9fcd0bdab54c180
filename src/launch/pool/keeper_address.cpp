// SPDX-License-Identifier: MIT
#include "launch/pool/keeper_address.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto connect_patience = 10s;
constexpr auto own_patience = 3s;
constexpr auto crowd_pause = 2ms;  // many connect to the same socket
constexpr const char* silence = "its keeper closes the connection without a word: it has ended, or knows another key";

std::string not_reached(int error) {
  if (error == ENOENT || error == ECONNREFUSED)
    return "the way to its keeper is closed, as when the keeper, or ssh to its host, has ended";
  return fmt::format("its keeper cannot be reached: {}", os::text_of(error));
}

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

/// One question under way.
struct Question {
  os::UniqueFd socket{};
  wire::Bytes came{};
  Clock::time_point pinged{};
  bool done = false;
};

void end(Question& question, FactsAnswer& answer, std::string problem) {
  answer.problem = std::move(problem);
  question.done = true;
  question.socket.reset();
}

/// Connects and knocks, unless too many others do. `others_end`: those of ours give descriptors back.
void ask(Question& question, const KeeperAddress& way, FactsAnswer& answer, bool others_end) {
  ctl::RegistrySocket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.descriptor() < 0) {
    if (others_end && (errno == EMFILE || errno == ENFILE)) return;  // until they have been answered
    return end(question, answer, fmt::format("no socket: {}", os::text_of(errno)));
  }
  if (socket.connect(way.socket) != 0) {
    if (errno == EAGAIN) return;
    return end(question, answer, not_reached(errno));
  }
  if (socket.peer_user() != ::getuid()) return end(question, answer, "its way belongs to another user");
  question.socket.reset(::fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 0));
  const wire::Bytes knock = encode_knock({.purpose = Knock::Purpose::facts}, way.key);
  if (!question.socket || !os::send_all(question.socket.get(), knock)) end(question, answer, not_reached(errno));
}

/// The facts are there: they stand behind their length.
bool is_whole(const wire::Bytes& came) {
  constexpr std::size_t head = sizeof(std::uint32_t);
  return came.size() >= head && came.size() - head >= ByteReader(came).number<std::uint32_t>();
}

/// Nothing comes any more.
void hear_end(Question& question, FactsAnswer& answer) {
  if (answer.facts) return end(question, answer, "");  // and no byte back
  const std::string_view text(reinterpret_cast<const char*>(question.came.data()), question.came.size());
  if (text.starts_with(refusal_mark)) {
    std::string_view why = text.substr(refusal_mark.size());
    why = why.substr(0, why.find('\n'));
    return end(question, answer, fmt::format("its keeper refuses: {}", why));
  }
  end(question, answer,
      text.empty() ? silence : "its keeper speaks another language: is APlib of the same version there?");
}

void hear(Question& question, FactsAnswer& answer, bool measures) {
  std::array<std::byte, 16384> piece{};
  for (;;) {
    const ssize_t got = ::recv(question.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0 || question.came.size() > facts_bytes_max) return hear_end(question, answer);
    if (answer.facts) {
      answer.round_trip = Clock::now() - question.pinged;
      return end(question, answer, "");
    }
    question.came.insert(question.came.end(), piece.begin(), piece.begin() + got);
    if (!is_whole(question.came)) continue;
    answer.facts = wire::decode<HostFacts>(std::span(question.came).subspan(sizeof(std::uint32_t)));
    if (!answer.facts) continue;  // a refusal, perhaps, which ends
    if (!measures) return end(question, answer, "");
    question.pinged = Clock::now();
    const std::byte ping{};
    if (!os::send_all(question.socket.get(), std::span(&ping, 1))) return end(question, answer, "");
  }
}

}  // namespace

std::string keeper_socket(const std::string& id) { return fmt::format("{}/{}.keeper", ctl::registry_folder(), id); }

os::UniqueFd knock_at(const KeeperAddress& way, const Knock& knock) {
  ctl::RegistrySocket socket = ctl::RegistrySocket::make();
  socket.limit_waits(connect_patience);
  if (socket.connect(way.socket) != 0) throw Error(Errc::failed, not_reached(errno));
  if (socket.peer_user() != ::getuid()) throw Error(Errc::failed, "the way to its keeper belongs to another user");
  if (!os::send_all(socket.descriptor(), encode_knock(knock, way.key))) throw Error(Errc::failed, not_reached(errno));
  socket.limit_waits(0us);
  os::UniqueFd kept(::fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!kept) os::refuse_descriptor("a connection to a keeper");
  return kept;
}

std::vector<FactsAnswer> facts_of(std::span<const KeeperAddress> ways, std::chrono::nanoseconds patience,
                                  bool measures) {
  std::vector<FactsAnswer> answers(ways.size());
  std::vector<Question> questions(ways.size());
  const Clock::time_point until = Clock::now() + patience;
  std::vector<pollfd> fds;
  for (;;) {
    bool waits_for_others = false;
    const bool others_end = std::ranges::any_of(questions, [](const Question& each) { return !!each.socket; });
    fds.clear();
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Question& question = questions[i];
      if (!question.done && !question.socket) ask(question, ways[i], answers[i], others_end || !fds.empty());
      if (question.done) continue;
      waits_for_others = waits_for_others || !question.socket;
      if (question.socket) fds.push_back({question.socket.get(), POLLIN, 0});
    }
    if ((fds.empty() && !waits_for_others) || Clock::now() >= until) break;
    const Clock::time_point next = waits_for_others ? std::min(until, Clock::now() + crowd_pause) : until;
    ::poll(fds.data(), fds.size(), milliseconds_until(next));
    std::size_t at = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (!questions[i].socket) continue;
      if (fds[at++].revents != 0) hear(questions[i], answers[i], measures);
    }
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (!questions[i].done && !answers[i].facts)
      end(questions[i], answers[i],
          fmt::format("its keeper has not answered for {:.3g} s", std::chrono::duration<double>(patience).count()));
  }
  return answers;
}

FactsAnswer facts_of(const KeeperAddress& way) { return facts_of(std::span(&way, 1), own_patience).front(); }

std::string end_keeper(const KeeperAddress& way, std::chrono::nanoseconds patience) {
  try {
    const os::UniqueFd socket = knock_at(way, {.purpose = Knock::Purpose::end});
    pollfd entry{socket.get(), POLLIN, 0};
    const auto until = Clock::now() + patience;
    int ready = 0;
    do {
      ready = ::poll(&entry, 1, milliseconds_until(until));
    } while (ready < 0 && errno == EINTR);
    std::array<char, 512> word{};
    const ssize_t got = ready > 0 ? ::recv(socket.get(), word.data(), word.size(), MSG_DONTWAIT) : -1;
    if (got == 0 || (got < 0 && ready > 0)) return {};
    return got > 0 ? one_line({word.data(), static_cast<std::size_t>(got)}) : "its keeper does not end";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace aplib::launch::pool
