/* How the products of a group of calls are computed: one side, A or B, is shared, the other gone
 * through piece by piece.
 *
 * As much of the shared side as memory has room for is packed by all threads. Then each thread
 * takes pieces of the other side, packs them for itself, and multiplies them by all of what is
 * shared, chunk by chunk of C: the piece and the chunk stay in its second cache level. Which thread
 * takes what changes no bit (gemm_kernel.h). */
#ifndef WEFT_MATH_GEMM_ENGINE_H
#define WEFT_MATH_GEMM_ENGINE_H

#include "math/gemm.h"
#include "math/gemm_kernel.h"

#include <stdatomic.h>

/* Calls of a list that differ in B and C alone, or in A and C alone; none is empty. */
typedef struct GemmGroup {
    const GemmCall *call;
    int count;
    bool down;  /* they differ in A: their rows of C lie below one another */
    bool pairs; /* two calls each, of like shape, side by side panel by panel */
} GemmGroup;

/* Threads of one parallel region that work on the same groups one after another. */
typedef struct {
    const GemmKernel *kernel;
    int threads;
    atomic_llong taken; /* pieces of work, of all that was ever shared out */
    real *memory;
    size_t bytes;
    const GemmList *list; /* whose `after` is told of what is done; or NULL */
} GemmTeam;

/* The next of `count` pieces of work, or -1: then all threads have met, and what is next is another
 * round. `base` is 0 before a thread's first round and then left alone. */
int64_t gemm_team_take(GemmTeam *team, int64_t *base, int64_t count);

/* Called by all threads of the team at once, with the same group; `base` is 0 before a thread's
 * first group and then left alone. */
void gemm_group_run(GemmTeam *team, const GemmGroup *group, int64_t *base);

#endif
