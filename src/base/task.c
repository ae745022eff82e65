#include "base/task.h"

#include <signal.h>
#include <string.h>

static void *run(void *argument) {
    Task *task = argument;
    task->status = task->work(task->context);
    error_keep(&task->error);
    atomic_store(&task->done, true);
    return NULL;
}

/* Signals are for the thread that trains: a handler there interrupts nothing that is being written.
 */
int task_start(Task *task, int (*work)(void *context), void *context) {
    sigset_t all, before;
    *task = (Task){.work = work, .context = context, .running = true};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&task->thread, NULL, run, task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return 0;
    task->running = false;
    return error_set(WEFT_RUNTIME, "can't start a thread: %s", strerror(failed));
}

bool task_is_done(Task *task) { return !task->running || atomic_load(&task->done); }

int task_finish(Task *task) {
    if (!task->running) return 0;
    pthread_join(task->thread, NULL);
    task->running = false;
    if (task->status) error_restore(&task->error);
    return task->status;
}
