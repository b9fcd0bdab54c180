// SPDX-License-Identifier: MIT
#include "cellos/check.hpp"

#include <fmt/format.h>

namespace aplib::cellos {

void fail_cell(const char* call, int cid) {
  const Grid grid = this_machine::grid();
  api::fail(Errc::bad_argument, call,
            fmt::format("there is no cell {}; the machine has cells 0..{} ({}x{}) and the host is {}", cid,
                        grid.count() - 1, grid.nx, grid.ny, index(this_machine::host_cell())));
}

void fail_task(const char* call, int tid) {
  api::fail(Errc::bad_argument, call,
            fmt::format("{} is no task id; tasks are 0..{}{}", tid, task_id_max,
                        tid == ANY_TASK ? ", and ANY_TASK is for receives" : ""));
}

void fail_type(const char* call, int type) {
  api::fail(Errc::bad_argument, call,
            fmt::format("{} is no message type; types are 0..{}{}", type, message_type_max,
                        type == ANY_TYPE ? ", and ANY_TYPE is for receives" : ""));
}

void fail_buffer(const char* call, int size) {
  if (size < 0) api::fail(Errc::bad_argument, call, fmt::format("size is {}; give a number of bytes, 0 or more", size));
  api::fail(Errc::bad_argument, call,
            fmt::format("the buffer is NULL but size is {}; give the address of that many bytes, or size 0", size));
}

void fail_null(const char* call, const char* what) {
  api::fail(Errc::bad_argument, call, fmt::format("{} is NULL; give the address of a variable", what));
}

void require_cell(const char* call) {
  if (api::on_host(call)) [[unlikely]] {
    api::fail(Errc::bad_argument, call, "only cells can call it; the host program has no place in the grid");
  }
}

void require_host_program(const char* call) {
  require_cell(call);
  if (!api::has_host(call)) [[unlikely]] {
    api::fail(
        Errc::bad_argument, call,
        "this program has no host half; define host_main and link aplib::cellos_main, or use l_asend and l_arecv");
  }
}

void require_host(const char* call) {
  if (!api::on_host(call)) [[unlikely]] {
    api::fail(Errc::bad_argument, call, "only the host program can call it, in host_main");
  }
}

}  // namespace aplib::cellos
