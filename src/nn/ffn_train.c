/* Forward and backward of an FFN of any kind, at each level of fusion. What differs is when the
 * pointwise work is done: in passes of one operation, in one pass over a shard's rows, or on each
 * tile of a product. */
#include "base/fault.h"
#include "nn/ffn.h"
#include "nn/linear.h"
#include "nn/mistaken_ffn.h"

enum { CHUNK_ROWS = 32 }; /* rows that a thread takes at a time in pointwise work */

typedef struct {
    const Ffn *ffn;
    const Pass *pass;
    const FfnSaved *saved;
    int calls; /* of a list of products for each shard */
    StopwatchAside aside;
} Work;

typedef void Pointwise(const Work *work, Range rows, Range cols, int shard);

/* Hidden dropout, in place; forward and backward are the same multiplication. */
static void mask_hidden(const Work *work, Range rows, Range cols, int shard) {
    const Ffn *ffn = work->ffn;
    const Pass *pass = work->pass;
    if (!pass->training || ffn->config.hidden_dropout == 0) return;
    Dropout dropout = {{ffn->config.seed, PHILOX_HIDDEN_DROPOUT, (uint32_t)ffn->layer,
                        (uint32_t)pass->step, (uint32_t)pass->microbatch},
                       ffn->config.hidden_dropout,
                       fault_on("rank-mask") ? (uint32_t)ffn->set->tensor_rank * 1000 : 0};
    int64_t first = axis_units(&ffn->axis, shard).begin;
    if (!fault_on("mask-of-first-tile")) first += cols.begin;
    Tensor hidden = work->saved->hidden.shard[shard];
    Tensor part = {hidden.data + cols.begin, hidden.rows, range_size(cols), hidden.ld};
    dropout_apply(&dropout, rows, first, part, part);
}

static void activate(const Work *work, Range rows, Range cols, int shard) {
    work->ffn->kind->activate(work->ffn, rows, cols, shard, work->saved);
    mask_hidden(work, rows, cols, shard);
}

static void differentiate(const Work *work, Range rows, Range cols, int shard) {
    mask_hidden(work, rows, cols, shard);
    work->ffn->kind->differentiate(work->ffn, rows, cols, shard, work->saved);
}

/* ---- over whole shards ---- */

static void on_shards(const Work *work, Pointwise *pointwise) {
    int64_t rows = work->ffn->space->rows, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    const Sharded *hidden = &work->saved->hidden;
    Range owned = hidden->owned;
#pragma omp parallel for num_threads(work->ffn->space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < chunks * range_size(owned); item++) {
        int shard = (int)(owned.begin + item / chunks);
        int64_t begin = item % chunks * CHUNK_ROWS, end = begin + CHUNK_ROWS;
        pointwise(work, (Range){begin, end < rows ? end : rows},
                  (Range){0, hidden->shard[shard].cols}, shard);
    }
}

static void activate_all(const Work *work) {
    Range owned = work->saved->hidden.owned;
    if (work->ffn->space->fusion != FUSION_EAGER) {
        on_shards(work, activate);
        return;
    }
    for (int s = (int)owned.begin; s < owned.end; s++)
        work->ffn->kind->activate_apart(work->ffn, s, work->saved);
    on_shards(work, mask_hidden);
}

static void differentiate_all(const Work *work) {
    Range owned = work->saved->hidden.owned;
    if (work->ffn->space->fusion != FUSION_EAGER) {
        on_shards(work, differentiate);
        return;
    }
    on_shards(work, mask_hidden);
    for (int s = (int)owned.begin; s < owned.end; s++)
        work->ffn->kind->differentiate_apart(work->ffn, s, work->saved);
}

/* ---- on tiles of a product ---- */

static void add_bias_piece(const Ffn *ffn, int bias, int64_t row, Range cols, int shard,
                           const Sharded *y) {
    if (bias < 0) return;
    const real *b = param_shard(ffn->set, &ffn->set->param[bias], PARAM_VALUE, shard).data;
    real *to = tensor_row(y->shard[shard], row);
    for (int64_t j = cols.begin; j < cols.end; j++) to[j] += b[j];
}

/* Row by row, so that one stays in the first-level cache. */
static void on_tile(Work *work, int call, Range rows, Range cols, Pointwise *pointwise) {
    const Ffn *ffn = work->ffn;
    double since = stopwatch_aside(ffn->space->stopwatch);
    int shard = (int)work->saved->hidden.owned.begin + call / work->calls;
    for (int64_t t = rows.begin; t < rows.end; t++) pointwise(work, (Range){t, t + 1}, cols, shard);
    stopwatch_add(ffn->space->stopwatch, &work->aside, since);
}

static void activate_row(const Work *work, Range row, Range cols, int shard) {
    const Ffn *ffn = work->ffn;
    add_bias_piece(ffn, ffn->gate_bias, row.begin, cols, shard, &work->saved->gate);
    add_bias_piece(ffn, ffn->up_bias, row.begin, cols, shard, &work->saved->up);
    activate(work, row, cols, shard);
}

static void activate_tile(void *context, int call, Range rows, Range cols) {
    on_tile(context, call, rows, cols, activate_row);
}

static void differentiate_tile(void *context, int call, Range rows, Range cols) {
    on_tile(context, call, rows, cols, differentiate);
}

/* ---- forward ---- */

static void add_bias(const Ffn *ffn, int bias, const Sharded *y) {
    if (bias >= 0) linear_add_bias(ffn->space, ffn->set, &ffn->set->param[bias], y);
}

/* The products that give the preactivations, branch after branch. */
static int project(const Ffn *ffn, Tensor x, const FfnSaved *saved) {
    GemmList *list = &ffn->space->products;
    const Param *param = ffn->set->param;
    int status = 0;
    if (ffn->gate >= 0)
        status = linear_column_forward(list, ffn->set, &param[ffn->gate], x, &saved->gate);
    if (status) return status;
    workspace_multiply_apart(ffn->space);
    return linear_column_forward(list, ffn->set, &param[ffn->up], x, &saved->up);
}

/* The same, shard by shard. */
static int project_by_shard(const Ffn *ffn, Tensor x, const FfnSaved *saved) {
    const Param *param = ffn->set->param;
    if (ffn->gate < 0) return project(ffn, x, saved);
    return linear_column_forward_pairs(&ffn->space->products, ffn->set,
                                       (const Param *const[]){&param[ffn->gate], &param[ffn->up]},
                                       x, (const Sharded *const[]){&saved->gate, &saved->up});
}

int ffn_hidden(const Ffn *ffn, const Pass *pass, Tensor x, const FfnSaved *saved) {
    Work work = {.ffn = ffn, .pass = pass, .saved = saved, .calls = ffn->gate >= 0 ? 2 : 1};
    bool tiles = ffn->space->fusion >= FUSION_GATE;
    x = mistaken_ffn_input(x);
    int status = tiles ? project_by_shard(ffn, x, saved) : project(ffn, x, saved);
    if (status) return status;
    if (tiles) {
        workspace_multiply_after(ffn->space, activate_tile, &work, &work.aside);
        return 0;
    }
    workspace_multiply(ffn->space);
    add_bias(ffn, ffn->gate_bias, &saved->gate);
    add_bias(ffn, ffn->up_bias, &saved->up);
    activate_all(&work);
    return 0;
}

void ffn_activate(const Ffn *ffn, const Pass *pass, const FfnSaved *saved) {
    Pass again = *pass;
    again.microbatch += fault_on("mask-redrawn");
    activate_all(&(Work){.ffn = ffn, .pass = &again, .saved = saved});
}

void ffn_down(const Ffn *ffn, const FfnSaved *saved, const Partials *y) {
    LinearTerm term = {&ffn->set->param[ffn->down], &saved->hidden};
    linear_partials(ffn->space, ffn->set, LINEAR_ROW_FORWARD, &term, 1, y);
    mistaken_ffn_output(y);
}

/* ---- backward ---- */

/* The two products that read dy: down's weight gradient from hidden, then dhidden into hidden's
 * place; and what follows from that. */
static int backward_down(Work *work, Tensor dy) {
    const Ffn *ffn = work->ffn;
    const Sharded *hidden = &work->saved->hidden;
    const Param *down = &ffn->set->param[ffn->down];
    GemmList *list = &ffn->space->products;
    int status = linear_row_gradient(list, ffn->set, down, dy, hidden);
    if (status) return status;
    workspace_multiply(ffn->space);
    status = linear_row_input_gradient(list, ffn->set, down, dy, hidden);
    if (status) return status;
    if (ffn->space->fusion >= FUSION_GATE) {
        workspace_multiply_after(ffn->space, differentiate_tile, work, &work->aside);
        return 0;
    }
    workspace_multiply(ffn->space);
    differentiate_all(work);
    return 0;
}

int ffn_backward(const Ffn *ffn, const Pass *pass, Tensor x, Tensor dy, const FfnSaved *saved,
                 const Partials *dx) {
    Work work = {.ffn = ffn, .pass = pass, .saved = saved, .calls = 1};
    int status = backward_down(&work, dy);
    if (status) return status;

    struct {
        int weight, bias;
        const Sharded *gradient;
    } branch[] = {{ffn->gate, ffn->gate_bias, &saved->gate}, {ffn->up, ffn->up_bias, &saved->up}};
    LinearTerm term[2];
    int terms = 0;
    GemmList *list = &ffn->space->products;
    for (int b = 0; b < 2; b++) {
        if (branch[b].weight < 0) continue;
        const Param *weight = &ffn->set->param[branch[b].weight];
        term[terms++] = (LinearTerm){weight, branch[b].gradient};
        status = linear_column_gradient(list, ffn->set, weight, branch[b].gradient, x);
        if (status) return status;
        workspace_multiply_apart(ffn->space);
        if (branch[b].bias >= 0)
            linear_bias_gradient(ffn->space, ffn->set, &ffn->set->param[branch[b].bias],
                                 branch[b].gradient);
    }
    workspace_multiply(ffn->space);
    linear_partials(ffn->space, ffn->set, LINEAR_COLUMN_BACKWARD, term, terms, dx);
    return 0;
}
