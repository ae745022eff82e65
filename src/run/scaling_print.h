/* What `weft plan --net` says: the best layouts, where their time goes, and where they stop
 * scaling. */
#ifndef WEFT_RUN_SCALING_PRINT_H
#define WEFT_RUN_SCALING_PRINT_H

#include "run/scaling_search.h"

enum { SCALING_COUNTS = 6 }; /* numbers of ranks that fit a line */

/* Predicts steps on each of these numbers of ranks, node_ranks on a node, and prints what it finds.
 * tp, dp: 0 to choose. Measures for some seconds; no MPI. 0 or a negative code. */
int scaling_print(const Config *config, const Network *network, int node_ranks, const int *ranks,
                  int count, int tp, int dp);

/* Prints (log_print, at most 100 columns) the best layouts of each number of ranks, where the time
 * of the best goes, and where more ranks stop helping; and says when repetitions spread, and when a
 * layout is better than ideal. 0 or a negative code. */
int scaling_print_found(const ScalingSearch *search, const int *ranks, int count);

#endif
