/* SPDX-License-Identifier: MIT */
/* gettid() of CellOS beside that of glibc: a call means CellOS's, and a declaration gettid(void) stays glibc's, in
 * whichever order the headers are included. */
#ifndef APLIB_COMPAT_GETTID_H
#define APLIB_COMPAT_GETTID_H

#define gettid(...) APLIB_GETTID_##__VA_ARGS__()
#define APLIB_GETTID_() cellos_gettid()
#define APLIB_GETTID_void() gettid(void)

#endif /* APLIB_COMPAT_GETTID_H */
