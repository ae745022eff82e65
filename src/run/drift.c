#include "run/drift.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static Hash128 tensor_hash(const ParamSet *set, const Param *param) {
    static const ParamRole roles[] = {PARAM_VALUE, PARAM_MOMENT1, PARAM_MOMENT2};
    Hash128 sum = {0, 0};
    for (int s = (int)param->owned.begin; s < param->owned.end; s++)
        for (int r = 0; r < 3; r++) {
            Tensor view = param_shard(set, param, roles[r], s);
            Hash128 hash = hash_bytes(view.data, (size_t)(view.rows * view.cols) * sizeof(real));
            sum = hash_add((Hash128){sum.high * 31, sum.low * 31}, hash);
        }
    return sum;
}

/* The rank that differs from most: with two there is no telling which, so rank 1 of the group is
 * named beside rank 0. */
static int odd_one(const Hash128 *all, int tensors, int size, int tensor) {
    for (int r = 1; r < size; r++) {
        if (hash_equal(all[r * tensors + tensor], all[tensor])) continue;
        bool first_is_odd = size > 2 && hash_equal(all[r * tensors + tensor],
                                                   all[(r == 1 ? 2 : 1) * tensors + tensor]);
        return first_is_odd ? 0 : r;
    }
    return -1;
}

static int check_group(Grid *grid, Group group, const ParamSet *set, const Hash128 *mine,
                       Hash128 *all) {
    int size = group_size(grid, group);
    if (size == 1) return 0;
    comm_gather_all(grid, group, mine, (size_t)set->count * sizeof *mine, all);
    for (int p = 0; p < set->count; p++) {
        if (group == GROUP_TENSOR && set->param[p].split != SPLIT_NONE) continue;
        int odd = odd_one(all, set->count, size, p);
        if (odd < 0) continue;
        int stride = group == GROUP_TENSOR ? 1 : grid->tp;
        int first = group == GROUP_TENSOR ? grid->data_rank * grid->tp : grid->tensor_rank;
        return error_set(WEFT_RUNTIME,
                         "replicas have drifted: %s on rank %d isn't what rank %d holds; memory or "
                         "hardware is at fault: go on from a checkpoint, without that node",
                         set->param[p].name, first + odd * stride, first + (odd == 0 ? stride : 0));
    }
    return 0;
}

int drift_check(Grid *grid, const ParamSet *set) {
    int most = grid->tp > grid->dp ? grid->tp : grid->dp;
    size_t bytes = (size_t)set->count * sizeof(Hash128);
    Hash128 *mine = memory_allocate(bytes * (size_t)(most + 1), "hashes of the drift check");
    int status = comm_agree(grid, GROUP_GRID, mine ? 0 : WEFT_RUNTIME);
    if (!status) {
        for (int p = 0; p < set->count; p++) mine[p] = tensor_hash(set, &set->param[p]);
        int tensor = check_group(grid, GROUP_TENSOR, set, mine, mine + set->count);
        int data = check_group(grid, GROUP_DATA, set, mine, mine + set->count);
        status = comm_agree(grid, GROUP_GRID, tensor ? tensor : data);
    }
    free(mine);
    return status;
}
