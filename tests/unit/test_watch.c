/* Each scene is played in a process of its own, which the watch may end; what it writes to stderr
 * comes back packet by packet, one for each write. */
#include "base/watch.h"

#include "base/clock.h"
#include "support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Limits in seconds; what is said to take less than LONG may take longer on a busy machine. */
static const double LIMIT = 0.2, GRACE = 1, LONG = 10;

typedef struct {
    pid_t child;
    int pipe;
    double start;
} Scene;

typedef struct {
    int status; /* of waitpid */
    double seconds;
    int lines;
    char said[2048];
} Outcome;

static Scene play(void (*act)(void)) {
    Scene scene = {.start = clock_seconds()};
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_DIRECT), 0);
    scene.child = fork();
    ck_assert_int_ge(scene.child, 0);
    if (scene.child == 0) {
        alarm(60);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        act();
        _exit(0);
    }
    close(ends[1]);
    scene.pipe = ends[0];
    return scene;
}

/* Reads until the scene is over: each packet must be a line. */
static Outcome outcome(Scene scene) {
    Outcome outcome = {0};
    size_t used = 0;
    ssize_t size;
    while ((size = read(scene.pipe, outcome.said + used, sizeof outcome.said - 1 - used)) > 0) {
        used += (size_t)size;
        ck_assert_msg(outcome.said[used - 1] == '\n', "half a line: %s", outcome.said);
        outcome.lines++;
    }
    ck_assert_int_eq(waitpid(scene.child, &outcome.status, 0), scene.child);
    outcome.seconds = clock_seconds() - scene.start;
    close(scene.pipe);
    return outcome;
}

static void ended_by_watch(Outcome outcome, double limit, const char *said) {
    ck_assert_msg(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 4,
                  "status %d, said %s", outcome.status, outcome.said);
    ck_assert_double_ge(outcome.seconds, limit + GRACE);
    ck_assert_double_lt(outcome.seconds, limit + GRACE + LONG);
    ck_assert_str_eq(outcome.said, said);
    ck_assert_int_eq(outcome.lines, 1);
}

static void ended_by_itself(Outcome outcome, const char *said) {
    ck_assert_msg(outcome.status == 0, "status %d, said %s", outcome.status, outcome.said);
    ck_assert_str_eq(outcome.said, said);
}

static void hang(void) { clock_sleep(60); }

static void wait_in_nested(void) {
    Watch *watch = watch_open(3, LIMIT);
    watch_step(watch, 17);
    watch_phase(watch, PHASE_BACKWARD);
    watch_enter(watch, "setting up", "all ranks");
    watch_enter(watch, "broadcast", "data ranks");
    watch_leave(watch);
    watch_enter(watch, "exact sum", "tensor ranks");
    hang();
}

static void wait_in_outer(void) {
    Watch *watch = watch_open(0, LIMIT);
    watch_step(watch, 1);
    watch_phase(watch, PHASE_FORWARD);
    watch_enter(watch, "setting up", "all ranks");
    watch_enter(watch, "broadcast", "data ranks");
    watch_leave(watch);
    hang();
}

static void wait_in_none(void) {
    Watch *watch = watch_open(1, LIMIT);
    watch_step(watch, 2);
    watch_phase(watch, PHASE_EVALUATE);
    watch_enter(watch, "broadcast", "data ranks");
    watch_leave(watch);
    hang();
}

static void wait_before_steps(void) {
    watch_open(1, LIMIT / 10);
    hang();
}

START_TEST(tells_where_it_hangs) {
    Scene scene[] = {play(wait_in_nested), play(wait_in_outer), play(wait_in_none),
                     play(wait_before_steps)};
    ended_by_watch(outcome(scene[0]), LIMIT,
                   "weft: error: rank 3: no progress for 0.2 s: step 17, phase backward, waiting "
                   "in exact sum over tensor ranks; ends the job in 1 s (train.hang_timeout)\n");
    ended_by_watch(outcome(scene[1]), LIMIT,
                   "weft: error: rank 0: no progress for 0.2 s: step 1, phase forward, waiting "
                   "in setting up over all ranks; ends the job in 1 s (train.hang_timeout)\n");
    ended_by_watch(outcome(scene[2]), LIMIT,
                   "weft: error: rank 1: no progress for 0.2 s: step 2, phase evaluate, in no "
                   "collective; ends the job in 1 s (train.hang_timeout)\n");
    ended_by_watch(outcome(scene[3]), LIMIT,
                   "weft: error: rank 1: no progress for 0.2 s: before the first step, phase "
                   "startup, in no collective; ends the job in 1 s (train.hang_timeout)\n");
}
END_TEST

/* In one of the phases in which a disk may be slow, and each that must not be taken for one. */
static void hang_in(Phase phase) {
    Watch *watch = watch_open(0, LIMIT);
    watch_step(watch, 1);
    watch_phase(watch, phase);
    hang();
}

static void hang_in_data(void) { hang_in(PHASE_DATA); }
static void hang_in_load(void) { hang_in(PHASE_LOAD); }
static void hang_in_save(void) { hang_in(PHASE_SAVE); }
static void hang_in_optimizer(void) { hang_in(PHASE_OPTIMIZER); }

START_TEST(waits_ten_times_as_long_for_disks) {
    static const char *const slow[] = {"data", "load", "save"};
    Scene scene[] = {play(hang_in_data), play(hang_in_load), play(hang_in_save)};
    Scene fast = play(hang_in_optimizer);
    char said[256];
    for (int i = 0; i < 3; i++) {
        snprintf(said, sizeof said,
                 "weft: error: rank 0: no progress for 2 s: step 1, phase %s, in no collective; "
                 "ends the job in 1 s (train.hang_timeout)\n",
                 slow[i]);
        ended_by_watch(outcome(scene[i]), 10 * LIMIT, said);
    }
    ended_by_watch(outcome(fast), LIMIT,
                   "weft: error: rank 0: no progress for 0.2 s: step 1, phase optimizer, in no "
                   "collective; ends the job in 1 s (train.hang_timeout)\n");
}
END_TEST

/* Signs of one kind alone, for longer than a watch would wait. */
enum { SIGNS = 45 };
static const double PACE = 0.03;

static void live_by(void (*sign)(Watch *, int)) {
    Watch *watch = watch_open(0, LIMIT);
    watch_phase(watch, PHASE_FORWARD);
    for (int i = 1; i <= SIGNS; i++) {
        clock_sleep(PACE);
        sign(watch, i);
    }
    watch_close(watch);
}

static void sign_step(Watch *watch, int i) { watch_step(watch, i); }
static void sign_phase(Watch *watch, int i) {
    watch_phase(watch, i % 2 ? PHASE_BACKWARD : PHASE_FORWARD);
}
static void sign_same_phase(Watch *watch, int i) {
    (void)i;
    watch_phase(watch, PHASE_FORWARD);
}
static void sign_collective(Watch *watch, int i) {
    if (i % 2)
        watch_enter(watch, "barrier", "all ranks");
    else
        watch_leave(watch);
}
static void sign_deep_collective(Watch *watch, int i) {
    if (i <= SIGNS / 2)
        watch_enter(watch, "barrier", "all ranks"); /* deeper than it remembers */
    else
        watch_leave(watch);
}

static void live_by_steps(void) { live_by(sign_step); }
static void live_by_phases(void) { live_by(sign_phase); }
static void live_by_layers(void) { live_by(sign_same_phase); }
static void live_by_collectives(void) { live_by(sign_collective); }
static void live_by_deep_collectives(void) { live_by(sign_deep_collective); }

START_TEST(lets_the_living_live) {
    Scene scene[] = {play(live_by_steps), play(live_by_phases), play(live_by_layers),
                     play(live_by_collectives), play(live_by_deep_collectives)};
    for (size_t i = 0; i < sizeof scene / sizeof *scene; i++) {
        Outcome end = outcome(scene[i]);
        ended_by_itself(end, "");
        ck_assert_double_ge(end.seconds, LIMIT + GRACE);
    }
}
END_TEST

static void come_back_in_time(void) {
    Watch *watch = watch_open(2, LIMIT);
    watch_step(watch, 4);
    watch_phase(watch, PHASE_FORWARD);
    clock_sleep(LIMIT + GRACE / 2);
    watch_phase(watch, PHASE_BACKWARD);
    for (int i = 0; i < SIGNS / 2; i++) {
        clock_sleep(PACE);
        watch_phase(watch, PHASE_BACKWARD);
    }
}

static void close_in_time(void) {
    Watch *watch = watch_open(0, LIMIT);
    watch_phase(watch, PHASE_FORWARD);
    watch_close(watch);
    clock_sleep(LIMIT + GRACE + 0.2);
}

START_TEST(is_called_off) {
    Scene back = play(come_back_in_time), closed = play(close_in_time);
    ended_by_itself(outcome(back),
                    "weft: error: rank 2: no progress for 0.2 s: step 4, phase forward, in no "
                    "collective; ends the job in 1 s (train.hang_timeout)\n"
                    "weft: rank 2: goes on\n");
    ended_by_itself(outcome(closed), "");
}
END_TEST

START_TEST(time_while_stopped_does_not_count) {
    Scene scene = play(live_by_layers);
    clock_sleep(0.2);
    ck_assert_int_eq(kill(scene.child, SIGSTOP), 0);
    clock_sleep(LIMIT + GRACE + 0.2);
    ck_assert_int_eq(kill(scene.child, SIGCONT), 0);
    ended_by_itself(outcome(scene), "");
}
END_TEST

/* Nobody reads what the process writes: its end must not wait for that. */
static void hang_behind_a_full_pipe(void) {
    int ends[2];
    char text[4096] = {0};
    if (pipe(ends) || fcntl(ends[1], F_SETFL, O_NONBLOCK)) _exit(9);
    while (write(ends[1], text, sizeof text) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    watch_phase(watch_open(0, LIMIT), PHASE_FORWARD);
    hang();
}

static void leave_properly(void) {
    if (write(STDERR_FILENO, "bye\n", 4) != 4) _exit(9);
}

/* Nor for a stream that the hanging thread has locked, nor what libraries do at a proper exit. */
static void hang_with_a_locked_stream(void) {
    atexit(leave_properly);
    watch_phase(watch_open(0, LIMIT), PHASE_FORWARD);
    flockfile(stderr);
    flockfile(stdout);
    printf("half a line");
    hang();
}

START_TEST(ends_whatever_is_blocked) {
    Scene full = play(hang_behind_a_full_pipe), locked = play(hang_with_a_locked_stream);
    Outcome end = outcome(full);
    ck_assert_msg(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 4, "status %d", end.status);
    ended_by_watch(outcome(locked), LIMIT,
                   "weft: error: rank 0: no progress for 0.2 s: before the first step, phase "
                   "forward, in no collective; ends the job in 1 s (train.hang_timeout)\n");
}
END_TEST

static volatile sig_atomic_t caught;
static void remember(int number) { caught = number; }

/* The process's only other thread blocks the signal: the watch must not take it. */
START_TEST(takes_no_signal) {
    sigset_t one, pending;
    signal(SIGUSR1, remember);
    Watch *watch = watch_open(0, LONG);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR1);
    clock_sleep(0.1);
    sigpending(&pending);
    ck_assert(sigismember(&pending, SIGUSR1));
    ck_assert_int_eq(caught, 0);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    ck_assert_int_eq(caught, SIGUSR1);
    watch_close(watch);
}
END_TEST

START_TEST(no_watch_does_nothing) {
    ck_assert_ptr_null(watch_open(0, 0));
    watch_step(NULL, 1);
    watch_phase(NULL, PHASE_SAVE);
    watch_enter(NULL, "barrier", "all ranks");
    watch_leave(NULL);
    watch_close(NULL);
}
END_TEST

START_TEST(closes_at_once) {
    double start = clock_seconds();
    for (int i = 0; i < 20; i++) watch_close(watch_open(0, 300));
    ck_assert_double_lt(clock_seconds() - start, LONG);
}
END_TEST

int main(void) {
    return run_suite("watch", TESTS(tells_where_it_hangs, waits_ten_times_as_long_for_disks,
                                    lets_the_living_live, is_called_off,
                                    time_while_stopped_does_not_count, ends_whatever_is_blocked,
                                    takes_no_signal, no_watch_does_nothing, closes_at_once));
}
