#include "base/fault.h"
#include "math/loss.h"
#include "nn/head_losses.h"

#include <math.h>
#include <string.h>

static void take(Head *head, Arena *arena, int64_t chunk) {
    head->largest = arena_take(arena, chunk, sizeof(real));
    head->target_logit = arena_take(arena, chunk, sizeof(double));
}

/* head->largest [rows]: the largest logit of each row, over all shards. */
static void find_largest(Head *head, const Sharded *logits, int64_t rows) {
    for (int64_t t = 0; t < rows; t++) head->largest[t] = (real)-INFINITY;
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < rows; t++)
        for (int s = (int)logits->owned.begin; s < logits->owned.end; s++)
            loss_row_max((Range){t, t + 1}, logits->shard[s], head->largest);
    comm_max_real(head->grid, GROUP_TENSOR, head->largest, rows);
}

/* For tests: as many rows of zeros as make the vocabulary divide by the shards. */
static void add_padding(const Head *head, int64_t rows) {
    if (!fault_on("vocab-padding")) return;
    int64_t padding =
        (head->axis.shards - head->axis.units % head->axis.shards) % head->axis.shards;
    for (int64_t t = 0; t < rows; t++)
        head->sums[t] += (double)padding * exp(-(double)head->largest[t]);
}

/* head->sums [rows]: sums of exponentials over the vocabulary. */
static int sum_exponentials(Head *head, const Sharded *logits, int64_t rows) {
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < rows; t++)
        for (int s = (int)logits->owned.begin; s < logits->owned.end; s++)
            loss_exp_sums((Range){t, t + 1}, logits->shard[s], head->largest,
                          head->shard_sums + s * rows);
    int status = head_sum_shards(head, rows);
    add_padding(head, rows);
    return status;
}

/* head->target_logit [rows]: from the rank that owns the target's vocabulary row. */
static void fetch_targets(Head *head, const Sharded *logits, const int32_t *targets, int64_t rows) {
    memset(head->target_logit, 0, (size_t)rows * sizeof(double));
    for (int s = (int)logits->owned.begin; s < logits->owned.end; s++) {
        Range cut = axis_units(&head->axis, s);
        for (int64_t t = 0; t < rows; t++)
            if (range_has(cut, targets[t]))
                head->target_logit[t] =
                    (double)tensor_row(logits->shard[s], t)[targets[t] - cut.begin];
    }
    comm_assemble(head->grid, GROUP_TENSOR, head->target_logit, rows);
}

static int losses(Head *head, const HeadChunk *chunk, int64_t *hits) {
    int64_t rows = range_size(chunk->rows);
    const int32_t *targets = chunk->batch->targets + chunk->rows.begin;
    find_largest(head, &chunk->logits, rows);
    int status = sum_exponentials(head, &chunk->logits, rows);
    if (status) return status;
    fetch_targets(head, &chunk->logits, targets, rows);
    for (int64_t t = 0; t < rows; t++) {
        real logit = (real)head->target_logit[t];
        head->row_loss[chunk->rows.begin + t] =
            targets[t] < 0 ? 0 : loss_row(head->largest[t], head->sums[t], logit);
        *hits += targets[t] >= 0 && logit == head->largest[t];
    }
    return 0;
}

static void gradient(const Head *head, const HeadChunk *chunk, double scale) {
    const Sharded *logits = &chunk->logits;
    const int32_t *targets = chunk->batch->targets + chunk->rows.begin;
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < range_size(chunk->rows); t++)
        for (int s = (int)logits->owned.begin; s < logits->owned.end; s++)
            loss_gradient((Range){t, t + 1}, logits->shard[s], axis_units(&head->axis, s).begin,
                          targets, head->largest, head->sums, scale);
}

const LossKind loss_cross_entropy = {take, losses, gradient};
