/* SPDX-License-Identifier: MIT */
/* Cells whose messages, puts and sums are all checked: traffic SEED STOP [LINES [END]]. They go on until there is a
 * file STOP, then "all done" is written. "all run" comes when every cell has begun, "round N" before rounds 1, 2, 4,
 * 8, ...; LINES 1: each cell writes "[CELL] ROUND" in each round; END: how cell 1 ends in round 50: exit, abort,
 * fault. Whatever is lost, doubled or changed is told as "WRONG ...", and the status is 9. */
#include <aplib/cellos.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { together = 3, large = 300000, medium = 8192, small = 64, put_words = 512, end_round = 50 };

struct head {
  uint64_t round, from, bytes, sum;
};

static uint64_t seed;
static uint64_t arrived_words[together][put_words];
static int arrived;

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9e3779b97f4a7c15u + b + seed;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static void wrong(const char* what, long round, int from, unsigned long got, unsigned long due) {
  printf("WRONG cell %d, round %ld, from cell %d: %s: %lu where %lu was due\n", getcid(), round, from, what, got, due);
  fflush(stdout);
  exit(9);
}

/* Of a message of this round: most are small. */
static int bytes_of(uint64_t random) {
  const unsigned kind = random >> 8 & 63;
  const unsigned most = kind == 0 ? large : kind < 6 ? medium : small;
  return (int)((random >> 20) % most) & ~7;
}

static uint64_t fill(uint64_t* words, int bytes, long round, int from) {
  uint64_t sum = mix(round, from), word = sum;
  for (int i = 0; i < bytes / 8; ++i) {
    words[i] = word += 0x9e3779b97f4a7c15u;
    sum = (sum ^ word) * 0x100000001b3u;
  }
  return sum;
}

static uint64_t sum_of(const uint64_t* words, int bytes, long round, int from) {
  uint64_t sum = mix(round, from);
  for (int i = 0; i < bytes / 8; ++i) sum = (sum ^ words[i]) * 0x100000001b3u;
  return sum;
}

static void exchange(char* body, long round, int shift, int bytes) {
  const int cells = getncel(), mine = getcid(), from = (mine + cells - shift) % cells;
  struct head* head = (struct head*)body;
  head->round = round;
  head->from = mine;
  head->bytes = bytes;
  head->sum = fill((uint64_t*)(head + 1), bytes, round, mine);
  l_asend((mine + shift) % cells, 0, (int)(round % 1000), body, bytes + (int)sizeof *head);
  const struct head* got = l_arecv(from, 0, (int)(round % 1000));
  if (getmlen() != bytes + (int)sizeof *head) wrong("length", round, from, getmlen(), bytes + sizeof *head);
  if (got->round != (uint64_t)round) wrong("round", round, from, got->round, round);
  if (got->from != (uint64_t)from) wrong("sender", round, from, got->from, from);
  const uint64_t sum = sum_of((const uint64_t*)(got + 1), bytes, round, from);
  if (sum != got->sum) wrong("sum", round, from, sum, got->sum);
}

static void put_and_check(long round, int shift) {
  const int cells = getncel(), mine = getcid(), from = (mine + cells - shift) % cells;
  static uint64_t words[put_words];
  static int puts;
  fill(words, sizeof words, round, mine);
  cellos_put((mine + shift) % cells, words, sizeof words, arrived_words[puts % together], &arrived, NULL, 1);
  amcheck(&arrived, ++puts);
  amackwait();
  uint64_t due[put_words];
  fill(due, sizeof due, round, from);
  for (int i = 0; i < put_words; ++i)
    if (arrived_words[(puts - 1) % together][i] != due[i])
      wrong("word of a put", round, from, arrived_words[(puts - 1) % together][i], due[i]);
  cellos_sync(0, 0); /* nobody's next put is taken for this one */
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  seed = strtoull(argv[1], NULL, 10);
  const int lines = argc > 3 && atoi(argv[3]) == 1;
  const char* end = argc > 4 ? argv[4] : "";
  const int cells = getncel(), mine = getcid();
  char* body = malloc(sizeof(struct head) + large);
  cellos_sync(0, 0);
  if (mine == 0) printf("all run\n");
  if (mine == 0) fflush(stdout);
  for (long round = 0;; ++round) {
    if (mine == 0 && !lines && round > 0 && (round & (round - 1)) == 0) {
      printf("round %ld\n", round);
      fflush(stdout);
    }
    if (mine == 1 && round == end_round && strcmp(end, "exit") == 0) exit(3);
    if (mine == 1 && round == end_round && strcmp(end, "abort") == 0) abort();
    if (mine == 1 && round == end_round && strcmp(end, "fault") == 0) *(volatile int*)8 = 1;
    const uint64_t random = mix(round, 1u << 20);
    const int shift = cells == 1 ? 0 : 1 + (int)(random % (cells - 1));
    exchange(body, round, shift, bytes_of(random));
    if (round % 4 == 0) put_and_check(round, shift);
    if (lines) printf("[%d] %ld\n", mine, round);
    if (round % 16 != 0) continue;
    if (mine == 0) usleep(1000); /* leaves some of the computer to others: all wait for the sum */
    int sum = 0;
    xy_isum(mine + (int)(round % 1000), &sum);
    if (sum != cells * (cells - 1) / 2 + cells * (int)(round % 1000)) wrong("sum of all", round, mine, sum, 0);
    int stop = mine == 0 && access(argv[2], F_OK) == 0;
    xy_brd(0, &stop, sizeof stop);
    if (stop) break;
  }
  cellos_sync(0, 0);
  if (mine == 0) printf("all done\n");
  return 0;
}
