/* SPDX-License-Identifier: MIT */
/* A hash table over all cells, as a chess program of the AP1000+ kept its positions. The key determines the owner.
 * Entries are fetched by get, judged here, and written back by put, without flags and without asking the owner. Two
 * cells may write one entry at once; a check word shows a torn one. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cap2.c.h>

#define ENTRIES 512 /* per cell */
#define KEYS 3000   /* of each cell */

struct entry {
  unsigned key, value, depth, check;
};

static struct entry* table;
static int get_flag;

static unsigned next_key(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 4 | 1;
}

static unsigned owner(unsigned key) { return key / 2 % (unsigned)getncel(); }
static unsigned place(unsigned key) { return key / 2 / (unsigned)getncel() % ENTRIES; }
static unsigned check_of(const struct entry* e) { return e->key ^ e->value * 3 ^ e->depth * 5 ^ 0x5a5a5a5au; }

static void fetch_entry(unsigned key, struct entry* into) {
  get_flag = 0;
  get((int)owner(key), into, sizeof *into, &table[place(key)], &get_flag, NULL);
  amcheck(&get_flag, 1);
}

static void store(unsigned key, unsigned depth) {
  struct entry there, mine;
  fetch_entry(key, &there);
  if (there.key != 0 && there.check == check_of(&there) && there.depth > depth) return;
  mine.key = key;
  mine.value = key * 7;
  mine.depth = depth;
  mine.check = check_of(&mine);
  put((int)owner(key), &mine, sizeof mine, &table[place(key)], NULL, NULL, 0);
}

int main(void) {
  unsigned state, i, hits = 0, wrong = 0, total = 0, bad = 0;
  int hit_sum = 0, wrong_sum = 0;
  table = calloc(ENTRIES, sizeof *table); /* at the same place in all cells */
  ap_init();
  state = (unsigned)getcid() * 77777u + 1;
  for (i = 0; i < KEYS; ++i) store(next_key(&state), i % 10);
  sync(0, 0);
  state = (unsigned)getcid() * 77777u + 1;
  for (i = 0; i < KEYS; ++i) {
    struct entry e;
    unsigned key = next_key(&state);
    fetch_entry(key, &e);
    if (e.check != check_of(&e)) continue; /* torn */
    if (e.key != key) continue;            /* replaced */
    ++hits;
    if (e.value != key * 7) ++wrong;
  }
  for (i = 0; i < ENTRIES; ++i) {
    if (table[i].key == 0) continue;
    ++total;
    if (table[i].check == check_of(&table[i]) && owner(table[i].key) != (unsigned)getcid()) ++bad;
  }
  xy_isum((int)hits, &hit_sum);
  xy_isum((int)(wrong + bad), &wrong_sum);
  printf("cell %d: %s\n", getcid(),
         hit_sum >= getncel() * ENTRIES / 2 && wrong_sum == 0 && total > ENTRIES / 2 ? "good" : "BAD");
  sync(0, 0);
  return 0;
}
