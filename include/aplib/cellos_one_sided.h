/* SPDX-License-Identifier: MIT */
/* One-sided communication of the AP1000+, part of the CellOS interface; include cellos.h, whose cards' words are used
 * here. docs/one-sided.md has the rules.
 *
 *   static struct entry table[1000];
 *   static int arrived;
 *   get(owner, &mine, sizeof mine, &table[i], &arrived, NULL);
 *   amcheck(&arrived, 1);
 *
 * Remote memory is named by the caller's own address of the same object: a global of a loaded program, a stack
 * variable, symmetric memory. Local memory and local flags may lie anywhere. Flags are counters: each transfer raises
 * them by one; NULL is none. Size 0 moves nothing and raises the flags. `cid` may be the caller's own. What a cell
 * does to another cell's memory happens in the order of its calls. Return 1. [cell]
 *
 * put and get are names that many programs have themselves. The library's symbols are cellos_put and cellos_get; a
 * program with functions of its own called put or get defines APLIB_NO_PUT_GET before this header. The headers of the
 * AP1000, which had neither, do so. */
#ifndef APLIB_CELLOS_ONE_SIDED_H
#define APLIB_CELLOS_ONE_SIDED_H

#include "cellos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copy `size` bytes to the target's memory. Returns before they are there. recv_flag: the target's, raised behind the
 * data; send_flag: the caller's, raised when the source may be changed (NULL: it may be changed at return, which
 * costs large transfers a copy). ack other than 0: amackwait waits for it, too. Order of the flags B, the rest A */
APLIB_C_API int cellos_put(int cid, const void* local, int size, void* remote, volatile int* recv_flag,
                           volatile int* send_flag, int ack);
/* The same with the flags in the other order: what put is where APLIB_PUT_LOCAL_FLAG_FIRST is defined. */
APLIB_C_API int cellos_put_local_flag_first(int cid, const void* local, int size, void* remote, volatile int* send_flag,
                                            volatile int* recv_flag, int ack);
/* Copy `size` bytes of the target's memory here. Returns before they are there. local_flag: the caller's, raised
 * behind the data; remote_flag: the target's, raised when it has been read. A */
APLIB_C_API int cellos_get(int cid, void* local, int size, const void* remote, volatile int* local_flag,
                           volatile int* remote_flag);
#ifndef APLIB_NO_PUT_GET
#ifdef APLIB_PUT_LOCAL_FLAG_FIRST
APLIB_C_API int put(int cid, const void* local, int size, void* remote, volatile int* send_flag,
                    volatile int* recv_flag, int ack) __asm__("cellos_put_local_flag_first");
#else
APLIB_C_API int put(int cid, const void* local, int size, void* remote, volatile int* recv_flag,
                    volatile int* send_flag, int ack) __asm__("cellos_put");
#endif
APLIB_C_API int get(int cid, void* local, int size, const void* remote, volatile int* local_flag,
                    volatile int* remote_flag) __asm__("cellos_get");
#endif

/* `count` items of `item` bytes, `local_stride` and `remote_stride` bytes from the start of one to that of the next.
 * Flags once, with the last. C */
APLIB_C_API int put_stride(int cid, const void* local, int local_stride, int item, int count, void* remote,
                           int remote_stride, volatile int* recv_flag, volatile int* send_flag, int ack);
APLIB_C_API int get_stride(int cid, void* local, int local_stride, int item, int count, const void* remote,
                           int remote_stride, volatile int* local_flag, volatile int* remote_flag);

/* Wait until *flag has reached n (as a signed difference); leaves it alone. A flag that transfers of or to this cell
 * raise. [waits] A */
APLIB_C_API int amcheck(const volatile int* flag, int n);
/* Wait until all puts of this cell with ack can be seen at their targets. [waits] C */
APLIB_C_API int amackwait(void);

/* Atomic operations on an int (4 bytes) or long long (8 bytes) of the target, aligned: return the old value. The
 * hardware had fetch-and-operate and compare-and-swap (A); names C. [waits] */
APLIB_C_API int cellos_fetch_add(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_and(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_or(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_xor(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_min(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_max(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_swap(int cid, volatile int* remote, int value);
/* Stores `value` if `expected` is there. */
APLIB_C_API int cellos_compare_swap(int cid, volatile int* remote, int expected, int value);
APLIB_C_API long long cellos_fetch_add8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_and8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_or8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_xor8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_min8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_max8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_swap8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_compare_swap8(int cid, volatile long long* remote, long long expected, long long value);

/* First call of a program of AP/Linux, on all cells: waits for all, so that their memory is there. [waits] A, waiting
 * C */
APLIB_C_API int ap_init(void);

#ifdef __cplusplus
}
#endif

#endif /* APLIB_CELLOS_ONE_SIDED_H */
