/* One function in a thread of its own, whose error comes back to the thread that asks for it.
 *
 *     task_start(&task, work, context);
 *     ... if (task_is_done(&task)) ...          // from time to time
 *     int status = task_finish(&task);          // waits; sets the error that the work has left
 *
 * A Task that is all zero has nothing to do: it is done, and task_finish returns 0. */
#ifndef WEFT_BASE_TASK_H
#define WEFT_BASE_TASK_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    pthread_t thread;
    bool running; /* started and not finished yet, for the owner */
    atomic_bool done;
    int (*work)(void *context); /* 0 or a negative code */
    void *context;
    int status;
    ErrorState error;
} Task;

/* 0, or WEFT_RUNTIME when no thread can be started. */
int task_start(Task *task, int (*work)(void *context), void *context);
bool task_is_done(Task *task);
int task_finish(Task *task);

#endif
