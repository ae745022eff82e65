#include "checkpoint/compare.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* IEEE 754 numbers of one sign are ordered as their bits are; so are all of them once the negative
 * ones are counted downwards from below +0. */
static uint64_t place(real value) {
#ifdef WEFT_REAL64
    uint64_t bits;
#else
    uint32_t bits;
#endif
    memcpy(&bits, &value, sizeof bits);
    int sign = (int)(8 * sizeof bits - 1);
    uint64_t middle = (uint64_t)1 << sign, rank = bits & (middle - 1);
    return bits >> sign ? middle - 1 - rank : middle + rank;
}

uint64_t compare_ulps(real a, real b) {
    uint64_t left = place(a), right = place(b);
    return left > right ? left - right : right - left;
}

static double larger(double a, double b) { return a > b ? a : b; }

static void compare_numbers(Comparison *comparison, real left, real right) {
    double a = left, b = right, distance = fabs(a - b), scale = larger(fabs(a), fabs(b));
    uint64_t ulps = compare_ulps(left, right);
    comparison->absolute = larger(comparison->absolute, distance);
    if (isinf(distance))
        comparison->relative = distance;
    else if (distance > 0)
        comparison->relative = larger(comparison->relative, distance / scale);
    if (ulps > comparison->ulps) comparison->ulps = ulps;
}

static void take_scale(Comparison *comparison, const real *values, int64_t count) {
    double scale = comparison->scale;
    for (int64_t i = 0; i < count; i++) {
        double magnitude = fabs((double)values[i]);
        if (magnitude > scale && magnitude <= DBL_MAX) scale = magnitude;
    }
    comparison->scale = scale;
}

void compare_block(Comparison *comparison, ParamPiece block, const real *a, const real *b) {
    int64_t count = block.rows * block.cols;
    comparison->elements += count;
    take_scale(comparison, a, count);
    if (!memcmp(a, b, (size_t)count * sizeof *a)) return;
    take_scale(comparison, b, count);
    for (int64_t i = 0; i < count; i++) {
        if (!memcmp(&a[i], &b[i], sizeof *a)) continue;
        if (comparison->differing++ == 0) {
            comparison->row = block.row + i / block.cols;
            comparison->col = block.col + i % block.cols;
            comparison->a = a[i];
            comparison->b = b[i];
        }
        if (isnan(a[i]) || isnan(b[i]))
            comparison->nans++;
        else
            compare_numbers(comparison, a[i], b[i]);
    }
}

bool compare_within(const Comparison *comparison, double tolerance) {
    if (comparison->differing == 0) return true;
    return tolerance > 0 && comparison->nans == 0 && isfinite(comparison->absolute) &&
           comparison->absolute <= tolerance * comparison->scale;
}
