// SPDX-License-Identifier: MIT
// How much memory an instance has taken from the heap: LoadOptions::account_heap.
//
// Where the memory lies: docs/loader.md, "The heap". Counted is what code of the program's own images takes
// (malloc, new, strdup, getline and their kin), and given back when such code frees it. Shared libraries take and
// free memory uncounted: what they free for the program counts until its address is handed out again.
#pragma once

#include <cstdint>

namespace aplib::loader {
class Instance;
}  // namespace aplib::loader

namespace aplib::loader::libc {

struct HeapUse {
  std::int64_t bytes = 0;   ///< Held now, as the heap rounds sizes up.
  std::int64_t blocks = 0;  ///< Held now.
  std::int64_t peak = 0;    ///< The most bytes ever held.
  std::uint64_t calls = 0;  ///< That took memory, so far.
};

/// All zero unless the program was loaded with account_heap. Call from: any thread while the instance lives.
HeapUse heap_use(Instance& instance);

}  // namespace aplib::loader::libc
