/* weft diff: two checkpoints, on whatever logical grids, against each other. What counts is what
 * the fingerprint covers: the tensors of all roles, the function block, step and tokens. Grid,
 * optimizer settings, implementation are told apart from it. Memory stays at two blocks of values
 * however large the checkpoints are. No MPI. */
#ifndef WEFT_CHECKPOINT_DIFF_H
#define WEFT_CHECKPOINT_DIFF_H

#include <stdbool.h>

typedef struct {
    double tolerance; /* differences up to this times the tensor's largest magnitude count as equal
                       */
    bool verbose;     /* a row for equal tensors too, and where the checkpoints come from */
} DiffOptions;

/* a, b: step directories. Prints (log_print) the table, with the verdict as its last line. 0: they
 * are equal; WEFT_CHECK: they differ, as the table says; WEFT_INPUT: one can't be read, or its data
 * aren't those of its fingerprint. */
int checkpoint_diff(const char *a, const char *b, const DiffOptions *options);

#endif
