/* What a rank will hold in memory while it trains. No MPI. */
#ifndef WEFT_RUN_PLAN_MEMORY_H
#define WEFT_RUN_PLAN_MEMORY_H

#include "config/config.h"

#include <stddef.h>

/* Bytes. All but `process` is what the arenas and buffers will have, to the byte. A process that
 * reads the windows of others shows those too in its resident set: they are counted once here, with
 * their owner. */
typedef struct {
    size_t parameters, gradients, moments; /* gradients: with the spares of the tree over batch
                                              shards */
    size_t activations, exchanges;         /* exchanges: of windows this rank's own segment */
    size_t copy;                           /* that checkpoints are written from */
    size_t buffers;                        /* a microbatch, sample ids, sums of the gradient norm */
    size_t process;                        /* program and libraries, as measured: an estimate */
} MemoryPlan;

/* Of tensor rank `tensor_rank`, data rank `data_rank` of tp x dp. 0 or a negative code. */
int plan_memory(const Config *config, int threads, int tp, int dp, int tensor_rank, int data_rank,
                MemoryPlan *memory);

size_t memory_plan_total(const MemoryPlan *memory);

/* Activations of one rank under a recompute mode, whatever the config's is. 0 or a negative code.
 */
int plan_activations(const Config *config, int threads, int tp, int tensor_rank,
                     const char *recompute, size_t *bytes);

/* Activations, and buffers of exchanges between the tensor ranks, with or without sequence-parallel
 * regions, whatever the config says of them. 0 or a negative code. */
int plan_sequence(const Config *config, int threads, int tp, int tensor_rank, bool sequence,
                  size_t *bytes);

#endif
