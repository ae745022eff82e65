/* What a config will cost, without running it: the ledger of its model (plan_ledger.h), what ranks
 * tell each other (plan_traffic.h), what they hold (plan_memory.h), and where products are slow.
 * Lines of at most 80 columns. No MPI. */
#ifndef WEFT_RUN_PLAN_H
#define WEFT_RUN_PLAN_H

#include "config/config.h"
#include "run/plan_memory.h"

/* Prints the plan for so many ranks (log_print). tp, dp: 0 to choose. 0 or a negative code. */
int plan_print(const Config *config, int ranks, int tp, int dp);

/* Prints the FFNs of two configs side by side. `names` are the columns' titles. 0 or a negative
 * code. */
int plan_compare(const Config *a, const Config *b, const char *const names[2]);

/* Whether a kind with a gate stands beside one without at equal d_ff, where their parameters
 * differ; then `text` says so, and how many channels would make them equal. */
bool plan_unfair(const Config *a, const Config *b, char *text, size_t capacity);

#endif
