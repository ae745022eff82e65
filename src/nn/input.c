#include "nn/input.h"

#include "nn/init_keys.h"
#include "nn/linear.h"
#include "nn/residual.h"

#include <string.h>

int input_declare(Input *input, ParamSet *set, Workspace *space, int64_t inputs, double init_std,
                  const AxisLayout *axis) {
    *input = (Input){.set = set, .space = space, .axis = *axis};
    int status = params_declare(set,
                                &(ParamSpec){.name = "input.weight",
                                             .rank = 2,
                                             .rows = axis->units,
                                             .cols = inputs,
                                             .split = SPLIT_ROWS,
                                             .axis = axis,
                                             .unit_size = 1,
                                             .init = INIT_NORMAL,
                                             .init_std = init_std,
                                             .init_key = INIT_KEY_INPUT,
                                             .decay = true},
                                &input->weight);
    if (!status)
        status = params_declare(set,
                                &(ParamSpec){.name = "input.bias",
                                             .rank = 1,
                                             .rows = 1,
                                             .cols = axis->units,
                                             .split = SPLIT_COLS,
                                             .axis = axis,
                                             .unit_size = 1,
                                             .init = INIT_ZERO},
                                &input->bias);
    workspace_need(space, 0, axis->units);
    return status;
}

/* The owned columns of x, shard by shard, where they lie. */
static Sharded columns_of(const Input *input, Tensor x) {
    Sharded columns = {.owned = axis_owned(&input->axis, input->set->tensor_rank)};
    for (int s = (int)columns.owned.begin; s < columns.owned.end; s++) {
        Range cut = axis_units(&input->axis, s);
        columns.shard[s] = (Tensor){x.data + cut.begin, x.rows, range_size(cut), x.ld};
    }
    return columns;
}

/* The owned columns of all rows. */
static int map(const Input *input, Tensor inputs, Tensor x) {
    const ParamSet *set = input->set;
    Sharded columns = columns_of(input, x);
    int status = linear_column_forward(&input->space->products, set, &set->param[input->weight],
                                       inputs, &columns);
    if (status) return status;
    workspace_multiply(input->space);
    linear_add_bias(input->space, set, &set->param[input->bias], &columns);
    return 0;
}

int input_forward(const Input *input, Grid *grid, Tensor inputs, Tensor x) {
    const Stream *stream = &input->space->stream;
    int status;
    if (stream->cut) {
        gather_begin_scatter(stream->gradients);
        status = map(input, inputs, gather_whole(stream->gradients));
        if (!status) gather_scatter(stream->gradients, x);
    } else {
        memset(x.data, 0, (size_t)(x.rows * x.cols) * sizeof(real));
        status = map(input, inputs, x);
        if (!status) residual_gather(grid, x);
    }
    return status;
}

int input_backward(const Input *input, Tensor inputs, Tensor dx) {
    const ParamSet *set = input->set;
    GemmList *list = &input->space->products;
    Sharded columns = columns_of(input, dx);
    int status = linear_column_gradient(list, set, &set->param[input->weight], &columns, inputs);
    if (status) return status;
    workspace_multiply(input->space);
    linear_bias_gradient(input->space, set, &set->param[input->bias], &columns);
    return 0;
}
