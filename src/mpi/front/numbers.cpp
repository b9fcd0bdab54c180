// SPDX-License-Identifier: MIT
#include "mpi/front/numbers.hpp"

#include <mutex>
#include <set>

namespace aplib::mpi::front {

std::vector<int> converted(Convert convert, const int* values, long count) {
  std::vector<int> result(static_cast<std::size_t>(std::max(count, 0L)));
  if (values == nullptr) return result;
  std::transform(values, values + result.size(), result.begin(),
                 [convert](int value) { return static_cast<int>(convert(value)); });
  return result;
}

void convert_in_place(Convert convert, int* values, long count) {
  std::transform(values, values + std::max(count, 0L), values,
                 [convert](int value) { return static_cast<int>(convert(value)); });
}

int* place_of(int number) {
  static std::mutex mutex;
  static std::set<int> numbers;
  const std::lock_guard lock(mutex);
  return const_cast<int*>(&*numbers.insert(number).first);
}

}  // namespace aplib::mpi::front
