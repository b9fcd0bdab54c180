/* SPDX-License-Identifier: MIT */
/* Work that takes a processor's time, and not that of a clock: ranks that share a core have to take turns with it. */
#ifndef PEERS_CROWD_WORK_H
#define PEERS_CROWD_WORK_H

/* All ranks call it: rank 0 finds out how much work a microsecond is, and tells the others. */
void calibrate_work(void);

void work(double microseconds);

/* Work that differs by rank and step: between 0 and twice the mean. */
void uneven_work(double mean_microseconds, long rank, long step);

#endif
