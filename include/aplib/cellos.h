/* SPDX-License-Identifier: MIT */
/* The CellOS interface of the AP1000 and AP1000+, in C and C++. docs/cellos.md says how well each function is proven,
 * and what APlib chose where the evidence leaves a question open.
 *
 *   #include <aplib/cellos.h>
 *   void cell_main(void) {                            link with aplib::cellos_main, which has main()
 *     int mine = getcid(), sum;
 *     xy_isum(mine, &sum);
 *     if (mine == 0) printf("%d cells, sum of ids %d\n", getncel(), sum);
 *   }
  * The cards below say:
 *   [host] [cell]  who may call it. A task of that side must call it; [any] means any thread.
 *   [waits]        it may wait, and other tasks run meanwhile. Without this, a call switches tasks only if its card
 *                  says so.
 *   A, B, C        the grade. A: proven by program or kernel source, B: named in a document, C: by analogy.
 *   REQUIRES       what the caller must ensure.
 *
 * REQUIRES, for all: cells exist; sizes are bytes and not negative; a pointer is not NULL where bytes are read or
 * stored; types are 0 .. 16777215 and task ids 0 .. 1048575. A call that breaks a requirement, or comes from the wrong
 * side, ends the run with one message that names cell, task, call, cause and remedy. In C++ that is the exception
 * aplib::Error. Compile C code that such an exception (or cell_exit) passes through with -fexceptions. These functions
 * need no cleaning up there.
 * Return values: 1 is success unless the card says otherwise (source: MIMD header of the ANU sort, l_asend(...) == 1);
 * 0 means that a resource ran out.
 * Ownership: a buffer passed in belongs to the caller again when the call returns. A pointer returned belongs to the
 * system (see crecv). */
#ifndef APLIB_CELLOS_H
#define APLIB_CELLOS_H

#if defined(APLIB_STATIC)
#define APLIB_C_API
#else
#define APLIB_C_API __attribute__((visibility("default")))
#endif

/* Wildcards of receives. 0 is an ordinary task and type. The values are not proven. */
#define ANY_CELL (-1)
#define ANY_TASK (-1)
#define ANY_TYPE (-1)

#ifdef __cplusplus
extern "C" {
/* The user writes these. (Not declared for C, because old programs define them without types.) */
void cell_main(void);
int host_main(int argc, char** argv);
#endif

/* --- Start --- */

/* Chooses the grid, x first. Returns 1. REQUIRES: called before ccreat; 1 to 16384 cells in all. [host] A */
APLIB_C_API int cconfxy(int ncelx, int ncely);
/* Starts task `tid` on every cell with the cell program `file`, which is looked for as given and in the host program's
 * folder, also with the suffixes .so and .cell. If there is none, and always in a program linked with the library, the
 * task runs the program's own cell_main. `arg`: NULL as in all known programs, or strings that end with NULL, the
 * arguments of the cells' main. Further calls start further tasks, also while cells run. Returns 1.
 * REQUIRES: no cell has a task `tid` yet. [host] A, arg C */
APLIB_C_API int ccreat(const char* file, int tid, void* arg);
/* Presets the status word (see pstat) of every cell that has not posted one. Returns 1. [host] A, meaning C */
APLIB_C_API int initstat(int stat);
/* Waits until all cells have ended. Returns 0, because an old host_main ends with it and has no `return`, so its value
 * becomes the status of the run. [host] [waits] A, meaning C */
APLIB_C_API int waitstable(void);
/* Ends the calling task and unwinds its stack; other cells go on. A status other than 0 becomes the cell's. [cell] A */
APLIB_C_API void cell_exit(int status) __attribute__((noreturn));

/* --- Identity and geometry. Cells are numbered in rows: cid = x + y * ncelx. --- */

APLIB_C_API int getcid(void);   /* own cell id; on the host gethcid(). [host] [cell] A */
APLIB_C_API int gethcid(void);  /* the host's cell id, 4096 (larger machines: the number of cells). [host] [cell] A */
APLIB_C_API int getncel(void);  /* number of cells; before cconfxy that of the options. [host] [cell] A */
APLIB_C_API int getncelx(void); /* width. [host] [cell] A */
APLIB_C_API int getncely(void); /* height. [host] [cell] A */
APLIB_C_API int getcidx(void);  /* own x. [cell] B */
APLIB_C_API int getcidy(void);  /* own y. [cell] B */
/* The caller's task id: CellOS's gettid. It has a prefix because glibc has a gettid too; compat/ maps the old name.
 * [host] [cell] C */
APLIB_C_API int cellos_gettid(void);

/* --- Send. Sends are buffered and never wait for the receiver. Messages of one sender to one receiver stay in order.
 * They switch tasks only when a receiver, on the same processor or in another process, has fallen far behind. --- */

/* Sends `size` bytes to task `tid` of cell `cid`, which may be the caller's. gethcid() means the host, and `tid` is
 * ignored. Returns 1, or 0 when memory ran out, which a line on stderr reports. [host] [cell] A */
APLIB_C_API int l_asend(int cid, int tid, int type, const void* buf, int size);
/* Another name of l_asend; its messages are buffered, too. [host] [cell] C */
APLIB_C_API int l_rsend(int cid, int tid, int type, const void* buf, int size);
/* Sends to the host. Returns as l_asend. [cell] A */
APLIB_C_API int h_send(int type, const void* buf, int size);
/* Sends to task `tid` of all cells but the caller's, never to the host. The receivers get an ordinary message; this is
 * no collective call. Returns as l_asend. [host] [cell] A */
APLIB_C_API int cbroad(int tid, int type, const void* buf, int size);
/* Sends the first `size` bytes of `buf` to task `tid` of cell 0, the next to that of cell 1, and so on. The receivers
 * get an ordinary message. Returns as l_asend. REQUIRES: `buf` has getncel() * size bytes. [host] C */
APLIB_C_API int cscatter(int tid, int type, const void* buf, int size);

/* --- Receive. These wait for a message and return its body, aligned to 16 bytes, in a buffer of the system. The
 * pointer is valid until the calling task's next receive of any kind, across sends and other calls. Never free it. A
 * receive that nobody can answer any more ends the run. --- */

/* The next message that matches. `tid` is the sender's task; it is ignored for the host's messages. Any of the three
 * may be a wildcard. [host] [cell] [waits] A */
APLIB_C_API void* l_arecv(int cid, int tid, int type);
/* The next message from anyone. On the host, NULL when no message is left and all cells have ended.
 * [host] [cell] [waits] A */
APLIB_C_API void* crecv(void);
/* The next message from the host, sent to this task or broadcast. `type` may be ANY_TYPE. [cell] [waits] A */
APLIB_C_API void* h_recv(int type);
/* crecv, then readmsg. Also returns 0 where crecv returns NULL. [host] [cell] [waits] C */
APLIB_C_API int crecvs(void* buf, int size);
/* Receives a message of at most `size` bytes from task `tid` of each cell: cell 0's at `buf`, cell 1's after the first
 * `size` bytes, and so on. Returns 1. REQUIRES: `buf` has getncel() * size bytes. [host] [waits] C */
APLIB_C_API int cgather(int tid, int type, void* buf, int size);
/* Copies as much as fits of the last received message into `buf`; may be repeated. Returns the number of bytes copied.
 * REQUIRES: the caller has received a message, and not by xy_recvs, x_recvs or y_recvs. [host] [cell] A */
APLIB_C_API int readmsg(void* buf, int size);
/* About the message last received: its sending cell (gethcid() for the host), sending task, type and bytes.
 * REQUIRES: the caller has received a message. [host] [cell] getmcid A, the others C */
APLIB_C_API int getmcid(void);
APLIB_C_API int getmtid(void);
APLIB_C_API int getmtype(void);
APLIB_C_API int getmlen(void);
/* 1 when a message is there, else 0. It takes no message, does not wait, and is cheap. After a few zeros in a row it
 * lets other tasks run. [host] [cell] A */
APLIB_C_API int cprobe(void);
/* The same, for messages that match as in l_arecv. [host] [cell] B, meaning C */
APLIB_C_API int l_aqrecv(int cid, int tid, int type);

/* --- Line messages go to the cell at (x+dx, y+dy), around the torus, to the task with the sender's own id. They are
 * separate from the messages above: crecv and cprobe do not see them. x_ and y_ are xy_ with the other displacement 0.
 * The receiver names the displacement to the source. xy_recvs stores as much as fits into `buf` and returns the number
 * of bytes stored; the sender copies straight into `buf` if the receiver waits first. [cell] --- */

APLIB_C_API int xy_send(int dx, int dy, int type, const void* buf, int size); /* buffered; returns as l_asend. A */
APLIB_C_API int x_send(int dx, int type, const void* buf, int size);          /* B */
APLIB_C_API int y_send(int dy, int type, const void* buf, int size);          /* B */
APLIB_C_API int xy_recvs(int dx, int dy, int type, void* buf, int size);      /* [waits] A */
APLIB_C_API int x_recvs(int dx, int type, void* buf, int size);               /* [waits] B */
APLIB_C_API int y_recvs(int dy, int type, void* buf, int size);               /* [waits] B */
APLIB_C_API void* xy_recv(int dx, int dy, int type);                          /* returns as crecv. [waits] C */
APLIB_C_API void* x_recv(int dx, int type);                                   /* [waits] C */
APLIB_C_API void* y_recv(int dy, int type);                                   /* [waits] C */

/* --- Collectives. All return 1.
 * REQUIRES: all cells (xy_), all of the caller's row (x_) or of its column (y_) make the same call, one task per cell
 * at a time; none of them has ended. The host takes no part. [cell] [waits] --- */

/* Copies the root's bytes into every cell's `buf`. `root` is a cid; in x_brd a number below ncelx is an x coordinate,
 * in y_brd one below ncely a y coordinate. REQUIRES: every cell gives the same root and size; the root takes part.
 * xy A; x, y B */
APLIB_C_API int xy_brd(int root, void* buf, int size);
APLIB_C_API int x_brd(int root, void* buf, int size);
APLIB_C_API int y_brd(int root, void* buf, int size);

/* Reductions, put and get, and symmetric memory are in headers of their own, included at the end. */

/* Barrier over all cells, called as sync(no, stat), see below. Returns the OR of bit 0 of every cell's `stat`. `no`,
 * the line, is ignored: every call is one barrier. A */
APLIB_C_API int cellos_sync(int no, int stat);

/* Barrier over all cells and the host program. Returns the OR of bit 0 of everybody's `stat`; `no` is ignored.
 * REQUIRES: the task that calls it has the same id on all cells. [host] [cell] [waits] C */
APLIB_C_API int hsync(int no, int stat);

/* --- Status network: independent of sync, and without waiting. A loop of cstat or gstat lets other tasks run. --- */

APLIB_C_API int pstat(int stat); /* posts this cell's status word. Returns 0. [cell] A */
APLIB_C_API int cstat(void);     /* 16 while bit 0 of any cell's word is set, else 0. [host] [cell] A, 16: B */
APLIB_C_API int gstat(void);     /* OR of all words. [host] [cell] A, meaning C */

/* --- Time --- */

/* Seconds since an arbitrary moment: only differences have a meaning. A loop of such calls lets other tasks run.
 * [any] A */
APLIB_C_API double dgettime(void);

/* --- Not CellOS: running a machine from a program that has its own main() --- */

/* Builds a machine from APLIB_* variables and runs it. A host program runs first, and ccreat starts `cell`. If `host`
 * is NULL, every cell runs `cell` as task 0. Blocks. Returns the exit status for main(); failures have been reported.
 * REQUIRES: called from outside tasks; not both are NULL. */
APLIB_C_API int cellos_run(int (*host)(int, char**), void (*cell)(void), int argc, char** argv);
/* What exit() means in a task: it ends the task at once, without unwinding; in the host program it acts like returning
 * `status`. Returns only if the caller is not in a task. aplib::cellos_main makes exit() call this. [any] */
APLIB_C_API void cellos_exit(int status);

#ifdef __cplusplus
}

/* C++: an overload beside sync(void) of <unistd.h>. */
inline int sync(int no, int stat) { return cellos_sync(no, stat); }
#else
/* C: the number of arguments decides, so that sync() and the declaration of sync(void) in <unistd.h>, included before
 * or after, stay libc's. The name without parentheses (a function pointer) is libc's too; use cellos_sync there. */
#define sync(...) APLIB_SYNC_PICK(__VA_ARGS__, cellos_sync, sync, )(__VA_ARGS__)
#define APLIB_SYNC_PICK(no, stat, name, ...) name
#endif

#include "cellos_one_sided.h"
#include "cellos_reductions.h"
#include "cellos_symmetric.h"

#endif /* APLIB_CELLOS_H */
