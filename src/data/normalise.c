#include "data/normalise.h"

#include "base/error.h"
#include "base/memory.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK_NUMBERS = 1 << 16 }; /* read at once */

int normalisation_open(Normalisation *n, const int64_t columns[ARRAY_PARTS]) {
    *n = (Normalisation){.columns = {columns[ARRAY_INPUTS], columns[ARRAY_TARGETS]}};
    n->numbers = 2 * (columns[ARRAY_INPUTS] + columns[ARRAY_TARGETS]);
    n->number = memory_allocate((size_t)n->numbers * sizeof *n->number, "means and deviations");
    if (!n->number) return WEFT_RUNTIME;
    double *next = n->number;
    for (int part = 0; part < ARRAY_PARTS; part++) {
        n->mean[part] = next;
        n->scale[part] = next + columns[part];
        next += 2 * columns[part];
    }
    return 0;
}

void normalisation_close(Normalisation *n) {
    free(n->number);
    *n = (Normalisation){0};
}

/* Welford (1962), Technometrics 4(3), p. 419: row `row` (from 0) joins the mean and the sum of
 * squared distances from it. */
static void add_row(const double *value, int64_t columns, int64_t row, double *mean,
                    double *squares) {
    double count = (double)(row + 1);
    for (int64_t c = 0; c < columns; c++) {
        double before = value[c] - mean[c];
        mean[c] += before / count;
        squares[c] += before * (value[c] - mean[c]);
    }
}

static int measure_rows(const Normalisation *n, ArrayPart part, const ArraySource *source,
                        int64_t rows, double *block) {
    int64_t columns = n->columns[part], at_once = BLOCK_NUMBERS / columns + 1;
    double *mean = n->mean[part], *squares = n->scale[part];
    for (int64_t c = 0; c < columns; c++) mean[c] = squares[c] = 0;
    for (int64_t first = 0; first < rows; first += at_once) {
        int64_t count = rows - first < at_once ? rows - first : at_once;
        int status = arrays_read(source, part, first, count, block);
        if (status) return status;
        for (int64_t i = 0; i < count; i++)
            add_row(block + i * columns, columns, first + i, mean, squares);
    }
    return 0;
}

static int measure(const Normalisation *n, ArrayPart part, const ArraySource *source,
                   int64_t rows) {
    int64_t columns = n->columns[part];
    size_t bytes = (size_t)(columns + BLOCK_NUMBERS) * sizeof(double);
    double *block = memory_allocate(bytes, "rows to measure"), *scale = n->scale[part];
    if (!block) return WEFT_RUNTIME;
    int status = measure_rows(n, part, source, rows, block);
    for (int64_t c = 0; !status && c < columns; c++) {
        double deviation = sqrt(scale[c] / (double)rows);
        if (!isfinite(deviation) || (deviation > 0 && deviation < FLT_MIN))
            status = error_set(WEFT_INPUT,
                               "column %" PRId64 " of the %s: its deviation is %s; set "
                               "data.normalise = false, or scale the data",
                               c, part == ARRAY_INPUTS ? "inputs" : "targets",
                               isfinite(deviation) ? "too small to divide by (below 1e-38)"
                                                   : "beyond double");
        scale[c] = deviation > 0 ? deviation : 1;
    }
    free(block);
    return status;
}

int normalisation_measure(Normalisation *n, const ArraySource *source, int64_t rows) {
    int status = 0;
    for (int part = 0; !status && part < ARRAY_PARTS; part++)
        if (n->columns[part]) status = measure(n, (ArrayPart)part, source, rows);
    n->known = !status;
    return status;
}

void normalise(const Normalisation *n, ArrayPart part, const double *values, int64_t count,
               int64_t width, real *out) {
    const double *mean = n->mean[part], *scale = n->scale[part];
    if (!n->columns[part]) {
        for (int64_t i = 0; i < count * width; i++) out[i] = (real)values[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++)
            out[i * width + c] = (real)((values[i * width + c] - mean[c]) / scale[c]);
}
