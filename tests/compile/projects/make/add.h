/* SPDX-License-Identifier: MIT */
extern int sum;
void add(int x);
