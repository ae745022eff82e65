/* How far two arrays are from each other, block by block in bounded memory. No I/O, no MPI.
 *
 *     Comparison comparison = {0};
 *     compare_block(&comparison, block, a, b);     // for every block, by ascending place
 *     if (!compare_within(&comparison, tolerance)) ...
 *
 * Equal means equal bits: -0 differs from +0 and a NaN from a NaN of other bits, while a NaN equals
 * itself. Distances are those of elements that differ and are numbers in both; a NaN has none. */
#ifndef WEFT_CHECKPOINT_COMPARE_H
#define WEFT_CHECKPOINT_COMPARE_H

#include "base/real.h"
#include "param/param.h"

typedef struct {
    int64_t elements, differing;
    int64_t nans;    /* of those that differ: not a number in one or both */
    double absolute; /* largest |a - b| */
    double relative; /* largest |a - b| / max(|a|, |b|); infinite where |a - b| is */
    uint64_t ulps;   /* largest compare_ulps */
    double scale;    /* largest finite magnitude in either */
    int64_t row, col;
    real a, b; /* the first that differ, and where in the whole tensor they are */
} Comparison;

/* a, b: [block.rows, block.cols] contiguous, at `block` of the whole tensor. */
void compare_block(Comparison *comparison, ParamPiece block, const real *a, const real *b);

/* Equal in all bits; or, with a tolerance above 0, no NaN or infinity meets anything else and no
 * element differs by more than the tolerance times the tensor's scale. */
bool compare_within(const Comparison *comparison, double tolerance);

/* How many steps to the next representable number lead from a to b. -0 and +0 are neighbours, as
 * are the largest finite number and infinity. Of numbers only. */
uint64_t compare_ulps(real a, real b);

#endif
