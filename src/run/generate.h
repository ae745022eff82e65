/* Text from a trained model, byte by byte. */
#ifndef WEFT_RUN_GENERATE_H
#define WEFT_RUN_GENERATE_H

#include "comm/comm.h"
#include "config/config.h"

typedef struct {
    const char *directory; /* step directory */
    const char *prompt;
    int64_t bytes;
    double temperature; /* 0: the likeliest */
    int64_t seed;
    int tp;
} GenerateOptions;

/* Prints the prompt and what follows on rank 0. Collective over the world. 0 or a negative code. */
int generate_run(const Config *config, const GenerateOptions *options, Grid *grid);

#endif
