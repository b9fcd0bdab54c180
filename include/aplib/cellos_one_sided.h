/* SPDX-License-Identifier: MIT */
/* One-sided communication of the AP1000+, part of the CellOS interface. Include cellos.h, which explains the words of
 * the cards. docs/one-sided.md has the rules.
 *
 *   static struct entry table[1000];
 *   static int arrived;
 *   get(owner, &mine, sizeof mine, &table[i], &arrived, NULL);
 *   amcheck(&arrived, 1);
  * The caller names remote memory by its own address of the same object: a global of a loaded program, a stack
 * variable, or symmetric memory. Flags are counters: each transfer raises them by one; NULL means no flag. Size 0 moves
 * nothing and raises the flags. `cid` may be the caller's own. What a cell does to another cell's memory happens in the
 * order of its calls. All functions are [cell]; they return 1 unless their card says otherwise.
 * REQUIRES, for all: remote memory and remote flags lie in the caller's slot, and the target has memory there. Local
 * memory and local flags may lie anywhere.
 *
 * Many programs have functions named put and get themselves. The library's symbols are cellos_put and cellos_get. A
 * program with its own put or get defines APLIB_NO_PUT_GET before this header. The headers of the AP1000, which had
 * neither, do so. A later inclusion without APLIB_NO_PUT_GET declares the names. */
#ifndef APLIB_CELLOS_ONE_SIDED_H
#define APLIB_CELLOS_ONE_SIDED_H

#include "cellos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies `size` bytes to the target's memory. Returns before they have arrived. recv_flag: the target's, raised after
 * the data. send_flag: the caller's, raised when the source may be changed; without it the source may be changed when
 * the call returns, which costs large transfers a copy. If ack is not 0, amackwait waits for this put. Switches tasks
 * only while more than send-limit bytes wait for the target's process. Order of the flags B, the rest A */
APLIB_C_API int cellos_put(int cid, const void* local, int size, void* remote, volatile int* recv_flag,
                           volatile int* send_flag, int ack);
/* The same with the flags in the other order. put means this where APLIB_PUT_LOCAL_FLAG_FIRST is defined. */
APLIB_C_API int cellos_put_local_flag_first(int cid, const void* local, int size, void* remote, volatile int* send_flag,
                                            volatile int* recv_flag, int ack);
/* Copies `size` bytes of the target's memory to `local`. Returns before they have arrived. local_flag: the caller's,
 * raised after the data. remote_flag: the target's, raised when the data has been read. Switches tasks only while much
 * is on its way from the target's process. REQUIRES: `local` stays until the data has arrived. A */
APLIB_C_API int cellos_get(int cid, void* local, int size, const void* remote, volatile int* local_flag,
                           volatile int* remote_flag);

/* Copies `count` items of `item` bytes. From the start of one item to that of the next there are `local_stride` and
 * `remote_stride` bytes. The flags are raised once, after the last item. Otherwise as put and get. C */
APLIB_C_API int put_stride(int cid, const void* local, int local_stride, int item, int count, void* remote,
                           int remote_stride, volatile int* recv_flag, volatile int* send_flag, int ack);
APLIB_C_API int get_stride(int cid, void* local, int local_stride, int item, int count, const void* remote,
                           int remote_stride, volatile int* local_flag, volatile int* remote_flag);

/* Waits until *flag has reached n, compared as a signed difference. Does not change the flag. REQUIRES: transfers from
 * or to this cell raise the flag. [waits] A */
APLIB_C_API int amcheck(const volatile int* flag, int n);
/* Waits until all puts of this cell with ack have arrived. [waits] C */
APLIB_C_API int amackwait(void);

/* Atomic operations on an int (4 bytes) or a long long (8 bytes) of the target. They return the old value. The hardware
 * had fetch-and-operate and compare-and-swap (A); the names are C. REQUIRES: `remote` is aligned to its size. [waits]
 */
APLIB_C_API int cellos_fetch_add(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_and(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_or(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_xor(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_min(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_fetch_max(int cid, volatile int* remote, int value);
APLIB_C_API int cellos_swap(int cid, volatile int* remote, int value);
/* Stores `value` if the old value is `expected`. */
APLIB_C_API int cellos_compare_swap(int cid, volatile int* remote, int expected, int value);
APLIB_C_API long long cellos_fetch_add8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_and8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_or8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_xor8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_min8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_fetch_max8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_swap8(int cid, volatile long long* remote, long long value);
APLIB_C_API long long cellos_compare_swap8(int cid, volatile long long* remote, long long expected, long long value);

/* The first call of an AP/Linux program, made by all cells. Waits for all of them, so that their memory exists.
 * REQUIRES: as the collectives of cellos.h. [waits] A, waiting C */
APLIB_C_API int ap_init(void);

#ifdef __cplusplus
}
#endif

#endif /* APLIB_CELLOS_ONE_SIDED_H */

#if !defined(APLIB_NO_PUT_GET) && !defined(APLIB_PUT_GET)
#define APLIB_PUT_GET
#ifdef __cplusplus
extern "C" {
#endif
#ifdef APLIB_PUT_LOCAL_FLAG_FIRST
APLIB_C_API int put(int cid, const void* local, int size, void* remote, volatile int* send_flag,
                    volatile int* recv_flag, int ack) __asm__("cellos_put_local_flag_first");
#else
APLIB_C_API int put(int cid, const void* local, int size, void* remote, volatile int* recv_flag,
                    volatile int* send_flag, int ack) __asm__("cellos_put");
#endif
APLIB_C_API int get(int cid, void* local, int size, const void* remote, volatile int* local_flag,
                    volatile int* remote_flag) __asm__("cellos_get");
#ifdef __cplusplus
}
#endif
#endif /* APLIB_PUT_GET */
