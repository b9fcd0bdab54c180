/* SPDX-License-Identifier: MIT */
/* The CellOS interface of the AP1000 and AP1000+, in C and C++. docs/cellos.md says where each function is proven
 * and what was chosen where the evidence leaves a question open.
 *
 *   #include <aplib/cellos.h>
 *   void cell_main(void) {                            link with aplib::cellos_main, which has main()
 *     int mine = getcid(), sum;
 *     xy_isum(mine, &sum);
 *     if (mine == 0) printf("%d cells, sum of ids %d\n", getncel(), sum);
 *   }
 *
 * Cards below: [host] [cell] where it may be called; [waits]: it may wait, and other tasks run meanwhile; then grade
 * (A: proven by program or kernel source, B: named in a document, C: by analogy). All must be called from a task
 * unless the card says [any].
 *
 * Errors: what is impossible (no such cell, negative size, NULL where bytes are needed, a type or task out of range,
 * wrong side) ends the run with one message that names cell, task, call, cause and remedy; to C++ it is the
 * exception aplib::Error. C code that such an exception (or cell_exit) passes through should be compiled with
 * -fexceptions; nothing in these functions needs cleaning up there.
 * Return values: 1 is success wherever nothing better is known (source: MIMD header of the ANU sort, l_asend(...) ==
 * 1); 0 is a resource that ran out. Sizes are bytes. Types are 0 .. 16777215, task ids 0 .. 1048575.
 * Buffers passed in belong to the caller again at return. Pointers returned belong to the system (see crecv). */
#ifndef APLIB_CELLOS_H
#define APLIB_CELLOS_H

#if defined(APLIB_STATIC)
#define APLIB_C_API
#else
#define APLIB_C_API __attribute__((visibility("default")))
#endif

/* Wildcards of receives; 0 is an ordinary task and type. Values: not proven. */
#define ANY_CELL (-1)
#define ANY_TASK (-1)
#define ANY_TYPE (-1)

#ifdef __cplusplus
extern "C" {
/* Written by the user. (Not declared for C: old programs define them without types.) */
void cell_main(void);
int host_main(int argc, char** argv);
#endif

/* --- Start --- */

/* Choose the grid, x first, before ccreat. Returns 1. [host] A */
APLIB_C_API int cconfxy(int ncelx, int ncely);
/* Start task `tid` on every cell with the cell program `file`: as given or in the host program's folder, with or
 * without suffix .so or .cell; where there is none, and in a program linked with the library, its own cell_main.
 * `arg`: NULL as in all known programs, or strings that a NULL ends, the arguments of the cells' main. Several calls
 * with different tids start several tasks, also while cells run. Returns 1. [host] A, arg C */
APLIB_C_API int ccreat(const char* file, int tid, void* arg);
/* Preset the status word (see pstat) of every cell that has not posted one. Returns 1. [host] A, meaning C */
APLIB_C_API int initstat(int stat);
/* Wait until all cells have ended. Returns 1. [host] [waits] A, meaning C */
APLIB_C_API int waitstable(void);
/* End this cell's task; other cells go on. A status other than 0 becomes the cell's. [cell] A */
APLIB_C_API void cell_exit(int status) __attribute__((noreturn));

/* --- Identity and geometry. Row-major: cid = x + y * ncelx. --- */

APLIB_C_API int getcid(void);   /* own cell id; on the host gethcid(). [host] [cell] A */
APLIB_C_API int gethcid(void);  /* the host's cell id, 4096 (larger machines: the number of cells). [host] [cell] A */
APLIB_C_API int getncel(void);  /* number of cells; before cconfxy that of the options. [host] [cell] A */
APLIB_C_API int getncelx(void); /* width. [host] [cell] A */
APLIB_C_API int getncely(void); /* height. [host] [cell] A */
APLIB_C_API int getcidx(void);  /* own x. [cell] B */
APLIB_C_API int getcidy(void);  /* own y. [cell] B */
/* Own task id: CellOS's gettid (C). glibc has one of its own, hence the prefix; compat/ maps the old name. [host]
 * [cell] */
APLIB_C_API int cellos_gettid(void);

/* --- Send: buffered, never waits for the receiver, messages of one sender to one receiver stay in order. --- */

/* To task `tid` of cell `cid`, oneself included; cid == gethcid(): to the host, tid ignored.
 * Returns 1; 0 when memory ran out (also said on stderr). [host] [cell] A */
APLIB_C_API int l_asend(int cid, int tid, int type, const void* buf, int size);
/* To the host. Returns as l_asend. [cell] A */
APLIB_C_API int h_send(int type, const void* buf, int size);
/* To task `tid` of all cells (from a cell: all others; never to the host). An ordinary message at the receivers, no
 * collective call.
 * Returns as l_asend. [host] [cell] A */
APLIB_C_API int cbroad(int tid, int type, const void* buf, int size);

/* --- Receive: wait for a message and return its body, aligned to 16 bytes, in a system buffer. The pointer is valid
 * until the calling task's next receive of any kind, across sends and other calls; never free it. --- */

/* The next message that matches; `tid` is the sender's task (ignored for the host's messages). [host] [cell] [waits]
 * A */
APLIB_C_API void* l_arecv(int cid, int tid, int type);
/* The next message from anyone. NULL on the host when no message is left and all cells have ended. [host] [cell]
 * [waits] A */
APLIB_C_API void* crecv(void);
/* The next message of the host, sent to this task or broadcast. [cell] [waits] A */
APLIB_C_API void* h_recv(int type);
/* crecv, then readmsg. 0 bytes also where crecv is NULL. [host] [cell] [waits] C */
APLIB_C_API int crecvs(void* buf, int size);
/* Copy what fits of the last received message into buf; may be repeated. Returns the bytes copied. [host] [cell] A */
APLIB_C_API int readmsg(void* buf, int size);
/* About the message last received: sending cell (host: gethcid()), sending task, type, bytes. [host] [cell] A; the
 * others C */
APLIB_C_API int getmcid(void);
APLIB_C_API int getmtid(void);
APLIB_C_API int getmtype(void);
APLIB_C_API int getmlen(void);
/* 1 when any message waits, 0 when none; takes nothing, waits for nothing, cheap. After a few zeros in a row other
 * tasks run. [host] [cell] A */
APLIB_C_API int cprobe(void);
/* The same for messages that match as in l_arecv. [host] [cell] B, meaning C */
APLIB_C_API int l_aqrecv(int cid, int tid, int type);

/* --- Line messages: to the cell at (x+dx, y+dy), wrapping round the torus, to the task of the sender's own id.
 * Apart from the messages above: crecv and cprobe do not see them. x_ and y_ are xy_ with the other displacement 0.
 * The receiver names the displacement to the source; xy_recvs stores what fits into buf, straight from the sender
 * when it waits first, and returns the bytes stored. [cell] ---------------- */

APLIB_C_API int xy_send(int dx, int dy, int type, const void* buf, int size); /* buffered; returns as l_asend. A */
APLIB_C_API int x_send(int dx, int type, const void* buf, int size);          /* B */
APLIB_C_API int y_send(int dy, int type, const void* buf, int size);          /* B */
APLIB_C_API int xy_recvs(int dx, int dy, int type, void* buf, int size);      /* [waits] A */
APLIB_C_API int x_recvs(int dx, int type, void* buf, int size);               /* [waits] B */
APLIB_C_API int y_recvs(int dy, int type, void* buf, int size);               /* [waits] B */
APLIB_C_API void* xy_recv(int dx, int dy, int type);                          /* pointer as crecv. [waits] C */
APLIB_C_API void* x_recv(int dx, int type);                                   /* [waits] C */
APLIB_C_API void* y_recv(int dy, int type);                                   /* [waits] C */

/* --- Collectives: all cells (xy_), the caller's row (x_) or column (y_) call the same, one task a cell; the host
 * takes no part. Return 1. [cell] [waits] --- */

/* The root's bytes into everybody's buf; one size everywhere. `root` is a cid; in x_brd a number below ncelx is an x
 * coordinate, in y_brd one below ncely a y coordinate. xy A; x, y B */
APLIB_C_API int xy_brd(int root, void* buf, int size);
APLIB_C_API int x_brd(int root, void* buf, int size);
APLIB_C_API int y_brd(int root, void* buf, int size);

/* Sums, largest, smallest, bits: included at the end. So are put and get. */

/* Barrier over all cells; called as sync(no, stat), see below. Returns the OR of bit 0 of everybody's stat. `no`,
 * the line, is ignored: every call is one barrier. A */
APLIB_C_API int cellos_sync(int no, int stat);

/* --- Status network: independent of sync, no waiting. A loop of cstat or gstat lets other tasks run. --- */

APLIB_C_API int pstat(int stat); /* post this cell's status word. Returns 0. [cell] A */
APLIB_C_API int cstat(void);     /* 16 while bit 0 of any cell's word is set, else 0. [host] [cell] A, 16: B */
APLIB_C_API int gstat(void);     /* OR of all words. [host] [cell] A, meaning C */

/* --- Time --- */

/* Seconds since an arbitrary moment; only differences mean something. [any] A */
APLIB_C_API double dgettime(void);

/* --- Beside CellOS: running a machine from a program that has its own main() --- */

/* Build a machine from APLIB_* variables and run it: with a host program, that runs first and ccreat starts `cell`;
 * without (NULL), every cell runs `cell` as task 0. Blocks. Returns the exit status for main(); failures were
 * printed. Call from outside tasks. */
APLIB_C_API int cellos_run(int (*host)(int, char**), void (*cell)(void), int argc, char** argv);
/* What exit() means in a task: end it at once, without unwinding (for the host program: as returning `status`).
 * Returns only when the caller is not in a task. aplib::cellos_main makes exit() do this. [any] */
APLIB_C_API void cellos_exit(int status);

#ifdef __cplusplus
}

/* C++: an overload beside sync(void) of <unistd.h>. */
inline int sync(int no, int stat) { return cellos_sync(no, stat); }
#else
/* C: by the number of arguments, so that sync() and the declaration of sync(void) in <unistd.h>, included before or
 * after, stay libc's. The name without parentheses (a function pointer) is libc's too; use cellos_sync there. */
#define sync(...) APLIB_SYNC_PICK(__VA_ARGS__, cellos_sync, sync, )(__VA_ARGS__)
#define APLIB_SYNC_PICK(no, stat, name, ...) name
#endif

#include "cellos_one_sided.h"
#include "cellos_reductions.h"
#include "cellos_symmetric.h"

#endif /* APLIB_CELLOS_H */
