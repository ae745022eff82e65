/* Faults for tests: compiled in by -DWEFT_FAULTS alone, chosen at run time by --inject
 * kind@rank=R,step=N,phase=P (each part after the kind is optional: any rank, any step, any phase).
 * Without WEFT_FAULTS nothing of this costs or does anything. */
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
    PHASE_COUNT
} Phase;

extern const char *const phase_names[PHASE_COUNT];

#ifdef WEFT_FAULTS

/* Takes one --inject. WEFT_USAGE naming what is allowed. */
int fault_parse(const char *text);
void fault_set_rank(int rank);
void fault_set_step(int64_t step);

/* Kinds "fail" (returns an error) and "delay" (sleeps a quarter of a second, once) at this phase of
 * the present step. */
int fault_point(Phase phase);

/* Whether a fault of this kind is switched on for this rank and the present step, e.g. "rank-mask".
 */
bool fault_on(const char *kind);

#else

static inline void fault_set_rank(int rank) { (void)rank; }
static inline void fault_set_step(int64_t step) { (void)step; }
static inline int fault_point(Phase phase) {
    (void)phase;
    return 0;
}
static inline bool fault_on(const char *kind) {
    (void)kind;
    return false;
}

#endif

#endif
