#include "math/loss.h"
#include "nn/head_losses.h"

static void take(Head *head, Arena *arena, int64_t chunk) { (void)head, (void)arena, (void)chunk; }

/* The values that belong to shard s of the chunk's outputs. */
static Tensor values_of(const Head *head, const HeadChunk *chunk, int s) {
    Tensor values = chunk->batch->values;
    Range cut = axis_units(&head->axis, s);
    return (Tensor){tensor_row(values, chunk->rows.begin) + cut.begin, range_size(chunk->rows),
                    range_size(cut), values.ld};
}

static int losses(Head *head, const HeadChunk *chunk, int64_t *hits) {
    (void)hits;
    int64_t rows = range_size(chunk->rows);
    const Sharded *outputs = &chunk->logits;
    const int32_t *targets = chunk->batch->targets + chunk->rows.begin;
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < rows; t++)
        for (int s = (int)outputs->owned.begin; s < outputs->owned.end; s++)
            loss_squared_sums((Range){t, t + 1}, outputs->shard[s], values_of(head, chunk, s),
                              head->shard_sums + s * rows);
    int status = head_sum_shards(head, rows);
    if (status) return status;
    for (int64_t t = 0; t < rows; t++)
        head->row_loss[chunk->rows.begin + t] =
            targets[t] < 0 ? 0 : head->sums[t] / (double)head->axis.units;
    return 0;
}

static void gradient(const Head *head, const HeadChunk *chunk, double scale) {
    const Sharded *outputs = &chunk->logits;
    const int32_t *targets = chunk->batch->targets + chunk->rows.begin;
    double factor = 2 * scale / (double)head->axis.units;
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < range_size(chunk->rows); t++)
        for (int s = (int)outputs->owned.begin; s < outputs->owned.end; s++)
            loss_squared_gradient((Range){t, t + 1}, outputs->shard[s], values_of(head, chunk, s),
                                  targets, factor);
}

const LossKind loss_squared_error = {take, losses, gradient};
