/* SPDX-License-Identifier: MIT */
/* Historical header of a CellOS host program. Compile old sources with -I<prefix>/include/aplib/compat.
  * A host program may be called host_main or main (source: the known programs do both). This header turns main into
 * host_main, because aplib::cellos_main has the real main. Define APLIB_KEEP_MAIN before the header to keep your own
 * main. */
#ifndef APLIB_COMPAT_CHOST_C7_H
#define APLIB_COMPAT_CHOST_C7_H

#ifndef APLIB_NO_PUT_GET
#define APLIB_NO_PUT_GET /* The AP1000 had neither, and its programs use these names for functions. */
#endif
#include "../cellos.h"
#include "gettid.h"

#if !defined(main) && !defined(APLIB_KEEP_MAIN)
#define main host_main
#endif

#endif /* APLIB_COMPAT_CHOST_C7_H */
