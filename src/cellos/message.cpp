// SPDX-License-Identifier: MIT
// CellOS messages between cells and host: send, broadcast, receive, probe, and what is known of the last message.
#include "cellos/check.hpp"
#include "cellos/receive.hpp"
#include "cellos/send.hpp"

using namespace aplib;
using namespace aplib::cellos;

namespace {

const Envelope& last(const char* call) {
  const Envelope& last = face::front().last;
  if (last.source == any_cell) [[unlikely]] {
    face::fail(Errc::bad_argument, call, "no message was received yet; call it after a receive");
  }
  return last;
}

}  // namespace

int l_asend(int cid, int tid, int type, const void* buf, int size) {
  constexpr const char* call = "l_asend";
  const CellId cell = destination(call, cid);
  const To to = label(call, cid, tid, type);
  const auto bytes = source(call, buf, size);
  return one_unless_exhausted(call, [&] { face::send(call, cell, bytes, to, face::Space::plain); });
}

int h_send(int type, const void* buf, int size) {
  constexpr const char* call = "h_send";
  require_host_program(call);
  check_type(call, type);
  const auto bytes = source(call, buf, size);
  const To to{.task = TaskId{0}, .type = type};
  return one_unless_exhausted(call,
                              [&] { face::send(call, this_machine::host_cell(), bytes, to, face::Space::plain); });
}

int cbroad(int tid, int type, const void* buf, int size) {
  constexpr const char* call = "cbroad";
  const To to = label(call, 0, tid, type);
  const auto bytes = source(call, buf, size);
  const CellId self = this_cell::id();
  const std::uint32_t cells = this_machine::cell_count();
  return one_unless_exhausted(call, [&] {
    for (std::uint32_t cid = 0; cid < cells; ++cid) {
      if (CellId{cid} != self) face::send(call, CellId{cid}, bytes, to, face::Space::plain);
    }
  });
}

void* l_arecv(int cid, int tid, int type) {
  return receive_body("l_arecv", sender("l_arecv", cid, tid, type), face::Space::plain);
}

void* crecv(void) { return receive_body("crecv", From{}, face::Space::plain, face::on_host()); }

void* h_recv(int type) {
  constexpr const char* call = "h_recv";
  require_host_program(call);
  if (type != ANY_TYPE) check_type(call, type);
  const From from{.cell = this_machine::host_cell(), .task = any_task, .type = type};
  return receive_body(call, from, face::Space::plain);
}

int crecvs(void* buf, int size) {
  const auto buffer = target("crecvs", buf, size);
  if (receive_body("crecvs", From{}, face::Space::plain, face::on_host()) == nullptr) return 0;
  return read_last(buffer);
}

int readmsg(void* buf, int size) {
  constexpr const char* call = "readmsg";
  const auto buffer = target(call, buf, size);
  if (!face::front().readable) [[unlikely]] {
    face::fail(Errc::bad_argument, call,
               "there is no message to read; call it after l_arecv, crecv, h_recv or xy_recv (xy_recvs has stored its "
               "message already)");
  }
  return read_last(buffer);
}

int getmcid(void) { return int(index(last("getmcid").source)); }
int getmtid(void) { return int(index(last("getmtid").source_task)); }
int getmtype(void) { return last("getmtype").type; }
int getmlen(void) { return int(last("getmlen").bytes); }

int cprobe(void) { return face::probe("cprobe", From{}, face::Space::plain) ? 1 : 0; }

int l_aqrecv(int cid, int tid, int type) {
  return face::probe("l_aqrecv", sender("l_aqrecv", cid, tid, type), face::Space::plain) ? 1 : 0;
}
