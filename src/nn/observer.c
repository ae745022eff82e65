#include "nn/observer.h"

void observe_begin(Observer *observer, int64_t microbatch) {
    if (!observer) return;
    observer->microbatch = microbatch;
    observer->place = 0;
}

static void show(Observer *observer, Seen seen) {
    seen.microbatch = observer->microbatch;
    seen.place = observer->place;
    observer->see(observer->context, &seen);
}

static void show_whole(Observer *observer, Seen seen) {
    if (!observer) return;
    seen.rows = seen.data.rows;
    seen.cols = seen.data.cols;
    show(observer, seen);
    observer->place++;
}

void observe_whole(Observer *observer, const char *name, int layer, Tensor data) {
    show_whole(observer, (Seen){.name = name, .layer = layer, .data = data});
}

void observe_whole_gradient(Observer *observer, const char *name, int layer, Tensor data) {
    show_whole(observer, (Seen){.name = name, .layer = layer, .gradient = true, .data = data});
}

/* `seen` tells name, layer and row; with rows 0 the data have all rows. */
static void show_cut(Observer *observer, Seen seen, const AxisLayout *axis, int64_t unit_size,
                     const Sharded *data) {
    int64_t all = seen.rows;
    seen.cut = true;
    seen.cols = axis->units * unit_size;
    for (int s = (int)data->owned.begin; s < data->owned.end; s++) {
        seen.data = data->shard[s];
        seen.rows = all ? all : seen.data.rows;
        seen.col = axis_units(axis, s).begin * unit_size;
        show(observer, seen);
    }
    observer->place++;
}

void observe_cut(Observer *observer, const char *name, int layer, const AxisLayout *axis,
                 int64_t unit_size, const Sharded *data) {
    if (!observer) return;
    show_cut(observer, (Seen){.name = name, .layer = layer}, axis, unit_size, data);
}

void observe_cut_rows(Observer *observer, const char *name, Range rows, int64_t all,
                      const AxisLayout *axis, const Sharded *data) {
    if (!observer) return;
    Seen seen = {.name = name, .layer = -1, .rows = all, .row = rows.begin};
    show_cut(observer, seen, axis, 1, data);
}

void observe_parameter(Observer *observer, int layer, const ParamSet *set, int index) {
    if (!observer || index < 0) return;
    const Param *param = &set->param[index];
    Seen seen = {.name = param->name,
                 .layer = layer,
                 .gradient = true,
                 .cut = param->split != SPLIT_NONE,
                 .rows = param->rows,
                 .cols = param->cols};
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        seen.row = param_first_row(param, s);
        seen.col = param_first_col(param, s);
        seen.data = param_shard(set, param, PARAM_GRADIENT, s);
        show(observer, seen);
    }
    observer->place++;
}
