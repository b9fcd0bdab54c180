// SPDX-License-Identifier: MIT
// CellOS collectives and the status network: x_ is the caller's row, y_ its column, xy_ all cells.
#include <fmt/format.h>

#include <span>

#include "cellos/check.hpp"

using namespace aplib;
using namespace aplib::cellos;

namespace {

constexpr Scope row = Scope::row;
constexpr Scope column = Scope::column;
constexpr Scope all = Scope::all;

template <class T>
int combine(const Caller& caller, ReduceOp op, T value, T* result, Scope scope) {
  const char* const call = caller.call;
  require_cell(call);
  note(caller);
  if (result == nullptr) [[unlikely]]
    fail_null(call, "result");
  *result = api::reduce(call, op, value, scope);
  return 1;
}

template <class T>
int locate(const Caller& caller, ReduceOp op, T value, int id, T* best, int* best_id, Scope scope) {
  const char* const call = caller.call;
  require_cell(call);
  note(caller);
  if (best == nullptr) [[unlikely]]
    fail_null(call, op == ReduceOp::max ? "max" : "min");
  if (best_id == nullptr) [[unlikely]]
    fail_null(call, op == ReduceOp::max ? "max_id" : "min_id");
  const Located<T> found = api::reduce(call, op, Located<T>{value, id}, scope);
  *best = found.value;
  *best_id = found.location;
  return 1;
}

int broadcast(const Caller& caller, CellId root, void* buf, int size, Scope scope) {
  note(caller);
  api::broadcast(caller.call, root, target(caller.call, buf, size), scope);
  return 1;
}

/// Programs wait for the others in loops of cstat(): every 16th look lets the tasks that share the thread run.
int read_status(const char* call) {
  constexpr unsigned looks = 16;
  if (++api::cellos_state(call).status_reads % looks == 0) this_task::yield();
  return status::combined();
}

}  // namespace

int xy_brd(int root, void* buf, int size) {
  require_cell("xy_brd");
  return broadcast(APLIB_CALLER("xy_brd"), destination("xy_brd", root), buf, size, all);
}

// Nobody knows whether the root of x_brd and y_brd is a coordinate or a cid, so both are taken. A number that is both
// means the same cell in row 0 for x_brd. For y_brd it is a coordinate: a cid below ncely is of the caller's column
// only by chance.
int x_brd(int root, void* buf, int size) {
  constexpr const char* call = "x_brd";
  require_cell(call);
  const Grid grid = this_machine::grid();
  const std::uint32_t first = this_cell::y() * grid.nx;
  const auto place = std::uint32_t(root);
  if (root >= 0 && place < grid.nx) return broadcast(APLIB_CALLER(call), CellId{first + place}, buf, size, row);
  if (root >= 0 && place >= first && place < first + grid.nx)
    return broadcast(APLIB_CALLER(call), CellId{place}, buf, size, row);
  api::fail(Errc::bad_argument, call,
            fmt::format("root {} is neither an x coordinate (0..{}) nor a cell of row {} ({}..{})", root, grid.nx - 1,
                        this_cell::y(), first, first + grid.nx - 1));
}

int y_brd(int root, void* buf, int size) {
  constexpr const char* call = "y_brd";
  require_cell(call);
  const Grid grid = this_machine::grid();
  const std::uint32_t x = this_cell::x();
  const auto place = std::uint32_t(root);
  if (root >= 0 && place < grid.ny)
    return broadcast(APLIB_CALLER(call), CellId{x + place * grid.nx}, buf, size, column);
  if (root >= 0 && place < grid.count() && place % grid.nx == x) {
    return broadcast(APLIB_CALLER(call), CellId{place}, buf, size, column);
  }
  api::fail(Errc::bad_argument, call,
            fmt::format("root {} is neither a y coordinate (0..{}) nor a cell of column {} ({}, {}, .. {})", root,
                        grid.ny - 1, x, x, x + grid.nx, x + (grid.ny - 1) * grid.nx));
}

int xy_isum(int value, int* result) { return combine(APLIB_CALLER("xy_isum"), ReduceOp::sum, value, result, all); }
int xy_fsum(float value, float* result) { return combine(APLIB_CALLER("xy_fsum"), ReduceOp::sum, value, result, all); }
int xy_dsum(double value, double* result) {
  return combine(APLIB_CALLER("xy_dsum"), ReduceOp::sum, value, result, all);
}
int x_isum(int value, int* result) { return combine(APLIB_CALLER("x_isum"), ReduceOp::sum, value, result, row); }
int x_fsum(float value, float* result) { return combine(APLIB_CALLER("x_fsum"), ReduceOp::sum, value, result, row); }
int x_dsum(double value, double* result) { return combine(APLIB_CALLER("x_dsum"), ReduceOp::sum, value, result, row); }
int y_isum(int value, int* result) { return combine(APLIB_CALLER("y_isum"), ReduceOp::sum, value, result, column); }
int y_fsum(float value, float* result) { return combine(APLIB_CALLER("y_fsum"), ReduceOp::sum, value, result, column); }
int y_dsum(double value, double* result) {
  return combine(APLIB_CALLER("y_dsum"), ReduceOp::sum, value, result, column);
}

// The f calls with doubles: see cellos_reductions.h.
int cellos_xy_fsum(double value, double* result) {
  return combine(APLIB_CALLER("xy_fsum"), ReduceOp::sum, value, result, all);
}
int cellos_x_fsum(double value, double* result) {
  return combine(APLIB_CALLER("x_fsum"), ReduceOp::sum, value, result, row);
}
int cellos_y_fsum(double value, double* result) {
  return combine(APLIB_CALLER("y_fsum"), ReduceOp::sum, value, result, column);
}
int cellos_xy_fmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("xy_fmax"), ReduceOp::max, value, id, max, max_id, all);
}
int cellos_x_fmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("x_fmax"), ReduceOp::max, value, id, max, max_id, row);
}
int cellos_y_fmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("y_fmax"), ReduceOp::max, value, id, max, max_id, column);
}
int cellos_xy_fmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("xy_fmin"), ReduceOp::min, value, id, min, min_id, all);
}
int cellos_x_fmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("x_fmin"), ReduceOp::min, value, id, min, min_id, row);
}
int cellos_y_fmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("y_fmin"), ReduceOp::min, value, id, min, min_id, column);
}

int xy_imax(int value, int id, int* max, int* max_id) {
  return locate(APLIB_CALLER("xy_imax"), ReduceOp::max, value, id, max, max_id, all);
}
int xy_fmax(float value, int id, float* max, int* max_id) {
  return locate(APLIB_CALLER("xy_fmax"), ReduceOp::max, value, id, max, max_id, all);
}
int xy_dmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("xy_dmax"), ReduceOp::max, value, id, max, max_id, all);
}
int x_imax(int value, int id, int* max, int* max_id) {
  return locate(APLIB_CALLER("x_imax"), ReduceOp::max, value, id, max, max_id, row);
}
int x_fmax(float value, int id, float* max, int* max_id) {
  return locate(APLIB_CALLER("x_fmax"), ReduceOp::max, value, id, max, max_id, row);
}
int x_dmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("x_dmax"), ReduceOp::max, value, id, max, max_id, row);
}
int y_imax(int value, int id, int* max, int* max_id) {
  return locate(APLIB_CALLER("y_imax"), ReduceOp::max, value, id, max, max_id, column);
}
int y_fmax(float value, int id, float* max, int* max_id) {
  return locate(APLIB_CALLER("y_fmax"), ReduceOp::max, value, id, max, max_id, column);
}
int y_dmax(double value, int id, double* max, int* max_id) {
  return locate(APLIB_CALLER("y_dmax"), ReduceOp::max, value, id, max, max_id, column);
}

int xy_imin(int value, int id, int* min, int* min_id) {
  return locate(APLIB_CALLER("xy_imin"), ReduceOp::min, value, id, min, min_id, all);
}
int xy_fmin(float value, int id, float* min, int* min_id) {
  return locate(APLIB_CALLER("xy_fmin"), ReduceOp::min, value, id, min, min_id, all);
}
int xy_dmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("xy_dmin"), ReduceOp::min, value, id, min, min_id, all);
}
int x_imin(int value, int id, int* min, int* min_id) {
  return locate(APLIB_CALLER("x_imin"), ReduceOp::min, value, id, min, min_id, row);
}
int x_fmin(float value, int id, float* min, int* min_id) {
  return locate(APLIB_CALLER("x_fmin"), ReduceOp::min, value, id, min, min_id, row);
}
int x_dmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("x_dmin"), ReduceOp::min, value, id, min, min_id, row);
}
int y_imin(int value, int id, int* min, int* min_id) {
  return locate(APLIB_CALLER("y_imin"), ReduceOp::min, value, id, min, min_id, column);
}
int y_fmin(float value, int id, float* min, int* min_id) {
  return locate(APLIB_CALLER("y_fmin"), ReduceOp::min, value, id, min, min_id, column);
}
int y_dmin(double value, int id, double* min, int* min_id) {
  return locate(APLIB_CALLER("y_dmin"), ReduceOp::min, value, id, min, min_id, column);
}

int xy_ior(int value, int* result) { return combine(APLIB_CALLER("xy_ior"), ReduceOp::bit_or, value, result, all); }
int xy_iand(int value, int* result) { return combine(APLIB_CALLER("xy_iand"), ReduceOp::bit_and, value, result, all); }
int xy_ixor(int value, int* result) { return combine(APLIB_CALLER("xy_ixor"), ReduceOp::bit_xor, value, result, all); }
int x_ior(int value, int* result) { return combine(APLIB_CALLER("x_ior"), ReduceOp::bit_or, value, result, row); }
int x_iand(int value, int* result) { return combine(APLIB_CALLER("x_iand"), ReduceOp::bit_and, value, result, row); }
int x_ixor(int value, int* result) { return combine(APLIB_CALLER("x_ixor"), ReduceOp::bit_xor, value, result, row); }
int y_ior(int value, int* result) { return combine(APLIB_CALLER("y_ior"), ReduceOp::bit_or, value, result, column); }
int y_iand(int value, int* result) { return combine(APLIB_CALLER("y_iand"), ReduceOp::bit_and, value, result, column); }
int y_ixor(int value, int* result) { return combine(APLIB_CALLER("y_ixor"), ReduceOp::bit_xor, value, result, column); }

int cellos_sync(int /*no*/, int stat) {
  const Caller caller = APLIB_CALLER("sync");
  require_cell(caller.call);
  note(caller);
  return api::barrier(caller.call, (stat & 1) != 0, all) ? 1 : 0;
}

// The cells meet; then cell 0 tells the host program, which tells all. In the kernel's space messages of type 0 are
// pieces of arrays.
int hsync(int /*no*/, int stat) {
  constexpr int type = 1;
  struct Met {
    TaskId task;  // of cell 0, and as in all collectives of the others
    int stat;
  };
  const Caller caller = APLIB_CALLER("hsync");
  note(caller);
  Message message;
  if (api::on_host(caller.call)) {
    api::receive(caller.call, message, {.cell = CellId{0}, .type = type}, api::Space::kernel);
    if (message.size() != sizeof(Met)) return 0;  // nothing was received: the machine stops
    const auto met = message.as<Met>();
    const int some = met.stat | (stat & 1);
    for (std::uint32_t cid = 0; cid < api::grid(caller.call).count(); ++cid) {
      api::send(caller.call, CellId{cid}, std::as_bytes(std::span(&some, 1)), {.task = met.task, .type = type},
                api::Space::kernel);
    }
    return some;
  }
  require_host_program(caller.call);
  const Met met{api::task_id(caller.call), api::barrier(caller.call, (stat & 1) != 0, all) ? 1 : 0};
  const CellId host = api::host_cell(caller.call);
  if (api::cell_id(caller.call) == CellId{0}) {
    api::send(caller.call, host, std::as_bytes(std::span(&met, 1)), {.task = TaskId{0}, .type = type},
              api::Space::kernel);
  }
  api::receive(caller.call, message, {.cell = host, .type = type}, api::Space::kernel);
  return message.size() == sizeof(int) ? message.as<int>() : 0;
}

int pstat(int stat) {
  require_cell("pstat");
  status::post(stat);
  return 0;
}

// 16 is what the AP1000 showed where the OR of the cells' bits was 1.
int cstat(void) { return (read_status("cstat") & 1) != 0 ? 16 : 0; }

int gstat(void) { return read_status("gstat"); }
