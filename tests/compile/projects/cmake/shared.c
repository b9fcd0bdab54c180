/* SPDX-License-Identifier: MIT */
int from_library = 1;
