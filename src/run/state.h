/* Between a Trainer and its checkpoints: what a manifest says of the run, saving, and coming back.
 */
#ifndef WEFT_RUN_STATE_H
#define WEFT_RUN_STATE_H

#include "run/trainer.h"

/* Fingerprint of the present state. Collective over GROUP_GRID. 0 or a negative code. */
int state_fingerprint(Trainer *trainer, Hash128 *fingerprint);

/* Publishes a checkpoint of the present state in the run directory. Collective over GROUP_GRID;
 * agreed errors. */
int state_save(Trainer *trainer);

/* Resume from `from`: a step or run directory, or "auto" (the run directory; a fresh start when it
 * holds none). Refuses a checkpoint of another function or grid with the list of differences;
 * prints what else has changed and what was taken. Collective over GROUP_GRID; agreed errors. */
int state_resume(Trainer *trainer, const char *from);

/* Loads parameters from a step directory for evaluation. Collective over GROUP_GRID; agreed errors.
 */
int state_load_values(Trainer *trainer, const char *directory);

/* The config that a checkpoint was made under, from its manifest. Serial. 0 or a negative code. */
int state_config(const char *directory, Config *config);

#endif
