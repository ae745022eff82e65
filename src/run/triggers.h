/* What makes a run save, or save and stop, outside of its schedule: signals and clocks.
 *
 *   SIGUSR1                       save and go on
 *   SIGUSR2, SIGTERM, SIGINT      save and stop
 *   checkpoint.minutes            save
 *   train.max_minutes, and SLURM_JOB_END_TIME when it is in the environment: save and stop in time,
 *                                 judged by the longest step and save so far
 *
 *     triggers_catch();                        // on every rank, surplus ones too, before the run
 *     triggers_open(&triggers, max_minutes, save_minutes, is_first);
 *     per step: triggers_step(...); wish = triggers_wish(...); all ranks take the largest wish;
 *               triggers_saved(...) after a save has begun
 *
 * A wish is a number: larger is stronger, and it carries its reason, so that all ranks say the
 * same. Clocks are the first rank's alone. */
#ifndef WEFT_RUN_TRIGGERS_H
#define WEFT_RUN_TRIGGERS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool clocks;                       /* this rank's clocks count */
    double stop_at, save_every;        /* seconds of clock_seconds(), seconds; 0: never */
    double last_save;                  /* when */
    double longest_step, longest_save; /* seconds */
} Triggers;

/* Installs the handlers; once a process. A signal from then on is remembered, nothing else. The
 * second SIGTERM or SIGINT has its default effect: it ends the process. */
void triggers_catch(void);

/* Limits in minutes; 0: none. Reads SLURM_JOB_END_TIME (Unix seconds). The sooner end counts. */
void triggers_open(Triggers *triggers, double max_minutes, double save_minutes, bool clocks);

/* What the last step and the last save (0: none) took, in seconds. */
void triggers_step(Triggers *triggers, double step, double save);

/* This rank's wish now; 0: none. */
int64_t triggers_wish(const Triggers *triggers);

bool triggers_wants_save(int64_t wish); /* a stop wants one too */
bool triggers_wants_stop(int64_t wish);
const char *triggers_reason(int64_t wish); /* "SIGUSR2", "train.max_minutes", ... */

/* A save has begun: a wish to save alone is granted, and the clock of checkpoint.minutes starts
 * again. */
void triggers_saved(Triggers *triggers);

#endif
