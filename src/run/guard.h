/* What keeps NaN and infinity out of the parameters.
 *
 * A step whose loss or gradient norm isn't finite on some rank is computed again. When it is finite
 * then, the fault was a transient one and the run goes on with the second result, whose bits are
 * those of a run without the fault. When it isn't, a third pass looks for the tensor that went
 * first, and train.on_nonfinite decides: `stop`, or `skip` the update, at most GUARD_SKIPS steps in
 * a row. What is skipped and what is named are functions of the state: the same at every layout. */
#ifndef WEFT_RUN_GUARD_H
#define WEFT_RUN_GUARD_H

#include "run/trainer.h"

enum { GUARD_SKIPS = 10 };

/* Where a search has found its first NaN or infinity, in the order of the enumeration. */
typedef enum {
    GUARD_PARAMETER,  /* a parameter, before anything was computed */
    GUARD_MICROBATCH, /* something a microbatch has made */
    GUARD_SUM,        /* a parameter's gradient, once summed over the batch */
    GUARD_RESULT,     /* nothing but loss or norm themselves: they overflow */
    GUARD_NOWHERE,    /* the third time everything is finite */
} GuardPlace;

typedef struct {
    /* What comes first has the smallest of these, in this order. */
    int64_t place;                        /* a GuardPlace */
    int64_t microbatch, tensor, row, col; /* the tensor's number in the pass, or in the set */
    int64_t rows, cols;                   /* of the whole tensor */
    int layer;                            /* -1: outside of the layers */
    bool gradient;
    char name[PARAM_NAME];
    double value;
    int rank; /* of the world: the first that holds it */
} Finding;

/* After trainer_gradient. 0: the gradient there is may be used, unless report->skipped. Or a
 * negative code, the reason agreed. Collective over GROUP_GRID. */
int guard_step(Trainer *trainer, StepReport *report);

/* Computes the step's gradient under observation. The same finding on all ranks. 0 or a negative
 * code (not agreed). Collective over GROUP_GRID. */
int guard_search(Trainer *trainer, Finding *finding);

/* "microbatch 3, forward, layer 1, ffn.act, element [17, 85] = inf, rank 1" */
void guard_describe(const Finding *finding, char *text, size_t capacity);

#endif
