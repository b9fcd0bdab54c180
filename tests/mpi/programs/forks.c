/* SPDX-License-Identifier: MIT */
/* Ranks that fork: the child replaces itself by another program, prints, or ends. Prints "No Errors" on rank 0. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 1; }

static int status_of(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int wrong = !constructed || argc != 2 || strstr(argv[0], "forks") == NULL || strcmp(argv[1], "a word") != 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  const pid_t other = fork();
  if (other == 0) {
    execlp("sh", "sh", "-c", "exit 7", (char*)NULL);
    _exit(1);
  }
  wrong += status_of(other) != 7;

  int ends[2];
  char text[20] = "";
  wrong += pipe(ends) != 0;
  const pid_t copy = fork();
  if (copy == 0) {
    dprintf(ends[1], "child of %d", rank);
    exit(3);
  }
  close(ends[1]);
  wrong += status_of(copy) != 3;
  wrong += read(ends[0], text, sizeof text - 1) <= 0 || atoi(text + strlen("child of ")) != rank;

  const struct rlimit small = {16, 16};
  wrong += setrlimit(RLIMIT_CORE, &small) != 0;
  wrong += system("test $(ulimit -c) -le 16") != 0;

  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) all == 0 ? puts("No Errors") : (void)printf("%d errors\n", all);
  MPI_Finalize();
  return 0;
}
