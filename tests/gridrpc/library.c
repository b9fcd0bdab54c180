// SPDX-License-Identifier: MIT
// A library whose functions are called by the types in its debug information.
#include <stddef.h>
#include <stdio.h>

int solve(int n, double eps) { return n + (int)(1 / eps); }
double mean(float a, unsigned char b) { return (a + b) / 2.0; }

const char* greet(const char* who) {
  static char text[80];
  if (who[0] == '\0') return NULL;
  snprintf(text, sizeof text, "hello %s", who);
  return text;
}

double norm(int n, const double* x) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}
