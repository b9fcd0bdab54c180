// SPDX-License-Identifier: MIT
// Ranks of a host that depend on each other in ways that MPI does not see. It prints "OK" where all ranks have
// begun, and run while others wait or compute. The argument says how.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct shared {
  sem_t semaphore;
  pthread_mutex_t mutex, recursive;
  pthread_cond_t condition;
  pthread_barrier_t barrier;
  pthread_rwlock_t lock;
  int turn, sum, flags[64];
};

static int rank, ranks;

static void fail(const char* what) {
  printf("rank %d: %s\n", rank, what);
  fflush(stdout);
  exit(1);
}

static struct shared* map(const char* file) {
  const int descriptor = open(file, O_RDWR);
  void* place = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor < 0 || place == MAP_FAILED) fail("cannot map the file");
  close(descriptor);
  return place;
}

static void make(const char* file) {
  const int descriptor = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(struct shared)) != 0) fail("cannot make the file");
  close(descriptor);
  struct shared* s = map(file);
  pthread_mutexattr_t mutex;
  pthread_condattr_t condition;
  pthread_barrierattr_t barrier;
  pthread_rwlockattr_t lock;
  sem_init(&s->semaphore, 1, 0);
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&s->mutex, &mutex);
  pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&s->recursive, &mutex);
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&s->condition, &condition);
  pthread_barrierattr_init(&barrier);
  pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&s->barrier, &barrier, (unsigned)ranks);
  pthread_rwlockattr_init(&lock);
  pthread_rwlockattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
  pthread_rwlock_init(&s->lock, &lock);
}

static void synchronize(struct shared* s) {
  for (int i = 0; i < 3; ++i) {
    if (rank == ranks - 1) {
      for (int each = 1; each < ranks; ++each) sem_post(&s->semaphore);
    } else {
      sem_wait(&s->semaphore);
    }
    pthread_barrier_wait(&s->barrier);
    pthread_mutex_lock(&s->mutex);
    while (s->turn % ranks != rank) pthread_cond_wait(&s->condition, &s->mutex);
    ++s->turn;
    pthread_cond_broadcast(&s->condition);
    usleep(100);  // others want the mutex meanwhile
    pthread_mutex_unlock(&s->mutex);
    pthread_rwlock_wrlock(&s->lock);
    usleep(100);
    pthread_rwlock_unlock(&s->lock);
    pthread_mutex_lock(&s->recursive);
    pthread_mutex_lock(&s->recursive);
    const int before = s->sum;
    usleep(100);
    s->sum = before + 1;
    pthread_mutex_unlock(&s->recursive);
    pthread_mutex_unlock(&s->recursive);
  }
  pthread_barrier_wait(&s->barrier);
  if (s->sum != 3 * ranks) fail("two have held the recursive mutex");
  struct timespec soon;
  clock_gettime(CLOCK_REALTIME, &soon);
  soon.tv_nsec = (soon.tv_nsec + 1000000) % 1000000000;
  if (sem_timedwait(&s->semaphore, &soon) == 0) fail("the semaphore has a post too many");
}

/* Each waits for its neighbour's byte in its own FIFO, by one kind of call after the other. */
static void pass_around(void) {
  char own[32], next[32], byte = 'x';
  snprintf(own, sizeof own, "fifo%d", rank);
  snprintf(next, sizeof next, "fifo%d", (rank + 1) % ranks);
  if (mkfifo(own, 0600) != 0) fail("cannot make the FIFO");
  MPI_Barrier(MPI_COMM_WORLD);
  const int in = open(own, O_RDWR), out = open(next, O_RDWR), set = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {0}};
  epoll_ctl(set, EPOLL_CTL_ADD, in, &event);
  for (int how = 0; how < 4; ++how) {
    if (rank == 0 && write(out, &byte, 1) != 1) fail("cannot write");
    struct pollfd one = {in, POLLIN, 0};
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(in, &readers);
    if (how == 1 && poll(&one, 1, -1) != 1) fail("poll");
    if (how == 2 && select(in + 1, &readers, NULL, NULL, NULL) != 1) fail("select");
    if (how == 3 && epoll_wait(set, &event, 1, -1) != 1) fail("epoll_wait");
    if (read(in, &byte, 1) != 1) fail("read");
    if (rank != 0 && write(out, &byte, 1) != 1) fail("cannot write");
  }
  /* more than a pipe takes at once */
  static char much[1 << 18];
  if (rank % 2 == 0) {
    if (rank + 1 < ranks && write(out, much, sizeof much) != sizeof much) fail("write");
  } else {
    for (size_t done = 0; done < sizeof much;) {
      const ssize_t got = read(in, much, sizeof much);
      if (got <= 0) fail("read");
      done += (size_t)got;
    }
  }
  unlink(own);
}

static void serve(void) {
  struct sockaddr_un address = {AF_UNIX, "socket"};
  char byte = 's';
  const int own = socket(AF_UNIX, SOCK_STREAM, 0);
  if (rank == 0) {
    unlink("socket");
    if (bind(own, (struct sockaddr*)&address, sizeof address) != 0 || listen(own, 64) != 0) fail("listen");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {
    usleep(1000);
    if (connect(own, (struct sockaddr*)&address, sizeof address) != 0 || recv(own, &byte, 1, 0) != 1) fail("connect");
    return;
  }
  for (int each = 1; each < ranks; ++each) {
    const int guest = accept(own, NULL, NULL);
    if (guest < 0 || send(guest, &byte, 1, 0) != 1) fail("accept");
  }
}

/* None is through MPI_Init before all have begun. */
static void begin(int* argc, char*** argv, const char* how) {
  struct stat begun;
  for (volatile int i = 0; i < 1000000; ++i) continue;
  const int file = open("begun", O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(file, "x", 1) != 1) fail("cannot write");
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (!strcmp(how, "begin") && (fstat(file, &begun) != 0 || begun.st_size != ranks)) fail("some have not begun");
  close(file);
}

/* As phyml does it: all open the file for writing, and rank 0 writes what it has computed. */
static void compute(void) {
  struct stat written;
  double sum = 0;
  FILE* file = fopen("result", "w");
  if (rank == 0) {
    for (long i = 1; i < 30000000; ++i) sum += 1.0 / (double)i;
    fprintf(file, "%f\n", sum);
  }
  fclose(file);
  MPI_Barrier(MPI_COMM_WORLD);
  if (stat("result", &written) != 0 || written.st_size == 0) fail("the result is lost");
}

/* Nothing but the others' running ends the loop, which calls nothing. */
static void spin(struct shared* s) {
  for (int each = ranks - 1; each > rank; --each) {
    while (((volatile struct shared*)s)->flags[each] == 0) continue;
  }
  s->flags[rank] = 1;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  begin(&argc, &argv, how);
  if (rank == 0) make("shared");
  MPI_Barrier(MPI_COMM_WORLD);
  struct shared* s = map("shared");
  if (!strcmp(how, "synchronize")) synchronize(s);
  if (!strcmp(how, "fifo")) pass_around();
  if (!strcmp(how, "socket")) serve();
  if (!strcmp(how, "compute")) compute();
  if (!strcmp(how, "spin")) spin(s);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) puts("OK");
  MPI_Finalize();
  return 0;
}
