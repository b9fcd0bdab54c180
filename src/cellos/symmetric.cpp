// SPDX-License-Identifier: MIT
// Symmetric memory for CellOS programs that are linked with the library.
#include "aplib/symmetric.hpp"

#include <cerrno>

#include "aplib/cellos.h"
#include "kernel/face.hpp"

using namespace aplib;

void* ap_malloc(size_t bytes) { return face::symmetric_allocate("ap_malloc", bytes, symmetric_alignment); }

void* ap_calloc(size_t count, size_t bytes) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(count, bytes, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return face::symmetric_allocate("ap_calloc", whole, symmetric_alignment, true);
}

void* ap_realloc(void* memory, size_t bytes) {
  if (memory == nullptr || bytes != 0) return face::symmetric_resize("ap_realloc", memory, bytes);
  face::symmetric_free("ap_realloc", memory);
  return nullptr;
}

void* ap_aligned_alloc(size_t alignment, size_t bytes) {
  return face::symmetric_allocate("ap_aligned_alloc", bytes, alignment);
}

void ap_free(void* memory) { face::symmetric_free("ap_free", memory); }
