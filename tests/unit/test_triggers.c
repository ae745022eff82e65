/* What asks for a save or a stop: signals, clocks, and their order. Signals are raised in children,
 * as a caught one stays caught. */
#include "base/clock.h"
#include "run/triggers.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t start(int (*scene)(void)) {
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(scene());
    }
    return child;
}

/* What a child process comes to: its exit code, or minus the signal that ended it. */
static int result(pid_t child) {
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int outcome(int (*scene)(void)) { return result(start(scene)); }

/* ---- signals ---- */

static Triggers caught(const int *numbers) {
    Triggers triggers;
    triggers_catch();
    triggers_open(&triggers, 0, 0, false);
    for (; *numbers; numbers++) raise(*numbers);
    return triggers;
}

static bool has_reason(const Triggers *triggers, const char *reason) {
    return !strcmp(triggers_reason(triggers_wish(triggers)), reason);
}

static int user1_saves_once(void) {
    Triggers triggers = caught((int[]){SIGUSR1, SIGUSR1, 0});
    int64_t wish = triggers_wish(&triggers);
    if (!triggers_wants_save(wish) || triggers_wants_stop(wish)) return 1;
    if (!has_reason(&triggers, "SIGUSR1")) return 2;
    triggers_saved(&triggers);
    if (triggers_wish(&triggers)) return 3;
    raise(SIGUSR1);
    return has_reason(&triggers, "SIGUSR1") ? 0 : 4;
}

static int stays_a_stop(int number, const char *reason) {
    Triggers triggers = caught((int[]){number, SIGUSR1, 0});
    for (int i = 0; i < 2; i++) {
        int64_t wish = triggers_wish(&triggers);
        if (!triggers_wants_save(wish) || !triggers_wants_stop(wish)) return 1;
        if (!has_reason(&triggers, reason)) return 2;
        triggers_saved(&triggers); /* leaves it */
    }
    return 0;
}

static int user2_stops(void) { return stays_a_stop(SIGUSR2, "SIGUSR2"); }
static int term_stops(void) { return stays_a_stop(SIGTERM, "SIGTERM"); }
static int interrupt_stops(void) { return stays_a_stop(SIGINT, "SIGINT"); }

START_TEST(signals_are_wishes) {
    ck_assert_int_eq(outcome(user1_saves_once), 0);
    ck_assert_int_eq(outcome(user2_stops), 0);
    ck_assert_int_eq(outcome(term_stops), 0);
    ck_assert_int_eq(outcome(interrupt_stops), 0);
}
END_TEST

/* A copy of the first within two seconds is no second one; the second may be the other of the two.
 */
static int copies(void) {
    Triggers triggers = caught((int[]){SIGTERM, SIGTERM, SIGINT, SIGTERM, 0});
    return triggers_wants_stop(triggers_wish(&triggers)) ? 7 : 1;
}
static int second(int first, int then) {
    caught((int[]){first, 0});
    clock_sleep(2.1);
    raise(then);
    return 7;
}
static int second_term(void) { return second(SIGTERM, SIGTERM); }
static int interrupt_after_term(void) { return second(SIGTERM, SIGINT); }
static int term_after_user2(void) { return second(SIGUSR2, SIGTERM); }

START_TEST(second_term_ends_the_process) {
    pid_t term = start(second_term), interrupt = start(interrupt_after_term);
    pid_t user2 = start(term_after_user2);
    ck_assert_int_eq(outcome(copies), 7);
    ck_assert_int_eq(result(term), -SIGTERM);
    ck_assert_int_eq(result(interrupt), -SIGINT);
    ck_assert_int_eq(result(user2), 7);
}
END_TEST

/* The largest wish of all ranks is what all do. */
static int stronger(void) {
    Triggers triggers = caught((int[]){SIGUSR1, 0});
    int64_t save = triggers_wish(&triggers);
    raise(SIGUSR2);
    int64_t stop = triggers_wish(&triggers);
    return stop > save && save > 0 ? 0 : 1;
}

START_TEST(stop_is_stronger_than_save) { ck_assert_int_eq(outcome(stronger), 0); }
END_TEST

START_TEST(no_wish) {
    Triggers triggers;
    unsetenv("SLURM_JOB_END_TIME");
    triggers_open(&triggers, 0, 0, true);
    triggers_step(&triggers, 1e9, 1e9);
    ck_assert_int_eq(triggers_wish(&triggers), 0);
    ck_assert(!triggers_wants_save(0) && !triggers_wants_stop(0));
    ck_assert_str_eq(triggers_reason(0), "");
}
END_TEST

/* ---- clocks ---- */

static void expect(const Triggers *triggers, const char *reason) {
    ck_assert_str_eq(triggers_reason(triggers_wish(triggers)), reason);
}

START_TEST(limit_leaves_time_for_step_and_save) {
    Triggers triggers;
    unsetenv("SLURM_JOB_END_TIME");
    triggers_open(&triggers, 10, 0, true); /* 600 s, of which 30 s are kept free */
    expect(&triggers, "");
    triggers_step(&triggers, 200, 0);
    expect(&triggers, "");
    triggers_step(&triggers, 100, 170); /* 1.5 * (200 + 170) = 555 */
    expect(&triggers, "");
    triggers_step(&triggers, 0, 190); /* 585 */
    expect(&triggers, "train.max_minutes");
    ck_assert(triggers_wants_stop(triggers_wish(&triggers)));
}
END_TEST

START_TEST(limit_comes_with_time) {
    Triggers triggers;
    unsetenv("SLURM_JOB_END_TIME");
    triggers_open(&triggers, 0.4 / 60, 0, true);
    triggers_step(&triggers, 0.1, 0.06); /* from 0.4 - 0.02 - 0.24 on */
    expect(&triggers, "");
    clock_sleep(0.2);
    expect(&triggers, "train.max_minutes");
}
END_TEST

START_TEST(minutes_since_the_last_save) {
    Triggers triggers;
    unsetenv("SLURM_JOB_END_TIME");
    triggers_open(&triggers, 0, 0.2 / 60, true);
    expect(&triggers, "");
    clock_sleep(0.25);
    expect(&triggers, "checkpoint.minutes");
    ck_assert(!triggers_wants_stop(triggers_wish(&triggers)));
    triggers_saved(&triggers);
    expect(&triggers, "");
    clock_sleep(0.25);
    expect(&triggers, "checkpoint.minutes");
}
END_TEST

/* Sets Slurm's end to so many seconds from now. */
static void slurm_ends_in(double seconds) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)(time(NULL) + (time_t)seconds));
    setenv("SLURM_JOB_END_TIME", text, 1);
}

START_TEST(the_sooner_limit_counts) {
    Triggers triggers;
    slurm_ends_in(300);
    triggers_open(&triggers, 10, 0, true);
    triggers_step(&triggers, 160, 0); /* 240 of 300 - 15 s */
    expect(&triggers, "");
    triggers_step(&triggers, 200, 0);
    expect(&triggers, "SLURM_JOB_END_TIME");
    slurm_ends_in(1200);
    triggers_open(&triggers, 10, 0, true);
    triggers_step(&triggers, 400, 0);
    expect(&triggers, "train.max_minutes");
}
END_TEST

START_TEST(no_time_to_come) {
    static const char *const texts[] = {"", "0", "-1", "1700000000", "never", "99999999999x"};
    Triggers triggers;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv("SLURM_JOB_END_TIME", texts[i], 1);
        triggers_open(&triggers, 0, 0, true);
        triggers_step(&triggers, 1e12, 0);
        expect(&triggers, "");
    }
    slurm_ends_in(1e6);
    triggers_open(&triggers, 0, 0, true);
    triggers_step(&triggers, 1e12, 0);
    expect(&triggers, "SLURM_JOB_END_TIME");
}
END_TEST

START_TEST(clocks_of_one_rank_alone) {
    Triggers triggers;
    slurm_ends_in(100);
    triggers_open(&triggers, 1, 1e-9, false);
    triggers_step(&triggers, 1e9, 1e9);
    expect(&triggers, "");
}
END_TEST

int main(void) {
    return run_suite("triggers",
                     TESTS(signals_are_wishes, second_term_ends_the_process,
                           stop_is_stronger_than_save, no_wish, limit_leaves_time_for_step_and_save,
                           limit_comes_with_time, minutes_since_the_last_save,
                           the_sooner_limit_counts, no_time_to_come, clocks_of_one_rank_alone));
}
