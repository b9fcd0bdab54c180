// SPDX-License-Identifier: MIT
// CellOS line messages (xy_send and kin): the other cell is named by its displacement, the other task by one's own id. They have
// a matching space of their own.
#include <cstdint>

#include "cellos/check.hpp"
#include "cellos/receive.hpp"
#include "cellos/send.hpp"

using namespace aplib;
using namespace aplib::cellos;

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

int send(const char* call, int dx, int dy, int type, const void* buf, int size) {
  const CellId cell = neighbour(call, dx, dy);
  check_type(call, type);
  const auto bytes = source(call, buf, size);
  return one_unless_exhausted(
      call, [&] { face::send(call, cell, bytes, {.task = this_task::id(), .type = type}, face::Space::line); });
}

From from(const char* call, int dx, int dy, int type) {
  if (type != ANY_TYPE) check_type(call, type);
  return {.cell = neighbour(call, dx, dy), .task = any_task, .type = type};
}

int receive(const char* call, int dx, int dy, int type, void* buf, int size) {
  const auto buffer = target(call, buf, size);
  return receive_stored(call, buffer, from(call, dx, dy, type), face::Space::line);
}

}  // namespace

int xy_send(int dx, int dy, int type, const void* buf, int size) { return send("xy_send", dx, dy, type, buf, size); }
int x_send(int dx, int type, const void* buf, int size) { return send("x_send", dx, 0, type, buf, size); }
int y_send(int dy, int type, const void* buf, int size) { return send("y_send", 0, dy, type, buf, size); }

int xy_recvs(int dx, int dy, int type, void* buf, int size) { return receive("xy_recvs", dx, dy, type, buf, size); }
int x_recvs(int dx, int type, void* buf, int size) { return receive("x_recvs", dx, 0, type, buf, size); }
int y_recvs(int dy, int type, void* buf, int size) { return receive("y_recvs", 0, dy, type, buf, size); }

void* xy_recv(int dx, int dy, int type) {
  return receive_body("xy_recv", from("xy_recv", dx, dy, type), face::Space::line);
}
void* x_recv(int dx, int type) { return receive_body("x_recv", from("x_recv", dx, 0, type), face::Space::line); }
void* y_recv(int dy, int type) { return receive_body("y_recv", from("y_recv", 0, dy, type), face::Space::line); }
