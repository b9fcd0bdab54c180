// SPDX-License-Identifier: MIT
#include "launch/wire/protocol.hpp"

#include <algorithm>
#include <string_view>

#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::wire {

namespace {

std::array<std::byte, 32> seal_secret(std::span<const std::byte, 32> secret, Seal::Sender by) {
  constexpr std::string_view salt = "APlib control protocol";
  return comm::derive_secret(comm::JobKey::from_bytes(secret), std::as_bytes(std::span(salt)),
                             by == Seal::Sender::node ? "sent by a node" : "sent by the launcher");
}

}  // namespace

Seal::Seal(std::span<const std::byte, 32> secret, Sender by)
    : key_(comm::JobKey::from_bytes(seal_secret(secret, by))) {}

void Seal::cover(std::span<const std::byte> message) {
  covered_.insert(covered_.end(), message.begin(), message.end());
}

std::array<std::byte, Seal::bytes> Seal::of(std::span<const std::byte> message) {
  ByteWriter count;
  count.number(count_++);
  const std::array<std::span<const std::byte>, 3> parts{count.bytes(), covered_, message};
  const std::array<std::byte, 32> hash = comm::keyed_hash(key_, parts);
  covered_.clear();
  std::array<std::byte, bytes> seal;
  std::copy_n(hash.begin(), seal.size(), seal.begin());
  return seal;
}

void append_head(Bytes& to, MessageType type, std::size_t bytes) {
  const auto length = static_cast<std::uint32_t>(bytes);
  for (std::size_t i = 0; i < sizeof length; ++i) to.push_back(std::byte(length >> (8 * i) & 0xff));
  to.push_back(static_cast<std::byte>(type));
}

void append_message(Bytes& to, MessageType type, std::span<const std::byte> body) {
  append_head(to, type, body.size());
  to.insert(to.end(), body.begin(), body.end());
}

std::optional<MessageHead> read_head(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto length = reader.number<std::uint32_t>();
  const auto type = reader.number<std::uint8_t>();
  if (!reader.good() || length > message_bytes_max || type > static_cast<std::uint8_t>(MessageType::last))
    return std::nullopt;
  return MessageHead{length, static_cast<MessageType>(type)};
}

std::optional<HelloStart> read_hello_start(std::span<const std::byte> body) {
  ByteReader reader(body);
  HelloStart start{reader.number<std::uint32_t>(), reader.text()};
  if (!reader.good()) return std::nullopt;
  for (char& c : start.version)
    if (c < ' ' || c > '~') c = '?';
  return start;
}

bool is_message(MessageType type, std::span<const std::byte> body) {
  const auto check = [body]<class... Message>(MessageType wanted) {
    bool good = false;
    static_cast<void>(((Message::type == wanted && ((good = decode<Message>(body).has_value()), true)) || ...));
    return good;
  };
  return check.
  operator()<Beat, Note, Hello, SpeedIs, WantFiles, Prepared, Ready, Cannot, OutputPiece, Flush, EndedCell, Warning,
             WantInput, FindProgram, Finished, Answer, Refused, MeasureSpeed, Prepare, Transfer, Plan, Go, Written,
             InputPiece, Stop, ProgramIs, Leave, Ask, ToldToEnd, Welcome, Probe, Probed>(type);
}

}  // namespace aplib::launch::wire
