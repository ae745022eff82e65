#include "run/guard.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "nn/observer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 512, NUMBERS = 128 };

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
    for (int64_t i = piece->made.begin; i < piece->made.end; i++) {
        const real *row = tensor_row(piece->data, i);
        int64_t j = 0;
        while (j < piece->data.cols && isfinite(row[j])) j++;
        if (j == piece->data.cols) continue;
        where.row = piece->row + i;
        where.col = piece->col + j;
        where.rows = piece->rows;
        where.cols = piece->cols;
        where.value = isnan(row[j]) ? NAN : (double)row[j];
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
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            Tensor data = param_shard(set, param, role, s);
            scan(search, where,
                 &(Seen){.name = param->name,
                         .rows = param->rows,
                         .cols = param->cols,
                         .made = {0, data.rows},
                         .row = param_first_row(param, s),
                         .col = param_first_col(param, s),
                         .data = data});
        }
    }
}

/* ---- what all have seen ---- */

/* `size` bytes of each rank, to be freed; NULL on all when memory is short on one. */
static void *gather(Grid *grid, const void *mine, size_t size) {
    void *all = memory_allocate(size * (size_t)group_size(grid, GROUP_GRID), "what ranks found");
    if (!comm_agree(grid, GROUP_GRID, all ? 0 : WEFT_RUNTIME)) {
        comm_gather_all(grid, GROUP_GRID, mine, size, all);
        return all;
    }
    free(all);
    return NULL;
}

static int first_of_all(Grid *grid, Finding *finding) {
    Finding *all = gather(grid, finding, sizeof *finding);
    if (!all) return WEFT_RUNTIME;
    *finding = all[0];
    for (int r = 1; r < group_size(grid, GROUP_GRID); r++)
        if (order(&all[r], finding) < 0) *finding = all[r];
    free(all);
    return 0;
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
        search.first =
            (Finding){.place = GUARD_RESULT, .layer = -1, .value = isfinite(norm) ? loss : norm};
    *finding = search.first;
    return first_of_all(trainer->grid, finding);
}

/* ---- words ---- */

static void describe_element(const Finding *found, char *text, size_t capacity) {
    char at[64] = "";
    if (found->rows > 1)
        snprintf(at, sizeof at, ", element [%lld, %lld]", (long long)found->row,
                 (long long)found->col);
    else if (found->cols > 1)
        snprintf(at, sizeof at, ", element [%lld]", (long long)found->col);
    snprintf(text, capacity, "%s%s = %g, rank %d", found->name, at, found->value, found->rank);
}

void guard_describe(const Finding *found, char *text, size_t capacity) {
    char element[TEXT / 2], layer[32] = "";
    describe_element(found, element, sizeof element);
    if (found->layer >= 0) snprintf(layer, sizeof layer, "layer %d, ", found->layer);
    if (found->place == GUARD_PARAMETER)
        snprintf(text, capacity, "parameter %s, before the step", element);
    else if (found->place == GUARD_MICROBATCH)
        snprintf(text, capacity, "microbatch %lld, %s, %s%s%s", (long long)found->microbatch,
                 found->gradient ? "backward" : "forward", layer,
                 found->gradient ? "gradient of " : "", element);
    else if (found->place == GUARD_SUM)
        snprintf(text, capacity, "sum over the batch, gradient of %s", element);
    else
        snprintf(text, capacity, "%s",
                 found->place == GUARD_RESULT ? "all elements are finite, their norm isn't"
                                              : "finite when computed a third time");
}

static void describe_numbers(const Trainer *trainer, const StepReport *report, char text[NUMBERS]) {
    snprintf(text, NUMBERS, "step %lld: loss %g, gradient norm %g", (long long)trainer->step + 1,
             report->loss, report->norm);
}

/* ---- what follows ---- */

static bool skips(const Trainer *trainer) {
    return !strcmp(trainer->config.train.on_nonfinite, "skip");
}

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
    int suspects = 0, told = 0;
    text[0] = '\0';
    for (int r = 0; r < ranks; r++) suspects += all[r].near == near;
    if (suspects == ranks) return;
    size_t used =
        (size_t)snprintf(text, capacity, suspects == 1 ? " on rank" : " on one of the ranks");
    for (int r = 0; r < ranks && used < capacity; r++)
        if (all[r].near == near)
            used += (size_t)snprintf(text + used, capacity - used, "%s %d", told++ ? "," : "", r);
}

/* The numbers of the first rank that is nearest to the fault, and who may have made it. */
static int find_origin(Trainer *trainer, StepReport *report, char *suspects, size_t capacity) {
    int ranks = group_size(trainer->grid, GROUP_GRID);
    Sign own = own_sign(trainer, report);
    Sign *all = gather(trainer->grid, &own, sizeof own), *first = all;
    if (!all) return WEFT_RUNTIME;
    for (int r = 1; r < ranks; r++)
        if (all[r].near > first->near) first = &all[r];
    name_suspects(all, ranks, first->near, suspects, capacity);
    report->loss = first->loss;
    report->norm = first->norm;
    free(all);
    return 0;
}

static const char *advice(GuardPlace place) {
    if (place == GUARD_PARAMETER)
        return "memory, hardware or a file has damaged it: go on from a checkpoint";
    if (place == GUARD_NOWHERE)
        return "this machine isn't reliable: go on from a checkpoint on another";
    return "the run has diverged and stops before the update: go on from a checkpoint with a lower "
           "optim.lr, a longer optim.warmup or optim.clip";
}

static int stop(const Trainer *trainer, const char *what, GuardPlace place) {
    char before[64] = "";
    if (trainer->skips)
        snprintf(before, sizeof before, "after %d skipped steps in a row, ", trainer->skips);
    error_set(WEFT_RUNTIME, "%s%s; %s (nothing is saved)", before, what, advice(place));
    error_set_agreed(true);
    return WEFT_RUNTIME;
}

/* What skipping can't mend ends the run at once. */
static int persistent(Trainer *trainer, StepReport *report, const StepReport *bad) {
    Finding found;
    int status = guard_search(trainer, &found);
    if (status) return status;
    char first[TEXT], numbers[NUMBERS], what[2 * TEXT];
    GuardPlace place = (GuardPlace)found.place;
    guard_describe(&found, first, sizeof first);
    describe_numbers(trainer, bad, numbers);
    snprintf(what, sizeof what, "%s, also when computed again; %s%s", numbers,
             place < GUARD_RESULT ? "first to go: " : "", first);
    if (!skips(trainer) || trainer->skips == GUARD_SKIPS || place == GUARD_PARAMETER ||
        place == GUARD_NOWHERE)
        return stop(trainer, what, place);
    log_warn("%s; the step is skipped: no update (train.on_nonfinite)", what);
    trainer->skips++;
    report->skipped = true;
    return 0;
}

int guard_step(Trainer *trainer, StepReport *report) {
    report->repeated = report->skipped = false;
    if (all_finite(trainer, report->loss, report->norm) || fault_on("step-nonfinite")) {
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
    char numbers[NUMBERS];
    describe_numbers(trainer, &bad, numbers);
    log_warn("%s; finite when computed again: a transient fault (memory, hardware)%s; the run goes "
             "on with the second result",
             numbers, suspects);
    trainer->skips = 0;
    return 0;
}
