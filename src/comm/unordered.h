/* A sum over ranks by messages that adds what arrives in the order in which it arrives: bits change
 * from one time to the next. For the bench alone: what the exact sum of exchange.h by messages,
 * which moves the same bytes, is measured against. (By windows a sum without order is an exact one
 * over as many shards as ranks: all partials are there before the first is added.) */
#ifndef WEFT_COMM_UNORDERED_H
#define WEFT_COMM_UNORDERED_H

#include "comm/comm.h"

typedef struct Unordered Unordered;

/* For sums of at most `elements` (below 2^31). 0 or WEFT_RUNTIME, agreed. Collective over
 * GROUP_GRID. */
int unordered_open(Unordered **unordered, Grid *grid, Group group, int64_t elements, int threads);
void unordered_close(Unordered *unordered);

/* y [elements] of each rank -> their sum on all. Collective over the group. */
void unordered_sum(Unordered *unordered, real *y, int64_t elements);

#endif
