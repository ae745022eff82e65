/* The lock around HDF5. */
#include "base/clock.h"
#include "base/library_lock.h"
#include "base/task.h"
#include "support/support.h"

#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, TURNS = 2000 };

typedef struct {
    volatile int inside, most; /* threads in a section; the largest number seen */
    int done;                  /* sections, of all threads */
} Shared;

static int take_turns(void *context) {
    Shared *shared = context;
    for (int i = 0; i < TURNS; i++) {
        LIBRARY_SECTION;
        shared->inside++;
        if (i % 50 == 0) sched_yield();
        if (shared->inside > shared->most) shared->most = shared->inside;
        shared->inside--;
        shared->done++;
    }
    return 0;
}

START_TEST(one_thread_at_a_time) {
    Task task[THREADS];
    Shared shared = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(task_start(&task[i], take_turns, &shared), 0);
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(task_finish(&task[i]), 0);
    ck_assert_int_eq(shared.most, 1);
    ck_assert_int_eq(shared.done, THREADS * TURNS);
}
END_TEST

static int nested(int depth) {
    LIBRARY_SECTION;
    return depth ? nested(depth - 1) : 0;
}

static int enter_once(void *context) {
    LIBRARY_SECTION;
    *(atomic_int *)context = 1;
    return 0;
}

/* A section within a section is none of its own: the lock is free after the outer one, not
 * before. */
START_TEST(sections_nest) {
    Task task;
    atomic_int entered = 0;
    {
        LIBRARY_SECTION;
        ck_assert_int_eq(nested(5), 0);
        ck_assert_int_eq(task_start(&task, enter_once, &entered), 0);
        clock_sleep(0.05);
        ck_assert_int_eq(entered, 0);
    }
    ck_assert_int_eq(task_finish(&task), 0);
    ck_assert_int_eq(entered, 1);
}
END_TEST

/* A thread that leaves and comes back at once doesn't overtake one that waits. */
START_TEST(who_waits_is_next) {
    enum { ROUNDS = 60 };
    int overtaken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        Task task;
        atomic_int entered = 0;
        {
            LIBRARY_SECTION;
            ck_assert_int_eq(task_start(&task, enter_once, &entered), 0);
            clock_sleep(0.02); /* it waits by now */
        }
        {
            LIBRARY_SECTION;
            overtaken += !entered;
        }
        ck_assert_int_eq(task_finish(&task), 0);
    }
    /* A busy machine may take longer to start it now and then; an unfair lock lets it wait nearly
     * always. */
    ck_assert_int_lt(overtaken, ROUNDS / 2);
}
END_TEST

int main(void) {
    return run_suite("library lock", TESTS(one_thread_at_a_time, sections_nest, who_waits_is_next));
}
