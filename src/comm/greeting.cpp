// SPDX-License-Identifier: MIT
#include "comm/greeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

constexpr std::uint32_t byte_order_mark = 0x01020304;
constexpr std::size_t hash_bytes = 32;

/// The beginning of a hello in every version.
struct Prefix {
  std::array<char, Greeting::magic.size()> magic;
  std::uint16_t version;
  std::uint16_t bytes;  // of the whole hello, prefix and tag included
};
static_assert(sizeof(Prefix) == 12);

/// Version 1. Behind it the tag, unless secure is off.
struct Hello {
  Prefix prefix;
  std::uint32_t byte_order;
  std::uint8_t pointer_bytes;
  std::uint8_t long_bytes;
  std::uint8_t long_double_bytes;
  std::uint8_t secure;
  std::uint32_t self;
  std::uint32_t peer;
  std::uint16_t purpose;
  std::uint16_t stream;
  std::uint64_t token;
  std::array<std::byte, 32> nonce;
  std::array<char, Introduction::machine_bytes_max> machine;  // padded with zeros
};
static_assert(sizeof(Hello) == 136);

constexpr std::size_t hello_bytes_max = Greeting::bytes_max - hash_bytes;

std::span<const std::byte> bytes_of(std::string_view text) noexcept { return std::as_bytes(std::span(text)); }

std::string name_of(std::uint32_t process) {
  if (process == Introduction::launcher) return "the launcher";
  if (process == Introduction::anyone) return "anyone";
  return fmt::format("process {}", process);
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::control:
      return "the launcher's control";
    case Purpose::data:
      return "messages";
    case Purpose::relay:
      return "a relay";
    case Purpose::reach:
      return "a look for ways";
    case Purpose::files:
      return "files";
  }
  return "unknown";
}

// With secure=off, a stranger's text is shown to a person, so it may have no control characters.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

}  // namespace

Secure secure_from(std::string_view text) noexcept {
  return text == "off" ? Secure::off : text == "tls" ? Secure::tls : Secure::auth;
}

std::string_view to_string(Secure secure) noexcept {
  return secure == Secure::off ? "off" : secure == Secure::auth ? "auth" : secure == Secure::tls ? "tls" : "unknown";
}

Greeting::Greeting(Role role, const JobKey& key, Introduction mine) : role_(role), key_(key), mine_(std::move(mine)) {
  if (mine_.machine.size() > Introduction::machine_bytes_max) {
    throw Error(Errc::bad_argument, fmt::format("greeting: the machine's id \"{}\" is longer than {} bytes",
                                                mine_.machine, Introduction::machine_bytes_max));
  }
  my_hello_ = make_hello();
  if (role_ == Role::caller) output_ = my_hello_;
}

// Without a key of the machine that a hello names, this one, which nobody knows, makes a stranger of the caller.
Greeting::Greeting(KeyOf keys, Introduction mine) : Greeting(Role::answerer, JobKey::make(), std::move(mine)) {
  keys_ = std::move(keys);
}

Greeting::~Greeting() = default;

std::vector<std::byte> Greeting::make_hello() const {
  Hello hello{};
  const std::size_t bytes = sizeof hello + (proves() ? hash_bytes : 0);
  hello.prefix = {{}, version, static_cast<std::uint16_t>(bytes)};
  magic.copy(hello.prefix.magic.data(), magic.size());
  hello.byte_order = byte_order_mark;
  hello.pointer_bytes = sizeof(void*);
  hello.long_bytes = sizeof(long);
  hello.long_double_bytes = sizeof(long double);
  hello.secure = static_cast<std::uint8_t>(mine_.secure);
  hello.self = mine_.self;
  hello.peer = mine_.peer;
  hello.purpose = static_cast<std::uint16_t>(mine_.purpose);
  hello.stream = mine_.stream;
  hello.token = mine_.token;
  fill_random(hello.nonce);
  std::copy(mine_.machine.begin(), mine_.machine.end(), hello.machine.begin());

  std::vector<std::byte> whole(bytes);
  std::memcpy(whole.data(), &hello, sizeof hello);
  if (proves()) {
    const auto hash = tag(role_, std::span(whole).first(sizeof hello));
    std::copy(hash.begin(), hash.end(), whole.begin() + sizeof hello);
  }
  return whole;
}

std::array<std::byte, 32> Greeting::tag(Role by, std::span<const std::byte> hello) const {
  const std::array parts{bytes_of(by == Role::caller ? "aplib hello of caller  " : "aplib hello of answerer"), hello};
  return keyed_hash(key_, parts);
}

std::array<std::byte, 32> Greeting::proof(Role by) const {
  // The hellos carry their lengths, so no two pairs of them are the same bytes when joined.
  const auto mine = std::span<const std::byte>(my_hello_);
  const auto theirs = std::span<const std::byte>(peer_hello_);
  const std::array parts{bytes_of(by == Role::caller ? "aplib proof of caller  " : "aplib proof of answerer"),
                         role_ == Role::caller ? mine : theirs, role_ == Role::caller ? theirs : mine};
  return keyed_hash(key_, parts);
}

std::array<std::byte, 32> Greeting::secret() const {
  const auto& [first, second] =
      role_ == Role::caller ? std::tie(my_hello_, peer_hello_) : std::tie(peer_hello_, my_hello_);
  std::vector<std::byte> both(first);
  both.insert(both.end(), second.begin(), second.end());
  return derive_secret(key_, both, "aplib tls 1.3 key");
}

std::size_t Greeting::wants() const noexcept {
  if (state_ != State::going) return 0;
  std::size_t step_bytes = sizeof(Prefix);
  if (step_ == Step::proof) step_bytes = hash_bytes;
  if (step_ == Step::hello) {
    Prefix prefix;
    std::memcpy(&prefix, input_.data(), sizeof prefix);
    step_bytes = prefix.bytes;
  }
  return step_bytes - input_.size();
}

void Greeting::receive(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state_ == State::going) {
    const std::size_t count = std::min(bytes.size(), wants());
    input_.insert(input_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (step_ == Step::prefix) {
      // Every byte is checked as it comes, because a stranger of another protocol is not waited for.
      const std::size_t compared = std::min(input_.size(), magic.size());
      if (std::memcmp(input_.data(), magic.data(), compared) != 0) return drop("does not speak this protocol");
      if (input_.size() < sizeof(Prefix)) continue;
      Prefix prefix;
      std::memcpy(&prefix, input_.data(), sizeof prefix);
      const std::size_t least = sizeof(Prefix) + (proves() ? hash_bytes : 1);
      if (prefix.bytes < least || prefix.bytes > hello_bytes_max) return drop("a hello of an impossible length");
      step_ = Step::hello;
    } else if (wants() == 0 && step_ == Step::hello) {
      receive_hello();
    } else if (wants() == 0) {
      receive_proof();
    }
  }
}

/// The machine that the caller names is the one of this greeting, if there is a key for it.
void Greeting::take_machine() {
  Hello hello;
  if (peer_hello_.size() < sizeof hello) return;
  std::memcpy(&hello, peer_hello_.data(), sizeof hello);
  const auto length = std::ranges::find(hello.machine, '\0') - hello.machine.begin();
  std::string machine(hello.machine.data(), static_cast<std::size_t>(length));
  std::optional<JobKey> key = keys_(machine);
  if (!key) return;
  key_ = *key;
  mine_.machine = std::move(machine);
  my_hello_ = make_hello();
}

void Greeting::receive_hello() {
  peer_hello_ = std::exchange(input_, {});
  if (keys_) take_machine();
  if (proves()) {
    const auto whole = std::span<const std::byte>(peer_hello_);
    const auto expected = tag(other(), whole.first(whole.size() - hash_bytes));
    if (!equal_in_constant_time(expected, whole.last(hash_bytes))) return drop("does not know the job's key");
  }
  if (role_ == Role::answerer) {
    Hello hello;
    if (mine_.purpose == Purpose::reach && peer_hello_.size() >= sizeof hello) {
      std::memcpy(&hello, peer_hello_.data(), sizeof hello);
      if (hello.purpose != static_cast<std::uint16_t>(Purpose::reach))
        return drop("comes too early: it may call again");
    }
    output_ = my_hello_;
    if (proves()) {
      const auto hash = proof(role_);
      output_.insert(output_.end(), hash.begin(), hash.end());
    }
  }
  if (!proves()) return finish();
  step_ = Step::proof;
}

void Greeting::receive_proof() {
  const bool good = equal_in_constant_time(proof(other()), input_);
  input_.clear();
  if (!good) return drop("does not prove the job's key");
  if (role_ == Role::caller) {
    const auto hash = proof(role_);
    output_.assign(hash.begin(), hash.end());
  }
  finish();
}

void Greeting::finish() {
  words_ = difference();
  state_ = words_.empty() ? State::done : State::refused;
  if (state_ != State::done) return;
  Hello hello;
  std::memcpy(&hello, peer_hello_.data(), sizeof hello);
  peer_ = {mine_.secure, mine_.purpose, hello.stream, hello.self, hello.peer, mine_.machine, hello.token};
}

std::string Greeting::difference() const {
  Prefix prefix;
  std::memcpy(&prefix, peer_hello_.data(), sizeof prefix);
  if (prefix.version != version) {
    return fmt::format("protocol version {}, this is {}: the installations differ; install the same APlib on all hosts",
                       prefix.version, version);
  }
  Hello hello;
  if (peer_hello_.size() != my_hello_.size() && peer_hello_.size() != sizeof hello + (proves() ? 0 : hash_bytes)) {
    return fmt::format("a hello of {} bytes, this one's has {}: the installations differ", peer_hello_.size(),
                       my_hello_.size());
  }
  std::memcpy(&hello, peer_hello_.data(), sizeof hello);
  if (hello.byte_order != byte_order_mark) return "another byte order: a machine's hosts must be of one kind";
  if (hello.pointer_bytes != sizeof(void*) || hello.long_bytes != sizeof(long) ||
      hello.long_double_bytes != sizeof(long double)) {
    return fmt::format(
        "other word sizes (pointer {}, long {}, long double {} bytes; here {}, {}, {}): a machine's hosts must be of "
        "one kind",
        hello.pointer_bytes, hello.long_bytes, hello.long_double_bytes, sizeof(void*), sizeof(long),
        sizeof(long double));
  }
  if (hello.secure != static_cast<std::uint8_t>(mine_.secure)) {
    return fmt::format("secure={}, here secure={}: use one for all hosts", to_string(Secure{hello.secure}),
                       to_string(mine_.secure));
  }
  const std::string machine(hello.machine.data(),
                            std::find(hello.machine.begin(), hello.machine.end(), '\0') - hello.machine.begin());
  if (machine != mine_.machine)
    return fmt::format("of another machine ({}; this is {})", printable(machine), mine_.machine);
  if (hello.purpose != static_cast<std::uint16_t>(mine_.purpose)) {
    return fmt::format("a connection for {}, this end is for {}", name_of(Purpose{hello.purpose}),
                       name_of(mine_.purpose));
  }
  if (hello.peer != Introduction::anyone && mine_.self != Introduction::anyone && hello.peer != mine_.self) {
    return fmt::format("{} meant to reach {}, this is {}: do two processes have one address?", name_of(hello.self),
                       name_of(hello.peer), name_of(mine_.self));
  }
  // A relay answers for whom is called.
  const bool is_asked = mine_.purpose != Purpose::relay && mine_.peer != Introduction::anyone;
  if (is_asked && hello.self != mine_.peer) {
    return fmt::format("{} answered instead of {}: do two processes have one address?", name_of(hello.self),
                       name_of(mine_.peer));
  }
  return {};
}

void Greeting::drop(std::string why) {
  words_ = std::move(why);
  state_ = State::stranger;
  output_.clear();
  input_.clear();
}

std::vector<std::byte> Greeting::take_output() { return std::exchange(output_, {}); }

}  // namespace aplib::comm
