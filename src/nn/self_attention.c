#include "nn/self_attention.h"

#include "base/error.h"
#include "math/attention.h"
#include "nn/init_keys.h"
#include "nn/linear.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

static AttentionShape shape_of(const SelfAttention *attention) {
    return (AttentionShape){attention->config.context, attention->head_dim, attention->group_heads,
                            (real)(1.0 / sqrt((double)attention->head_dim))};
}

int attention_declare(SelfAttention *attention, ParamSet *set, Workspace *space,
                      const AttentionConfig *config, const AxisLayout *axis, const char *prefix,
                      int layer) {
    *attention = (SelfAttention){.config = *config, .set = set, .space = space, .axis = *axis};
    attention->head_dim = config->d_model / config->heads;
    attention->group_heads = (int)(config->heads / config->kv_heads);
    int64_t group = attention->group_heads * attention->head_dim,
            all = config->heads * attention->head_dim;
    struct {
        const char *name;
        uint32_t key;
        int64_t rows, cols, unit;
        Split split;
        double std;
        int *index;
    } tensor[] = {
        {"q", INIT_KEY_Q, all, config->d_model, group, SPLIT_ROWS, config->init_in, &attention->q},
        {"k", INIT_KEY_K, config->kv_heads * attention->head_dim, config->d_model,
         attention->head_dim, SPLIT_ROWS, config->init_in, &attention->k},
        {"v", INIT_KEY_V, config->kv_heads * attention->head_dim, config->d_model,
         attention->head_dim, SPLIT_ROWS, config->init_in, &attention->v},
        {"o", INIT_KEY_O, config->d_model, all, group, SPLIT_COLS, config->init_out, &attention->o},
    };
    for (int i = 0; i < 4; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "%s.%s_proj.weight", prefix, tensor[i].name);
        int status = params_declare(set,
                                    &(ParamSpec){.name = name,
                                                 .rank = 2,
                                                 .rows = tensor[i].rows,
                                                 .cols = tensor[i].cols,
                                                 .split = tensor[i].split,
                                                 .axis = axis,
                                                 .unit_size = tensor[i].unit,
                                                 .init = INIT_NORMAL,
                                                 .init_std = tensor[i].std,
                                                 .init_key = tensor[i].key,
                                                 .layer = (uint32_t)layer,
                                                 .decay = true},
                                    tensor[i].index);
        if (status) return status;
    }
    AttentionShape shape = shape_of(attention);
    workspace_need(space, attention_scratch(&shape), config->d_model);
    linear_need(space, set, LINEAR_ROW_FORWARD, &attention->o, 1);
    linear_need(space, set, LINEAR_COLUMN_BACKWARD,
                (int[]){attention->q, attention->k, attention->v}, 3);
    return 0;
}

void attention_take(const SelfAttention *attention, Arena *arena, int rank, bool lse,
                    AttentionSaved *saved) {
    int64_t rows = attention->space->rows, head = attention->head_dim;
    int64_t group = attention->group_heads * head;
    const AxisLayout *axis = &attention->axis;
    sharded_take(&saved->q, arena, axis, rank, group, rows);
    sharded_take(&saved->k, arena, axis, rank, head, rows);
    sharded_take(&saved->v, arena, axis, rank, head, rows);
    sharded_take(&saved->o, arena, axis, rank, group, rows);
    if (!lse) return;
    sharded_take(&saved->lse, arena, axis, rank, attention->group_heads, rows);
    for (int s = (int)saved->lse.owned.begin; s < saved->lse.owned.end; s++) {
        Tensor *view = &saved->lse.shard[s];
        *view = tensor_view(view->data, view->rows * view->cols / attention->config.context,
                            attention->config.context);
    }
}

/* One (sequence, kv group) of the owned shards: the unit of work that threads share out. */
typedef struct {
    int shard;
    int64_t sequence, group; /* group within the shard */
} Unit;

static int64_t unit_count(const SelfAttention *attention, Range owned) {
    int64_t groups = 0;
    for (int s = (int)owned.begin; s < owned.end; s++)
        groups += range_size(axis_units(&attention->axis, s));
    return groups * (attention->space->rows / attention->config.context);
}

static Unit unit_at(const SelfAttention *attention, Range owned, int64_t item) {
    int64_t sequences = attention->space->rows / attention->config.context;
    Unit unit = {(int)owned.begin, item % sequences, item / sequences};
    for (;; unit.shard++) {
        int64_t groups = range_size(axis_units(&attention->axis, unit.shard));
        if (unit.group < groups) return unit;
        unit.group -= groups;
    }
}

/* The unit's rows and columns of a sharded activation whose groups are `width` columns each. */
static Tensor unit_view(const SelfAttention *attention, const Sharded *sharded, Unit unit,
                        int64_t width) {
    Tensor whole = sharded->shard[unit.shard];
    int64_t length = attention->config.context;
    return (Tensor){tensor_row(whole, unit.sequence * length) + unit.group * width, length, width,
                    whole.ld};
}

static Tensor unit_lse(const SelfAttention *attention, const AttentionSaved *saved, Unit unit) {
    int64_t groups = range_size(axis_units(&attention->axis, unit.shard));
    int64_t first = (unit.sequence * groups + unit.group) * attention->group_heads;
    Tensor whole = saved->lse.shard[unit.shard];
    return tensor_view(tensor_row(whole, first), attention->group_heads, whole.cols);
}

int attention_heads(const SelfAttention *attention, Tensor x, const AttentionSaved *saved) {
    GemmList *list = &attention->space->products;
    const Param *param = attention->set->param;
    const struct {
        int weight;
        const Sharded *y;
    } branch[] = {{attention->q, &saved->q}, {attention->k, &saved->k}, {attention->v, &saved->v}};
    for (int i = 0; i < 3; i++) {
        const Param *weight = &param[branch[i].weight];
        int status = linear_column_forward(list, attention->set, weight, x, branch[i].y);
        if (status) return status;
        workspace_multiply_apart(attention->space);
    }
    workspace_multiply(attention->space);

    AttentionShape shape = shape_of(attention);
    int64_t head = attention->head_dim, group = attention->group_heads * head;
    Range owned = saved->q.owned;
#pragma omp parallel for num_threads(attention->space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < unit_count(attention, owned); item++) {
        Unit unit = unit_at(attention, owned, item);
        Tensor q = unit_view(attention, &saved->q, unit, group);
        Tensor k = unit_view(attention, &saved->k, unit, head);
        rotary_apply(attention->rotary, attention->group_heads, +1, q);
        rotary_apply(attention->rotary, 1, +1, k);
        attention_forward(&shape, q, k, unit_view(attention, &saved->v, unit, head),
                          unit_view(attention, &saved->o, unit, group),
                          unit_lse(attention, saved, unit),
                          workspace_scratch(attention->space, omp_get_thread_num()));
    }
    return 0;
}

void attention_output(const SelfAttention *attention, const AttentionSaved *saved,
                      const Partials *y) {
    LinearTerm term = {&attention->set->param[attention->o], &saved->o};
    linear_partials(attention->space, attention->set, LINEAR_ROW_FORWARD, &term, 1, y);
}

static void backward_units(const SelfAttention *attention, const AttentionSaved *saved,
                           const AttentionSaved *gradient) {
    AttentionShape shape = shape_of(attention);
    int64_t head = attention->head_dim, group = attention->group_heads * head;
    Range owned = saved->q.owned;
#pragma omp parallel for num_threads(attention->space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < unit_count(attention, owned); item++) {
        Unit unit = unit_at(attention, owned, item);
        Tensor dq = unit_view(attention, &gradient->q, unit, group);
        Tensor dk = unit_view(attention, &gradient->k, unit, head);
        attention_backward(&shape, unit_view(attention, &saved->q, unit, group),
                           unit_view(attention, &saved->k, unit, head),
                           unit_view(attention, &saved->v, unit, head),
                           unit_view(attention, &saved->o, unit, group),
                           unit_lse(attention, saved, unit),
                           unit_view(attention, &gradient->o, unit, group), dq, dk,
                           unit_view(attention, &gradient->v, unit, head),
                           workspace_scratch(attention->space, omp_get_thread_num()));
        rotary_apply(attention->rotary, attention->group_heads, -1, dq);
        rotary_apply(attention->rotary, 1, -1, dk);
    }
}

int attention_backward_heads(const SelfAttention *attention, Tensor x, Tensor dy,
                             const AttentionSaved *saved, const AttentionSaved *gradient,
                             const Partials *dx) {
    GemmList *list = &attention->space->products;
    ParamSet *set = attention->set;
    const Param *o = &set->param[attention->o];
    int status = linear_row_gradient(list, set, o, dy, &saved->o);
    if (!status) workspace_multiply_apart(attention->space);
    if (!status) status = linear_row_input_gradient(list, set, o, dy, &gradient->o);
    if (status) return status;
    workspace_multiply(attention->space);

    backward_units(attention, saved, gradient);

    LinearTerm term[] = {{&set->param[attention->q], &gradient->q},
                         {&set->param[attention->k], &gradient->k},
                         {&set->param[attention->v], &gradient->v}};
    for (int i = 0; i < 3; i++) {
        status = linear_column_gradient(list, set, term[i].weight, term[i].input, x);
        if (status) return status;
        workspace_multiply_apart(attention->space);
    }
    workspace_multiply(attention->space);
    linear_partials(attention->space, set, LINEAR_COLUMN_BACKWARD, term, 3, dx);
    return 0;
}
