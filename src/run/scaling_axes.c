#include "run/scaling_axes.h"

#include "tensor/shard.h"

void scaling_axes(const Config *config, ScalingAxis axis[SCALING_AXES]) {
    bool mlp = config_is_mlp(config);
    int64_t tensor = config->grid.tensor, data = config->grid.data;
    axis[0] = (ScalingAxis){"ffn.d_ff", config->ffn.d_ff, tensor, false};
    axis[1] = mlp ? (ScalingAxis){"model.d_model", config->model.d_model, tensor, false}
                  : (ScalingAxis){"model.kv_heads", config->model.kv_heads, tensor, false};
    axis[2] = mlp ? (ScalingAxis){"model.outputs", config->model.outputs, tensor, false}
                  : (ScalingAxis){"model.vocab", config->model.vocab, tensor, false};
    axis[3] = (ScalingAxis){"grid.data", data, data, true};
}

int64_t scaling_axis_load(const ScalingAxis *axis, int ranks) {
    AxisLayout layout = axis_layout(axis->units, (int)axis->shards, ranks);
    return axis_largest_load(&layout);
}

bool scaling_axes_shrink(const Config *config, int ranks, bool of_data) {
    ScalingAxis axis[SCALING_AXES];
    bool shrink = ranks == 1;
    scaling_axes(config, axis);
    for (int i = 0; i < SCALING_AXES && !shrink; i++)
        shrink = axis[i].of_data == of_data &&
                 scaling_axis_load(&axis[i], ranks) < scaling_axis_load(&axis[i], ranks - 1);
    return shrink;
}
