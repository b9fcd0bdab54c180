// SPDX-License-Identifier: MIT
// A program of MPI whose ranks are ordinary processes (processes_test.cpp). Its first argument says how it lives.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { numbers = 200000 };

static int rank = -1;
static int size = -1;
static int sent[numbers];
static int got[numbers];

static void must(int holds, const char* text) {
  if (holds) return;
  fprintf(stderr, "rank %d: it does not hold that %s\n", rank, text);
  MPI_Abort(MPI_COMM_WORLD, 9);
}

static void begin(void) {
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/// Messages of `count` numbers around a ring.
static void pass_around(int count) {
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  for (int i = 0; i < count; ++i) sent[i] = rank + i;
  MPI_Sendrecv(sent, count, MPI_INT, right, 7, got, count, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < count; ++i) must(got[i] == left + i, "what the left neighbour has sent arrives");
}

static void work(void) {
  pass_around(2);
  pass_around(numbers);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(sum == size * (size - 1) / 2, "the sum is that of all ranks");
  int word = rank == size - 1 ? 42 : 0;
  MPI_Bcast(&word, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
  must(word == 42, "a broadcast reaches all");
  int* program = NULL;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &known);
  printf("rank %d of %d, program %d\n", rank, size, known ? *program : -1);
}

/// The children of a process are no ranks, however they end.
static void fork_children(void) {
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (i == 0) exit(0);
      int flag = 0;
      MPI_Initialized(&flag);  // no rank calls
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    must(i == 1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "a child ends well");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// An operation may use as much of the stack as it may in a blocking call.
static void add_on_much_stack(void* in, void* inout, int* count, MPI_Datatype* type) {
  volatile char much[1 << 20];
  (void)type;
  for (unsigned i = 0; i < sizeof much; i += 4096) much[i] = 1;
  for (int i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i] * much[0];
}

static void reduce(void) {
  MPI_Op op;
  MPI_Request request;
  int sum = -1;
  MPI_Op_create(add_on_much_stack, 1, &op);
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  must(sum == size * (size - 1) / 2, "an operation of the program's adds");
  MPI_Op_free(&op);
}

static void take_note(int signal) {
  (void)signal;
  if (write(STDOUT_FILENO, "noted\n", 6) != 6) _exit(1);
}

static void wait_for_nobody(void) {
  MPI_Recv(got, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void await_signal(const char* now) {
  sigset_t set;
  int number = 0;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  printf("%s waits\n", now);
  fflush(stdout);
  must(sigwait(&set, &number) == 0, "sigwait");
  take_note(number);
}

// Rank 0 waits for rank 1, which ends well when rank 2 is about to fail.
static int end_after_a_failure(void) {
  if (rank == 0) wait_for_nobody();
  if (rank == 1) MPI_Recv(got, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 2) MPI_Send(sent, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
  if (rank == 2) exit(3);
  MPI_Finalize();
  return 0;
}

int main(int argc, char** argv) {
  const char* const how = argc > 1 ? argv[1] : "work";
  if (strcmp(how, "awaits before") == 0) await_signal(argv[2]);
  if (strcmp(how, "alone") == 0) {
    char line[64] = "nothing\n";
    if (fgets(line, sizeof line, stdin) == NULL) line[0] = '-';
    printf("%s read %s", argv[0], line);
    return argc > 2 ? atoi(argv[2]) : 0;
  }
  const char* const number = getenv("TEST_SILENT_RANKS");
  if (number != NULL) return atoi(number);
  if (strcmp(how, "handles") == 0) signal(SIGUSR1, take_note);
  begin();
  MPI_Barrier(MPI_COMM_WORLD);
  if (strcmp(how, "work") == 0) work();
  if (strcmp(how, "fork") == 0) fork_children();
  if (strcmp(how, "reduce") == 0) reduce();
  if (strcmp(how, "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 5);
  if (strcmp(how, "killed") == 0 && rank == 1) raise(SIGKILL);
  if (strcmp(how, "leaves") == 0 && rank == 1) _exit(0);
  if (strcmp(how, "exits") == 0 && rank == 1) exit(4);
  if (strcmp(how, "awaits within") == 0) await_signal(argv[2]);
  if (strcmp(how, "order") == 0) return end_after_a_failure();
  if (strcmp(how, "waits") == 0) {
    printf("rank %d waits\n", rank);
    fflush(stdout);
    for (;;) usleep(10000);
  }
  const int ends = strncmp(how, "awaits", 6) == 0 || strcmp(how, "work") == 0 || strcmp(how, "fork") == 0 ||
                   strcmp(how, "reduce") == 0;
  if (!ends && strcmp(how, "status") != 0) wait_for_nobody();
  MPI_Finalize();
  return strcmp(how, "status") == 0 && rank == 1 ? argc > 2 ? atoi(argv[2]) : 3 : 0;
}
