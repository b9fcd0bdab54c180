/* SPDX-License-Identifier: MIT */
/* bench-gearman PORT: the round trip of f(int) -> int by gearman in us, with a worker as another process: the median of
 * several samples. */
#include <libgearman/gearman.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "samples.h"

enum { calls = 500 };

static gearman_return_t twice(gearman_job_st* job, void* context) {
  int n = 0;
  (void)context;
  memcpy(&n, gearman_job_workload(job), sizeof n);
  n *= 2;
  return gearman_job_send_complete(job, &n, sizeof n);
}

static void work(in_port_t port) {
  gearman_worker_st* const worker = gearman_worker_create(NULL);
  gearman_worker_add_server(worker, "127.0.0.1", port);
  gearman_worker_define_function(worker, "twice", 5, gearman_function_create(twice), 0, NULL);
  while (gearman_success(gearman_worker_work(worker))) {
  }
  _exit(1);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const in_port_t port = (in_port_t)atoi(argv[1]);
  const pid_t worker = fork();
  if (worker == 0) work(port);
  gearman_client_st* const client = gearman_client_create(NULL);
  gearman_client_add_server(client, "127.0.0.1", port);
  double times[samples];
  int wrong = 0;
  for (int sample = 0; sample < samples; ++sample) {
    const double begin = now();
    for (int i = 0; i < calls; ++i) {
      size_t bytes = 0;
      gearman_return_t code = GEARMAN_SUCCESS;
      int* const result = gearman_client_do(client, "twice", NULL, &i, sizeof i, &bytes, &code);
      wrong += !gearman_success(code) || bytes != sizeof *result || *result != 2 * i;
      free(result);
    }
    times[sample] = (now() - begin) / calls;
  }
  kill(worker, SIGKILL);
  if (wrong) return 1;
  printf("%.2f\n", 1e6 * median(times));
  return 0;
}
