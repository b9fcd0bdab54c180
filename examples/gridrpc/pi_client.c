/* SPDX-License-Identifier: MIT */
/* Computes pi by calls of a server, several at the same time:
 *
 *   apgen pi.idl -o main.c && cc -c pi_trial.c
 *   cc main.c pi_trial.o -o pi_server $(pkg-config --cflags --libs aplib-gridrpc)
 *   cc pi_client.c -o pi_client $(pkg-config --cflags --libs aplib-gridrpc)
 *   ./pi_client ./pi_server */
#include <aplib/gridrpc.h>
#include <stdio.h>
#include <stdlib.h>

enum { calls = 8 };

static void check(grpc_error_t code, const char* what) {
  if (code == GRPC_NO_ERROR) return;
  grpc_perror_np(what);
  exit(1);
}

int main(int argc, char** argv) {
  const long times = 1000000;
  long counts[calls], sum = 0;
  grpc_sessionid_t sessions[calls];
  grpc_function_handle_t handle;
  check(grpc_initialize(NULL), "grpc_initialize");
  check(grpc_function_handle_init(&handle, argc > 1 ? argv[1] : "./pi_server", "pi/pi_trial"), "handle");
  for (int i = 0; i < calls; ++i)
    check(grpc_call_async(&handle, &sessions[i], i, times, &counts[i]), "grpc_call_async");
  check(grpc_wait_all(), "grpc_wait_all");
  for (int i = 0; i < calls; ++i) sum += counts[i];
  printf("pi is about %.2f\n", 4.0 * (double)sum / (double)(calls * times));
  check(grpc_finalize(), "grpc_finalize");
  return 0;
}
