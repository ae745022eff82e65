/* Between a Trainer and its checkpoints: what a manifest says of the run, saving, and coming back.
 */
#ifndef WEFT_RUN_STATE_H
#define WEFT_RUN_STATE_H

#include "checkpoint/saver.h"
#include "run/trainer.h"

/* Fingerprint of the present state. Collective over GROUP_GRID. 0 or a negative code. */
int state_fingerprint(Trainer *trainer, Hash128 *fingerprint);

/* The same with its parts (checkpoint_parts). Collective over GROUP_GRID. 0 or a negative code. */
int state_parts(Trainer *trainer, Hash128 *parts, Hash128 *fingerprint);

/* Who writes which files at a layout: what the run's Saver is opened with. */
CheckpointPlaces state_places(const Config *config, int tp, int dp);

/* Begins to save the present state into the run directory. held_out: its held-out loss, NAN when
 * that isn't known. Collective over GROUP_GRID; agreed errors. */
int state_save(Trainer *trainer, Saver *saver, double held_out);

/* Resume from `from`: a step or run directory, or "auto" (the run directory; a fresh start when it
 * holds none, then `directory` gets ""). Refuses a checkpoint of another function or grid with the
 * list of differences; prints what else has changed and what was taken. Collective over GROUP_GRID;
 * agreed errors. */
int state_resume(Trainer *trainer, const char *from, char directory[FILES_PATH]);

/* Loads the whole state of a step directory, to train from there. Refuses like state_resume, and
 * touches nothing on disk. Collective over GROUP_GRID; agreed errors. */
int state_load(Trainer *trainer, const char *directory);

/* Loads parameters, and what normalises the data, from a step directory for evaluation. Collective
 * over GROUP_GRID; agreed errors.
 */
int state_load_values(Trainer *trainer, const char *directory);

/* The config that a checkpoint was made under, from its manifest. Serial. 0 or a negative code. */
int state_config(const char *directory, Config *config);

/* Refuses a config of another function than the checkpoint's, with the list of differences; which
 * samples are seen in which order may differ. Serial. 0, WEFT_USAGE or another negative code. */
int state_check_function(const Config *config, const char *directory);

#endif
