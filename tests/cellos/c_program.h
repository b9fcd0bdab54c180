/* SPDX-License-Identifier: MIT */
/* Cell programs in C, one source compiled in several ways (see c_program.c). They return 0, or the line of the check
 * that failed. */
#ifndef C_PROGRAM_H
#define C_PROGRAM_H

#ifdef __cplusplus
extern "C" {
#endif
int c_unistd_first(void);
int c_unistd_last(void);
int c_gnu89(void);
int c_compat_cell(void);
int c_compat_host(void);
int c_compat_cap2(void);
/* Errors and ends that pass through a C frame. */
void c_call(void (*function)(void));
#ifdef __cplusplus
}
#endif

#endif
