#include "support/checkpoint_pattern.h"

#include "base/error.h"
#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int rank;
    int64_t rows, cols;
    Split split;
    int64_t unit_size;
} tensors[] = {
    {"model.embed_tokens.weight", 2, 23, 8, SPLIT_ROWS, 1},
    {"model.layers.0.self_attn.q_proj.weight", 2, 12, 8, SPLIT_ROWS, 4},
    {PATTERN_GATE, 2, 11, 8, SPLIT_ROWS, 1},
    {PATTERN_UP, 2, 11, 8, SPLIT_ROWS, 1},
    {"model.layers.0.mlp.down_proj.weight", 2, 8, 11, SPLIT_COLS, 1},
    {"model.layers.0.mlp.gate_proj.bias", 1, 1, 11, SPLIT_COLS, 1},
    {"model.layers.0.mlp.down_proj.bias", 1, 1, 8, SPLIT_NONE, 1},
    {"model.norm.weight", 1, 1, 8, SPLIT_NONE, 1},
    {"model.table.weight", 2, 5, 3, SPLIT_NONE, 1},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static const ParamRole roles[] = {PARAM_VALUE, PARAM_MOMENT1, PARAM_MOMENT2};

static void declare(ParamSet *set, int i, int grid_tensor) {
    int index;
    int64_t size = tensors[i].split == SPLIT_ROWS ? tensors[i].rows : tensors[i].cols;
    AxisLayout axis = axis_layout(size / tensors[i].unit_size, grid_tensor, set->tensor_ranks);
    ParamSpec spec = {.name = tensors[i].name,
                      .rank = tensors[i].rank,
                      .rows = tensors[i].rows,
                      .cols = tensors[i].cols,
                      .split = tensors[i].split,
                      .axis = tensors[i].split == SPLIT_NONE ? NULL : &axis,
                      .unit_size = tensors[i].unit_size};
    ck_assert_int_eq(params_declare(set, &spec, &index), 0);
    ck_assert_int_eq(index, i);
}

void pattern_open(PatternModel *model, const Grid *grid, int grid_tensor, int grid_data) {
    *model = (PatternModel){0};
    params_init(&model->set, grid->tensor_rank, grid->tp);
    for (int i = 0; i < TENSORS; i++) declare(&model->set, i, grid_tensor);
    ck_assert_int_eq(params_allocate(&model->set, true), 0);
    model->function = json_pack("{s:s, s:{s:s, s:i, s:f}, s:b}", "kind", "decoder", "ffn",
                                "activation", "silu", "d_ff", 11, "hidden_dropout", 0.1, "tied", 0);
    model->details = json_pack("{s:{s:f}}", "optimizer", "lr", 1e-3);
    model->origin = json_pack("{s:i, s:i}", "tp", grid->tp, "dp", grid->dp);
    model->state = (CheckpointState){.grid_tensor = grid_tensor,
                                     .grid_data = grid_data,
                                     .step = 12,
                                     .tokens = 4711,
                                     .function = model->function,
                                     .details = model->details,
                                     .origin = model->origin,
                                     .places = {axis_layout(grid_tensor, grid_tensor, grid->tp),
                                                axis_layout(grid_data, grid_data, grid->dp)}};
}

void pattern_close(PatternModel *model) {
    params_release(&model->set);
    json_decref(model->function);
    json_decref(model->details);
    json_decref(model->origin);
}

real pattern_value(int tensor, ParamRole role, int64_t index) {
    int64_t number = (int64_t)role * 100000 + (int64_t)tensor * 1000 + index + 1;
    if (!strcmp(tensors[tensor].name, PATTERN_GATE)) number = (int64_t)role * 100000 + index + 1;
    if (!strcmp(tensors[tensor].name, PATTERN_UP)) number = -((int64_t)role * 100000 + index + 1);
    return (real)number;
}

/* Calls for every element on this rank, with what the pattern says. */
static void for_all(const PatternModel *model,
                    void (*visit)(real *element, real expected, int64_t *count), int64_t *count) {
    for (int i = 0; i < model->set.count; i++) {
        const Param *param = &model->set.param[i];
        for (int r = 0; r < 3; r++) {
            for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
                Tensor shard = param_shard(&model->set, param, roles[r], s);
                for (int64_t cell = 0; cell < shard.rows * shard.cols; cell++) {
                    int64_t row = param_first_row(param, s) + cell / shard.cols;
                    int64_t col = param_first_col(param, s) + cell % shard.cols;
                    visit(tensor_row(shard, cell / shard.cols) + cell % shard.cols,
                          pattern_value(i, roles[r], row * param->cols + col), count);
                }
            }
        }
    }
}

static void fill_one(real *element, real expected, int64_t *count) {
    *element = expected;
    (*count)++;
}

static void compare_one(real *element, real expected, int64_t *count) {
    *count += *element != expected;
}

void pattern_fill(PatternModel *model) {
    int64_t filled = 0;
    for_all(model, fill_one, &filled);
}

int64_t pattern_mismatches(const PatternModel *model) {
    int64_t mismatches = 0;
    for_all(model, compare_one, &mismatches);
    return mismatches;
}

real *pattern_element(const PatternModel *model, const char *tensor, ParamRole role, int64_t row,
                      int64_t col) {
    const ParamSet *set = &model->set;
    const Param *param = &set->param[params_find(set, tensor)];
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, role, s);
        int64_t r = row - param_first_row(param, s), c = col - param_first_col(param, s);
        if (r >= 0 && r < shard.rows && c >= 0 && c < shard.cols) return tensor_row(shard, r) + c;
    }
    ck_abort_msg("[%d, %d] of %s isn't on this rank", (int)row, (int)col, tensor);
    return NULL;
}

void scratch_make(char path[SCRATCH_PATH]) {
    snprintf(path, SCRATCH_PATH, "/tmp/weft-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

void serial_begin(SerialRun *run) {
    grid_serial(&run->grid);
    scratch_make(run->run_dir);
    pattern_open(&run->model, &run->grid, 8, 3);
    pattern_fill(&run->model);
}

void serial_end(SerialRun *run) {
    pattern_close(&run->model);
    ck_assert_int_eq(files_remove_tree(run->run_dir), 0);
}

void serial_save(SerialRun *run, int64_t step, int keep) {
    PatternModel *model = &run->model;
    model->state.step = step;
    model->state.retention.keep = keep;
    int status = checkpoint_save(&run->grid, &model->set, &model->state, run->run_dir);
    ck_assert_msg(status == 0, "%s", error_message());
}

void serial_path(const SerialRun *run, int64_t step, const char *file, char path[FILES_PATH]) {
    snprintf(path, FILES_PATH, "%s/step-%08" PRId64 "%s%s", run->run_dir, step, file[0] ? "/" : "",
             file);
}

void capture_begin(Capture *capture, int descriptor) {
    snprintf(capture->path, sizeof capture->path, "/tmp/weft-printed-XXXXXX");
    int file = mkstemp(capture->path);
    ck_assert_int_ge(file, 0);
    fflush(NULL);
    capture->descriptor = descriptor;
    capture->before = dup(descriptor);
    ck_assert_int_eq(dup2(file, descriptor), descriptor);
    close(file);
}

char *capture_end(Capture *capture) {
    char *text;
    size_t size;
    fflush(NULL);
    dup2(capture->before, capture->descriptor);
    close(capture->before);
    ck_assert_int_eq(files_read(capture->path, 1 << 20, &text, &size), 0);
    unlink(capture->path);
    return text;
}

bool same_bytes(const char *a, const char *b) {
    char *left = NULL, *right = NULL;
    size_t left_size = 0, right_size = 0;
    bool equal = files_read(a, SIZE_MAX / 4, &left, &left_size) == 0 &&
                 files_read(b, SIZE_MAX / 4, &right, &right_size) == 0 && left_size == right_size &&
                 !memcmp(left, right, left_size);
    free(left);
    free(right);
    return equal;
}
