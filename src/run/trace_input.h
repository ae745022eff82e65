/* What weft trace feeds to the model: one microbatch from a file, the same on all ranks. */
#ifndef WEFT_RUN_TRACE_INPUT_H
#define WEFT_RUN_TRACE_INPUT_H

#include "checkpoint/trace_file.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/normalise.h"
#include "tensor/microbatch.h"

enum { TRACE_ROWS = 1024 };

typedef struct {
    Microbatch batch;
    int64_t sequences;           /* in it */
    int64_t rows;                /* T */
    int64_t targets;             /* that aren't masked; 0: a file of rows that has none */
    Normalisation normalisation; /* of an mlp, on the first rank */
} TraceInput;

/* A decoder reads model.context tokens of the file from `first` on (data.kind says what they are);
 * fewer are padded with token 0. Targets are the next tokens, masked where there are none. An mlp
 * reads at most TRACE_ROWS rows from `first` on of the datasets data.inputs and data.targets of an
 * HDF5 file, normalised as the checkpoint `directory` says, or (NULL) by the training rows. Says
 * what was cut or padded. Collective over GROUP_GRID; agreed errors. */
int trace_input_read(TraceInput *input, const Config *config, const char *directory,
                     const char *path, int64_t first, Grid *grid);
void trace_input_release(TraceInput *input);

/* What the model read, into the file. 0 or WEFT_RUNTIME. */
int trace_input_write(const TraceInput *input, TraceFile *file);

/* Whether outputs are of normalised numbers; and such rows in the data's own units, in place. */
bool trace_input_has_units(const TraceInput *input);
void trace_input_undo(const TraceInput *input, int64_t rows, int64_t cols, real *outputs);

#endif
