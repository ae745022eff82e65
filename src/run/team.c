#include "run/team.h"

#include "base/clock.h"
#include "base/task.h"
#include "tensor/shard.h"

#include <sched.h>
#include <stdbool.h>

typedef struct {
    Team *team;
    int number;
    int (*work)(int member, void *context);
    void *context;
    Task task;
} Member;

/* Cores of one member's own: an equal part of those that the process may use, where there are
 * enough. Threads that it starts have the same. Without them it runs where it is put. */
static void take_cores(const Member *member) {
    cpu_set_t all, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    int cores = CPU_COUNT(&all), each = cores / member->team->count;
    if (each == 0) return;
    for (int core = 0, place = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && place++ / each == member->number) CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static int run_member(void *context) {
    Member *member = context;
    Team *team = member->team;
    take_cores(member);
    while (atomic_load(&team->go) == 0) clock_sleep(100e-6);
    return atomic_load(&team->go) > 0 ? member->work(member->number, member->context) : 0;
}

int team_run(Team *team, int count, int (*work)(int member, void *context), void *context) {
    Member member[SHARD_MAX];
    int status = 0, started = 0;
    *team = (Team){.count = count};
    for (; started < count && !status; started += !status) {
        member[started] =
            (Member){.team = team, .number = started, .work = work, .context = context};
        status = task_start(&member[started].task, run_member, &member[started]);
    }
    atomic_store(&team->go, status ? -1 : 1);
    for (int i = 0; i < started; i++) {
        int failed = task_finish(&member[i].task);
        if (!status) status = failed;
    }
    return status;
}

static void meet(Team *team, bool awake) {
    enum { SPINS = 20000 };
    unsigned round = atomic_load(&team->round);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (unsigned)team->count) {
        atomic_store(&team->arrived, 0);
        atomic_store(&team->round, round + 1);
        return;
    }
    for (int look = 0; atomic_load(&team->round) == round; look += look < SPINS)
        if (look == SPINS && !awake) sched_yield();
}

void team_meet(Team *team) { meet(team, false); }

void team_meet_awake(Team *team) { meet(team, true); }
