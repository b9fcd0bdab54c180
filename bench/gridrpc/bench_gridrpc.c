/* SPDX-License-Identifier: MIT */
/* bench-gridrpc SERVER [N]: the round trip of f(int) -> int in us, and the transfer of dmmul's three matrices of N x N
 * in MB/s, as "TRIP RATE": medians of several samples. */
#include <aplib/gridrpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"

enum { calls = 2000 };

static void check(grpc_error_t code) {
  if (code == GRPC_NO_ERROR) return;
  grpc_perror_np("bench-gridrpc");
  exit(1);
}

static double round_trip(const char* server) {
  grpc_function_handle_t twice;
  double times[samples];
  int result = 0;
  check(grpc_function_handle_init(&twice, server, "twice"));
  for (int sample = 0; sample < samples; ++sample) {
    const double begin = now();
    for (int i = 0; i < calls; ++i) check(grpc_call(&twice, i, &result));
    times[sample] = (now() - begin) / calls;
  }
  check(grpc_function_handle_destruct(&twice));
  return median(times);
}

static double transfer(const char* server, int n) {
  const size_t bytes = (size_t)n * (size_t)n * sizeof(double);
  double *const a = malloc(bytes), *const b = malloc(bytes), *const c = malloc(bytes);
  double times[samples];
  grpc_function_handle_t matrices;
  if (!a || !b || !c) exit(1);
  memset(a, 1, bytes);
  memset(b, 2, bytes);
  memset(c, 3, bytes);
  check(grpc_function_handle_init(&matrices, server, "matrices"));
  for (int sample = 0; sample < samples; ++sample) {
    const double begin = now();
    check(grpc_call(&matrices, n, a, b, c));
    times[sample] = now() - begin;
  }
  check(grpc_function_handle_destruct(&matrices));
  free(a);
  free(b);
  free(c);
  return 3 * (double)bytes / median(times);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  check(grpc_initialize(NULL));
  const double trip = round_trip(argv[1]);
  const double rate = transfer(argv[1], argc > 2 ? atoi(argv[2]) : 1000);
  printf("%.2f %.0f\n", 1e6 * trip, 1e-6 * rate);
  check(grpc_finalize());
  return 0;
}
