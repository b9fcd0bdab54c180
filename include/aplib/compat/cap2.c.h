/* SPDX-License-Identifier: MIT */
/* Historical header of the AP1000+ under AP/Linux. Compile old sources with -I<prefix>/include/aplib/compat.
 *
 *   #include <unistd.h>
 *   #include <cap2.c.h>
 *   int main(void) { ap_init(); ... put(cid, &mine, sizeof mine, &mine, NULL, NULL, 0); ... } */
#ifndef APLIB_COMPAT_CAP2_C_H
#define APLIB_COMPAT_CAP2_C_H

#include "../cellos.h"
#include "../cellos_one_sided.h"

#endif /* APLIB_COMPAT_CAP2_C_H */
