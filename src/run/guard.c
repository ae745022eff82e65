#include "run/guard.h"

#include "base/error.h"
#include "base/log.h"
#include "nn/observer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 512 };

/* ---- what this rank sees ---- */

typedef struct {
    Trainer *trainer;
    Finding first; /* GUARD_NOWHERE: nothing yet */
} Search;

static int order(const Finding *a, const Finding *b) {
    const int64_t left[] = {a->place, a->microbatch, a->tensor, a->row, a->col};
    const int64_t right[] = {b->place, b->microbatch, b->tensor, b->row, b->col};
    for (int i = 0; i < 5; i++)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* Keeps the first element of a piece that isn't finite, if it comes before what was found. `where`
 * tells the rest. */
static void scan(Search *search, Finding where, const Seen *piece) {
    if (order(&where, &search->first) > 0) return;
    for (int64_t i = 0; i < piece->data.rows; i++) {
        const real *row = tensor_row(piece->data, i);
        int64_t j = 0;
        while (j < piece->data.cols && isfinite(row[j])) j++;
        if (j == piece->data.cols) continue;
        where.row = piece->row + i;
        where.col = piece->col + j;
        where.rows = piece->rows;
        where.cols = piece->cols;
        where.value = (double)row[j];
        where.rank = search->trainer->grid->world_rank;
        snprintf(where.name, sizeof where.name, "%s", piece->name);
        if (order(&where, &search->first) < 0) search->first = where;
        return;
    }
}

static void see(void *context, const Seen *seen) {
    Finding where = {.place = GUARD_MICROBATCH,
                     .microbatch = seen->microbatch,
                     .tensor = seen->place,
                     .layer = seen->layer,
                     .gradient = seen->gradient};
    scan(context, where, seen);
}

/* Values or gradients of all parameters. */
static void scan_set(Search *search, GuardPlace place, ParamRole role) {
    const ParamSet *set = &search->trainer->model.set;
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        Finding where = {.place = place, .tensor = p, .layer = -1};
        for (int s = (int)param->owned.begin; s < param->owned.end; s++)
            scan(search, where,
                 &(Seen){.name = param->name,
                         .rows = param->rows,
                         .cols = param->cols,
                         .row = param_first_row(param, s),
                         .col = param_first_col(param, s),
                         .data = param_shard(set, param, role, s)});
    }
}

/* ---- what all have seen ---- */

static int first_of_all(Grid *grid, Finding *finding) {
    int ranks = group_size(grid, GROUP_GRID);
    Finding *all = memory_allocate((size_t)ranks * sizeof *all, "findings of all ranks");
    int status = comm_agree(grid, GROUP_GRID, all ? 0 : WEFT_RUNTIME);
    if (!status) {
        comm_gather_all(grid, GROUP_GRID, finding, sizeof *finding, all);
        *finding = all[0];
        for (int r = 1; r < ranks; r++)
            if (order(&all[r], finding) < 0) *finding = all[r];
    }
    free(all);
    return status;
}

/* The rank whose number isn't finite may be one alone: a fault may strike what others hold too. */
static bool all_finite(Trainer *trainer, double loss, double norm) {
    int64_t bad = !isfinite(loss) || !isfinite(norm);
    comm_max_int64(trainer->grid, GROUP_GRID, &bad, 1);
    return !bad;
}

int guard_search(Trainer *trainer, Finding *finding) {
    Search search = {trainer, {.place = GUARD_NOWHERE}};
    Observer observer = {.see = see, .context = &search};
    double loss, norm;
    scan_set(&search, GUARD_PARAMETER, PARAM_VALUE);
    Observer *before = trainer->model.space.observer;
    trainer->model.space.observer = &observer;
    int status = trainer_gradient(trainer, &loss, &norm);
    trainer->model.space.observer = before;
    if (status) return status;
    scan_set(&search, GUARD_SUM, PARAM_GRADIENT);
    if (!all_finite(trainer, loss, norm) && search.first.place > GUARD_RESULT)
        search.first = (Finding){.place = GUARD_RESULT};
    *finding = search.first;
    return first_of_all(trainer->grid, finding);
}

/* ---- words ---- */

static void describe_element(const Finding *found, char *text, size_t capacity) {
    char value[32], at[64] = "";
    snprintf(value, sizeof value, "%g", isnan(found->value) ? fabs(found->value) : found->value);
    if (found->rows > 1)
        snprintf(at, sizeof at, ", element [%lld, %lld]", (long long)found->row,
                 (long long)found->col);
    else if (found->cols > 1)
        snprintf(at, sizeof at, ", element [%lld]", (long long)found->col);
    snprintf(text, capacity, "%s%s = %s, rank %d", found->name, at, value, found->rank);
}

void guard_describe(const Finding *found, char *text, size_t capacity) {
    char element[TEXT / 2], layer[32] = "";
    describe_element(found, element, sizeof element);
    if (found->layer >= 0) snprintf(layer, sizeof layer, "layer %d, ", found->layer);
    switch ((GuardPlace)found->place) {
    case GUARD_PARAMETER:
        snprintf(text, capacity, "parameter %s, before the step", element);
        return;
    case GUARD_MICROBATCH:
        snprintf(text, capacity, "microbatch %lld, %s, %s%s%s", (long long)found->microbatch,
                 found->gradient ? "backward" : "forward", layer,
                 found->gradient ? "gradient of " : "", element);
        return;
    case GUARD_SUM: snprintf(text, capacity, "sum over the batch, gradient of %s", element); return;
    case GUARD_RESULT:
        snprintf(text, capacity, "every tensor is finite, their sum of squares isn't");
        return;
    case GUARD_NOWHERE: break;
    }
    snprintf(text, capacity, "finite when computed a third time");
}

/* ---- what follows ---- */

/* What one rank knows of a fault, and whether it is nearer to its cause than others. */
typedef struct {
    double loss, norm;
    int64_t near; /* 2: its own part of the loss isn't finite; 1: its own gradients; 0: neither */
} Sign;

static Sign own_sign(const Trainer *trainer, const StepReport *report) {
    Sign sign = {report->loss, report->norm, 0};
    for (int64_t b = 0; b < trainer->norm.blocks; b++)
        if (!isfinite(trainer->norm.block[b])) sign.near = 1;
    if (!isfinite(trainer->own_loss)) sign.near = 2;
    return sign;
}

/* " on rank 1", " on one of the ranks 2, 3"; "" when all look alike. */
static void name_suspects(const Sign *all, int ranks, int64_t near, char *text, size_t capacity) {
    int suspects = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < ranks; r++) suspects += all[r].near == near;
    if (suspects == ranks) return;
    for (int r = 0, told = 0; r < ranks && used < capacity; r++)
        if (all[r].near == near)
            used += (size_t)snprintf(text + used, capacity - used, "%s%d",
                                     told++          ? ", "
                                     : suspects == 1 ? " on rank "
                                                     : " on one of the ranks ",
                                     r);
}

/* The numbers of the first rank that is nearest to the fault, and who may have made it. */
static int find_origin(Trainer *trainer, StepReport *report, char *suspects, size_t capacity) {
    int ranks = group_size(trainer->grid, GROUP_GRID);
    Sign own = own_sign(trainer, report), first;
    Sign *all = memory_allocate((size_t)ranks * sizeof *all, "signs of a fault");
    int status = comm_agree(trainer->grid, GROUP_GRID, all ? 0 : WEFT_RUNTIME);
    if (!status) {
        comm_gather_all(trainer->grid, GROUP_GRID, &own, sizeof own, all);
        first = all[0];
        for (int r = 1; r < ranks; r++)
            if (all[r].near > first.near) first = all[r];
        name_suspects(all, ranks, first.near, suspects, capacity);
        report->loss = first.loss;
        report->norm = first.norm;
    }
    free(all);
    return status;
}

static int stop(const Trainer *trainer, const StepReport *bad, const Finding *found) {
    static const char *const advice[] = {
        [GUARD_PARAMETER] = "memory, hardware or a file has damaged it: go on from a checkpoint",
        [GUARD_MICROBATCH] =
            "the run has diverged and stops before the update, nothing is saved; go on from a "
            "checkpoint with a lower optim.lr, a longer optim.warmup or optim.clip, or with "
            "train.on_nonfinite = skip",
        [GUARD_NOWHERE] = "this machine isn't reliable: go on from a checkpoint on another",
    };
    bool diverged = found->place > GUARD_PARAMETER && found->place < GUARD_NOWHERE;
    char first[TEXT], skips[64] = "";
    guard_describe(found, first, sizeof first);
    if (trainer->skips)
        snprintf(skips, sizeof skips, "after %d skipped steps in a row, ", trainer->skips);
    error_set(WEFT_RUNTIME,
              "%sstep %lld: loss %g, gradient norm %g, computed again as well; %s%s; %s", skips,
              (long long)trainer->step + 1, bad->loss, bad->norm,
              found->place < GUARD_RESULT ? "first to go: " : "", first,
              advice[diverged ? GUARD_MICROBATCH : found->place]);
    error_set_agreed(true);
    return WEFT_RUNTIME;
}

static int persistent(Trainer *trainer, StepReport *report, const StepReport *bad) {
    Finding found;
    int status = guard_search(trainer, &found);
    if (status) return status;
    bool skips = !strcmp(trainer->config.train.on_nonfinite, "skip");
    if (!skips || trainer->skips == GUARD_SKIPS || found.place == GUARD_NOWHERE)
        return stop(trainer, bad, &found);
    char first[TEXT];
    guard_describe(&found, first, sizeof first);
    log_warn("step %lld is skipped: loss %g, gradient norm %g, computed again as well; first to "
             "go: %s; no update is made",
             (long long)trainer->step + 1, bad->loss, bad->norm, first);
    trainer->skips++;
    report->skipped = true;
    return 0;
}

int guard_step(Trainer *trainer, StepReport *report) {
    report->repeated = report->skipped = false;
    if (all_finite(trainer, report->loss, report->norm)) {
        trainer->skips = 0;
        return 0;
    }
    StepReport bad = *report;
    char suspects[TEXT];
    int status = find_origin(trainer, &bad, suspects, sizeof suspects);
    if (!status) status = trainer_gradient(trainer, &report->loss, &report->norm);
    if (status) return status;
    report->repeated = true;
    if (!all_finite(trainer, report->loss, report->norm)) return persistent(trainer, report, &bad);
    log_warn("step %lld: loss %g, gradient norm %g; finite when computed again: a transient fault "
             "(memory, hardware)%s; the run goes on with the second result",
             (long long)trainer->step + 1, bad.loss, bad.norm, suspects);
    trainer->skips = 0;
    return 0;
}
