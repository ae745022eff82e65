/* From a directory written aside to a published checkpoint, on one rank:
 *
 *     publish_aside(run_dir, step, aside);          // `.tmp-step-XXXXXXXX`
 *     publish_begin(run_dir, step, aside);          // makes it, empty
 *     ... files are written into it and synced, ranks agree ...
 *     publish_finish(run_dir, step, aside);         // fsync, rename to `step-...`, fsync above
 *     publish_prune(run_dir, step, &retention);
 *
 * What is killed in between leaves a `.tmp-...` that nobody reads and the next save or
 * publish_recover removes. */
#ifndef WEFT_CHECKPOINT_PUBLISH_H
#define WEFT_CHECKPOINT_PUBLISH_H

#include "base/files.h"
#include "checkpoint/checkpoint.h"

#define PUBLISH_NAME 40

void publish_step_name(int64_t step, char name[PUBLISH_NAME]);

/* The step in a directory's name; false when it isn't exactly what publish_step_name writes. */
bool publish_step_parse(const char *name, int64_t *step);

/* Where a step's directory is written; nothing is touched. */
int publish_aside(const char *run_dir, int64_t step, char aside[FILES_PATH]);

/* `run_dir`/step-XXXXXXXX */
int publish_path(const char *run_dir, int64_t step, char path[FILES_PATH]);

int publish_begin(const char *run_dir, int64_t step, const char *aside);

/* A published directory of the same step that verifies and has the same fingerprint stays (and
 * `aside` is removed); any other is replaced. 0, or a negative code with `aside` still there. */
int publish_finish(const char *run_dir, int64_t step, const char *aside);

/* Puts back what a replacement that was killed half way has left under another name (where two
 * names can't be exchanged at once), and removes what no save will finish. */
void publish_recover(const char *run_dir);

/* After this step's checkpoint is published: removes older ones that the retention doesn't keep,
 * once the new one has been read back: when it isn't good nothing is removed, and that is the
 * error. Later steps aren't touched. A directory that can't be removed is a warning. 0 or
 * WEFT_RUNTIME. */
int publish_prune(const char *run_dir, int64_t step, const CheckpointRetention *retention);

/* Steps of the published directories, ascending; free(*steps). */
int publish_list(const char *run_dir, int64_t **steps, int *count);

#endif
