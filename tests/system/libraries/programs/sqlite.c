/* SPDX-License-Identifier: MIT */
/* SQLite: a database in memory with a function that meets others, and a file that all ranks write, whose locks exclude
   them as processes. */
#include <sqlite3.h>
#include <stdlib.h>

#include "stress.h"

static void meet_others(sqlite3_context* context, int count, sqlite3_value** values) {
  (void)count;
  meet(sqlite3_value_int(values[0]));
  sqlite3_result_int(context, sqlite3_value_int(values[0]) + rank);
}
static void run(sqlite3* base, const char* text) {
  char* error = NULL;
  if (sqlite3_exec(base, text, NULL, NULL, &error) != SQLITE_OK) check(0, error);
  sqlite3_free(error);
}
static int number(sqlite3* base, const char* text) {
  sqlite3_stmt* statement = NULL;
  int value = -1;
  check(sqlite3_prepare_v2(base, text, -1, &statement, NULL) == SQLITE_OK, sqlite3_errmsg(base));
  if (sqlite3_step(statement) == SQLITE_ROW)
    value = sqlite3_column_int(statement, 0);
  else
    check(0, sqlite3_errmsg(base));
  sqlite3_finalize(statement);
  return value;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  sqlite3 *own, *common;
  sqlite3_soft_heap_limit64(8 << 20);
  check(sqlite3_open(":memory:", &own) == SQLITE_OK, "the database in memory");
  sqlite3_create_function(own, "meet", 1, SQLITE_UTF8, NULL, meet_others, NULL, NULL);
  run(own, "create table t(a); insert into t values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)");
  for (int round = 0; round < 20; ++round) check(number(own, "select sum(meet(a)) from t") == 45 + 10 * rank, "a sum");
  sqlite3_close(own);

  const char* const modes[] = {"pragma journal_mode = delete", "pragma journal_mode = wal"};
  for (int mode = 0; mode < 2; ++mode) {
    const char* name = mode == 0 ? "common.db" : "wal.db";
    if (rank == 0) {
      remove(name);
      check(sqlite3_open(name, &common) == SQLITE_OK, "the file");
      run(common, modes[mode]);
      run(common, "create table t(rank, round); create table n(a); insert into n values (0)");
      sqlite3_close(common);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(sqlite3_open(name, &common) == SQLITE_OK, "the file of all");
    sqlite3_busy_timeout(common, 300000);
    run(common, "pragma synchronous = off");
    for (int round = 0; round < 5; ++round) {
      char text[200];
      snprintf(text, sizeof text, "begin immediate; insert into t values (%d, %d); update n set a = a + 1; commit",
               rank, round);
      run(common, text);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(number(common, "select count(*) from t") == 5 * ranks, "rows of all ranks");
    check(number(common, "select a from n") == 5 * ranks, "what all have counted");
    MPI_Barrier(MPI_COMM_WORLD);
    sqlite3_close(common);
  }
  return end();
}
