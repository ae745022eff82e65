#include "optim/adamw.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/wide.h"
#include "comm/exchange.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* Scalars of one update, in the precision of the parameters. */
typedef struct {
    real beta1, rest1, beta2, rest2, eps, rate, decay, root2, scale; /* rest: 1 - beta */
} Coefficients;

WIDE static void update_run(const Coefficients *c, int64_t n, real *restrict value,
                            const real *restrict gradient, real *restrict moment1,
                            real *restrict moment2) {
    for (int64_t i = 0; i < n; i++) {
        real g = gradient[i] * c->scale;
        real m = c->beta1 * moment1[i] + c->rest1 * g;
        real v = c->beta2 * moment2[i] + c->rest2 * g * g;
        real root = (real)(sizeof(real) == 4 ? sqrtf((float)v) : sqrt((double)v));
        moment1[i] = m;
        moment2[i] = v;
        value[i] = value[i] * c->decay - c->rate * (m / (root * c->root2 + c->eps));
    }
}

void adamw_update(const AdamW *adamw, const ParamSet *set, int64_t update, double lr,
                  double gradient_scale, int threads) {
    double correction1 = 1 - pow(adamw->beta1, (double)update);
    double correction2 = 1 - pow(adamw->beta2, (double)update);
    Coefficients plain = {.beta1 = (real)adamw->beta1,
                          .rest1 = (real)(1 - adamw->beta1),
                          .beta2 = (real)adamw->beta2,
                          .rest2 = (real)(1 - adamw->beta2),
                          .eps = (real)adamw->eps,
                          .rate = (real)(lr / correction1),
                          .decay = 1,
                          .root2 = (real)(1 / sqrt(correction2)),
                          .scale = (real)gradient_scale};
    Coefficients decayed = plain;
    decayed.decay = (real)(1 - lr * adamw->weight_decay);
#pragma omp parallel num_threads(threads)
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            int64_t size = param_shard_rows(param, s) * param_shard_cols(param, s);
            Range part = shard_range(size, omp_get_num_threads(), omp_get_thread_num());
            int64_t at = param->offset[s] + part.begin;
            update_run(param->decay ? &decayed : &plain, range_size(part),
                       set->arena[PARAM_VALUE] + at, set->arena[PARAM_GRADIENT] + at,
                       set->arena[PARAM_MOMENT1] + at, set->arena[PARAM_MOMENT2] + at);
        }
    }
}

enum { BLOCK = 1 << 14, LANES = 8 };

static int64_t blocks_of(int64_t size) { return (size + BLOCK - 1) / BLOCK; }

int gradient_norm_init(GradientNorm *norm, const ParamSet *set) {
    *norm = (GradientNorm){0};
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        norm->shards += param->shards;
        for (int s = (int)param->owned.begin; s < param->owned.end; s++)
            norm->blocks += blocks_of(param_shard_rows(param, s) * param_shard_cols(param, s));
    }
    norm->block = memory_allocate((size_t)norm->blocks * sizeof(double), "gradient norm blocks");
    norm->shard = memory_allocate((size_t)norm->shards * sizeof(double), "gradient norm shards");
    return norm->block && norm->shard ? 0 : WEFT_RUNTIME;
}

void gradient_norm_release(GradientNorm *norm) {
    free(norm->block);
    free(norm->shard);
    *norm = (GradientNorm){0};
}

/* Memory that is only read comes faster when it is asked for so many elements ahead. */
enum { AHEAD = 1024 };

WIDE static double square_sum(const real *x, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __builtin_prefetch(x + i + AHEAD);
#pragma omp simd
        for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (int l = 0; i < n; i++, l++) lane[l] += (double)x[i] * (double)x[i];
    return tree_sum_doubles(lane, LANES);
}

/* Fills norm->block: blocks of all owned shards in order, shared out block by block. */
static void sum_blocks(GradientNorm *norm, const ParamSet *set, int threads) {
#pragma omp parallel num_threads(threads)
    {
        int64_t block = 0;
        for (int p = 0; p < set->count; p++) {
            const Param *param = &set->param[p];
            for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
                int64_t size = param_shard_rows(param, s) * param_shard_cols(param, s);
                const real *gradient = set->arena[PARAM_GRADIENT] + param->offset[s];
                for (int64_t at = 0; at < size; at += BLOCK, block++)
                    if (block % omp_get_num_threads() == omp_get_thread_num())
                        norm->block[block] =
                            square_sum(gradient + at, at + BLOCK < size ? BLOCK : size - at);
            }
        }
    }
}

/* A replicated tensor counts once, but for tests. */
static double times_counted(const ParamSet *set) {
    return fault_on("replicas-counted") ? set->tensor_ranks : 1;
}

double gradient_norm(GradientNorm *norm, const ParamSet *set, Grid *grid, int threads) {
    sum_blocks(norm, set, threads);
    int64_t block = 0, first = 0;
    bool own_finite = true; /* replicas, of which one counts, too */
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        for (int s = 0; s < param->shards; s++) norm->shard[first + s] = 0;
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            double sum = 0;
            int64_t count = blocks_of(param_shard_rows(param, s) * param_shard_cols(param, s));
            for (int64_t b = 0; b < count; b++) sum += norm->block[block++];
            if (param->split != SPLIT_NONE || set->tensor_rank == 0) norm->shard[first + s] = sum;
            if (param->split == SPLIT_NONE) norm->shard[first + s] *= times_counted(set);
            own_finite = own_finite && isfinite(sum);
        }
        first += param->shards;
    }
    comm_assemble(grid, GROUP_TENSOR, norm->shard, norm->shards);
    double total = 0;
    first = 0;
    for (int p = 0; p < set->count; p++) {
        total += tree_sum_doubles(norm->shard + first, set->param[p].shards);
        first += set->param[p].shards;
    }
    return own_finite || !isfinite(total) ? sqrt(total) : NAN;
}

double gradient_clip_scale(double norm, double clip) {
    return clip > 0 && norm > clip ? clip / norm : 1;
}
