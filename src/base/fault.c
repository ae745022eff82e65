#include "base/fault.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_names[PHASE_COUNT] = {"startup",   "data", "forward", "backward",
                                              "optimizer", "save", "load"};

#ifdef WEFT_FAULTS

static const char *const kinds[] = {"fail",         "delay",        "rank-mask", "nudge",
                                    "blas-threads", "lose-moments", NULL};

enum { FAULTS_MAX = 8 };
static const double DELAY = 0.25; /* seconds: far longer than ranks spin before they yield */

static struct {
    char kind[32];
    int rank, phase; /* -1: any */
    int64_t step;
    bool done; /* a delay has happened */
} fault[FAULTS_MAX];
static int faults, own_rank;
static int64_t present_step = -1;

static int parse_part(const char *part) {
    char phase[32] = "";
    if (sscanf(part, "rank=%d", &fault[faults].rank) == 1) return 0;
    long long step;
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
    return error_set(WEFT_USAGE,
                     "--inject: \"%s\": rank=R, step=N or phase=startup|data|forward|"
                     "backward|optimizer|save|load expected",
                     part);
}

int fault_parse(const char *text) {
    char copy[256];
    if (faults == FAULTS_MAX || strlen(text) >= sizeof copy)
        return error_set(WEFT_USAGE, "--inject %s: too long or more than %d of them", text,
                         FAULTS_MAX);
    memcpy(copy, text, strlen(text) + 1);
    char *rest = strchr(copy, '@');
    if (rest) *rest++ = '\0';
    int known = 0;
    for (int k = 0; kinds[k]; k++) known |= !strcmp(copy, kinds[k]);
    if (!known)
        return error_set(WEFT_USAGE,
                         "--inject: kind \"%s\": one of fail, delay, rank-mask, nudge, "
                         "blas-threads, lose-moments expected",
                         copy);
    snprintf(fault[faults].kind, sizeof fault[faults].kind, "%s", copy);
    fault[faults].rank = fault[faults].phase = -1;
    fault[faults].step = -1;
    for (char *part = rest; part && *part;) {
        char *next = strchr(part, ',');
        if (next) *next++ = '\0';
        if (parse_part(part)) return WEFT_USAGE;
        part = next;
    }
    faults++;
    return 0;
}

void fault_set_rank(int rank) { own_rank = rank; }

void fault_set_step(int64_t step) { present_step = step; }

static bool applies(int i, const char *kind) {
    return !strcmp(fault[i].kind, kind) && (fault[i].rank < 0 || fault[i].rank == own_rank) &&
           (fault[i].step < 0 || fault[i].step == present_step);
}

bool fault_on(const char *kind) {
    for (int i = 0; i < faults; i++)
        if (applies(i, kind)) return true;
    return false;
}

int fault_point(Phase phase) {
    for (int i = 0; i < faults; i++) {
        if (fault[i].phase >= 0 && fault[i].phase != (int)phase) continue;
        if (applies(i, "delay") && !fault[i].done) {
            fault[i].done = true;
            clock_sleep(DELAY);
        }
        if (applies(i, "fail"))
            return error_set(WEFT_RUNTIME, "injected failure in phase %s, step %lld",
                             phase_names[phase], (long long)present_step);
    }
    return 0;
}

#endif
