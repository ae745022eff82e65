/* What a config will cost, without running it: parameters, layout, memory per rank, and shapes that
 * BLAS dislikes. No MPI. */
#ifndef WEFT_RUN_PLAN_H
#define WEFT_RUN_PLAN_H

#include "config/config.h"

/* Bytes that one rank of a layout holds while training; each is what the arenas will have. */
typedef struct {
    size_t parameters, gradients,
        moments; /* gradients: with the spares of the tree over batch shards */
    size_t activations, exchanges;
    size_t copy; /* that checkpoints are written from */
} MemoryPlan;

/* Of tensor rank `tensor_rank`, data rank `data_rank` of tp x dp. 0 or a negative code. */
int plan_memory(const Config *config, int threads, int tp, int dp, int tensor_rank, int data_rank,
                MemoryPlan *memory);

/* Prints the plan for so many ranks (log_print). tp, dp: 0 to choose. 0 or a negative code. */
int plan_print(const Config *config, int ranks, int tp, int dp);

#endif
