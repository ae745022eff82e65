/* Measures this machine and predicts a step on all layouts that may be worth it; finds the best of
 * so many ranks, and where more of them stop helping. */
#ifndef WEFT_RUN_SCALING_SEARCH_H
#define WEFT_RUN_SCALING_SEARCH_H

#include "run/scaling.h"
#include "run/scaling_measure.h"

typedef struct {
    ScalingCase scaling;
    int tp, dp;             /* 0, or the only ones */
    int most;               /* ranks of a layout */
    int at_once;            /* ranks of a node that were measured side by side */
    double seconds;         /* that measuring and predicting took */
    ScalingSpread spread;   /* of what was measured */
    Prediction one;         /* on one rank, alone on its node */
    Prediction *prediction; /* of all layouts, from the fastest on */
    int count;
} ScalingSearch;

/* Layouts within the config's grid that leave the busiest rank less than those of fewer ranks do.
 * tp, dp: 0, or the only ones; then layouts of more than `most` ranks are left out, and shares that
 * only they have aren't measured. (Where both are free, scaling_limit wants them.) 0 or a negative
 * code: WEFT_USAGE where a rank has more threads than this machine has cores to measure it on. Ends
 * with scaling_search_release in any case. */
int scaling_search(ScalingSearch *search, const Config *config, const Network *network,
                   int node_ranks, int most, int tp, int dp);
void scaling_search_release(ScalingSearch *search);

/* The `place`th best layout on at most so many ranks, from 0; NULL: there are no more. */
const Prediction *scaling_best(const ScalingSearch *search, int ranks, int place);

/* More ranks stop helping where up to twice as many make a step less than this many times as fast.
 */
static const double SCALING_WORTH = 1.2;

/* Of a search with tp and dp 0. Doubles the ranks from one on. The best layout after the last time
 * that it was worth it, and the best of those with more ranks than it has, up to twice that number
 * (NULL: the grid has none). */
void scaling_limit(const ScalingSearch *search, const Prediction **layout, const Prediction **more);

#endif
