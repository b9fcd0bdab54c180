// SPDX-License-Identifier: MIT
#include "launch/wire/protocol.hpp"

#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::wire {

void append_message(Bytes& to, MessageType type, std::span<const std::byte> body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  for (std::size_t i = 0; i < sizeof length; ++i) to.push_back(std::byte(length >> (8 * i) & 0xff));
  to.push_back(static_cast<std::byte>(type));
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
  return check.operator()<Beat, Note, Hello, SpeedIs, WantFile, Prepared, Ready, Cannot, OutputPiece, Flush, EndedCell,
                          Warning, WantInput, FindProgram, Finished, Answer, Refused, MeasureSpeed, Prepare, FilePiece,
                          Plan, Go, Written, InputPiece, Stop, ProgramIs, Leave, Ask, ToldToEnd>(type);
}

}  // namespace aplib::launch::wire
