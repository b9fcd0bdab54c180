/* SPDX-License-Identifier: MIT */
/* pool_client FILE: calls the servers of the file, and prints what came back; pool_test.py. */
#include <aplib/gridrpc.h>
#include <stdio.h>
#include <stdlib.h>

enum { count = 4, length = 100000 };

static void check(grpc_error_t code) {
  if (code == GRPC_NO_ERROR) return;
  grpc_perror_np("pool_client");
  exit(1);
}

int main(int argc, char** argv) {
  static double numbers[length];
  int result = 0, processes[count], right = 1;
  grpc_function_handle_t twice, process, reverse, forever, leave;
  grpc_sessionid_t sessions[count], session;
  if (argc < 2) return 2;
  check(grpc_initialize(argv[1]));
  check(grpc_function_handle_default(&twice, "twice"));
  check(grpc_call(&twice, 21, &result));
  printf("twice 21 is %d\n", result);
  check(grpc_function_handle_default(&reverse, "reverse"));
  for (int i = 0; i < length; ++i) numbers[i] = i;
  check(grpc_call(&reverse, (long)length, numbers, NULL));
  for (int i = 0; i < length; ++i) right = right && numbers[i] == length - 1 - i;
  printf("reversed %s\n", right ? "right" : "wrong");
  check(grpc_function_handle_default(&process, "process"));
  for (int i = 0; i < count; ++i) check(grpc_call_async(&process, &sessions[i], &processes[i]));
  check(grpc_wait_all());
  check(grpc_function_handle_default(&leave, "leave"));
  printf("leave: %s\n", grpc_error_string(grpc_call(&leave, 3)));
  check(grpc_function_handle_default(&forever, "forever"));
  check(grpc_call_async(&forever, &session));
  check(grpc_cancel(session));
  grpc_wait(session);
  printf("forever: %s\n", grpc_error_string(grpc_get_error(session)));
  check(grpc_finalize());
  return 0;
}
