/* SPDX-License-Identifier: MIT */
/* Children that a library starts, compiled with -DLIBRARY, and a program that has it start some. Rank 0 prints what did
 * not work, or "No Errors". */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;
int of_system(const char* command);
int of_popen(const char* command, char* line, int room);
int of_spawn(const char* command);
int of_fork(int status);
int of_limit(long limit);

#ifdef LIBRARY

static int status_of(pid_t child) {
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int of_system(const char* command) { return WEXITSTATUS(system(command)); }

int of_popen(const char* command, char* line, int room) {
  FILE* stream = popen(command, "r");
  if (stream == NULL || fgets(line, room, stream) == NULL) return -1;
  return WEXITSTATUS(pclose(stream));
}

int of_spawn(const char* command) {
  char* words[] = {"sh", "-c", (char*)command, NULL};
  pid_t child = -1;
  return posix_spawnp(&child, "sh", NULL, NULL, words, environ) == 0 ? status_of(child) : -1;
}

int of_fork(int status) {
  const pid_t child = fork();
  if (child == 0) _exit(status);
  return status_of(child);
}

int of_limit(long limit) {
  const struct rlimit both = {limit, limit};
  return setrlimit(RLIMIT_CPU, &both);
}

#else

#include <mpi.h>

int main(int argc, char** argv) {
  char line[40] = "";
  char number[20];
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(number, sizeof number, "%d", rank);
  setenv("NUMBER", number, 1);
  const int wrong[] = {of_system("exit $((NUMBER + 3))") != rank + 3,
                       of_popen("echo from $NUMBER; exit 2", line, sizeof line) != 2 || atoi(line + 5) != rank,
                       of_spawn("exit $((NUMBER + 4))") != rank + 4, of_fork(5) != 5,
                       of_limit(1000) != 0 || of_system("test \"$(ulimit -t)\" -le 1000 2>&-") != 0};
  const char* const names[] = {"system", "popen", "posix_spawn", "fork", "setrlimit"};
  enum { count = sizeof wrong / sizeof *wrong };
  int all[count];
  MPI_Reduce(wrong, all, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  int sum = 0;
  for (int i = 0; rank == 0 && i < count; ++i) {
    if (all[i] != 0) printf("%s: wrong on %d ranks\n", names[i], all[i]);
    sum += all[i];
  }
  if (rank == 0 && sum == 0) puts("No Errors");
  MPI_Finalize();
  return 0;
}

#endif
