/* Normalisation: each column of an array to mean 0 and deviation 1 over the training rows.
 *
 * It belongs to the trained function: measured once, when a run starts, kept in its checkpoints,
 * and taken from there ever after. Rows are read once, in order, and the moments are Welford's
 * (1962) in double: the same numbers on any layout.
 *
 *     normalisation_open(&n, columns);
 *     normalisation_measure(&n, source, rows), or n.number is filled from elsewhere; n.known = true
 *     normalise(&n, part, values, rows, out);
 *     normalisation_close(&n); */
#ifndef WEFT_DATA_NORMALISE_H
#define WEFT_DATA_NORMALISE_H

#include "base/real.h"
#include "data/arrays.h"

typedef struct {
    int64_t columns[ARRAY_PARTS]; /* 0: this part is left as it is (classes; nothing is wanted) */
    bool known;
    double *mean[ARRAY_PARTS], *scale[ARRAY_PARTS]; /* [columns] each, within `number` */
    double *number;
    int64_t numbers; /* 2 * all columns */
} Normalisation;

/* 0 or WEFT_RUNTIME. */
int normalisation_open(Normalisation *n, const int64_t columns[ARRAY_PARTS]);
void normalisation_close(Normalisation *n); /* also when zeroed */

/* Mean, and deviation as scale (1 for a column that is constant), of rows 0 ... rows - 1. 0,
 * WEFT_INPUT (a row can't be read; a deviation beyond double, or so small that other rows would be
 * infinite), or WEFT_RUNTIME. */
int normalisation_measure(Normalisation *n, const ArraySource *source, int64_t rows);

/* out [count, width] = (values - mean) / scale by column, or the values where the part is left as
 * it is. */
void normalise(const Normalisation *n, ArrayPart part, const double *values, int64_t count,
               int64_t width, real *out);

#endif
