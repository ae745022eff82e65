/* A plan of the oracle on all layouts: tp 1 (every rank by itself), 2 and 3, as far as there are
 * ranks. Collective over the world, like everything here. A function that fails ends the test. */
#ifndef WEFT_TESTS_ORACLE_LAYOUTS_H
#define WEFT_TESTS_ORACLE_LAYOUTS_H

#include "support/oracle.h"

typedef void (*OnLayout)(Grid *grid, const void *context);
void oracle_on_layouts(OnLayout body, const void *context);

/* weft's loss and gradients, by `plan`, against the oracle's within `tolerance` (relative to each
 * tensor's largest), and under an exact reduction by their bits with those of tp 1. *first: their
 * hash there, 0 when there is none yet. */
void oracle_check_layouts(const Oracle *oracle, const OraclePlan *plan, double tolerance,
                          Hash128 *first);

/* The same with an oracle and a hash of its own. */
void oracle_check_plan(const OraclePlan *plan, double tolerance);

/* All of it in every recompute mode: one oracle and one hash serve for all. */
void oracle_check_modes(const OraclePlan *plan, double tolerance);

#endif
