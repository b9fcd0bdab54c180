// SPDX-License-Identifier: MIT
// A loop over globals, scalars and arrays; prints seconds. It is compiled twice: as a program of cells and as an
// ordinary executable.
#include <time.h>

#include <cstdio>

double weights[512];
double values[512];
double total;
long counter;
int state = 1;
extern int table[256];
int table[256];

static double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

__attribute__((noinline)) int next() {
  state = state * 1103515245 + 12345;
  return (state >> 16) & 255;
}

__attribute__((noinline)) void step(int i) {
  const int k = next();
  table[k] += i;
  counter += table[(k + 1) & 255];
  values[i & 511] = values[i & 511] * 0.5 + weights[k] + static_cast<double>(counter & 3);
  total += values[i & 511];
}

int main() {
  for (int i = 0; i < 512; ++i) weights[i] = i * 0.25;
  for (int i = 0; i < 1000000; ++i) step(i);
  const double start = now();
  for (int i = 0; i < 20000000; ++i) step(i);
  std::printf("%.6f\n", now() - start);
  return total == 42.5 && counter == 7;
}
