/* SPDX-License-Identifier: MIT */
/* Symmetric memory, for programs that are linked with the library and use put and get. Include cellos.h, which explains
 * the words of the cards.
  *   struct entry* table = ap_malloc(1000 * sizeof *table);   the same address in each slot, if all cells call alike
  * On the AP1000+, malloc itself gave such memory. In programs that aprun loads it still does, so they need not change.
 * In a linked program, all cells share malloc. aplib/symmetric.hpp has the rules ("symmetric heap" is OpenSHMEM's
 * term). All functions are grade C. */
#ifndef APLIB_CELLOS_SYMMETRIC_H
#define APLIB_CELLOS_SYMMETRIC_H

#include "cellos.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like malloc, calloc, realloc and aligned_alloc, but in the calling cell's heap. NULL and ENOMEM when there is no
 * room. [host] [cell] */
APLIB_C_API void* ap_malloc(size_t bytes);
APLIB_C_API void* ap_calloc(size_t count, size_t bytes);
APLIB_C_API void* ap_realloc(void* memory, size_t bytes);
APLIB_C_API void* ap_aligned_alloc(size_t alignment, size_t bytes);
/* Frees such memory. NULL does nothing. [host] [cell] */
APLIB_C_API void ap_free(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* APLIB_CELLOS_SYMMETRIC_H */
