// SPDX-License-Identifier: MIT
// soak MESSAGES SEED PROCESSES [lose|spoil]: every cell sends messages of random lengths and contents to random cells
// of other processes, MESSAGES in all. Every receiver checks that each arrives once, in order and unchanged. The last
// argument makes one cell lose or spoil a message, to show that the test notices it. A cell has two tasks. Task 0
// receives. Task 1 sends, and waits for acknowledgements when too many of its messages are on their way to one cell.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "aplib/aplib.hpp"

namespace {

constexpr std::int32_t data_type = 1;
constexpr std::int32_t end_type = 2;
constexpr std::int32_t ack_type = 3;
constexpr std::uint32_t window = 512;
constexpr std::uint32_t ack_every = 128;
constexpr std::uint32_t sending_task = 1;

struct Header {
  std::uint64_t number;    // of this pair of cells, from 0
  std::uint64_t checksum;  // of the rest
};

struct Arguments {
  std::uint64_t messages = 0;
  std::uint64_t seed = 0;
  std::uint32_t processes = 0;
  bool lose = false;
  bool spoil = false;
};

std::uint32_t self() { return aplib::index(aplib::this_cell::id()); }

[[noreturn]] void fail(std::uint32_t source, const char* what, std::uint64_t got, std::uint64_t due) {
  std::printf("soak: cell %u, messages of cell %u: %s: %llu where %llu was due\n", self(), source, what,
              static_cast<unsigned long long>(got), static_cast<unsigned long long>(due));
  std::fflush(stdout);
  std::exit(1);
}

// splitmix64: each number comes from the one before.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

std::uint64_t checksum_of(const std::byte* bytes, std::size_t count, std::uint64_t seed) {
  std::uint64_t sum = seed + count;
  while (count > 0) {
    std::uint64_t word = 0;
    const std::size_t part = std::min(count, sizeof word);
    std::memcpy(&word, bytes, part);
    sum = (sum ^ word) * 0x100000001b3U;
    sum ^= sum >> 29U;
    bytes += part;
    count -= part;
  }
  return sum;
}

// Most are small. One in 128 has some kB, and one in 8,192 is large enough for the path of large bodies.
std::size_t length_of(std::uint64_t random) {
  constexpr std::size_t small_max = 64;
  constexpr std::size_t medium_max = 8 * 1024;
  constexpr std::size_t large_max = 256 * 1024;
  const std::uint64_t kind = random % 8192;
  if (kind == 0) return (random >> 16U) % large_max;
  if (kind < 64) return (random >> 16U) % medium_max;
  return (random >> 16U) % small_max;
}

class Sender {
 public:
  Sender(const Arguments& arguments)
      : arguments_(arguments),
        sent_(aplib::this_machine::cell_count()),
        acknowledged_(aplib::this_machine::cell_count()),
        random_(arguments.seed ^ (std::uint64_t{self()} << 32U)) {
    const std::uint32_t cells = aplib::this_machine::cell_count();
    const std::uint32_t each = cells / arguments.processes;  // consecutive cells: one process after another
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      if (cell / each != self() / each) others_.push_back(cell);
    }
    body_.resize(sizeof(Header) + std::size_t{256} * 1024 + 64);
    std::uint64_t filler = arguments.seed;
    for (std::size_t i = sizeof(Header); i + 8 <= body_.size(); i += 8) {
      const std::uint64_t word = next(filler);
      std::memcpy(&body_[i], &word, sizeof word);
    }
  }

  void send_all() {
    const std::uint32_t cells = aplib::this_machine::cell_count();
    const std::uint64_t mine = arguments_.messages / cells + (self() < arguments_.messages % cells ? 1 : 0);
    for (std::uint64_t i = 0; i < mine; ++i) send_one(i == mine / 2);
    for (const std::uint32_t cell : others_) aplib::send(aplib::CellId{cell}, sent_[cell], {.type = end_type});
    for (const std::uint32_t cell : others_) wait_until_under_way(cell, ack_every - 1);
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void send_one(bool faulty) {
    const std::uint64_t random = next(random_);
    const std::uint32_t cell = others_[(random >> 40U) % others_.size()];
    wait_until_under_way(cell, window - 1);
    const std::size_t length = length_of(random);
    std::byte* const payload = body_.data() + sizeof(Header);
    std::memcpy(payload, &random, std::min(length, sizeof random));
    const Header header{sent_[cell]++, checksum_of(payload, length, arguments_.seed)};
    std::memcpy(body_.data(), &header, sizeof header);
    const bool mine = faulty && self() == 0;
    if (mine && arguments_.lose) return;
    if (mine && arguments_.spoil) body_[8] ^= std::byte{1};
    bytes_ += sizeof header + length;
    aplib::send(aplib::CellId{cell}, std::span<const std::byte>(body_).first(sizeof header + length),
                {.type = data_type});
  }

  void wait_until_under_way(std::uint32_t cell, std::uint64_t most) {
    while (sent_[cell] - acknowledged_[cell] > most) {
      aplib::receive(acknowledgement_, {.type = ack_type});
      acknowledged_[aplib::index(acknowledgement_.envelope().source)] += acknowledgement_.as<std::uint32_t>();
    }
  }

  const Arguments& arguments_;
  std::vector<std::uint32_t> others_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> acknowledged_;
  std::vector<std::byte> body_;
  aplib::Message acknowledgement_;
  std::uint64_t random_;
  std::uint64_t bytes_ = 0;
};

// Receives messages until every cell that may send here has said how many it sent. Returns how many arrived.
std::uint64_t receive_all(const Arguments& arguments) {
  const std::uint32_t cells = aplib::this_machine::cell_count();
  std::vector<std::uint64_t> received(cells);
  std::uint32_t open = cells - cells / arguments.processes;
  std::uint64_t all = 0;
  aplib::Message message;
  while (open > 0) {
    aplib::receive(message, {.task = aplib::TaskId{sending_task}});
    const aplib::Envelope envelope = message.envelope();
    const std::uint32_t source = aplib::index(envelope.source);
    if (envelope.type == end_type) {
      const auto sent = message.as<std::uint64_t>();
      if (sent != received[source]) fail(source, "not all came", received[source], sent);
      --open;
      continue;
    }
    Header header;
    if (message.size() < sizeof header) fail(source, "a length", message.size(), sizeof header);
    std::memcpy(&header, message.data(), sizeof header);
    if (header.number != received[source]) fail(source, "a number", header.number, received[source]);
    const auto payload = message.bytes().subspan(sizeof header);
    const std::uint64_t sum = checksum_of(payload.data(), payload.size(), arguments.seed);
    if (sum != header.checksum) fail(source, "a checksum", sum, header.checksum);
    ++all;
    if (++received[source] % ack_every == 0)
      aplib::send(envelope.source, ack_every, {.task = aplib::TaskId{sending_task}, .type = ack_type});
  }
  return all;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int main(int argc, char** argv) {
  static Arguments arguments;
  if (argc >= 4) {
    arguments.messages = std::strtoull(argv[1], nullptr, 10);
    arguments.seed = std::strtoull(argv[2], nullptr, 10);
    arguments.processes = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
    arguments.lose = argc > 4 && std::string_view(argv[4]) == "lose";
    arguments.spoil = argc > 4 && std::string_view(argv[4]) == "spoil";
  }
  const std::uint32_t cells = aplib::this_machine::cell_count();
  if (arguments.messages == 0 || arguments.processes < 2 || cells % arguments.processes != 0) {
    if (self() == 0)
      std::fputs("usage: soak MESSAGES SEED PROCESSES [lose|spoil], as many cells in each process\n", stderr);
    return 2;
  }
  // For ever: a fault ends this task while the other still sends.
  Sender& sender = *new Sender(arguments);
  (void)aplib::barrier();
  const double start = now();
  aplib::Task sending = aplib::spawn([&sender] { sender.send_all(); }, aplib::TaskId{sending_task});
  const std::uint64_t received = receive_all(arguments);
  sending.join();
  const double all = aplib::reduce_sum(static_cast<double>(received));
  const double bytes = aplib::reduce_sum(static_cast<double>(sender.bytes()));
  const double seconds = now() - start;
  if (self() == 0) {
    std::printf(
        "soak: %.0f messages, %.0f bytes, %u cells in %u processes: each once, in order, unchanged; %.1f s, %.2f M/s\n",
        all, bytes, cells, arguments.processes, seconds, all / seconds / 1e6);
    if (all != static_cast<double>(arguments.messages)) return 1;
  }
  return 0;
}
