// SPDX-License-Identifier: MIT
// Two cells: a task of each waits deep inside functions of its own while cell 0 is at a breakpoint.
#include <aplib/aplib.hpp>
#include <cstdio>

namespace {

[[gnu::noinline]] int receive_from(unsigned cell) {
  return aplib::receive({.cell = aplib::CellId{cell}}).as<int>() + 1;
}

[[gnu::noinline]] int wait_for_answer(unsigned cell) {
  const int answer = receive_from(cell);
  return answer * 2;
}

}  // namespace

extern "C" [[gnu::noinline]] void stop_here() { asm(""); }

int main() {
  aplib::Machine machine;
  return machine
      .run([] {
        const unsigned me = index(aplib::this_cell::id());
        const unsigned other = 1 - me;
        aplib::barrier();
        auto waiting = aplib::spawn([other] { std::printf("%d\n", wait_for_answer(other)); });
        aplib::this_task::yield();
        aplib::barrier();
        if (me == 0) stop_here();
        aplib::send(aplib::CellId{other}, 20, aplib::To{.task = waiting.id()});
        waiting.join();
      })
      .exit_status;
}
