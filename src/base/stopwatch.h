/* Where the time of a training step goes: every instant belongs to one part, so the parts add up.
 *
 * Modules say what they are at with stopwatch_begin and stopwatch_end, nested; the time goes to the
 * innermost. Only the thread that walks through the step calls, outside parallel regions: a part is
 * what that thread waited for. Without a stopwatch (NULL) nothing is measured. No value of a run
 * depends on it.
 *
 *     stopwatch_start(&watch);
 *     ... stopwatch_begin(watch, STEP_FFN); ... stopwatch_end(watch); ...
 *     stopwatch_stop(&watch);                      // watch.seconds[] */
#ifndef WEFT_BASE_STOPWATCH_H
#define WEFT_BASE_STOPWATCH_H

#include <stdatomic.h>

typedef enum {
    STEP_REST, /* what no part claims */
    STEP_DATA,
    STEP_EMBEDDING,
    STEP_NORM,
    STEP_ATTENTION_PRODUCTS,
    STEP_ATTENTION,
    STEP_FFN_PRODUCTS,
    STEP_FFN,
    STEP_RESIDUAL,
    STEP_HEAD_PRODUCTS,
    STEP_HEAD,
    STEP_EXCHANGE,
    STEP_GRADIENT,
    STEP_GRADIENT_NORM,
    STEP_OPTIMIZER,
    STEP_PARTS
} StepPart;

enum { STOPWATCH_DEPTH = 16 };

typedef struct {
    double seconds[STEP_PARTS], since; /* since: of the last change */
    StepPart part[STOPWATCH_DEPTH];    /* begun and not ended, the innermost last */
    int depth;
} Stopwatch;

const char *stopwatch_part_name(StepPart part);

/* All parts 0; STEP_REST begins. */
void stopwatch_start(Stopwatch *watch);
/* The time since the last change is counted; later begins and ends are counted too. */
void stopwatch_stop(Stopwatch *watch);

void stopwatch_begin(Stopwatch *watch, StepPart part); /* NULL: nothing happens */
/* The products of the part that is at work: STEP_FFN_PRODUCTS within STEP_FFN. */
void stopwatch_begin_products(Stopwatch *watch);
void stopwatch_end(Stopwatch *watch);

/* Work that belongs to another part than the parallel region in which threads do it, piece by
 * piece: they add up what it takes them, and after the region the one who walks through the step
 * moves it. What a region waited for it is the mean over its threads.
 *
 *     double since = stopwatch_aside(watch);   // in the region, any thread
 *     ...
 *     stopwatch_add(watch, &aside, since);
 *     ...
 *     stopwatch_move(watch, &aside, threads, from, to);   // after it */
typedef struct {
    _Atomic long long nanoseconds;
} StopwatchAside;
double stopwatch_aside(const Stopwatch *watch);
void stopwatch_add(const Stopwatch *watch, StopwatchAside *aside, double since);
/* Returns the seconds. */
double stopwatch_move(Stopwatch *watch, StopwatchAside *aside, int threads, StepPart from,
                      StepPart to);

/* What is at work, and where its products belong. */
StepPart stopwatch_part(const Stopwatch *watch);
StepPart stopwatch_products(const Stopwatch *watch);

#endif
