/* SPDX-License-Identifier: MIT */
/* A function of C whose frame nobody can unwind. */
void call_opaquely(void (*function)(void));
void call_opaquely(void (*function)(void)) { function(); }
