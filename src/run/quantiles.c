#include "run/quantiles.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

const int quantiles_percent[QUANTILES] = {5, 25, 50, 75, 95};

#ifdef WEFT_REAL64
typedef uint64_t Key;
#else
typedef uint32_t Key;
#endif

enum { KEY_BITS = 8 * sizeof(Key), DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
enum { COUNTS = QUANTILES * DIGITS }; /* of one thread */
static const Key sign = (Key)1 << (KEY_BITS - 1);

int quantiles_open(Quantiles *quantiles, int threads) {
    quantiles->threads = threads;
    quantiles->counts =
        memory_allocate((size_t)threads * COUNTS * sizeof(int64_t), "counts for quantiles");
    return quantiles->counts ? 0 : WEFT_RUNTIME;
}

void quantiles_close(Quantiles *quantiles) {
    free(quantiles->counts);
    *quantiles = (Quantiles){0};
}

/* Ascends with the value: bits of positive numbers do as they are, those of negative ones turned
 * round. -0 is below 0. */
static Key key_of(real value) {
    Key bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

static double value_of(Key key) {
    real value;
    Key bits = key & sign ? key ^ sign : ~key;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

typedef struct {
    int known, width;        /* bits that are found; bits of the next digit */
    Key prefix[QUANTILES];   /* the found bits, ascending */
    int64_t left[QUANTILES]; /* how many values with that prefix lie before the wanted one */
    int slot[QUANTILES];     /* which count the prefix has; equal prefixes share one */
    int slots;
} Search;

static void share_slots(Search *search) {
    search->slots = 0;
    for (int q = 0; q < QUANTILES; q++) {
        if (q == 0 || search->prefix[q] != search->prefix[q - 1]) search->slots++;
        search->slot[q] = search->slots - 1;
    }
}

static void count_row(const Search *search, const real *row, int64_t cols, int64_t *counts) {
    Key prefix[QUANTILES];
    for (int q = 0; q < QUANTILES; q++) prefix[search->slot[q]] = search->prefix[q];
    for (int64_t j = 0; j < cols; j++) {
        if (!isfinite(row[j])) continue;
        Key key = key_of(row[j]), begin = search->known ? key >> (KEY_BITS - search->known) : 0;
        Key digit = (Key)(key << search->known) >> (KEY_BITS - search->width);
        for (int s = 0; s < search->slots; s++)
            if (begin == prefix[s]) counts[s * DIGITS + (int64_t)digit]++;
    }
}

/* Into the first thread's counts: those of all threads of all ranks. */
static void count(const Quantiles *quantiles, Grid *grid, const Search *search,
                  const Sharded *values) {
    int64_t size = (int64_t)search->slots * DIGITS, *all = quantiles->counts;
    memset(all, 0, (size_t)quantiles->threads * COUNTS * sizeof *all);
#pragma omp parallel num_threads(quantiles->threads)
    {
        int64_t *own = all + (int64_t)omp_get_thread_num() * COUNTS;
        for (int s = (int)values->owned.begin; s < values->owned.end; s++) {
            Tensor shard = values->shard[s];
#pragma omp for schedule(static)
            for (int64_t i = 0; i < shard.rows; i++)
                count_row(search, tensor_row(shard, i), shard.cols, own);
        }
    }
    for (int t = 1; t < quantiles->threads; t++)
        for (int64_t i = 0; i < size; i++) all[i] += all[(int64_t)t * COUNTS + i];
    comm_sum_int64(grid, GROUP_TENSOR, all, size);
}

/* The next digit of each. */
static void descend(const Quantiles *quantiles, Search *search) {
    for (int q = 0; q < QUANTILES; q++) {
        const int64_t *counts = quantiles->counts + (int64_t)search->slot[q] * DIGITS;
        Key digit = 0;
        while (search->left[q] >= counts[digit]) search->left[q] -= counts[digit++];
        search->prefix[q] = (Key)(search->prefix[q] << search->width) | digit;
    }
    search->known += search->width;
}

void quantiles_find(const Quantiles *quantiles, Grid *grid, const Sharded *values, int64_t finite,
                    double result[QUANTILES]) {
    Search search = {0};
    for (int q = 0; q < QUANTILES; q++) {
        result[q] = NAN;
        search.left[q] = (quantiles_percent[q] * finite + 99) / 100 - 1;
    }
    if (finite == 0) return;
    while (search.known < KEY_BITS) {
        search.width = KEY_BITS - search.known < DIGIT_BITS ? KEY_BITS - search.known : DIGIT_BITS;
        share_slots(&search);
        count(quantiles, grid, &search, values);
        descend(quantiles, &search);
    }
    for (int q = 0; q < QUANTILES; q++) result[q] = value_of(search.prefix[q]);
}
