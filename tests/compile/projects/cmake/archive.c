/* SPDX-License-Identifier: MIT */
int from_archive = 2;
