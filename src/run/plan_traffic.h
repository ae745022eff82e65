/* What the ranks will tell each other: collectives of one training step, and the bytes that each
 * brings to a rank, counted as the grid's counters count them. No MPI. */
#ifndef WEFT_RUN_PLAN_TRAFFIC_H
#define WEFT_RUN_PLAN_TRAFFIC_H

#include "config/config.h"

typedef enum {
    TRAFFIC_ENTRY,     /* embedding rows, or an mlp's input */
    TRAFFIC_ATTENTION, /* its sums and gathers, forward and backward */
    TRAFFIC_FFN,
    TRAFFIC_HEAD,
    TRAFFIC_ROWS,      /* sums over rows, where the tensor ranks share those out */
    TRAFFIC_GRADIENTS, /* over data ranks, with the loss */
    TRAFFIC_STEP,      /* gradient norm, and whether all is finite */
    TRAFFIC_KINDS
} TrafficKind;

extern const char *const traffic_names[TRAFFIC_KINDS];

typedef struct {
    int64_t collectives, bytes;
} Traffic;

/* Of one trainer_step on one rank of tp x dp. (The loop adds a vote and an agreement: 32 bytes.) 0
 * or a negative code. */
int plan_traffic(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                 Traffic traffic[TRAFFIC_KINDS]);

#endif
