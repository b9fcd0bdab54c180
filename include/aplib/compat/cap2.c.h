/* SPDX-License-Identifier: MIT */
/* Historical header of the AP1000+ under AP/Linux. Compile old sources with -I<prefix>/include/aplib/compat.
 *
 * It declares what this version has: identity, messages, collectives, status, time. Not yet here: ap_init, put, get, amcheck. */
#ifndef APLIB_COMPAT_CAP2_C_H
#define APLIB_COMPAT_CAP2_C_H

#include "../cellos.h"

#endif /* APLIB_COMPAT_CAP2_C_H */
