#include "run/trace_compare.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/trace_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Hdf5File mine, other;
    double tolerance, largest; /* relative */
    int compared, missing, different;
    char first[512];   /* that differs */
    char absent[1024]; /* names of ours that the other file hasn't, as far as they fit */
} Comparison;

static void add_missing(Comparison *comparison, const char *name) {
    size_t used = strlen(comparison->absent), capacity = sizeof comparison->absent - used;
    int length = snprintf(comparison->absent + used, capacity, "%s%s",
                          comparison->missing++ ? ", " : "", name);
    if (length < 0 || (size_t)length >= capacity)
        memcpy(comparison->absent + sizeof comparison->absent - 4, "...", 4);
}

/* The largest |a - b|, and where; NaN and infinity equal themselves. */
static double difference(int64_t n, const double *a, const double *b, int64_t *where) {
    double largest = 0;
    *where = 0;
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
        double d = isfinite(a[i]) && isfinite(b[i]) ? fabs(a[i] - b[i]) : INFINITY;
        if (d <= largest) continue;
        largest = d;
        *where = i;
    }
    return largest;
}

static double magnitude(int64_t n, const double *a) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(a[i])) largest = fmax(largest, fabs(a[i]));
    return largest;
}

static void compare(Comparison *comparison, const char *name, const int64_t dims[2],
                    const double *mine, const double *other) {
    char shape[64];
    int64_t where, n = dims[0] * dims[1];
    double apart = difference(n, mine, other, &where);
    double relative = apart > 0 ? apart / fmax(magnitude(n, mine), 1e-300) : 0;
    bool differs = relative > comparison->tolerance;
    snprintf(shape, sizeof shape, "[%lld, %lld]", (long long)dims[0], (long long)dims[1]);
    log_print("%-28s %-14s %10.1e%s\n", name, shape, relative, differs ? " !" : "");
    comparison->compared++;
    comparison->largest = fmax(comparison->largest, relative);
    if (!differs || comparison->different++) return;
    snprintf(comparison->first, sizeof comparison->first,
             "%s, element [%lld, %lld]: %.9g here, %.9g there", name, (long long)(where / dims[1]),
             (long long)(where % dims[1]), mine[where], other[where]);
}

static int compare_tensor(Comparison *comparison, const char *name) {
    double *mine = NULL, *other = NULL;
    int64_t dims[2], other_dims[2];
    int status = trace_read(&comparison->mine, name, -1, &mine, dims);
    if (!status && mine)
        status = trace_read(&comparison->other, name, dims[0] * dims[1], &other, other_dims);
    if (!status && mine && other)
        compare(comparison, name, dims, mine, other);
    else if (!status && mine)
        add_missing(comparison, name);
    free(mine);
    free(other);
    return status;
}

static int verdict(const Comparison *comparison, const char *other) {
    if (comparison->missing) log_print("%s has none of these: %s\n", other, comparison->absent);
    if (!comparison->compared)
        return error_set(WEFT_INPUT, "%s has no tensor of a trace (see `order` of ours)", other);
    if (!comparison->different) {
        log_print("trace: pass: %d tensors within %.1e of %s\n", comparison->compared,
                  comparison->largest, other);
        return 0;
    }
    log_print("trace: fail: %s\n", comparison->first);
    return error_set(WEFT_CHECK, "%s", comparison->first);
}

int trace_compare(const char *path, const char *other, double tolerance) {
    Comparison comparison = {.mine = {.id = -1}, .other = {.id = -1}, .tolerance = tolerance};
    char(*name)[TRACE_NAME] = NULL;
    int names = 0;
    int status = hdf5_open(&comparison.mine, "", path);
    if (!status) status = hdf5_open(&comparison.other, "", other);
    if (!status) status = trace_order(&comparison.mine, &name, &names);
    if (!status) log_print("%-28s %-14s %10s\n", "tensor", "shape", "difference");
    for (int i = 0; !status && i < names; i++) status = compare_tensor(&comparison, name[i]);
    if (!status) status = verdict(&comparison, other);
    free(name);
    hdf5_close(&comparison.other);
    hdf5_close(&comparison.mine);
    return status;
}
