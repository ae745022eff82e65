/* What weft trace feeds to the model: one microbatch from a file, the same on all ranks. */
#ifndef WEFT_RUN_TRACE_INPUT_H
#define WEFT_RUN_TRACE_INPUT_H

#include "checkpoint/trace_file.h"
#include "comm/comm.h"
#include "config/config.h"
#include "tensor/microbatch.h"

enum { TRACE_ROWS = 1024 };

typedef struct {
    Microbatch batch;
    int64_t sequences; /* in it */
    int64_t rows;      /* T */
    int64_t targets;   /* that aren't masked: at least 1 */
} TraceInput;

/* A decoder reads the first model.context tokens of the file (data.kind says what they are); fewer
 * are padded with token 0. Targets are the next tokens, masked where there are none. An mlp reads
 * the first TRACE_ROWS rows of the datasets data.inputs and data.targets of an HDF5 file,
 * normalised as the checkpoint `directory` says, or (NULL) by the training rows. Says what was cut
 * or padded. Collective over GROUP_GRID; agreed errors. */
int trace_input_read(TraceInput *input, const Config *config, const char *directory,
                     const char *path, Grid *grid);
void trace_input_release(TraceInput *input);

/* What the model read, into the file. 0 or WEFT_RUNTIME. */
int trace_input_write(const TraceInput *input, TraceFile *file);

#endif
