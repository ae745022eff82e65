/* The run directory: one run's, one job's at a time. The first rank alone calls these. */
#ifndef WEFT_RUN_DIRECTORY_H
#define WEFT_RUN_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#define DIRECTORY_CLAIM ".claim" /* the file in it that says whose it is at present */

/* Makes the directory and claims it for this job until directory_leave (or the end of the process,
 * however it ends). A directory that isn't empty is somebody's run: it is refused unless
 * `resuming`. 0; WEFT_USAGE naming run.dir and, where another job has claimed it, that job; or
 * WEFT_RUNTIME. */
int directory_claim(const char *dir, bool resuming, int *claim);
void directory_leave(int claim);

/* Whether `dir` is still the directory that was claimed: somebody may have moved it, or put another
 * in its place. 0 or WEFT_RUNTIME. */
int directory_check_claim(const char *dir, int claim);

/* Whether the step directory `checkpoint` lies in `dir`. */
bool directory_holds(const char *dir, const char *checkpoint);

/* Before a run goes on from `checkpoint` (a step directory, at `step`) in `dir`: its later
 * checkpoints would be another branch's, and a directory with another run in it isn't a place for
 * this one. */
int directory_check_branch(const char *dir, const char *checkpoint, int64_t step);

#endif
