/* SPDX-License-Identifier: MIT */
/* MPI-IO: all ranks write, and read, 1 GiB of one file together. Pieces of the ranks, of the figure's size, lie in turn
 * in the file. Each call moves 32 MiB of each rank. */
#include <mpi.h>

#ifndef AMPI /* it has no MPI-IO */
#include <stdio.h>
#include <string.h>

#include "figure.h"

enum { call_bytes = 32 << 20, path_max = 64 };
static const double file_bytes = 1 << 30;

static void require(int code, const char* what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code == MPI_SUCCESS) return;
  MPI_Error_string(code, text, &length);
  fprintf(stderr, "mpi_peer: %s: %s\n", what, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void name_file(const struct figure* f, char* path) { snprintf(path, path_max, "mpi_peer.%zu", f->bytes); }

/* The file, where this rank sees its own pieces alone. */
static MPI_File open_view(const struct figure* f, int mode, int ranks, int rank) {
  char path[path_max];
  MPI_File file;
  MPI_Datatype piece;
  MPI_Datatype pieces;
  name_file(f, path);
  require(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), path);
  MPI_Type_contiguous((int)f->bytes, MPI_BYTE, &piece);
  MPI_Type_create_resized(piece, 0, (MPI_Aint)f->bytes * ranks, &pieces);
  MPI_Type_commit(&pieces);
  const MPI_Offset first = (MPI_Offset)rank * (MPI_Offset)f->bytes;
  require(MPI_File_set_view(file, first, MPI_BYTE, pieces, "native", MPI_INFO_NULL), path);
  MPI_Type_free(&piece);
  MPI_Type_free(&pieces);
  return file;
}

static double transfer(const struct figure* f, int writes) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long calls = (long)(file_bytes / call_bytes) / ranks;
  char* buffer = new_buffer(call_bytes, writes ? 'a' + rank : 0);
  char path[path_max];
  name_file(f, path);
  if (writes && rank == 0) remove(path);
  MPI_File file = open_view(f, writes ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY, ranks, rank);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now_seconds();
  for (long i = 0; i < calls; ++i) {
    require(writes ? MPI_File_write_all(file, buffer, call_bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                   : MPI_File_read_all(file, buffer, call_bytes, MPI_BYTE, MPI_STATUS_IGNORE),
            path);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double seconds = now_seconds() - start;
  MPI_File_close(&file);
  for (long i = 0; i < call_bytes; i += 512) {
    if (buffer[i] == 'a' + rank) continue;
    fprintf(stderr, "mpi_peer: %s has another content at %ld of rank %d\n", path, i, rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!writes && rank == 0) remove(path);
  free_buffer(buffer);
  return seconds;
}

static double write_file(const struct figure* f, long count) {
  (void)count;
  return transfer(f, 1);
}

/* What the figure before has written. */
static double read_file(const struct figure* f, long count) {
  (void)count;
  return transfer(f, 0);
}

static double gigabytes_per_second(const struct figure* f, double seconds, long count) {
  (void)f;
  (void)count;
  return file_bytes / seconds / 1e9;
}

void plan_files(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){"file-write", c->case_name, c->bytes[i], "GB/s", 0, write_file,
                                     gigabytes_per_second, 0, 0});
    add_figure(plan, (struct figure){"file-read", c->case_name, c->bytes[i], "GB/s", 0, read_file, gigabytes_per_second,
                                     0, 0});
  }
}
#endif
