// SPDX-License-Identifier: MIT
// Cell 1 crashes on what cell 0 has sent, while cell 0 waits for the answer.
#include <aplib/aplib.hpp>

int received;
int* last_place;

void store(int number) {
  received = number;
  *last_place = number;  // never set
}

int ask(int number) {
  aplib::send(aplib::CellId{1}, number);
  return aplib::receive().as<int>();
}

int main() {
  if (index(aplib::this_cell::id()) == 0) return ask(43);
  store(aplib::receive().as<int>());
  aplib::send(aplib::CellId{0}, 0);
  return 0;
}
