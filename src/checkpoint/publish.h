/* From a directory written aside to a published checkpoint, on one rank:
 *
 *     publish_aside(run_dir, step, aside);          // `.tmp-step-XXXXXXXX`
 *     publish_begin(run_dir, step, aside);          // makes it, empty
 *     ... files are written into it and synced, ranks agree ...
 *     publish_finish(run_dir, step, aside);         // fsync, rename to `step-...`, fsync above
 *     publish_prune(run_dir, step, keep);
 *
 * What is killed in between leaves a `.tmp-...` that nobody reads and the next save removes. */
#ifndef WEFT_CHECKPOINT_PUBLISH_H
#define WEFT_CHECKPOINT_PUBLISH_H

#include "base/files.h"

#define PUBLISH_NAME 40

void publish_step_name(int64_t step, char name[PUBLISH_NAME]);

/* The step in a directory's name; false when it isn't exactly what publish_step_name writes. */
bool publish_step_parse(const char *name, int64_t *step);

/* Where a step's directory is written; nothing is touched. */
int publish_aside(const char *run_dir, int64_t step, char aside[FILES_PATH]);

int publish_begin(const char *run_dir, int64_t step, const char *aside);

/* A published directory of the same step that verifies and has the same fingerprint stays (and
 * `aside` is removed); any other is replaced. 0, or a negative code with `aside` still there. */
int publish_finish(const char *run_dir, int64_t step, const char *aside);

/* Removes leftovers and older checkpoints so that, with this step's, `keep` remain (0: all). Later
 * steps aren't touched. A directory that can't be removed is a warning. */
void publish_prune(const char *run_dir, int64_t step, int keep);

/* Steps of the published directories, ascending; free(*steps). */
int publish_list(const char *run_dir, int64_t **steps, int *count);

#endif
