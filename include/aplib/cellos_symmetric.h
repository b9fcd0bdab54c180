/* SPDX-License-Identifier: MIT */
/* Symmetric memory, for programs that are linked with the library and use put and get; include cellos.h, whose cards'
 * words are used here.
 *
 *   struct entry* table = ap_malloc(1000 * sizeof *table);   the same address in each slot, if all cells ask alike
 *
 * On the AP1000+ malloc itself gave such memory, and so it does in programs that aprun loads: these need not change.
 * In a linked program malloc is shared by all cells. aplib/symmetric.hpp has the rules ("symmetric heap" is
 * OpenSHMEM's word). All C. */
#ifndef APLIB_CELLOS_SYMMETRIC_H
#define APLIB_CELLOS_SYMMETRIC_H

#include "cellos.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As malloc, calloc, realloc and aligned_alloc, in the calling cell's heap: NULL and ENOMEM when there is no room.
 * [host] [cell] */
APLIB_C_API void* ap_malloc(size_t bytes);
APLIB_C_API void* ap_calloc(size_t count, size_t bytes);
APLIB_C_API void* ap_realloc(void* memory, size_t bytes);
APLIB_C_API void* ap_aligned_alloc(size_t alignment, size_t bytes);
/* Gives such memory back; NULL is nothing. [host] [cell] */
APLIB_C_API void ap_free(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* APLIB_CELLOS_SYMMETRIC_H */
