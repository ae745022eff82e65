#include "nn/linear.h"

/* The product of one shard: w is the shard of the weight or of its gradient, `whole` the activation
 * [T, D] that isn't cut, `cut` this shard's part of the one that is. */
typedef GemmCall MakeCall(Tensor w, Tensor whole, Tensor cut);

static int add_shards(GemmList *list, const ParamSet *set, const Param *weight, ParamRole role,
                      Tensor whole, const Sharded *cut, MakeCall *make) {
    int status = 0;
    for (int s = (int)cut->owned.begin; s < cut->owned.end && !status; s++) {
        GemmCall call = make(param_shard(set, weight, role, s), whole, cut->shard[s]);
        status = gemm_list_add(list, &call);
    }
    return status;
}

static GemmCall column_forward(Tensor w, Tensor x, Tensor y) {
    return (GemmCall){GEMM_NT, x.rows, w.rows, w.cols, x.data, x.ld,
                      w.data,  w.ld,   1,      0,      y.data, y.ld};
}

int linear_column_forward(GemmList *list, const ParamSet *set, const Param *weight, Tensor x,
                          const Sharded *y) {
    return add_shards(list, set, weight, PARAM_VALUE, x, y, column_forward);
}

int linear_column_forward_pairs(GemmList *list, const ParamSet *set, const Param *const weight[2],
                                Tensor x, const Sharded *const y[2]) {
    Range owned = y[0]->owned;
    int status = 0;
    list->pairs = true;
    for (int64_t i = 2 * owned.begin; i < 2 * owned.end && !status; i++) {
        int s = (int)(i / 2);
        GemmCall call =
            column_forward(param_shard(set, weight[i % 2], PARAM_VALUE, s), x, y[i % 2]->shard[s]);
        status = gemm_list_add(list, &call);
    }
    return status;
}

static GemmCall column_gradient(Tensor dw, Tensor x, Tensor dy) {
    return (GemmCall){GEMM_TN, dw.rows, dw.cols, x.rows, dy.data, dy.ld,
                      x.data,  x.ld,    1,       1,      dw.data, dw.ld};
}

int linear_column_gradient(GemmList *list, const ParamSet *set, const Param *weight,
                           const Sharded *dy, Tensor x) {
    return add_shards(list, set, weight, PARAM_GRADIENT, x, dy, column_gradient);
}

static GemmCall row_gradient(Tensor dw, Tensor dy, Tensor h) {
    return (GemmCall){GEMM_TN, dw.rows, dw.cols, dy.rows, dy.data, dy.ld,
                      h.data,  h.ld,    1,       1,       dw.data, dw.ld};
}

int linear_row_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                        const Sharded *h) {
    return add_shards(list, set, weight, PARAM_GRADIENT, dy, h, row_gradient);
}

static GemmCall row_input_gradient(Tensor w, Tensor dy, Tensor dh) {
    return (GemmCall){GEMM_NN, dy.rows, w.cols, w.rows, dy.data, dy.ld,
                      w.data,  w.ld,    1,      0,      dh.data, dh.ld};
}

int linear_row_input_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                              const Sharded *dh) {
    return add_shards(list, set, weight, PARAM_VALUE, dy, dh, row_input_gradient);
}

static int64_t output_cols(LinearSum kind, const Param *weight) {
    return kind == LINEAR_ROW_FORWARD ? weight->rows : weight->cols;
}

void linear_need(Workspace *space, const ParamSet *set, LinearSum kind, const int *weight,
                 int count) {
    const Param *first = &set->param[weight[0]];
    Range owned = first->owned;
    int64_t k = 0;
    for (int i = 0; i < count; i++)
        for (int s = (int)owned.begin; s < owned.end; s++)
            k += range_size(set->param[weight[i]].cut[s]);
    workspace_need(space,
                   gemm_sum_scratch(space->rows, output_cols(kind, first), k,
                                    (int)range_size(owned), space->threads),
                   0);
}

/* What a sum ends in. */
typedef struct {
    const Epilogue *epilogue;
    Tensor y;
    const Stopwatch *watch;
    StopwatchAside aside; /* what the epilogue takes */
} Ending;

static void finish(void *context, Range rows, Range cols) {
    Ending *ending = context;
    double since = stopwatch_aside(ending->watch);
    for (int64_t t = rows.begin; t < rows.end; t++)
        ending->epilogue->finish(ending->epilogue->context, t, cols,
                                 tensor_row(ending->y, t) + cols.begin);
    stopwatch_add(ending->watch, &ending->aside, since);
}

/* The products of a subtree's shards, `count` each. */
static void collect(const ParamSet *set, const LinearTerm *terms, int count, Range subtree,
                    GemmTerm *out) {
    for (int s = (int)subtree.begin; s < subtree.end; s++) {
        for (int i = 0; i < count; i++) {
            Tensor in = terms[i].input->shard[s];
            Tensor w = param_shard(set, terms[i].weight, PARAM_VALUE, s);
            *out++ = (GemmTerm){in.cols, in.data, in.ld, w.data, w.ld};
        }
    }
}

void linear_partials(const Workspace *space, const ParamSet *set, LinearSum kind,
                     const LinearTerm *terms, int count, const Partials *y) {
    GemmTerm term[SHARD_MAX * GEMM_SUM_TERMS];
    stopwatch_begin_products(space->stopwatch);
    Ending ending = {.epilogue = y->epilogue, .watch = space->stopwatch};
    for (int i = 0; i < y->count; i++) {
        Tensor sum = y->sum[i];
        ending.y = sum;
        collect(set, terms, count, y->subtree[i], term);
        gemm_sum_run(&(GemmSum){.form = kind == LINEAR_ROW_FORWARD ? GEMM_NT : GEMM_NN,
                                .m = sum.rows,
                                .n = output_cols(kind, terms[0].weight),
                                .leaves = y->subtree[i],
                                .terms = count,
                                .term = term,
                                .c = sum.data,
                                .ldc = sum.ld,
                                .after = y->epilogue ? finish : NULL,
                                .context = &ending},
                     space->threads, space->thread_memory,
                     (size_t)space->threads * space->thread_bytes);
    }
    stopwatch_end(space->stopwatch);
    if (y->epilogue)
        stopwatch_move(space->stopwatch, &ending.aside, space->threads,
                       stopwatch_products(space->stopwatch), y->epilogue->part);
}

void linear_add_bias(const Workspace *space, const ParamSet *set, const Param *bias,
                     const Sharded *y) {
    for (int s = (int)y->owned.begin; s < y->owned.end; s++) {
        const real *b = param_shard(set, bias, PARAM_VALUE, s).data;
        Tensor out = y->shard[s];
#pragma omp parallel for num_threads(space->threads) schedule(static)
        for (int64_t t = 0; t < out.rows; t++) {
            real *row = tensor_row(out, t);
            for (int64_t j = 0; j < out.cols; j++) row[j] += b[j];
        }
    }
}

void linear_bias_gradient(Workspace *space, const ParamSet *set, const Param *bias,
                          const Sharded *dy) {
    for (int s = (int)dy->owned.begin; s < dy->owned.end; s++)
        workspace_add_row_sum(space, dy->shard[s], param_shard(set, bias, PARAM_GRADIENT, s).data);
}
