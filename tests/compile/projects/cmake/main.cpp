// SPDX-License-Identifier: MIT
#include <iostream>

extern "C" int from_library, from_archive;
int own = 3;

int main() {
  std::cout << "library " << from_library << ", archive " << from_archive << ", program " << own << std::endl;
}
