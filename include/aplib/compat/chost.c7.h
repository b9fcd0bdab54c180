/* SPDX-License-Identifier: MIT */
/* Historical header of a CellOS host program. Compile old sources with -I<prefix>/include/aplib/compat.
 *
 * A host program may be called host_main or main (source: the known programs do both); main becomes host_main here,
 * because aplib::cellos_main brings the real main. Define APLIB_KEEP_MAIN before to keep your own. */
#ifndef APLIB_COMPAT_CHOST_C7_H
#define APLIB_COMPAT_CHOST_C7_H

#ifndef APLIB_NO_PUT_GET
#define APLIB_NO_PUT_GET /* The AP1000 had neither, and its programs have functions of these names. */
#endif
#include "../cellos.h"
#include "gettid.h"

#if !defined(main) && !defined(APLIB_KEEP_MAIN)
#define main host_main
#endif

#endif /* APLIB_COMPAT_CHOST_C7_H */
