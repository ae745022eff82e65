#include "base/fault.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mistakes.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_names[PHASE_COUNT] = {"startup",   "data",   "forward", "backward",
                                              "optimizer", "save",   "load",    "evaluate",
                                              "write",     "publish"};

#ifdef WEFT_FAULTS

/* How long those sleep that sleep. */
static const struct {
    const char *name;
    double seconds;
} kinds[] = {
    {"fail", 0},      {"delay", 0.25}, /* far longer than ranks spin before they yield */
    {"kill", 0},      {"hang", 1e9},   {"nan", 0},          {"bitflip", 0},    {"enospc", 0},
    {"slow-disk", 2}, {"nudge", 0},    {"blas-threads", 0}, {"other-core", 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FAULTS_MAX = 8 };

static struct {
    const char *name; /* of a kind or a mistake */
    int rank, phase;  /* -1: any */
    int64_t step;
    int times; /* 0: always */
    double seconds;
    atomic_int taken;
} fault[FAULTS_MAX];
static int faults, own_rank;
static int64_t present_step = -1;

/* "a, b, c" of a table of names. */
static void list_names(const char *(*name)(int), int count, char *text, size_t capacity) {
    size_t used = 0;
    for (int i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "", name(i));
}

static int mistakes_count(void) {
    int count = 0;
    while (mistakes[count].name) count++;
    return count;
}

static const char *phase_name(int i) { return phase_names[i]; }

/* Kinds, then mistakes. */
static const char *fault_name(int i) {
    return i < KINDS ? kinds[i].name : mistakes[i - KINDS].name;
}

static int find_name(const char *name) {
    int count = KINDS + mistakes_count();
    for (int i = 0; i < count; i++)
        if (!strcmp(name, fault_name(i))) return i;
    char allowed[ERROR_SIZE];
    list_names(fault_name, count, allowed, sizeof allowed);
    error_set(WEFT_USAGE, "--inject: kind \"%s\": one of %s expected", name, allowed);
    return -1;
}

static int parse_part(const char *part) {
    char phase[32] = "", allowed[256];
    long long step;
    if (sscanf(part, "rank=%d", &fault[faults].rank) == 1) return 0;
    if (sscanf(part, "times=%d", &fault[faults].times) == 1) return 0;
    if (sscanf(part, "seconds=%lf", &fault[faults].seconds) == 1) return 0;
    if (sscanf(part, "step=%lld", &step) == 1) {
        fault[faults].step = step;
        return 0;
    }
    if (sscanf(part, "phase=%31s", phase) == 1)
        for (int p = 0; p < PHASE_COUNT; p++)
            if (!strcmp(phase, phase_names[p])) {
                fault[faults].phase = p;
                return 0;
            }
    list_names(phase_name, PHASE_COUNT, allowed, sizeof allowed);
    return error_set(WEFT_USAGE,
                     "--inject: \"%s\": rank=R, step=N, times=N, seconds=X or phase=P expected; P "
                     "is one of %s",
                     part, allowed);
}

int fault_parse(const char *text) {
    char copy[256];
    if (faults == FAULTS_MAX || strlen(text) >= sizeof copy)
        return error_set(WEFT_USAGE, "--inject %s: too long or more than %d of them", text,
                         FAULTS_MAX);
    memcpy(copy, text, strlen(text) + 1);
    char *rest = strchr(copy, '@');
    if (rest) *rest++ = '\0';
    int found = find_name(copy);
    if (found < 0) return WEFT_USAGE;
    fault[faults].name = fault_name(found);
    fault[faults].rank = fault[faults].phase = -1;
    fault[faults].step = -1;
    fault[faults].times = 1;
    fault[faults].seconds = found < KINDS ? kinds[found].seconds : 0;
    for (char *part = rest; part && *part;) {
        char *next = strchr(part, ',');
        if (next) *next++ = '\0';
        if (parse_part(part)) return WEFT_USAGE;
        part = next;
    }
    faults++;
    return 0;
}

int fault_parse_environment(void) {
    const char *text = getenv("WEFT_INJECT");
    return text ? fault_parse(text) : 0;
}

void fault_set_rank(int rank) { own_rank = rank; }

void fault_set_step(int64_t step) { present_step = step; }

static bool applies(int i, const char *kind, int64_t step) {
    return !strcmp(fault[i].name, kind) && (fault[i].rank < 0 || fault[i].rank == own_rank) &&
           (fault[i].step < 0 || fault[i].step == step);
}

static bool strikes(int i, const char *kind, Phase phase, int64_t step) {
    return applies(i, kind, step) && (fault[i].phase < 0 || fault[i].phase == (int)phase) &&
           (atomic_fetch_add(&fault[i].taken, 1) < fault[i].times || fault[i].times == 0);
}

bool fault_on(const char *kind) {
    for (int i = 0; i < faults; i++)
        if (applies(i, kind, present_step)) return true;
    return false;
}

bool fault_take_of(const char *kind, Phase phase, int64_t step) {
    for (int i = 0; i < faults; i++)
        if (strikes(i, kind, phase, step)) return true;
    return false;
}

bool fault_take(const char *kind, Phase phase) { return fault_take_of(kind, phase, present_step); }

void fault_sleep(const char *kind) {
    for (int i = 0; i < faults; i++)
        if (!strcmp(fault[i].name, kind)) {
            clock_sleep(fault[i].seconds);
            return;
        }
}

int fault_point_of(Phase phase, int64_t step) {
    for (int i = 0; i < faults; i++) {
        if (strikes(i, "delay", phase, step) || strikes(i, "hang", phase, step))
            clock_sleep(fault[i].seconds);
        if (strikes(i, "kill", phase, step)) raise(SIGKILL);
        if (strikes(i, "fail", phase, step))
            return error_set(WEFT_RUNTIME, "injected failure in phase %s, step %lld",
                             phase_names[phase], (long long)step);
    }
    return 0;
}

int fault_point(Phase phase) { return fault_point_of(phase, present_step); }

#endif
