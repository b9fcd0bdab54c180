/* SPDX-License-Identifier: MIT */
/* The pattern of an interpreter whose cells make no system calls. The host broadcasts the start-up text and the
 * arguments, then serves requests until all cells have ended. Cell 0 gives work to the others, which poll for it
 * between their own steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aplib/cellos.h"

enum { WRITE = 1, GETENV = 2, COUNT = 3 };
enum { EVAL = 10, QUIT = 11 };
#define TEXT_BYTES 13000

struct request {
  int kind;
  int value;
  char text[80];
};

/* --- host --- */

int host_main(int argc, char** argv) {
  static char text[TEXT_BYTES];
  struct request* request;
  int i, width, rest, counted = 0, replies = 0;

  width = argc > 1 ? atoi(argv[1]) : getncel();
  cconfxy(width, 1);
  ccreat("interpreter", 0, NULL);
  for (i = 0; i < TEXT_BYTES; ++i) text[i] = (char)('a' + i % 26);
  cbroad(0, 0, text, TEXT_BYTES);
  rest = argc > 2 ? argc - 2 : 0;
  cbroad(0, 0, &rest, sizeof rest);
  for (i = argc - rest; i < argc; ++i) {
    int bytes = (int)strlen(argv[i]) + 1;
    cbroad(0, 0, &bytes, sizeof bytes);
    cbroad(0, 0, argv[i], bytes);
  }
  while ((request = (struct request*)crecv()) != NULL) {
    const int cid = getmcid();
    char* answer;
    switch (request->kind) {
      case WRITE:
        fputs(request->text, stdout);
        l_asend(cid, 0, 0, &request->value, sizeof request->value);
        break;
      case GETENV:
        answer = (char*)malloc(100);
        strncpy(answer, getenv(request->text) != NULL ? getenv(request->text) : "", 99);
        answer[99] = 0;
        l_asend(cid, 0, 0, answer, (int)strlen(answer) + 1);
        free(answer);
        break;
      default:
        counted += request->value;
        l_asend(cid, 0, 0, &counted, sizeof counted);
    }
    ++replies;
  }
  waitstable();
  printf("served %d requests, counted %d\n", replies, counted);
  return 0;
}

/* --- cells --- */

static void* ask_host(int kind, int value, const char* text) {
  struct request request;
  memset(&request, 0, sizeof request);
  request.kind = kind;
  request.value = value;
  strncpy(request.text, text, sizeof request.text - 1);
  h_send(0, &request, sizeof request);
  return h_recv(0);
}

static void quit(void) { exit(0); }

static int fib(int n) {
  /* Every step looks for work, as an interpreter's eval does. */
  if (cprobe() != 0) {
    int* work = (int*)crecv();
    int answer[2];
    const int asker = getmcid();
    if (work[0] == QUIT) quit();
    answer[0] = work[1];
    answer[1] = fib(work[1]);
    l_asend(asker, 0, 1, answer, sizeof answer);
  }
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

void cell_main(void) {
  static const int expected[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144};
  char text[TEXT_BYTES], line[80];
  int rest, i, bytes = 0, argument_bytes = 0, work[2];
  const int me = getcid(), cells = getncel();

  h_recv(0);
  if (readmsg(text, sizeof text) != TEXT_BYTES || text[TEXT_BYTES - 1] != 'a' + (TEXT_BYTES - 1) % 26) abort();
  h_recv(0);
  readmsg(&rest, sizeof rest);
  for (i = 0; i < rest; ++i) {
    h_recv(0);
    readmsg(&bytes, sizeof bytes);
    h_recv(0);
    if (readmsg(text, sizeof text) != bytes) abort();
    argument_bytes += bytes - 1;
  }
  if (strcmp((char*)ask_host(GETENV, 0, "SERVICE_LOOP_WORD"), "swordfish") != 0) abort();
  ask_host(COUNT, me + 1, "");
  pstat(1);
  sync(0, 0);
  if (me != 0) {
    pstat(0);
    for (;;) fib(5);
  }
  while (cstat() != 0) { /* until every worker is ready; cell 0's own bit is cleared first */
    pstat(0);
  }
  for (i = 1; i < cells; ++i) {
    work[0] = EVAL;
    work[1] = i % 13;
    l_asend(i, 0, 0, work, sizeof work);
  }
  for (i = 1; i < cells; ++i) {
    int* answer = (int*)l_arecv(i, ANY_TASK, ANY_TYPE);
    if (answer[0] != i % 13 || answer[1] != expected[i % 13]) abort();
  }
  snprintf(line, sizeof line, "cell 0: %d workers answered, %d bytes of arguments\n", cells - 1, argument_bytes);
  if (*(int*)ask_host(WRITE, 33, line) != 33) abort();
  work[0] = QUIT;
  cbroad(0, 0, work, sizeof work);
  quit();
}
