// SPDX-License-Identifier: MIT
// Greeting: how two processes of one machine begin every connection, data and control. A state machine over bytes;
// the sockets are the caller's.
//
//   caller                                                     answerer
//     hello: who, of which machine, versions, nonce, tag  ->     a wrong tag: a stranger; not a byte comes back
//     <-  hello, proof over both hellos
//     proof over both hellos  ->
//
// Tag and proofs are HMAC-SHA256 by the job's key, each bound to the role, so that nothing can be reflected; the
// nonces make every greeting new, so that nothing can be replayed. Versions, byte order and such are compared last:
// both sides then know whom they disagree with, and say so in words. With Secure::off tag and proofs are left out.
//
//   Greeting greeting(Greeting::Role::caller, key, {.secure = Secure::auth, .machine = "…", .self = 3, .peer = 0});
//   while (greeting.state() == Greeting::State::going) {
//     write(greeting.take_output());
//     if (greeting.state() != going) break;
//     read exactly greeting.wants() bytes; greeting.receive(them);
//   }
//   write(greeting.take_output());   // the last word, also when the state is refused
//
// Every hello begins with magic, version and length and ends with the tag, and the proofs follow as above, in all
// versions to come: so that versions can tell each other that they differ.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/job_key.hpp"

namespace aplib::comm {

/// Option "secure".
enum class Secure : std::uint8_t {
  off = 0,   ///< Anybody who reaches the port is believed.
  auth = 1,  ///< Every connection proves the job's key.
  tls = 2,   ///< And is encrypted: after the greeting both sides go on in TLS, with secret().
};

/// "off", "auth", "tls". Nothing throws; other text is auth.
[[nodiscard]] Secure secure_from(std::string_view text) noexcept;
[[nodiscard]] std::string_view to_string(Secure secure) noexcept;

/// What a connection is for.
enum class Purpose : std::uint16_t {
  control = 1,
  data = 2,
  relay = 3,  ///< One end of a pair calls a relay (comm/connect/relay_call.hpp).
  reach = 4,  ///< Only to see whether there is a way. Whoever answers such a call answers no other one.
  files = 5,  ///< A host gets files from another one that has them (launch/pool/file_passer.hpp).
};

/// What a process says of itself.
struct Introduction {
  static constexpr std::uint32_t anyone = 0xffffffff;
  static constexpr std::uint32_t launcher = 0xfffffffe;
  static constexpr std::size_t machine_bytes_max = 64;

  Secure secure = Secure::auth;
  Purpose purpose = Purpose::data;
  std::uint16_t stream = 0;     ///< Which of several connections of a pair.
  std::uint32_t self = anyone;  ///< Who speaks: number of a process, or launcher.
  std::uint32_t peer = anyone;  ///< Who shall listen; anyone: whoever it is.
  std::string machine{};        ///< Id of the machine, up to machine_bytes_max bytes.
  std::uint64_t token = 0;      ///< The purpose's own.
};

/// Thread safety: none; one thread at a time. Call from: any thread.
class Greeting {
 public:
  enum class Role : std::uint8_t { caller, answerer };
  enum class State : std::uint8_t {
    going,     ///< Send take_output(), receive wants() bytes.
    done,      ///< Send take_output(); then the connection is the purpose's.
    refused,   ///< It is one of ours, and does not fit: words() say why, to the person. Send take_output(), close.
    stranger,  ///< It is none of ours. Close at once, quietly, count it; words() are for a log of details.
  };
  /// No side sends more than this before it is known.
  static constexpr std::size_t bytes_max = 512 + 32;
  /// A greeting that takes longer is given up by whoever owns the connection.
  static constexpr std::chrono::seconds time_max{10};
  static constexpr std::uint16_t version = 1;
  /// With this every greeting begins, of all versions.
  static constexpr std::string_view magic{"APlib\r\n\x1a"};

  /// The key by which calls for that machine are proved; nothing: its calls are strangers'.
  using KeyOf = std::function<std::optional<JobKey>(std::string_view machine)>;

  /// Throws Error(bad_argument) for a machine id that is too long, Error(failed) without random bytes.
  Greeting(Role role, const JobKey& key, Introduction mine);
  /// An answerer for several machines: `mine` names none, and the caller's hello says which one is meant.
  Greeting(KeyOf keys, Introduction mine);
  ~Greeting();
  Greeting(const Greeting&) = delete;
  Greeting& operator=(const Greeting&) = delete;

  [[nodiscard]] State state() const noexcept { return state_; }
  /// How many bytes to receive next: at least 1 while going, never more than the greeting still needs; what comes
  /// behind it belongs to the connection.
  [[nodiscard]] std::size_t wants() const noexcept;
  /// Up to wants() bytes that came. Throws Error(failed) when the cryptographic library fails.
  void receive(std::span<const std::byte> bytes);
  /// What to send now, once; may be empty.
  [[nodiscard]] std::vector<std::byte> take_output();

  /// The other side's introduction; valid when done.
  [[nodiscard]] const Introduction& peer() const noexcept { return peer_; }
  /// Why it was refused, or dropped: "protocol version 2, this is 1: the installations differ".
  [[nodiscard]] const std::string& words() const noexcept { return words_; }
  /// Bytes that only both sides of this one connection know; valid when done and not Secure::off. For TLS. Throws
  /// Error(failed).
  [[nodiscard]] std::array<std::byte, 32> secret() const;

 private:
  enum class Step : std::uint8_t { prefix, hello, proof };

  void answer();
  void receive_hello();
  void take_machine();
  void receive_proof();
  void finish();
  void drop(std::string why);
  [[nodiscard]] bool proves() const noexcept { return mine_.secure != Secure::off; }
  [[nodiscard]] std::vector<std::byte> make_hello() const;
  [[nodiscard]] std::array<std::byte, 32> tag(Role by, std::span<const std::byte> hello) const;
  [[nodiscard]] std::array<std::byte, 32> proof(Role by) const;
  [[nodiscard]] Role other() const noexcept { return role_ == Role::caller ? Role::answerer : Role::caller; }
  [[nodiscard]] std::string difference() const;

  Role role_;
  Step step_ = Step::prefix;
  State state_ = State::going;
  JobKey key_;
  KeyOf keys_{};  // Empty: key_ is the key.
  Introduction mine_;
  Introduction peer_;
  std::vector<std::byte> my_hello_;
  std::vector<std::byte> peer_hello_;
  std::vector<std::byte> input_;  // of the step under way
  std::vector<std::byte> output_;
  std::string words_;
};

}  // namespace aplib::comm
