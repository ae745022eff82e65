#include "base/library_lock.h"

#include <pthread.h>
#include <stdint.h>

/* The library is one for the whole process, and so is its lock. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static uint64_t tickets, serving;
static _Thread_local int depth;

int library_enter(void) {
    if (depth++) return 0;
    pthread_mutex_lock(&mutex);
    uint64_t mine = tickets++;
    while (mine != serving) pthread_cond_wait(&turn, &mutex);
    pthread_mutex_unlock(&mutex);
    return 0;
}

void library_leave(int *section) {
    (void)section;
    if (--depth) return;
    pthread_mutex_lock(&mutex);
    serving++;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&mutex);
}
