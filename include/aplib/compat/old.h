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

#endif /* APLIB_COMPAT_OLD_H */
