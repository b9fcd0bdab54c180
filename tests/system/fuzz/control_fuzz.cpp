// SPDX-License-Identifier: MIT
// Control messages of whoever has proved the key. An input is a stream of them. Each is decoded to what encodes to the
// same bytes again, or to nothing; what the launcher reads inside of fields does no harm either.
#include <algorithm>
#include <type_traits>

#include "comm/mixed/mixed_port.hpp"
#include "fuzzer.hpp"
#include "launch/ctl/status.hpp"
#include "launch/wire/endpoint.hpp"
#include "launch/wire/protocol.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"
#include "launch/wire/status.hpp"

namespace aplib::fuzz {
namespace {

namespace wire = launch::wire;

void use(const wire::Plan& plan) {
  std::uint32_t cells = 0;
  for (std::uint32_t process = 0; process < plan.cells.processes(); ++process) {
    for (const std::uint32_t cell : plan.cells.cells_of(process))
      promise(plan.cells.process_of(cell) == process, "cells belong to the process that carries them");
    cells += static_cast<std::uint32_t>(plan.cells.cells_of(process).size());
    promise(!plan.cells.text(process).empty(), "each process's cells have a text");
  }
  promise(cells == plan.cells.cells(), "each cell has one process");
}

void use(const wire::Prepared& prepared) {
  for (const auto& each : comm::mixed::split_endpoints(prepared.endpoint))
    promise(comm::mixed::endpoint_of(prepared.endpoint, each.module).size() <= prepared.endpoint.size(),
            "an endpoint is a part of the list");
  (void)wire::parse_endpoint(wire::address_of(prepared.endpoint));
}

void use(const wire::Answer& answer) {
  wire::MachineStatus status;
  if (const auto node = wire::decode<wire::NodeState>(answer.bytes)) status.processes.push_back({.node = *node});
  if (const auto machine = wire::decode<wire::MachineStatus>(answer.bytes)) status = *machine;
  promise(!launch::ctl::job_status_text(7, status).empty(), "a status has a text");
  promise(!launch::ctl::job_list_text({{7, status}}).empty(), "a list has a text");
}

template <class Message>
void use(const Message&) {}

template <class... Message>
void try_message(wire::MessageType type, std::span<const std::byte> body) {
  bool good = false;
  const auto try_as = [&]<class Each>(const std::optional<Each>& message) {
    if (!message) return;
    good = true;
    const wire::Bytes again = wire::encode(*message);
    if constexpr (std::is_same_v<Each, wire::Plan>) {  // a map's neighbours of one process may be one or several
      const auto same = wire::decode<wire::Plan>(again);
      promise(same && same->cells == message->cells && wire::encode(*same) == again, "a plan is what it was");
    } else {
      promise(std::ranges::equal(again, body), "what was decoded encodes to the same bytes");
    }
    use(*message);
  };
  static_cast<void>(((Message::type == type && (try_as(wire::decode<Message>(body)), true)) || ...));
  promise(good == wire::is_message(type, body), "is_message() and decode() agree");
}

void try_stream(std::span<const std::byte> stream) {
  using namespace launch::wire;
  while (stream.size() >= message_head_bytes) {
    const auto head = read_head(stream);
    if (!head) return;
    promise(head->bytes <= message_bytes_max && head->type <= MessageType::last, "heads have limits");
    const auto body = stream.subspan(message_head_bytes, std::min(head->bytes, stream.size() - message_head_bytes));
    try_message<Beat, Note, Hello, SpeedIs, WantFiles, Prepared, Ready, Cannot, OutputPiece, Flush, EndedCell, Warning,
                WantInput, FindProgram, Finished, Answer, Refused, MeasureSpeed, Prepare, Transfer, Plan, Go, Written,
                InputPiece, Stop, ProgramIs, Leave, Ask, ToldToEnd>(head->type, body);
    if (const auto start = read_hello_start(body)) {
      for (const char c : start->version) promise(c >= ' ' && c <= '~', "versions can be printed");
    }
    stream = stream.subspan(message_head_bytes + body.size());
  }
}

wire::MachineStatus some_status() {
  wire::NodeState node{.module = "tcp", .frames_sent = 7, .routes = {{"shm", "0-3", ""}, {"tcp", "4", "2 streams"}}};
  constexpr std::uint32_t counts[] = {4, 4};
  return {.state = "running",
          .seconds = 61,
          .strangers = 1,
          .grid = {4, 2},
          .cells = CellMap::consecutive(counts),
          .file = "c.toml",
          .program = "./heat",
          .processes = {{"ws1", "one", 4711, "10.0.0.1:5100", "running", node}, {"ws2", "", 0, "", "", {}}}};
}

}  // namespace

std::vector<Input> seeds() {
  using namespace launch::wire;
  const Bytes piece = input_of("some bytes");
  const Bytes status = encode(some_status());
  const Bytes node = encode(some_status().processes[0].node);
  std::vector<Input> all;
  Input both;
  const auto add = [&]<class Message>(const Message& message) {
    append_message(all.emplace_back(), message);
    append_message(both, message);
  };
  Prepare prepare;
  prepare.options = {{"cells", "4x2"}, {"threads", "auto"}};
  prepare.files = {{"/p/heat", {"4f3a", 4711, 0}}, {"/p/libown.so", {"", 12, 99}}};
  prepare.programs = {{0, 0, "heat", {"--points", "300", ""}, "/data/%h", {{"OMP_NUM_THREADS", "2"}}},
                      {6, 1, "./own", {}, "", {}}};
  prepare.cpus = {0, 1, 5};
  prepare.transfers = {{0, TransferText::Kind::replace, "", 0}, {1, TransferText::Kind::fetch, "out*", 1 << 20}};
  Plan plan{"id", {"tcp=a:1", "shm=4f1c;tcp=b:2"}, CellMap(), {"a", "b"}};
  constexpr std::uint32_t counts[] = {2, 3, 0, 1};
  plan.cells = CellMap::consecutive(counts);
  add(Hello{control_version, "0.1.0", 3, "ws1", "boot", "10.0.0.1", 77, {0, 1}});
  add(MeasureSpeed{1, 2.0, "cmd", "auto", true, {1, 2}});
  add(SpeedIs{2.5, 4});
  add(prepare);
  add(WantFiles{own_transfers, {"/p/heat", "/p/libown.so"}});
  add(Transfer{3, piece});
  add(Prepared{"shm=4f1c;tcp=10.0.0.1:5100;rdma=[fe80::1]:7", {{"rdma", "no device"}}, "slow"});
  add(plan);
  add(Ready{});
  add(Go{});
  add(Note{true, piece});
  add(OutputPiece{7, true, piece});
  add(Flush{7, false});
  add(EndedCell{7, -1});
  add(Warning{"careful"});
  add(Written{9});
  add(WantInput{0, 1000});
  add(InputPiece{0, false, piece});
  add(FindProgram{"cell.so"});
  add(ProgramIs{"", {{"/p/cell", {"ab", 1, 0}}}});
  add(Ask{7, "state"});
  add(Answer{7, status});
  add(Answer{7, node});
  add(ToldToEnd{15});
  add(Finished{3, "why", {0, 3, 0}});
  add(Cannot{"no"});
  add(Refused{"no"});
  add(Stop{});
  add(Leave{});
  add(Beat{});
  all.push_back(both);
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  aplib::fuzz::try_stream(std::as_bytes(std::span(data, size)));
  return 0;
}
