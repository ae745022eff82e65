#include "run/scaling_measure.h"

#include "base/clock.h"
#include "base/log.h"
#include "run/others.h"
#include "run/rates_quiet.h"

#include <stdio.h>

enum { ROUNDS = 2 };

static const double SAID_SECONDS = 5;

typedef struct {
    int tp, at_once;
    ShareRates *rates;
} Share;

typedef struct {
    ScalingMeasured *measured;
    Share share[SHARD_MAX + 1];
    int count, round;
    int columns; /* of a terminal, or 0 */
    double said; /* when the last line was */
} Work;

static void add(Work *work, int tp, int at_once, ShareRates *rates) {
    work->share[work->count++] = (Share){tp, at_once, rates};
}

static void list(Work *work) {
    ScalingMeasured *measured = work->measured;
    int at_once = measured->at_once;
    add(work, 1, 1, &measured->one);
    if (measured->wanted[1] && at_once > 1) add(work, 1, at_once, &measured->share[1]);
    for (int tp = 2; tp <= SHARD_MAX; tp++)
        if (measured->wanted[tp]) add(work, tp, at_once, &measured->share[tp]);
}

/* ---- what is said ---- */

static void say_first(Work *work) {
    work->said = clock_seconds();
    work->columns = log_terminal_columns();
    if (!work->columns)
        log_info("measuring shares of a step: %d, each twice; the last of tp %d", work->count,
                 work->share[work->count - 1].tp);
}

static void say(Work *work, int at) {
    char text[100];
    double now = clock_seconds();
    snprintf(text, sizeof text, "measuring share %d of %d: tp %d, round %d of %d", at + 1,
             work->count, work->share[at].tp, work->round + 1, ROUNDS);
    if (work->columns)
        log_progress(text, work->columns - 1, false);
    else if (now - work->said > SAID_SECONDS)
        log_info("%s", text), work->said = now;
}

/* ---- measuring ---- */

static int measure_memory(Work *work) {
    ScalingMeasured *measured = work->measured;
    MemoryRates memory;
    int status = rates_memory((RatesNode){measured->threads, measured->at_once}, &memory);
    if (status) return status;
    if (work->round)
        rates_keep_memory(&measured->memory, &memory);
    else
        measured->memory = memory;
    return 0;
}

static int measure_share(Work *work, const Share *share) {
    ShareRates rates;
    RatesNode node = {work->measured->threads, share->at_once};
    int status = rates_share(work->measured->config, node, share->tp, &rates);
    if (status) return status;
    if (work->round)
        rates_keep_share(share->rates, &rates);
    else
        *share->rates = rates;
    return 0;
}

static void note_spread(Work *work, const Others *others) {
    ScalingSpread *spread = &work->measured->spread;
    *spread = (ScalingSpread){.shares = work->count, .others = others_share(others)};
    for (int i = 0; i < work->count; i++) {
        const Share *share = &work->share[i];
        spread->unquiet += share->rates->spread > SCALING_QUIET;
        if (share->rates->spread < spread->worst) continue;
        spread->worst = share->rates->spread;
        spread->worst_tp = share->tp;
    }
}

int scaling_measure(ScalingMeasured *measured) {
    Work work = {.measured = measured};
    Others others;
    int status = 0;
    list(&work);
    say_first(&work);
    others_begin(&others);
    for (; work.round < ROUNDS && !status; work.round++) {
        status = measure_memory(&work);
        for (int i = 0; i < work.count && !status; i++) {
            say(&work, i);
            status = measure_share(&work, &work.share[i]);
        }
    }
    if (measured->wanted[1] && measured->at_once == 1) measured->share[1] = measured->one;
    note_spread(&work, &others);
    return status;
}
