// SPDX-License-Identifier: MIT
// Each rank has timers of its own, whose handlers run while it computes, sleeps and waits.
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t came, ticks, value;
static sigjmp_buf place;

static void on_alarm(int signal) { came += signal == SIGALRM; }
static void on_tick(int signal) { ticks += signal == SIGPROF; }
static void on_value(int signal, siginfo_t* info, void* context) {
  value = signal == SIGUSR1 && context != NULL ? info->si_value.sival_int : -1;
}
static void leave(int signal) { siglongjmp(place, signal); }

static void in_ms(int first, int interval, int which) {
  const struct itimerval time = {{0, interval * 1000}, {0, first * 1000}};
  setitimer(which, &time, NULL);
}

/// Of those that come again, for on a busy computer one may come before the call that it is to end.
static void stop_alarms(void) {
  sigset_t none;
  in_ms(0, 0, ITIMER_REAL);
  sigemptyset(&none);
  sigprocmask(SIG_BLOCK, &none, NULL);  // one that has come is taken by now
  came = 0;
}

static void compute_ms(int time) {
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < time);
}

static int fail(const char* what) {
  printf("wrong: %s\n", what);
  return 1;
}

/// Alarms end what waits.
static int end_calls(void) {
  int wrong = 0, ends[2];
  char byte;
  in_ms(5, 5, ITIMER_REAL);
  if (sleep(100) == 0 || !came) wrong |= fail("sleep");
  stop_alarms();
  in_ms(5, 5, ITIMER_REAL);
  if (pause() != -1 || errno != EINTR || !came) wrong |= fail("pause");
  stop_alarms();
  in_ms(5, 5, ITIMER_REAL);
  if (poll(NULL, 0, 100000) != -1 || errno != EINTR || !came) wrong |= fail("poll");
  stop_alarms();
  struct sigaction ends_calls;  // signal() has SA_RESTART
  memset(&ends_calls, 0, sizeof ends_calls);
  ends_calls.sa_handler = on_alarm;
  sigaction(SIGALRM, &ends_calls, NULL);
  in_ms(5, 5, ITIMER_REAL);
  if (pipe(ends) != 0 || read(ends[0], &byte, 1) != -1 || errno != EINTR || !came) wrong |= fail("read");
  stop_alarms();
  return wrong;
}

int main(int argc, char** argv) {
  int rank, wrong = 0;
  char byte = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  signal(SIGALRM, on_alarm);
  signal(SIGPROF, on_tick);

  in_ms(5, 0, ITIMER_REAL);
  while (!came) continue;
  in_ms(1, 1, ITIMER_PROF);
  while (ticks < 3) continue;
  in_ms(0, 0, ITIMER_PROF);
  signal(SIGPROF, SIG_IGN);  // a last one ends no call

  wrong |= end_calls();

  // One that comes while others run: sleep() takes it before it sleeps.
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank % 2 == 0) {
    in_ms(5, 0, ITIMER_REAL);
    MPI_Recv(&byte, 0, MPI_CHAR, rank + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sleep(1);
    if (came != 1) wrong |= fail("sleep behind an alarm");
  } else {
    compute_ms(50);
    MPI_Send(&byte, 0, MPI_CHAR, rank - 1, 0, MPI_COMM_WORLD);
  }

  // One that is left by a jump, twice.
  signal(SIGALRM, leave);
  for (int i = 0; i < 2; ++i) {
    if (sigsetjmp(place, 1) == 0) {
      in_ms(5, 0, ITIMER_REAL);
      for (;;) continue;
    }
  }

  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_value;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &action, NULL);
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  event.sigev_value.sival_int = 100 + rank;
  timer_t timer;
  const struct itimerspec soon = {{0, 0}, {0, 5000000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &soon, NULL) != 0)
    wrong |= fail("timer_create");
  while (value == 0) continue;
  if (value != 100 + rank) wrong |= fail("the timer's value");
  if (timer_delete(timer) != 0 || timer_delete(timer) == 0) wrong |= fail("timer_delete");

  if (alarm(100) != 0 || alarm(0) != 100) wrong |= fail("alarm");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && !wrong) puts("OK");
  MPI_Finalize();
  return wrong;
}
