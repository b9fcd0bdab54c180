/* SPDX-License-Identifier: MIT */
/* A library for apfarm --entry. */
double twice(double number) { return 2 * number; }
