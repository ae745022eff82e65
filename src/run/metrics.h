/* What a run tells: one JSON object per step in <run.dir>/metrics.jsonl, and a progress line for
 * people. Rank 0 writes. */
#ifndef WEFT_RUN_METRICS_H
#define WEFT_RUN_METRICS_H

#include "base/hash.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the numbers are of. */
typedef struct {
    bool rows;    /* of an array; else tokens, whose loss is told in bits per byte too */
    bool classes; /* there are targets that a prediction can hit */
} MetricWords;

/* An evaluation: the mean of a loss over targets, and how many of them had the largest logit. */
typedef struct {
    double loss; /* nats, or the squared error of normalised targets */
    int64_t targets, hits;
} HeldOut;

typedef struct {
    MetricWords words;
    int64_t step;          /* after this step: 1, 2, ... */
    int64_t steps, tokens; /* planned; target tokens or rows seen in all */
    double loss;           /* mean over them: see HeldOut */
    double rate, norm;     /* learning rate; gradient norm before clipping */
    Hash128 samples;       /* of the step's sample ids in order */
    bool repeated;         /* its gradient was computed twice: the first wasn't finite */
    bool skipped;          /* neither was the second: no update was made */
    bool evaluated;
    HeldOut held_out;
    int64_t step_tokens;
    double seconds, communication, optimizer, evaluation; /* of this step */
    double checkpoint;  /* of the save before this step; 0: there was none */
    int64_t peak_bytes; /* of the largest rank */
    json_t *stats;      /* see run/stats.h; NULL: none were due. The caller's */
} StepReport;

typedef struct {
    FILE *file;
    int columns;   /* of the terminal that shows progress, which overwrites its line; 0: none */
    int64_t every; /* else: a line every so many steps */
    double smooth_seconds; /* of a step: exponential mean, for the ETA */
} Metrics;

/* A number of a metrics line: JSON has no infinity and no NaN, which become null. */
json_t *metrics_number(double value);

/* Opens run_dir/metrics.jsonl, keeping its lines up to `step`. 0 or WEFT_RUNTIME. */
int metrics_open(Metrics *metrics, const char *run_dir, int64_t step, int64_t every);
int metrics_write(Metrics *metrics, const StepReport *report); /* 0 or WEFT_RUNTIME */
void metrics_progress(Metrics *metrics, const StepReport *report);
/* "1.234567 nats, 1.7810 bits per byte over 99 tokens" of a decoder; "0.071200, accuracy 97.8 %
 * over 359 rows" or "0.071200 over 359 rows" of an mlp. */
void metrics_describe(MetricWords words, const HeldOut *held, char *text, size_t capacity);

void metrics_close(Metrics *metrics);

#endif
