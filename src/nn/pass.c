#include "nn/pass.h"

#include "comm/exchange.h"
#include "math/norm.h"

void workspace_need(Workspace *space, size_t thread_bytes, int64_t row_sum_cols) {
    if (space->thread_bytes < thread_bytes) space->thread_bytes = thread_bytes;
    if (space->widest < row_sum_cols) space->widest = row_sum_cols;
}

void workspace_take(Workspace *space, Arena *arena) {
    if (space->thread_bytes < gemm_scratch()) space->thread_bytes = gemm_scratch();
    space->thread_bytes = memory_aligned(space->thread_bytes);
    space->thread_memory = arena_take(arena, space->threads, space->thread_bytes);
    space->row_sums = arena_take(arena, space->row_shards * space->widest, sizeof(double));
}

void workspace_release(Workspace *space) { gemm_list_release(&space->products); }

void *workspace_scratch(const Workspace *space, int thread) {
    return space->thread_memory + (size_t)thread * space->thread_bytes;
}

void workspace_multiply(Workspace *space) {
    stopwatch_begin_products(space->stopwatch);
    gemm_list_run(&space->products, space->threads, space->thread_memory,
                  (size_t)space->threads * space->thread_bytes);
    gemm_list_clear(&space->products);
    stopwatch_end(space->stopwatch);
}

void workspace_multiply_apart(Workspace *space) {
    if (space->fusion == FUSION_EAGER) workspace_multiply(space);
}

void workspace_multiply_after(Workspace *space, GemmAfter *after, void *context,
                              StopwatchAside *aside) {
    Stopwatch *watch = space->stopwatch;
    space->products.after = after;
    space->products.context = context;
    workspace_multiply(space);
    stopwatch_move(watch, aside, space->threads, stopwatch_products(watch), stopwatch_part(watch));
}

void workspace_reduce_row_sums(Workspace *space, int64_t cols, real *gradient) {
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t c = 0; c < cols; c++) {
        double leaf[SHARD_MAX];
        for (int s = 0; s < space->row_shards; s++) leaf[s] = space->row_sums[s * cols + c];
        gradient[c] += (real)tree_sum_doubles(leaf, space->row_shards);
    }
}

void workspace_add_row_sum(Workspace *space, Tensor x, real *gradient) {
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int s = 0; s < space->row_shards; s++)
        rows_sum(shard_range(x.rows, space->row_shards, s), x, space->row_sums + s * x.cols);
    workspace_reduce_row_sums(space, x.cols, gradient);
}

void sharded_take(Sharded *sharded, Arena *arena, const AxisLayout *axis, int rank,
                  int64_t unit_size, int64_t rows) {
    sharded->owned = axis_owned(axis, rank);
    for (int s = (int)sharded->owned.begin; s < sharded->owned.end; s++) {
        int64_t cols = range_size(axis_units(axis, s)) * unit_size;
        real *data = arena_take(arena, rows * cols, sizeof(real));
        sharded->shard[s] = tensor_view(data, rows, cols);
    }
}
