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
 *               triggers_saved(...) when a save has begun
 *
 * A wish is a number: larger is stronger, and it carries its reason, so that all ranks say the
 * same. Clocks are the first rank's alone. */
#ifndef WEFT_RUN_TRIGGERS_H
#define WEFT_RUN_TRIGGERS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool clocks;                       /* this rank's clocks count */
    double stop_at, margin;            /* seconds of clock_seconds(), seconds; stop_at 0: never */
    int64_t stop_wish;                 /* whose limit stop_at is */
    double save_every, last_save;      /* seconds, 0: never; seconds of clock_seconds() */
    double longest_step, longest_save; /* seconds */
} Triggers;

/* Installs the handlers; once a process. A signal from then on is remembered, nothing else. A
 * second SIGTERM or SIGINT, two seconds or more after the first, has its default effect: it ends
 * the process. (Sooner it is a copy: srun and the node's daemon may both pass on the same one.) */
void triggers_catch(void);

/* Limits in minutes from now on; 0: none. SLURM_JOB_END_TIME (Unix seconds; set by Slurm from 23.02
 * on) is another limit, and the sooner one counts; one that isn't a time to come is told and left
 * aside. */
void triggers_open(Triggers *triggers, double max_minutes, double save_minutes, bool clocks);

/* What the last step (with its evaluation) and the last save took, in seconds; 0: there was none. A
 * guess of the first save may come before there is one. */
void triggers_step(Triggers *triggers, double step, double save);

/* This rank's wish now; 0: none. */
int64_t triggers_wish(const Triggers *triggers);

bool triggers_wants_save(int64_t wish); /* a stop wants one too */
bool triggers_wants_stop(int64_t wish);
const char *triggers_reason(int64_t wish); /* "SIGUSR2", "train.max_minutes", ...; "" for none */

/* A save has begun: a wish to save alone is granted, and the clock of checkpoint.minutes starts
 * again. */
void triggers_saved(Triggers *triggers);

#endif
