/* Some threads that do the same side by side, as the ranks of a node do: each on cores of its own,
 * as launchers bind ranks. Two on one core would take turns.
 *
 *     team_run(&team, count, work, context);   // work(member, context) in each; waits for all
 *     ... within: team_meet(&team); */
#ifndef WEFT_RUN_TEAM_H
#define WEFT_RUN_TEAM_H

#include <stdatomic.h>

typedef struct {
    int count;
    atomic_int go; /* 1 once all are there; -1 when that will never be */
    atomic_uint arrived, round;
} Team;

/* At most SHARD_MAX members. 0, or the error of the lowest member that failed; WEFT_RUNTIME when
 * threads can't be started. A member that fails must still meet the others. */
int team_run(Team *team, int count, int (*work)(int member, void *context), void *context);

/* Waits for all, as ranks wait that share a window (comm/window.c). */
void team_meet(Team *team);

/* The same, but who waits keeps the core: where other programs have the cores too, members that
 * yield to them hardly ever run at the same time. For timing a barrier. */
void team_meet_awake(Team *team);

#endif
