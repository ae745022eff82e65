#include "support/whole.h"

#include "support/naive.h"

#include <math.h>
#include <stdlib.h>

double *whole_gather(Grid *grid, const ParamSet *set, const Param *param, ParamRole role) {
    double *whole = naive_array(param->rows * param->cols);
    bool mine = param->split != SPLIT_NONE || set->tensor_rank == 0;
    for (int s = (int)param->owned.begin; mine && s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, role, s);
        double *corner =
            whole + param_first_row(param, s) * param->cols + param_first_col(param, s);
        for (int64_t i = 0; i < shard.rows; i++)
            for (int64_t j = 0; j < shard.cols; j++)
                corner[i * param->cols + j] = (double)tensor_row(shard, i)[j];
    }
    comm_assemble(grid, GROUP_TENSOR, whole, param->rows * param->cols);
    return whole;
}

void whole_scatter(const ParamSet *set, const Param *param, ParamRole role, const double *whole) {
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, role, s);
        const double *corner =
            whole + param_first_row(param, s) * param->cols + param_first_col(param, s);
        for (int64_t i = 0; i < shard.rows; i++)
            for (int64_t j = 0; j < shard.cols; j++)
                tensor_row(shard, i)[j] = (real)corner[i * param->cols + j];
    }
}

double *whole_activation(Grid *grid, const AxisLayout *axis, int64_t unit_size, const Tensor *shard,
                         int64_t rows) {
    int64_t width = axis->units * unit_size;
    double *whole = naive_array(rows * width);
    Range owned = axis_owned(axis, group_rank(grid, GROUP_TENSOR));
    for (int s = (int)owned.begin; s < owned.end; s++) {
        int64_t first = axis_units(axis, s).begin * unit_size;
        for (int64_t t = 0; t < rows; t++)
            for (int64_t j = 0; j < shard[s].cols; j++)
                whole[t * width + first + j] = (double)tensor_row(shard[s], t)[j];
    }
    comm_assemble(grid, GROUP_TENSOR, whole, rows * width);
    return whole;
}

real *whole_element(const ParamSet *set, const Param *param, ParamRole role, int64_t row,
                    int64_t col) {
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, role, s);
        int64_t i = row - param_first_row(param, s), j = col - param_first_col(param, s);
        if (i >= 0 && i < shard.rows && j >= 0 && j < shard.cols) return tensor_row(shard, i) + j;
    }
    return NULL;
}

Hash128 whole_hash(Grid *grid, const ParamSet *set, ParamRole role) {
    Hash128 sum = {0};
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        double *whole = whole_gather(grid, set, param, role);
        Hash128 hash = hash_bytes(whole, (size_t)(param->rows * param->cols) * sizeof *whole);
        sum = hash_bytes((Hash128[]){sum, hash_text(param->name), hash}, 3 * sizeof hash);
        free(whole);
    }
    return sum;
}

double whole_difference(int64_t n, const double *got, const double *expected) {
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(got[i]) || !isfinite(expected[i])) return INFINITY;
        worst = fmax(worst, fabs(got[i] - expected[i]));
        largest = fmax(largest, fabs(expected[i]));
    }
    return largest > 0 ? worst / largest : worst;
}
