/* weft reshard: a run directory with the newest state of another one, on another logical grid. The
 * training state (parameters, moments, step, sample order) is kept exactly, and so is the
 * fingerprint; what changes is the order in which later steps add up, which follows the grid.
 *
 * Everything is built in `.tmp-NAME` beside `out` and renamed at the end, once its fingerprint is
 * the source's and a known row has gone through both cuts alike (known_row.h). What is killed in
 * between leaves only that directory, which the next reshard to the same place removes. Serial, no
 * MPI. */
#ifndef WEFT_RUN_RESHARD_H
#define WEFT_RUN_RESHARD_H

#include <stdbool.h>

typedef struct {
    const char *from; /* a run directory (its newest good checkpoint) or a step directory */
    const char *out;  /* the new run directory; must not exist, its parent must */
    int tensor, data; /* the new grid; data 0: as it is */
    bool dry_run;     /* print what would go where (log_print), touch nothing */
} ReshardRequest;

/* `out` gets step-XXXXXXXX and a config.ini with which a training goes on. 0; WEFT_USAGE when the
 * request can't be met; WEFT_INPUT naming what is missing or damaged in the source; or
 * WEFT_RUNTIME. Nothing but success leaves anything behind. */
int reshard_directory(const ReshardRequest *request);

#endif
