/* SPDX-License-Identifier: MIT */
#include "command.h"

#include <stdlib.h>
#include <string.h>

static void parse_sizes(struct command* c, const char* text) {
  while (*text != '\0' && c->sizes < sizes_max) {
    char* end = NULL;
    c->bytes[c->sizes++] = strtoul(text, &end, 10);
    if (end == text) return;
    text = *end == ',' ? end + 1 : end;
  }
}

const char* parse(struct command* c, int argc, char** argv) {
  *c = (struct command){.peer = "mpi", .case_name = "two-processors", .samples = 3, .sample_ms = 6};
  for (int i = 1; i < argc; ++i) {
    const char* word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strncmp(word, "--", 2) != 0) {
      if (c->bench_count == benches_max) return word;
      c->benches[c->bench_count++] = word;
    } else if (strcmp(word, "--touch") == 0) {
      c->touch = 1;
    } else if (value == NULL) {
      return word;
    } else {
      ++i;
      if (strcmp(word, "--peer") == 0) {
        c->peer = value;
      } else if (strcmp(word, "--case") == 0) {
        c->case_name = value;
      } else if (strcmp(word, "--bytes") == 0) {
        parse_sizes(c, value);
      } else if (strcmp(word, "--folder") == 0) {
        c->folder = value;
      } else if (strcmp(word, "--samples") == 0) {
        c->samples = atoi(value);
      } else if (strcmp(word, "--sample-ms") == 0) {
        c->sample_ms = atof(value);
      } else {
        return word;
      }
    }
  }
  return c->samples < 1 ? "--samples" : NULL;
}
