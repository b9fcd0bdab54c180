/* SPDX-License-Identifier: MIT */
/* shmem_peer: measures OpenSHMEM, the nearest relative of APlib's put and get, as onesided.c measures MPI's one-sided
 * operations, with the same command line:
 *   oshrun -n 2 shmem_peer --peer oshmem --case two-processors put get --bytes 8,65536 --samples 3 --sample-ms 6
 */
#include <mpi.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../command.h"
#include "../figure.h"

enum { batch_rate = 1024, fill_of_0 = 0x5a };

struct ends {
  char* shared; /* the same object on both PEs: the destination of puts and the source of gets */
  uint64_t* flag;
  char* local;
  size_t bytes;
  int me;
};

static void make(struct ends* e, size_t bytes) {
  e->me = shmem_my_pe();
  e->bytes = bytes;
  e->shared = shmem_align(4096, bytes + 1);
  e->flag = shmem_align(128, 128);
  if (e->shared == NULL || e->flag == NULL) {
    fprintf(stderr, "shmem_peer: no symmetric memory for %zu bytes\n", bytes);
    shmem_global_exit(1);
  }
  memset(e->shared, 0, bytes + 1);
  *e->flag = 0;
  e->local = new_buffer(bytes, fill_of_0 + e->me);
  shmem_barrier_all();
}

static void unmake(struct ends* e) {
  shmem_barrier_all();
  shmem_free(e->flag);
  shmem_free(e->shared);
  free_buffer(e->local);
}

/* One word is both flag and data. What must be seen first is put before it. */
static void put(struct ends* e, uint64_t number) {
  const int to = 1 - e->me;
  if (e->bytes > sizeof number) {
    shmem_putmem(e->shared, e->local, e->bytes, to);
    shmem_fence();
  }
  shmem_uint64_p(e->flag, number, to);
}

static double put_ping_pongs(const struct figure* f, long count) {
  struct ends e;
  make(&e, f->bytes);
  const long warm = warm_up(count);
  double start = 0;
  for (long i = 1; i <= warm + count; ++i) {
    if (e.me == 0) put(&e, (uint64_t)i);
    shmem_uint64_wait_until(e.flag, SHMEM_CMP_GE, (uint64_t)i);
    if (e.me == 1) put(&e, (uint64_t)i);
    if (i == warm) start = now_seconds();
  }
  const double seconds = now_seconds() - start;
  if (f->bytes > sizeof(uint64_t) && e.shared[f->bytes - 1] != fill_of_0 + 1 - e.me) {
    fprintf(stderr, "shmem_peer: a put of %zu bytes arrived with another content\n", f->bytes);
    shmem_global_exit(1);
  }
  unmake(&e);
  return seconds;
}

static void put_only(struct ends* e) { shmem_putmem(e->shared, e->local, e->bytes, 1); }
static void get_only(struct ends* e) { shmem_getmem(e->local, e->shared, e->bytes, 1); }
static void put_word(struct ends* e) { shmem_uint64_p(e->flag, 1, 1); }
static void get_word(struct ends* e) { memset(e->local, (int)shmem_uint64_g(e->flag, 1), 1); }
static void fetch_and_add(struct ends* e) { (void)shmem_ulong_atomic_fetch_add(e->flag, 1, 1); }

/* `count` times `batch` operations of PE 0, then a wait until PE 1 can see them. PE 1 waits in a barrier, where it can
 * help. */
static double batches(const struct figure* f, void (*operation)(struct ends*), long batch, long count) {
  struct ends e;
  make(&e, f->bytes);
  const long warm = warm_up(count);
  double start = 0;
  for (long i = 0; e.me == 0 && i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    for (long j = 0; j < batch; ++j) operation(&e);
    shmem_quiet();
  }
  const double seconds = now_seconds() - start;
  unmake(&e);
  return seconds;
}

static double get_each(const struct figure* f, long count) {
  return batches(f, f->bytes > sizeof(uint64_t) ? get_only : get_word, 1, count);
}
static double fetches(const struct figure* f, long count) { return batches(f, fetch_and_add, 1, count); }
static double put_rate(const struct figure* f, long count) { return batches(f, put_word, batch_rate, count); }
static double put_stream(const struct figure* f, long count) {
  return batches(f, put_only, stream_window(f->bytes), count);
}
static double get_stream(const struct figure* f, long count) {
  return batches(f, get_only, stream_window(f->bytes), count);
}

static double half(const struct figure* f, double seconds, long count) {
  return nanoseconds_per_operation(f, seconds, 2 * count);
}
static double gigabytes_per_second(const struct figure* f, double seconds, long count) {
  return (double)f->bytes * (double)stream_window(f->bytes) * (double)count / seconds / 1e9;
}
static double million_per_second(const struct figure* f, double seconds, long count) {
  (void)f;
  return (double)batch_rate * (double)count / seconds / 1e6;
}

static void plan_size(struct plan* plan, const char* name, size_t bytes) {
  add_figure(plan, (struct figure){"put", name, bytes, "ns", 0, put_ping_pongs, half, 1, 0});
  add_figure(plan, (struct figure){"get", name, bytes, "ns", 0, get_each, nanoseconds_per_operation, 1, 0});
  if (bytes <= sizeof(uint64_t)) return;
  add_figure(plan, (struct figure){"put-stream", name, bytes, "GB/s", 0, put_stream, gigabytes_per_second, 1, 0});
  add_figure(plan, (struct figure){"get-stream", name, bytes, "GB/s", 0, get_stream, gigabytes_per_second, 1, 0});
}

int main(int argc, char** argv) {
  shmem_init();
  int initialized = 0;
  MPI_Initialized(&initialized); /* Open MPI's shmem_init() has done it; figure.c uses MPI */
  if (!initialized) MPI_Init(&argc, &argv);
  struct command command;
  const char* const fault = parse(&command, argc, argv);
  if (fault != NULL) {
    fprintf(stderr, "shmem_peer: cannot use '%s'; see the head of main.c for the command line\n", fault);
    shmem_global_exit(2);
  }
  struct plan plan = {.size = 0};
  for (int i = 0; i < command.sizes; ++i) plan_size(&plan, command.case_name, command.bytes[i]);
  add_figure(&plan, (struct figure){"put-rate", command.case_name, 8, "M/s", 0, put_rate, million_per_second, 1, 0});
  add_figure(&plan,
             (struct figure){"fetch-add", command.case_name, 8, "ns", 0, fetches, nanoseconds_per_operation, 1, 0});
  measure(&plan, command.peer, command.samples, command.sample_ms / 1e3);
  /* Open MPI 4.1 crashes in shmem_finalize() with newer UCX libraries. Nothing is left to do there. */
  shmem_barrier_all();
  if (shmem_my_pe() == 0) shmem_global_exit(0);
  shmem_barrier_all();
  return 0;
}
