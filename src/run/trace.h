/* weft trace: one forward pass with every tensor whole, in an HDF5 file that is the same, byte for
 * byte, at every layout, with any number of threads and in every recompute mode.
 *
 * What the file holds: `tokens` (an mlp: `inputs`) and `targets`, as the model reads them, then the
 * tensors that nn/observer.h lists for a forward pass, in that order and under these names, those
 * of a layer in groups layers/0, layers/1, ...; `loss` is the mean over the targets that aren't
 * masked; `order` lists all names. An mlp's file need not have targets: then there are none, and no
 * loss. Where its targets are normalised numbers, `outputs` is the logits in the data's units. Each
 * rank holds the tensors between two whole ones (an FFN's gate, up and act; the logits) for a
 * moment, T rows each.
 */
#ifndef WEFT_RUN_TRACE_H
#define WEFT_RUN_TRACE_H

#include "run/session.h"

typedef struct {
    const char *directory; /* step directory; NULL: the config's initial weights */
    const char *input;     /* what the model reads */
    int64_t first;         /* its token or row to begin with */
    const char *out;       /* the trace */
    bool training;         /* with dropout, as in microbatch 0 of step 0 */
    const char *against;   /* another file, to compare with (run/trace_compare.h); NULL: none */
    double tolerance;      /* of the comparison */
} TraceOptions;

/* 0, WEFT_CHECK (agreed) when the other file differs, or another negative code. Collective over
 * GROUP_GRID, whose dp is 1. */
int trace_run(const Config *config, const TraceOptions *options, const Session *session);

#endif
