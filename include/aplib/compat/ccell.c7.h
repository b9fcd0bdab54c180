/* SPDX-License-Identifier: MIT */
/* Historical header of a CellOS cell program. Compile old sources with -I<prefix>/include/aplib/compat.
  * A cell program may be called cell_main or main. This header turns main into cell_main, because aplib::cellos_main
 * has the real main. Such a main gets argc = 1 and the program's name, because CellOS passes no arguments to cells.
 * Define APLIB_KEEP_MAIN before the header to keep your own main. */
#ifndef APLIB_COMPAT_CCELL_C7_H
#define APLIB_COMPAT_CCELL_C7_H

#ifndef APLIB_NO_PUT_GET
#define APLIB_NO_PUT_GET /* The AP1000 had neither, and its programs use these names for functions. */
#endif
#include "../cellos.h"
#include "gettid.h"

#if !defined(main) && !defined(APLIB_KEEP_MAIN)
#define main cell_main
#endif

#endif /* APLIB_COMPAT_CCELL_C7_H */
