// SPDX-License-Identifier: MIT
// CellOS messages between cells and the host: send, broadcast, receive, probe, and what is known of the last message.
// On lines (xy_send and its relatives) a displacement names the other cell, and the task has the caller's own id. Lines
// have a matching space of their own.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "cellos/check.hpp"

using namespace aplib;
using namespace aplib::cellos;

namespace {

// ---- what sends return

/// The one failure that a CellOS program can hear of is "no memory": it gets 0, and a line on stderr tells the user.
template <class Send>
int one_unless_exhausted(const char* call, Send&& send) {
  try {
    send();
    return 1;
  } catch (const Error& error) {
    if (error.code() != Errc::exhausted) throw;
    api::warn(call, error.what());
  } catch (const std::bad_alloc&) {
    api::warn(call, "no memory for the message; it was not sent");
  }
  return 0;
}

// ---- the message a task last received, as CellOS sees it: one per task, readable until the next receive

[[gnu::cold, gnu::noinline]] void tell_cut(const char* call, std::size_t bytes, std::size_t room) {
  api::debug(call, fmt::format("the message has {} bytes, the buffer {}: the rest is not copied", bytes, room));
}

/// Waits for a message and returns its body, which belongs to the system; null when `until_cells_end` and nothing
/// can come any more. Switches tasks: yes.
void* receive_body(const Caller& caller, const From& from, api::Space space, bool until_cells_end = false) {
  api::CellosState& state = note(caller);
  state.readable = false;  // also when the receive fails: its first act is to give the old message back
  if (api::receive(caller.call, state.message, from, space, until_cells_end) == api::Received::closed) return nullptr;
  state.last = state.message.envelope();
  state.readable = true;
  return state.message.data();
}

/// Waits for a message and stores what fits of it. Returns the bytes stored. Switches tasks: yes.
int receive_stored(const Caller& caller, std::span<std::byte> buffer, const From& from, api::Space space) {
  api::CellosState& state = note(caller);
  state.readable = false;  // readmsg speaks of the last message, and that one is in the caller's hands
  state.last = api::receive_into(caller.call, buffer, from, space, true);
  return int(state.last.bytes);
}

/// Copies what fits of the last message. Requires: it is readable.
int read_last(const char* call, std::span<std::byte> buffer) {
  const auto body = api::cellos_state(call).message.bytes();
  const std::size_t bytes = std::min(body.size(), buffer.size());
  if (bytes < body.size()) [[unlikely]]
    tell_cut(call, body.size(), buffer.size());
  if (bytes > 0) std::memcpy(buffer.data(), body.data(), bytes);
  return int(bytes);
}

const Envelope& last(const char* call) {
  const Envelope& last = api::cellos_state(call).last;
  if (last.source == any_cell) [[unlikely]] {
    api::fail(Errc::bad_argument, call, "no message was received yet; call it after a receive");
  }
  return last;
}

}  // namespace

int l_asend(int cid, int tid, int type, const void* buf, int size) {
  constexpr const char* call = "l_asend";
  const CellId cell = destination(call, cid);
  const To to = label(call, cid, tid, type);
  const auto bytes = source(call, buf, size);
  return one_unless_exhausted(call, [&] { api::send(call, cell, bytes, to, api::Space::plain); });
}

int l_rsend(int cid, int tid, int type, const void* buf, int size) {
  constexpr const char* call = "l_rsend";
  const CellId cell = destination(call, cid);
  const To to = label(call, cid, tid, type);
  const auto bytes = source(call, buf, size);
  return one_unless_exhausted(call, [&] { api::send(call, cell, bytes, to, api::Space::plain); });
}

int cscatter(int tid, int type, const void* buf, int size) {
  constexpr const char* call = "cscatter";
  require_host(call);
  const To to = label(call, 0, tid, type);
  const auto piece = source(call, buf, size);
  return one_unless_exhausted(call, [&] {
    for (std::uint32_t cid = 0; cid < api::grid(call).count(); ++cid)
      api::send(call, CellId{cid}, {piece.data() + cid * piece.size(), piece.size()}, to, api::Space::plain);
  });
}

int cgather(int tid, int type, void* buf, int size) {
  const Caller caller = APLIB_CALLER("cgather");
  require_host(caller.call);
  const auto piece = target(caller.call, buf, size);
  const std::uint32_t cells = api::grid(caller.call).count();
  for (std::uint32_t cid = 0; cid < cells; ++cid) {
    note(caller);
    const From from = sender(caller.call, int(cid), tid, type);
    api::receive_into(caller.call, {piece.data() + cid * piece.size(), piece.size()}, from, api::Space::plain);
  }
  return 1;
}

int h_send(int type, const void* buf, int size) {
  constexpr const char* call = "h_send";
  require_host_program(call);
  check_type(call, type);
  const auto bytes = source(call, buf, size);
  const To to{.task = TaskId{0}, .type = type};
  return one_unless_exhausted(call, [&] { api::send(call, this_machine::host_cell(), bytes, to, api::Space::plain); });
}

int cbroad(int tid, int type, const void* buf, int size) {
  constexpr const char* call = "cbroad";
  const To to = label(call, 0, tid, type);
  const auto bytes = source(call, buf, size);
  const CellId self = api::cell_id(call);
  const std::uint32_t cells = api::grid(call).count();
  return one_unless_exhausted(call, [&] {
    for (std::uint32_t cid = 0; cid < cells; ++cid) {
      if (CellId{cid} != self) api::send(call, CellId{cid}, bytes, to, api::Space::plain);
    }
  });
}

void* l_arecv(int cid, int tid, int type) {
  return receive_body(APLIB_CALLER("l_arecv"), sender("l_arecv", cid, tid, type), api::Space::plain);
}

void* crecv(void) { return receive_body(APLIB_CALLER("crecv"), From{}, api::Space::plain, api::on_host("crecv")); }

void* h_recv(int type) {
  constexpr const char* call = "h_recv";
  require_host_program(call);
  if (type != ANY_TYPE) check_type(call, type);
  const From from{.cell = this_machine::host_cell(), .task = any_task, .type = type};
  return receive_body(APLIB_CALLER(call), from, api::Space::plain);
}

int crecvs(void* buf, int size) {
  const auto buffer = target("crecvs", buf, size);
  if (receive_body(APLIB_CALLER("crecvs"), From{}, api::Space::plain, api::on_host("crecvs")) == nullptr) return 0;
  return read_last("crecvs", buffer);
}

int readmsg(void* buf, int size) {
  constexpr const char* call = "readmsg";
  const auto buffer = target(call, buf, size);
  if (!api::cellos_state(call).readable) [[unlikely]] {
    api::fail(Errc::bad_argument, call,
              "there is no message to read; call it after l_arecv, crecv, h_recv or xy_recv (xy_recvs has stored its "
              "message already)");
  }
  return read_last(call, buffer);
}

int getmcid(void) { return int(index(last("getmcid").source)); }
int getmtid(void) { return int(index(last("getmtid").source_task)); }
int getmtype(void) { return last("getmtype").type; }
int getmlen(void) { return int(last("getmlen").bytes); }

int cprobe(void) { return api::probe("cprobe", From{}, api::Space::plain) ? 1 : 0; }

int l_aqrecv(int cid, int tid, int type) {
  return api::probe("l_aqrecv", sender("l_aqrecv", cid, tid, type), api::Space::plain) ? 1 : 0;
}

// ---------------------------------------------------------------- lines

namespace {

/// (from + by) on a ring of `count` places.
std::uint32_t around(std::uint32_t from, int by, std::uint32_t count) {
  std::int64_t place = std::int64_t{from} + by;
  if (place >= 0 && place < count) return std::uint32_t(place);  // the neighbours of most cells: no division
  place %= std::int64_t{count};
  return std::uint32_t(place < 0 ? place + count : place);
}

CellId neighbour(const char* call, int dx, int dy) {
  require_cell(call);
  const Grid grid = this_machine::grid();
  return CellId{around(this_cell::x(), dx, grid.nx) + around(this_cell::y(), dy, grid.ny) * grid.nx};
}

int send_on_line(const char* call, int dx, int dy, int type, const void* buf, int size) {
  const CellId cell = neighbour(call, dx, dy);
  check_type(call, type);
  const auto bytes = source(call, buf, size);
  return one_unless_exhausted(
      call, [&] { api::send(call, cell, bytes, {.task = this_task::id(), .type = type}, api::Space::line); });
}

From from_line(const char* call, int dx, int dy, int type) {
  if (type != ANY_TYPE) check_type(call, type);
  return {.cell = neighbour(call, dx, dy), .task = any_task, .type = type};
}

int receive_on_line(const Caller& caller, int dx, int dy, int type, void* buf, int size) {
  const auto buffer = target(caller.call, buf, size);
  return receive_stored(caller, buffer, from_line(caller.call, dx, dy, type), api::Space::line);
}

}  // namespace

int xy_send(int dx, int dy, int type, const void* buf, int size) {
  return send_on_line("xy_send", dx, dy, type, buf, size);
}
int x_send(int dx, int type, const void* buf, int size) { return send_on_line("x_send", dx, 0, type, buf, size); }
int y_send(int dy, int type, const void* buf, int size) { return send_on_line("y_send", 0, dy, type, buf, size); }

int xy_recvs(int dx, int dy, int type, void* buf, int size) {
  return receive_on_line(APLIB_CALLER("xy_recvs"), dx, dy, type, buf, size);
}
int x_recvs(int dx, int type, void* buf, int size) {
  return receive_on_line(APLIB_CALLER("x_recvs"), dx, 0, type, buf, size);
}
int y_recvs(int dy, int type, void* buf, int size) {
  return receive_on_line(APLIB_CALLER("y_recvs"), 0, dy, type, buf, size);
}

void* xy_recv(int dx, int dy, int type) {
  return receive_body(APLIB_CALLER("xy_recv"), from_line("xy_recv", dx, dy, type), api::Space::line);
}
void* x_recv(int dx, int type) {
  return receive_body(APLIB_CALLER("x_recv"), from_line("x_recv", dx, 0, type), api::Space::line);
}
void* y_recv(int dy, int type) {
  return receive_body(APLIB_CALLER("y_recv"), from_line("y_recv", 0, dy, type), api::Space::line);
}
