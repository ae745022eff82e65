#include "run/trace.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/trace_file.h"
#include "config/topology.h"
#include "nn/model.h"
#include "nn/observer.h"
#include "run/identity.h"
#include "run/place.h"
#include "run/setup.h"
#include "run/trace_compare.h"
#include "run/trace_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor, or a chunk of its rows, of which pieces have been seen. Its place in the pass is known
 * to all ranks, the rest to those that hold a piece. */
typedef struct {
    char name[TRACE_NAME];
    int64_t rows, cols;  /* of the whole tensor; 0: nothing seen */
    int64_t row, height; /* of the chunk */
} Shape;

typedef struct {
    Shape shape;
    real *data; /* [height, cols]: 0 where others have the pieces */
} Waiting;

typedef struct {
    Grid *grid;
    Place place; /* on the first rank, and the file in it */
    TraceFile file;
    Waiting *waiting;
    int64_t first, count, capacity; /* waiting[i] has place first + i */
    const TraceInput *input;
    int status; /* of this rank, then agreed */
} Trace;

static bool writes(const Trace *trace) { return group_rank(trace->grid, GROUP_GRID) == 0; }

static Shape shape_of(const Seen *seen) {
    Shape shape = {"", seen->rows, seen->cols, seen->row, seen->data.rows};
    if (seen->layer < 0)
        snprintf(shape.name, sizeof shape.name, "%s", seen->name);
    else
        snprintf(shape.name, sizeof shape.name, "layers/%d/%s", seen->layer, seen->name);
    return shape;
}

/* Beside the logits of normalised numbers: the same in the data's units. */
static int put_outputs(Trace *trace, const TraceBlock *logits) {
    size_t bytes = (size_t)(logits->count * logits->cols) * sizeof(real);
    real *outputs = memory_allocate(bytes, "outputs");
    if (!outputs) return WEFT_RUNTIME;
    memcpy(outputs, logits->data, bytes);
    trace_input_undo(trace->input, logits->count, logits->cols, outputs);
    TraceBlock block = *logits;
    block.data = outputs;
    int status = trace_put(&trace->file, "outputs", &block);
    free(outputs);
    return status;
}

static int put(Trace *trace, const Shape *shape, const real *data) {
    if (!writes(trace)) return 0;
    TraceBlock block = {shape->rows, shape->cols, shape->row, shape->height, data};
    int status = trace_put(&trace->file, shape->name, &block);
    bool beside = !strcmp(shape->name, "logits") && trace_input_has_units(trace->input);
    return !status && beside ? put_outputs(trace, &block) : status;
}

/* Zeroed, for whole words. */
static real *make_room(const Shape *shape) {
    size_t bytes = (size_t)(shape->height * shape->cols) * sizeof(real);
    return memory_allocate((bytes + 7) / 8 * 8, shape->name);
}

/* ---- what is cut ---- */

/* The entry of a place, with all before it. NULL when memory is short. */
static Waiting *entry_of(Trace *trace, int64_t place) {
    int64_t index = place - trace->first;
    if (index >= trace->capacity) {
        int64_t capacity = 2 * index + 16;
        void *larger = realloc(trace->waiting, (size_t)capacity * sizeof *trace->waiting);
        if (!larger) {
            error_set(WEFT_RUNTIME, "out of memory: list of tensors");
            return NULL;
        }
        trace->waiting = larger;
        trace->capacity = capacity;
    }
    while (trace->count <= index) trace->waiting[trace->count++] = (Waiting){.data = NULL};
    return &trace->waiting[index];
}

static int keep_piece(Trace *trace, const Seen *seen) {
    Waiting *entry = entry_of(trace, seen->place);
    if (!entry) return WEFT_RUNTIME;
    if (!entry->data) {
        entry->shape = shape_of(seen);
        entry->data = make_room(&entry->shape);
        if (!entry->data) return WEFT_RUNTIME;
    }
    for (int64_t i = 0; i < seen->data.rows; i++)
        memcpy(entry->data + i * seen->cols + seen->col, tensor_row(seen->data, i),
               (size_t)seen->data.cols * sizeof(real));
    return 0;
}

/* Ranks without a piece learn what it is of. */
static int agree_on_shape(Trace *trace, Shape *shape) {
    int ranks = group_size(trace->grid, GROUP_GRID);
    Shape *all = memory_allocate((size_t)ranks * sizeof *all, "shapes of all ranks");
    int status = comm_agree(trace->grid, GROUP_GRID, all ? 0 : WEFT_RUNTIME);
    if (!status) comm_gather_all(trace->grid, GROUP_GRID, shape, sizeof *shape, all);
    for (int r = 0; !status && r < ranks && shape->rows == 0; r++) *shape = all[r];
    free(all);
    return status;
}

static int write_waiting(Trace *trace, Waiting *entry) {
    int status = agree_on_shape(trace, &entry->shape);
    if (status) return status;
    const Shape *shape = &entry->shape;
    if (!entry->data) entry->data = make_room(&entry->shape);
    status = comm_agree(trace->grid, GROUP_GRID, entry->data ? 0 : WEFT_RUNTIME);
    if (status) return status;
    comm_assemble(trace->grid, GROUP_GRID, entry->data,
                  (shape->height * shape->cols * (int64_t)sizeof(real) + 7) / 8);
    return comm_agree(trace->grid, GROUP_GRID, put(trace, shape, entry->data));
}

static void forget_waiting(Trace *trace) {
    for (int64_t i = 0; i < trace->count; i++) free(trace->waiting[i].data);
    trace->count = 0;
}

/* All ranks see the whole tensor at `place`: what was shown to some before it is complete. */
static int write_all_before(Trace *trace, int64_t place) {
    int status = trace->status;
    if (!status && place > trace->first && !entry_of(trace, place - 1)) status = WEFT_RUNTIME;
    status = comm_agree(trace->grid, GROUP_GRID, status);
    for (int64_t i = 0; !status && i < place - trace->first; i++) {
        status = write_waiting(trace, &trace->waiting[i]);
        free(trace->waiting[i].data);
        trace->waiting[i].data = NULL;
    }
    forget_waiting(trace);
    trace->first = place;
    return status;
}

/* ---- the pass ---- */

static void see(void *context, const Seen *seen) {
    Trace *trace = context;
    if (trace->status && error_is_agreed()) return;
    if (seen->cut) {
        if (!trace->status) trace->status = keep_piece(trace, seen);
        return;
    }
    trace->status = write_all_before(trace, seen->place);
    if (trace->status) return;
    Shape shape = shape_of(seen);
    real mean, *data = seen->data.data;
    if (!strcmp(seen->name, "loss")) { /* shown as the sum */
        if (!trace->input->targets) return;
        mean = (real)((double)*data / (double)trace->input->targets);
        data = &mean;
    }
    trace->status = comm_agree(trace->grid, GROUP_GRID, put(trace, &shape, data));
    trace->first = seen->place + 1;
}

static const char *text_in(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* What is in the file beside tensors. Nothing of it depends on layout, machine load or clock. */
static int describe(Trace *trace, const Config *config, const TraceOptions *options) {
    json_t *topology = topology_json(config), *activation = activation_json(config);
    char hash[HASH_TEXT], fingerprint[HASH_TEXT] = "", step[32] = "0";
    json_t *function = config_function(config, 0), *manifest = NULL;
    char *text = function ? json_dumps(function, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    bool whole = text && topology && activation;
    int status = whole ? 0 : error_set(WEFT_RUNTIME, "out of memory: the function");
    if (!status && options->directory) status = checkpoint_manifest(options->directory, &manifest);
    if (!status && manifest) {
        snprintf(fingerprint, sizeof fingerprint, "%s",
                 json_string_value(json_object_get(manifest, "fingerprint")));
        snprintf(step, sizeof step, "%lld",
                 (long long)json_integer_value(json_object_get(manifest, "step")));
    }
    if (!status) hash_format(hash_text(text), hash);
    const struct {
        const char *name, *value;
    } row[] = {
        {"format", "weft trace 1"},
        {"function", text},
        {"function_hash", hash},
        {"weights", options->directory ? "checkpoint" : "initial"},
        {"fingerprint", fingerprint},
        {"step", step},
        {"equation", text_in(topology, "equation")},
        {"activation", text_in(activation, "equation")},
        {"dropout", options->training ? "on: microbatch 0 of step 0" : "off"},
        {"identity", identity_text()},
    };
    for (size_t i = 0; !status && i < sizeof row / sizeof *row; i++)
        status = trace_text(&trace->file, row[i].name, row[i].value);
    json_decref(manifest);
    json_decref(function);
    json_decref(topology);
    json_decref(activation);
    free(text);
    return status;
}

/* On the first rank. */
static int begin_file(Trace *trace, const Config *config, const TraceOptions *options,
                      const TraceInput *input) {
    const char *const sources[] = {options->directory, options->input, options->against};
    int status = place_choose(&trace->place, options->out);
    for (size_t i = 0; !status && i < sizeof sources / sizeof *sources; i++)
        status = place_check_source(&trace->place, sources[i]);
    if (!status) status = place_begin(&trace->place);
    if (!status) status = trace_create(&trace->file, trace->place.made, (int)config->model.layers);
    if (!status) status = describe(trace, config, options);
    if (!status) status = trace_input_write(input, &trace->file);
    return status;
}

static int load(Model *model, const TraceOptions *options) {
    if (options->directory) return checkpoint_load(model->grid, &model->set, options->directory);
    params_initialize(&model->set, model->config.seed, model->config.threads);
    return 0;
}

static int follow(Trace *trace, Model *model, const TraceOptions *options,
                  const TraceInput *input) {
    Observer observer = {.see = see, .context = trace};
    Pass pass = {0, 0, options->training};
    int64_t hits;
    double loss;
    model->space.observer = &observer;
    int status = model_loss(model, &pass, &input->batch, &loss, &hits);
    if (status) return status; /* not agreed: others may wait in a sum */
    status = trace->status;    /* agreed: `loss` is whole, and the last */
    if (!status && writes(trace)) status = trace_finish(&trace->file);
    if (!status && writes(trace)) status = place_publish(&trace->place);
    status = comm_agree(trace->grid, GROUP_GRID, status);
    if (!status && input->targets)
        log_print("%s: %d tensors, loss %.9g over %lld targets\n", options->out, trace->file.names,
                  loss / (double)input->targets, (long long)input->targets);
    else if (!status)
        log_print("%s: %d tensors, no targets and no loss\n", options->out, trace->file.names);
    return status;
}

int trace_run(const Config *config, const TraceOptions *options, const Session *session) {
    Grid *grid = session->grid;
    Model model = {0};
    TraceInput input;
    Trace trace = {.grid = grid, .input = &input, .file = {.file = {.id = -1}}};
    int status =
        trace_input_read(&input, config, options->directory, options->input, options->first, grid);
    if (!status) {
        ModelConfig shape = setup_model(config, input.sequences, session->threads);
        status = model_declare(&model, &shape, grid->tensor_rank, grid->tp);
        status = comm_agree(grid, GROUP_GRID, status);
    }
    if (!status) status = model_allocate(&model, grid, false);
    if (!status) status = load(&model, options);
    if (!status && writes(&trace)) status = begin_file(&trace, config, options, &input);
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) status = follow(&trace, &model, options, &input);
    if (!status && options->against) {
        if (writes(&trace))
            status = trace_compare(options->out, options->against, options->tolerance);
        status = comm_agree(grid, GROUP_GRID, status);
    }
    trace_abandon(&trace.file);
    place_leave(&trace.place);
    forget_waiting(&trace);
    free(trace.waiting);
    trace_input_release(&input);
    if (!status || error_is_agreed()) model_release(&model);
    return status;
}
