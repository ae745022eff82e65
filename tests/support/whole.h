/* Whole tensors in double, whoever holds their shards; and how far two of them are apart. */
#ifndef WEFT_TESTS_WHOLE_H
#define WEFT_TESTS_WHOLE_H

#include "base/hash.h"
#include "comm/comm.h"
#include "param/param.h"

/* One role of a tensor [rows, cols], on all tensor ranks; to be freed. A replicated tensor is the
 * first rank's. Collective over GROUP_TENSOR. */
double *whole_gather(Grid *grid, const ParamSet *set, const Param *param, ParamRole role);

/* Puts the elements [rows, cols] where this rank holds them, rounded to real. */
void whole_scatter(const ParamSet *set, const Param *param, ParamRole role, const double *whole);

/* Activations [T, units * unit_size], cut like `axis`: assembled from the owned shards. To be
 * freed. Collective over GROUP_TENSOR. */
double *whole_activation(Grid *grid, const AxisLayout *axis, int64_t unit_size, const Tensor *shard,
                         int64_t rows);

/* The address of one element on this rank, NULL when it is elsewhere. */
real *whole_element(const ParamSet *set, const Param *param, ParamRole role, int64_t row,
                    int64_t col);

/* Hash of one role of all tensors, whole: equal on every layout when the bits are. Collective over
 * GROUP_TENSOR. */
Hash128 whole_hash(Grid *grid, const ParamSet *set, ParamRole role);

/* The largest |got - expected|, relative to the largest |expected| (absolute when that is 0);
 * infinity when anything is not finite. */
double whole_difference(int64_t n, const double *got, const double *expected);

#endif
