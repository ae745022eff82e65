/* What the ranks will tell each other: collectives of one training step, and the bytes that each
 * brings to a rank, counted as the grid's counters count them. No MPI. */
#ifndef WEFT_RUN_PLAN_TRAFFIC_H
#define WEFT_RUN_PLAN_TRAFFIC_H

#include "comm/comm.h"
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

/* How a collective moves its bytes. */
typedef enum {
    COLLECTIVE_SUM,     /* exchange_sum: to each rank all partials of its part, then all parts */
    COLLECTIVE_SUM_OWN, /* the first half alone */
    COLLECTIVE_GATHER,  /* everybody's piece to all */
    COLLECTIVE_SCATTER, /* words that one rank has, to whom they belong (MPI_Reduce_scatter) */
    COLLECTIVE_REDUCE,  /* words or numbers of all, combined, to all (MPI_Allreduce) */
} CollectiveForm;

/* What one rank does again and again in a step. */
typedef struct {
    TrafficKind kind;
    Group group;
    CollectiveForm form;
    bool window;         /* goes through shared windows where the ranks lie on one node */
    int64_t times;       /* in a step */
    int64_t calls;       /* of the library; more than times where long ones are cut */
    int64_t bytes;       /* that all of them bring to this rank */
    int64_t block;       /* bytes of the result of one call, whole */
    int sends, receives; /* of sums: this rank's partials, and the others' */
} Collective;

enum { COLLECTIVES_MAX = 24 };

/* Of one trainer_step on one rank of tp x dp. (The loop adds a vote and an agreement: 32 bytes.) 0
 * or a negative code. */
int plan_collectives(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                     Collective row[COLLECTIVES_MAX], int *count);

typedef struct {
    int64_t collectives, bytes;
} Traffic;

/* The same, added up by kind. */
int plan_traffic(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                 Traffic traffic[TRAFFIC_KINDS]);

#endif
