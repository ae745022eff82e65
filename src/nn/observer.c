#include "nn/observer.h"

#include <string.h>

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
    seen.rows = seen.data.rows;
    seen.cols = seen.data.cols;
    show(observer, seen);
    observer->place++;
}

void observe_whole(Observer *observer, const char *name, int layer, Tensor data) {
    if (!observer) return;
    show_whole(observer,
               (Seen){.name = name, .layer = layer, .made = {0, data.rows}, .data = data});
}

/* Whoever has changed place 0 has changed the stream itself. */
static void take_back(const Stream *stream, Tensor shown, Tensor data) {
    Tensor own = stream_own(stream, shown);
    for (int64_t t = 0; t < own.rows && stream->cut; t++)
        memcpy(tensor_row(data, t), tensor_row(own, t), (size_t)own.cols * sizeof(real));
}

static void show_stream(const Workspace *space, Seen seen, Tensor data) {
    Observer *observer = space->observer;
    if (!observer) return;
    seen.data = stream_whole(&space->stream, data, space->threads);
    seen.made = space->stream.own;
    bool first = observer->place == 0;
    show_whole(observer, seen);
    if (first) take_back(&space->stream, seen.data, data);
}

void observe_stream(const Workspace *space, const char *name, int layer, Tensor data) {
    show_stream(space, (Seen){.name = name, .layer = layer}, data);
}

void observe_stream_gradient(const Workspace *space, const char *name, int layer, Tensor data) {
    show_stream(space, (Seen){.name = name, .layer = layer, .gradient = true}, data);
}

/* `seen` tells name, layer and row; with rows 0 the data have all rows. */
static void show_cut(Observer *observer, Seen seen, const AxisLayout *axis, int64_t unit_size,
                     const Sharded *data) {
    int64_t all = seen.rows;
    seen.cut = true;
    seen.cols = axis->units * unit_size;
    for (int s = (int)data->owned.begin; s < data->owned.end; s++) {
        seen.data = data->shard[s];
        seen.made = (Range){0, seen.data.rows};
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
        seen.made = (Range){0, seen.data.rows};
        show(observer, seen);
    }
    observer->place++;
}
