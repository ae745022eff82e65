/* Measures this machine and predicts a step on all layouts that may be worth it; finds the best of
 * so many ranks, and where more of them stop helping. */
#ifndef WEFT_RUN_SCALING_SEARCH_H
#define WEFT_RUN_SCALING_SEARCH_H

#include "run/scaling.h"

typedef struct {
    ScalingCase scaling;
    int at_once;            /* ranks of a node that were measured side by side */
    int shares;             /* how many were measured */
    double seconds;         /* that it took */
    Prediction one;         /* on one rank, alone on its node */
    Prediction *prediction; /* of all layouts, from the fastest on */
    int count;
} ScalingSearch;

/* Layouts within the config's grid that leave the busiest rank less than those of fewer ranks do;
 * tp, dp: 0, or the only ones. Everything is measured twice, in turn, and the faster counts: other
 * programs may disturb one. 0 or a negative code. Ends with scaling_search_release in any case. */
int scaling_search(ScalingSearch *search, const Config *config, const Network *network,
                   int node_ranks, int tp, int dp);
void scaling_search_release(ScalingSearch *search);

/* The `place`th best layout on at most so many ranks, from 0; NULL: there are no more. */
const Prediction *scaling_best(const ScalingSearch *search, int ranks, int place);

/* More ranks stop helping where up to twice as many make a step less than this many times as fast.
 */
static const double SCALING_WORTH = 1.2;

/* Doubles the ranks from one on. The best layout after the last time that it was worth it, and the
 * best of those with more ranks than it has, up to twice that number (NULL: the grid has none). */
void scaling_limit(const ScalingSearch *search, const Prediction **layout, const Prediction **more);

#endif
