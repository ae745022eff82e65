/* Which ranks do what: the choice of tp x dp, and what it costs. Integers and a rough model of
 * time; no MPI. */
#ifndef WEFT_RUN_LAYOUT_H
#define WEFT_RUN_LAYOUT_H

#include "config/config.h"

typedef struct {
    int tp, dp;
    double seconds; /* predicted step time: for comparing layouts, not a promise */
    double load; /* the largest rank's share of the products of a step; ideal speed-up = 1 / load */
} LayoutChoice;

/* Of all tp * dp <= ranks with tp <= grid.tensor and dp <= grid.data the one with the smallest
 * predicted step time; a nonzero tp or dp is taken as it is. 0, or WEFT_USAGE naming what does not
 * fit. */
int layout_choose(const Config *config, int ranks, int threads, int tp, int dp,
                  LayoutChoice *choice);

/* The prediction for one layout. */
LayoutChoice layout_predict(const Config *config, int threads, int tp, int dp);

/* "layout tp 3 x dp 2 on 7 ranks (1 idle): the busiest does 19.0 % of the products, so at best 5.26
 * times as fast as one" */
void layout_describe(const LayoutChoice *choice, int ranks, char *text, size_t capacity);

#endif
