#include "run/triggers.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* In rising strength. A stop by a signal is stronger than one by a clock: it tells what somebody
 * did, and it comes at the same step anyway. */
enum {
    WISH_NONE,
    WISH_MINUTES,
    WISH_USR1,
    WISH_MAX_MINUTES,
    WISH_SLURM,
    WISH_USR2,
    WISH_TERM,
    WISH_INT,
    WISHES
};

static const struct {
    const char *reason;
    int signal; /* 0: a clock */
    bool stop, ends_at_second;
} wishes[WISHES] = {
    [WISH_NONE] = {.reason = ""},
    [WISH_MINUTES] = {"checkpoint.minutes", 0, false, false},
    [WISH_USR1] = {"SIGUSR1", SIGUSR1, false, false},
    [WISH_MAX_MINUTES] = {"train.max_minutes", 0, true, false},
    [WISH_SLURM] = {"SLURM_JOB_END_TIME", 0, true, false},
    [WISH_USR2] = {"SIGUSR2", SIGUSR2, true, false},
    [WISH_TERM] = {"SIGTERM", SIGTERM, true, true},
    [WISH_INT] = {"SIGINT", SIGINT, true, true},
};

static const int64_t SECOND = 1000000000; /* in nanoseconds */

/* Signals have no other way to us than through variables of the process. */
static atomic_bool caught[WISHES];
static atomic_llong first_end; /* nanoseconds; when the first SIGTERM or SIGINT came; 0: not yet */

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * SECOND + now.tv_nsec;
}

static void end_at_second(int number) {
    long long now = nanoseconds(), first = 0;
    if (atomic_compare_exchange_strong(&first_end, &first, now) || now - first < 2 * SECOND) return;
    signal(number, SIG_DFL);
    raise(number); /* strikes when the handler returns */
}

/* Runs in a signal handler: atomics and async-signal-safe functions alone. */
static void catch_signal(int number) {
    int saved = errno;
    for (int i = 0; i < WISHES; i++) {
        if (wishes[i].signal != number) continue;
        atomic_store(&caught[i], true);
        if (wishes[i].ends_at_second) end_at_second(number);
    }
    errno = saved;
}

void triggers_catch(void) {
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < WISHES; i++)
        if (wishes[i].signal) sigaction(wishes[i].signal, &action, NULL);
}

/* The last moment is kept free: a twentieth of the time there is, at most 30 s. */
static void limit(Triggers *triggers, double seconds, int64_t wish) {
    double now = clock_seconds();
    if (triggers->stop_at > 0 && triggers->stop_at <= now + seconds) return;
    triggers->stop_at = now + seconds;
    triggers->margin = seconds < 600 ? seconds / 20 : 30;
    triggers->stop_wish = wish;
}

static void limit_by_slurm(Triggers *triggers) {
    const char *text = getenv("SLURM_JOB_END_TIME");
    if (!text || !*text) return;
    char *end;
    long long last = strtoll(text, &end, 10);
    time_t now = time(NULL);
    if (*end || last <= (long long)now)
        log_warn("SLURM_JOB_END_TIME = %s: not a time to come (now is %lld): left aside", text,
                 (long long)now);
    else
        limit(triggers, (double)(last - (long long)now), WISH_SLURM);
}

void triggers_open(Triggers *triggers, double max_minutes, double save_minutes, bool clocks) {
    *triggers =
        (Triggers){.clocks = clocks, .save_every = 60 * save_minutes, .last_save = clock_seconds()};
    if (!clocks) return;
    if (max_minutes > 0) limit(triggers, 60 * max_minutes, WISH_MAX_MINUTES);
    limit_by_slurm(triggers);
}

void triggers_step(Triggers *triggers, double step, double save) {
    if (step > triggers->longest_step) triggers->longest_step = step;
    if (save > triggers->longest_save) triggers->longest_save = save;
}

/* Whether another step and a save may end too late: either can take half as long again. */
static bool is_late(const Triggers *triggers, double now) {
    double need = 1.5 * (triggers->longest_step + triggers->longest_save) + triggers->margin;
    return triggers->stop_at > 0 && now + need > triggers->stop_at;
}

static int64_t clock_wish(const Triggers *triggers) {
    double now = clock_seconds();
    if (is_late(triggers, now)) return triggers->stop_wish;
    bool due = triggers->save_every > 0 && now - triggers->last_save >= triggers->save_every;
    return due ? WISH_MINUTES : WISH_NONE;
}

int64_t triggers_wish(const Triggers *triggers) {
    int64_t wish = triggers->clocks ? clock_wish(triggers) : WISH_NONE;
    for (int64_t i = wish + 1; i < WISHES; i++)
        if (atomic_load(&caught[i])) wish = i;
    return wish;
}

static bool is_wish(int64_t wish) { return wish > WISH_NONE && wish < WISHES; }

bool triggers_wants_save(int64_t wish) { return is_wish(wish); }

bool triggers_wants_stop(int64_t wish) { return is_wish(wish) && wishes[wish].stop; }

const char *triggers_reason(int64_t wish) { return is_wish(wish) ? wishes[wish].reason : ""; }

void triggers_saved(Triggers *triggers) {
    triggers->last_save = clock_seconds();
    for (int i = 0; i < WISHES; i++)
        if (!wishes[i].stop) atomic_store(&caught[i], false);
}
