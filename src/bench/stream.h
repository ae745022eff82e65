/* What memory gives to a loop that reads four arrays and writes three of them in place, as AdamW
 * does: the yardstick of all that isn't products. */
#ifndef WEFT_BENCH_STREAM_H
#define WEFT_BENCH_STREAM_H

#include "base/real.h"

#include <stdint.h>

/* Bytes per second, read and written, over arrays of n elements on so many threads. The arrays keep
 * their values (a finite one each). */
double stream_rate(int threads, int64_t n, const real *read, real *a, real *b, real *c);

#endif
