/* Faults for tests: compiled in by -DWEFT_FAULTS alone, chosen at run time by --inject, or by
 * WEFT_INJECT in the environment (test programs read it too), as
 * kind@rank=R,step=N,phase=P,times=N,seconds=X (each part after the kind is optional: any rank, any
 * step, any phase, once). A step is the number of steps done before, also for what saves its
 * result. Without WEFT_FAULTS nothing of this costs or does anything.
 *
 *   at each fault_point of the phase
 *     fail          an error
 *     delay         sleeps (0.25 s)
 *     kill          SIGKILL to the own process
 *     hang          sleeps for ever
 *   where fault_take asks for it
 *     nan           a row of NaN in a microbatch of the middle layer: what down multiplies on this
 *                   rank (phase forward), or the gradient that the layer hands down (backward)
 *     bitflip       the highest exponent bit of model.norm.weight[0] (phase optimizer), or one of a
 *                   copy between digest and disk (phase save)
 *                   ... or of what convert copies (phase save; there a step is a layer)
 *     enospc        a shard file that finds no space
 *     slow-disk     sleeps (2 s) before the copy is written
 *   switches, for as long as rank and step fit
 *     nudge         one ulp on a replicated parameter after each step
 *     blas-threads  products by BLAS, on two threads
 *     other-core    products by plain C, in a program that says it has other vectors
 *     mistakes      those of base/mistakes.h, each of which a test must see (tests/failure-lab) */
#ifndef WEFT_BASE_FAULT_H
#define WEFT_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Where a run is: named in --inject's phase. */
typedef enum {
    PHASE_STARTUP,
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_SAVE,
    PHASE_LOAD,
    PHASE_EVALUATE,
    PHASE_WRITE,   /* a rank's shard files, in the thread that writes */
    PHASE_PUBLISH, /* view, manifest and rename, on the first rank */
    PHASE_COUNT
} Phase;

extern const char *const phase_names[PHASE_COUNT];

#ifdef WEFT_FAULTS

/* Takes one --inject. WEFT_USAGE naming what is allowed. */
int fault_parse(const char *text);
/* The same of WEFT_INJECT, if it is set. */
int fault_parse_environment(void);
void fault_set_rank(int rank);
void fault_set_step(int64_t step);

/* The kinds that strike at a phase of the present step. 0 or WEFT_RUNTIME. The second form is for a
 * thread that works on the state of a step that may be over. */
int fault_point(Phase phase);
int fault_point_of(Phase phase, int64_t step);

/* Whether a fault of this kind strikes now; each strikes `times` times (0: always), counted by the
 * process. */
bool fault_take(const char *kind, Phase phase);
bool fault_take_of(const char *kind, Phase phase, int64_t step);

/* Sleeps as long as the first fault of this kind says. */
void fault_sleep(const char *kind);

/* Whether a fault of this kind is switched on for this rank and the present step, e.g. "rank-mask".
 */
bool fault_on(const char *kind);

#else

static inline int fault_parse_environment(void) { return 0; }
static inline void fault_set_rank(int rank) { (void)rank; }
static inline void fault_set_step(int64_t step) { (void)step; }
static inline int fault_point(Phase phase) {
    (void)phase;
    return 0;
}
static inline int fault_point_of(Phase phase, int64_t step) {
    (void)phase, (void)step;
    return 0;
}
static inline bool fault_take(const char *kind, Phase phase) {
    (void)kind, (void)phase;
    return false;
}
static inline bool fault_take_of(const char *kind, Phase phase, int64_t step) {
    (void)kind, (void)phase, (void)step;
    return false;
}
static inline void fault_sleep(const char *kind) { (void)kind; }
static inline bool fault_on(const char *kind) {
    (void)kind;
    return false;
}

#endif

#endif
