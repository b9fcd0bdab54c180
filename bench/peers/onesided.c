/* SPDX-License-Identifier: MIT */
/* One-sided operations of rank 0 on rank 1, with passive targets, in windows of memory that the library itself has
 * allocated (so that it may share the memory): put to visibility, and back; streams of puts and of gets; get, fetch and
 * add; and put with a fence. */
#include <mpi.h>

#ifndef AMPI /* its windows have no MPI_Win_flush */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "figure.h"

enum { batch_rate = 1024, flag_space = 128, looks_per_probe = 64 };

/* The flag is a counter after the data. It shows the target that what was put before has arrived. */
struct shared {
  MPI_Win win;
  char* mine;  /* this rank's part: `bytes` of data, then the flag */
  char* local; /* private memory: the source of puts and the destination of gets */
  MPI_Aint flag_at;
  int bytes;
  int rank;
};

static void make(struct shared* s, size_t bytes) {
  MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
  s->bytes = (int)bytes;
  s->flag_at = (MPI_Aint)((bytes + flag_space - 1) / flag_space * flag_space);
  MPI_Win_allocate(s->flag_at + flag_space, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s->mine, &s->win);
  memset(s->mine, 0, (size_t)s->flag_at + flag_space);
  s->local = new_buffer(bytes, 0x5a + s->rank);
  MPI_Barrier(MPI_COMM_WORLD);
}

static void unmake(struct shared* s) {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&s->win);
  free_buffer(s->local);
}

/* One word is both flag and data. More data is put first, and then a flush, because MPI keeps no order of two puts. */
static void put(struct shared* s, uint64_t number) {
  const int to = 1 - s->rank;
  if (s->bytes > (int)sizeof number) {
    MPI_Put(s->local, s->bytes, MPI_CHAR, to, 0, s->bytes, MPI_CHAR, s->win);
    MPI_Win_flush(to, s->win);
  }
  MPI_Put(&number, 1, MPI_UINT64_T, to, s->flag_at, 1, MPI_UINT64_T, s->win);
  MPI_Win_flush(to, s->win);
}

/* Probes now and then, for a library that needs the target's help. */
static void await(struct shared* s, uint64_t number) {
  const volatile uint64_t* const flag = (const volatile uint64_t*)(const void*)(s->mine + s->flag_at);
  for (int looks = 0; *flag < number; ++looks) {
    MPI_Win_sync(s->win);
    if (looks == looks_per_probe) {
      int found = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
      looks = 0;
    }
  }
  MPI_Win_sync(s->win);
}

static double put_ping_pongs(const struct figure* f, long count) {
  struct shared s;
  make(&s, f->bytes);
  const long warm = warm_up(count);
  double start = 0;
  MPI_Win_lock_all(0, s.win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 1; i <= warm + count; ++i) {
    if (s.rank == 0) put(&s, (uint64_t)i);
    await(&s, (uint64_t)i);
    if (s.rank == 1) put(&s, (uint64_t)i);
    if (i == warm) start = now_seconds();
  }
  const double seconds = now_seconds() - start;
  if (f->bytes > sizeof(uint64_t) && (s.mine[0] != 0x5a + 1 - s.rank || s.mine[f->bytes - 1] != 0x5a + 1 - s.rank)) {
    fprintf(stderr, "mpi_peer: a put of %zu bytes arrived with another content\n", f->bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Win_unlock_all(s.win);
  unmake(&s);
  return seconds;
}

static void put_only(struct shared* s, MPI_Aint at) {
  MPI_Put(s->local, s->bytes, MPI_CHAR, 1, at, s->bytes, MPI_CHAR, s->win);
}
static void get_only(struct shared* s, MPI_Aint at) {
  MPI_Get(s->local, s->bytes, MPI_CHAR, 1, at, s->bytes, MPI_CHAR, s->win);
}
static void fetch_and_add(struct shared* s, MPI_Aint at) {
  const uint64_t one = 1;
  MPI_Fetch_and_op(&one, s->local, MPI_UINT64_T, 1, at, MPI_SUM, s->win);
}

/* `count` times `batch` operations of rank 0 and a flush; rank 1 waits in a barrier, where it can help. */
static double batches(const struct figure* f, void (*operation)(struct shared*, MPI_Aint), long batch, long count) {
  struct shared s;
  make(&s, f->bytes);
  const long warm = warm_up(count);
  double start = 0;
  MPI_Win_lock_all(0, s.win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (long i = 0; s.rank == 0 && i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    for (long j = 0; j < batch; ++j) operation(&s, 0);
    MPI_Win_flush(1, s.win);
  }
  const double seconds = now_seconds() - start;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(s.win);
  unmake(&s);
  return seconds;
}

static double put_each(const struct figure* f, long count) { return batches(f, put_only, 1, count); }
static double get_each(const struct figure* f, long count) { return batches(f, get_only, 1, count); }
static double fetches(const struct figure* f, long count) { return batches(f, fetch_and_add, 1, count); }
static double put_rate(const struct figure* f, long count) { return batches(f, put_only, batch_rate, count); }
static double put_stream(const struct figure* f, long count) {
  return batches(f, put_only, stream_window(f->bytes), count);
}
static double get_stream(const struct figure* f, long count) {
  return batches(f, get_only, stream_window(f->bytes), count);
}

static double put_fences(const struct figure* f, long count) {
  struct shared s;
  make(&s, f->bytes);
  const long warm = warm_up(count);
  double start = 0;
  MPI_Win_fence(0, s.win);
  for (long i = 0; i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    if (s.rank == 0) put_only(&s, 0);
    MPI_Win_fence(0, s.win);
  }
  const double seconds = now_seconds() - start;
  unmake(&s);
  return seconds;
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

void plan_put(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){"put", c->case_name, c->bytes[i], "ns", 0, put_ping_pongs, half, 1, 0});
    if (c->bytes[i] <= sizeof(uint64_t)) continue;
    add_figure(plan, (struct figure){"put-stream", c->case_name, c->bytes[i], "GB/s", 0, put_stream,
                                     gigabytes_per_second, 1, 0});
  }
  add_figure(plan, (struct figure){"put-flush", c->case_name, 8, "ns", 0, put_each, nanoseconds_per_operation, 1, 0});
  add_figure(plan, (struct figure){"put-rate", c->case_name, 8, "M/s", 0, put_rate, million_per_second, 1, 0});
  add_figure(plan, (struct figure){"put-fence", c->case_name, 8, "ns", 0, put_fences, nanoseconds_per_operation, 1, 0});
}

void plan_get(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan,
               (struct figure){"get", c->case_name, c->bytes[i], "ns", 0, get_each, nanoseconds_per_operation, 1, 0});
    if (c->bytes[i] <= sizeof(uint64_t)) continue;
    add_figure(plan, (struct figure){"get-stream", c->case_name, c->bytes[i], "GB/s", 0, get_stream,
                                     gigabytes_per_second, 1, 0});
  }
  add_figure(plan, (struct figure){"fetch-add", c->case_name, 8, "ns", 0, fetches, nanoseconds_per_operation, 1, 0});
}
#endif
