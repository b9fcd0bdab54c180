/* SPDX-License-Identifier: MIT */
/* What apcc --old includes in front of each C source: CellOS's declarations, for programs that include none. A program
 * that declares functions of CellOS itself, or includes one of the historical headers after this, compiles as without
 * it. main keeps its name, and put and get are free for the program's own use. */
#ifndef APLIB_COMPAT_OLD_H
#define APLIB_COMPAT_OLD_H

#ifndef APLIB_NO_PUT_GET
#define APLIB_NO_PUT_GET
#include "../cellos.h"
#undef APLIB_NO_PUT_GET
#else
#include "../cellos.h"
#endif
#include "gettid.h"

/* Old programs keep pointers in ints. By this aprun knows that what they point to must lie below 2 GiB. */
extern const char aplib_low_memory __attribute__((weak, visibility("default")));
const char aplib_low_memory = 1;

#endif /* APLIB_COMPAT_OLD_H */
