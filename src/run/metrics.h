/* What a run tells: one JSON object per step in <run.dir>/metrics.jsonl, and a progress line for
 * people. Rank 0 writes. */
#ifndef WEFT_RUN_METRICS_H
#define WEFT_RUN_METRICS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    int64_t step;          /* after this step: 1, 2, ... */
    int64_t steps, tokens; /* planned; seen in all */
    double loss;           /* nats per token */
    double rate, norm;     /* learning rate; gradient norm before clipping */
    Hash128 samples;       /* of the step's sample ids in order */
    bool repeated;         /* its gradient was computed twice: the first wasn't finite */
    bool skipped;          /* neither was the second: no update was made */
    bool evaluated;
    double held_out;     /* nats per token */
    int64_t held_tokens; /* that it is the mean of */
    int64_t step_tokens;
    double seconds, communication, optimizer, evaluation; /* of this step */
    double checkpoint;  /* of the save before this step; 0: there was none */
    int64_t peak_bytes; /* of the largest rank */
} StepReport;

typedef struct {
    FILE *file;
    int columns;   /* of the terminal that shows progress, which overwrites its line; 0: none */
    int64_t every; /* else: a line every so many steps */
    double smooth_seconds; /* of a step: exponential mean, for the ETA */
} Metrics;

/* Opens run_dir/metrics.jsonl, keeping its lines up to `step`. 0 or WEFT_RUNTIME. */
int metrics_open(Metrics *metrics, const char *run_dir, int64_t step, int64_t every);
int metrics_write(Metrics *metrics, const StepReport *report); /* 0 or WEFT_RUNTIME */
void metrics_progress(Metrics *metrics, const StepReport *report);
void metrics_close(Metrics *metrics);

#endif
