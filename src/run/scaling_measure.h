/* What predictions go by: shares of a step and memory, measured on this machine, in rounds. Says on
 * stderr what is being measured: on a terminal in one line, elsewhere at the beginning and then
 * every five seconds. */
#ifndef WEFT_RUN_SCALING_MEASURE_H
#define WEFT_RUN_SCALING_MEASURE_H

#include "run/rates.h"
#include "tensor/shard.h"

#include <stdbool.h>

/* Repetitions of a share that spread more than this (rates_spread) have been disturbed. */
static const double SCALING_QUIET = 0.2;

/* Others that had more than this of the cores made it slower, however even. */
static const double SCALING_OTHERS = 0.1;

/* How quiet the machine was: how far repetitions spread, and what others had of it. */
typedef struct {
    int shares;    /* how many were measured */
    int unquiet;   /* of them, those beyond SCALING_QUIET */
    double worst;  /* the largest spread */
    int worst_tp;  /* tensor ranks of that share */
    double others; /* their part of the cores meanwhile (others.h) */
} ScalingSpread;

/* config to wanted: what is asked for; the others: what was found. */
typedef struct {
    const Config *config;
    int threads, at_once;                 /* RatesNode */
    bool wanted[SHARD_MAX + 1];           /* numbers of tensor ranks */
    ShareRates one, share[SHARD_MAX + 1]; /* one rank alone on its node; a rank of so many */
    MemoryRates memory;
    ScalingSpread spread;
} ScalingMeasured;

/* Each twice, in turn; the less disturbed counts (rates_quiet.h). One rank alone is at once what is
 * wanted of one tensor rank where no other is measured beside it. 0 or a negative code. */
int scaling_measure(ScalingMeasured *measured);

#endif
