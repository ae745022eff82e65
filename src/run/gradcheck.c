#include "run/gradcheck.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "math/slope.h"
#include "nn/observer.h"
#include "run/gradcheck_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* PATIENCE: seconds that go without a warning. A tensor has LEAST_SAMPLED elements or more for each
 * of --samples, if it is of few shards: an element near a kink tells nothing. */
enum { DIRECTIONS = 2, PATIENCE = 600, LEAST_SAMPLED = 5 };

/* A tensor that moves the loss by less than this share of it, when moved by its own magnitude, is
 * measured as if it did: rounding alone moves the loss. */
#define LEAST_EFFECT 1e-4
/* How far a tensor of zeros is moved, where others move by their largest value. */
#define ZERO_SCALE 0.1
/* All parameters at once are moved by so much less: each meets kinks. */
#define STEP_SCALE 0x1p-5

/* An element: found by its owner, known to all. Words of 8 bytes, for comm_assemble. */
typedef struct {
    int64_t row, col; /* in the whole tensor */
    double value, gradient;
} Place;

/* What came out, of the data-parallel rank that has looked. */
typedef struct {
    int64_t verdict;
    double slope, error;
} Outcome;

/* One logical shard of a tensor, and where its elements stand in the list. */
typedef struct {
    int tensor, shard; /* tensor: a place in the set; set->count: the stream into the first layer */
    int64_t first, count;
} Part;

typedef struct {
    Trainer *trainer;
    GradcheckOptions options;
    Part *part;
    int parts;
    Place *place;
    Outcome *outcome;
    int64_t elements;
    real *size, *scale; /* [tensors]: the largest |gradient|, the largest |value| */
    double loss, targets, seconds;
    const Part *moved; /* what is being moved, and to where */
    const Place *moved_place;
    double to;
} Check;

static Model *model_of(const Check *check) { return &check->trainer->model; }
static const ParamSet *set_of(const Check *check) { return &model_of(check)->set; }
static int tensors(const Check *check) { return set_of(check)->count + 1; }

/* ---- shards of parameters and of the stream alike ---- */

static bool is_stream(const Check *check, int tensor) { return tensor == set_of(check)->count; }

static int shards_of(const Check *check, int tensor) {
    return is_stream(check, tensor) ? model_of(check)->space.row_shards
                                    : set_of(check)->param[tensor].shards;
}

static bool is_owned(const Check *check, int tensor, int shard) {
    Range owned = is_stream(check, tensor) ? model_of(check)->space.stream.own_shards
                                           : set_of(check)->param[tensor].owned;
    return range_has(owned, shard);
}

/* Of those that hold a shard one tells about it. */
static bool speaks(const Check *check, int tensor, int shard) {
    bool everywhere = is_stream(check, tensor) ? !model_of(check)->space.stream.cut
                                               : set_of(check)->param[tensor].split == SPLIT_NONE;
    return everywhere ? check->trainer->grid->tensor_rank == 0 : is_owned(check, tensor, shard);
}

static Range stream_rows(const Check *check, int shard) {
    return shard_range(model_of(check)->space.rows, model_of(check)->space.row_shards, shard);
}

static int64_t first_row(const Check *check, int tensor, int shard) {
    return is_stream(check, tensor) ? stream_rows(check, shard).begin
                                    : param_first_row(&set_of(check)->param[tensor], shard);
}

static int64_t first_col(const Check *check, int tensor, int shard) {
    return is_stream(check, tensor) ? 0 : param_first_col(&set_of(check)->param[tensor], shard);
}

static int64_t size_of(const Check *check, int tensor, int shard) {
    if (is_stream(check, tensor))
        return range_size(stream_rows(check, shard)) * model_of(check)->stream[0].cols;
    const Param *param = &set_of(check)->param[tensor];
    return param_shard_rows(param, shard) * param_shard_cols(param, shard);
}

/* PARAM_VALUE or PARAM_GRADIENT of an owned shard. */
static Tensor view(const Check *check, int tensor, ParamRole role, int shard) {
    if (!is_stream(check, tensor))
        return param_shard(set_of(check), &set_of(check)->param[tensor], role, shard);
    Tensor whole = role == PARAM_VALUE ? model_of(check)->stream[0] : model_of(check)->gradient;
    Range rows = stream_rows(check, shard);
    int64_t here = rows.begin - model_of(check)->space.stream.own.begin;
    return (Tensor){tensor_row(whole, here), range_size(rows), whole.cols, whole.ld};
}

/* ---- the loss ---- */

static int read_batch(Check *check) {
    Trainer *trainer = check->trainer;
    int status = dataset_train_batch(&trainer->data, trainer->step,
                                     trainer->config.train.global_batch, 0, &trainer->micro, NULL);
    check->targets = 0;
    for (int64_t t = 0; !status && t < trainer->model.space.rows; t++)
        check->targets += trainer->micro.targets[t] >= 0;
    return status;
}

/* The gradients at the point itself. */
static int differentiate(Check *check) {
    Trainer *trainer = check->trainer;
    Pass pass = {trainer->step, 0, true};
    double start = clock_seconds();
    params_clear_gradients(&trainer->model.set, trainer->threads);
    int status =
        model_train(&trainer->model, &pass, &trainer->micro, 1 / check->targets, &check->loss);
    check->loss /= check->targets;
    check->seconds = clock_seconds() - start;
    return status;
}

/* The stream into the first layer is the first thing that a pass shows. */
static void move_stream(void *context, const Seen *seen) {
    const Check *check = context;
    if (seen->place == 0 && !seen->gradient)
        tensor_row(seen->data, check->moved_place->row)[check->moved_place->col] = (real)check->to;
}

static void move_parameter(const Check *check, double to) {
    int tensor = check->moved->tensor, shard = check->moved->shard;
    if (!is_owned(check, tensor, shard)) return;
    int64_t row = check->moved_place->row - first_row(check, tensor, shard);
    int64_t col = check->moved_place->col - first_col(check, tensor, shard);
    tensor_row(view(check, tensor, PARAM_VALUE, shard), row)[col] = (real)to;
}

static int loss_at(void *context, double x, double *loss) {
    Check *check = context;
    Trainer *trainer = check->trainer;
    Observer observer = {.see = move_stream, .context = check};
    bool stream = is_stream(check, check->moved->tensor);
    Pass pass = {trainer->step, 0, true};
    int64_t hits;
    check->to = x;
    if (!stream) move_parameter(check, x);
    trainer->model.space.observer = stream ? &observer : NULL;
    int status = model_loss(&trainer->model, &pass, &trainer->micro, loss, &hits);
    trainer->model.space.observer = NULL;
    *loss /= check->targets;
    return status;
}

/* ---- which elements ---- */

static int64_t largest_gradient(Tensor gradient) {
    int64_t found = 0;
    double largest = -1;
    for (int64_t i = 0; i < gradient.rows * gradient.cols; i++) {
        double g = fabs((double)tensor_row(gradient, i / gradient.cols)[i % gradient.cols]);
        if (g > largest) {
            largest = g;
            found = i;
        }
    }
    return found;
}

/* Element number `i` of a part, as an index into its shard: the largest gradient, then one of each
 * of equal stretches. A small shard is taken whole. */
static int64_t choose(const Check *check, const Part *part, int64_t i, int64_t largest) {
    int64_t size = size_of(check, part->tensor, part->shard), samples = part->count - 1;
    if (size == part->count) return i;
    if (i == 0) return largest;
    uint32_t word;
    PhiloxStream stream = {(uint64_t)check->options.seed, PHILOX_CHECK, 0, (uint32_t)part->tensor,
                           0};
    philox_words(&stream, (uint32_t)part->shard, (Range){i - 1, i}, &word);
    int64_t begin = (i - 1) * size / samples, end = i * size / samples;
    int64_t index = begin + (int64_t)(word % (uint64_t)(end - begin));
    return index == largest ? (index + 1) % size : index;
}

static void describe_part(Check *check, const Part *part) {
    Tensor value = view(check, part->tensor, PARAM_VALUE, part->shard);
    Tensor gradient = view(check, part->tensor, PARAM_GRADIENT, part->shard);
    int64_t largest = largest_gradient(gradient);
    for (int64_t i = 0; i < part->count; i++) {
        int64_t index = choose(check, part, i, largest);
        int64_t row = index / value.cols, col = index % value.cols;
        check->place[part->first + i] = (Place){
            row + first_row(check, part->tensor, part->shard),
            col + first_col(check, part->tensor, part->shard),
            (double)tensor_row(value, row)[col],
            (double)tensor_row(gradient, row)[col],
        };
    }
}

static void widen(real *largest, Tensor x) {
    for (int64_t t = 0; t < x.rows; t++)
        for (int64_t j = 0; j < x.cols; j++) {
            real magnitude = (real)fabs((double)tensor_row(x, t)[j]);
            if (!(magnitude <= *largest)) *largest = magnitude; /* a NaN too */
        }
}

/* All ranks learn which elements there are, and how large each tensor's gradients and values. */
static void choose_all(Check *check) {
    Grid *grid = check->trainer->grid;
    for (int p = 0; p < check->parts; p++) {
        const Part *part = &check->part[p];
        if (speaks(check, part->tensor, part->shard)) describe_part(check, part);
        if (!is_owned(check, part->tensor, part->shard)) continue;
        widen(&check->size[part->tensor], view(check, part->tensor, PARAM_GRADIENT, part->shard));
        widen(&check->scale[part->tensor], view(check, part->tensor, PARAM_VALUE, part->shard));
    }
    comm_assemble(grid, GROUP_TENSOR, check->place, check->elements * (int64_t)(sizeof(Place) / 8));
    comm_max_real(grid, GROUP_TENSOR, check->size, tensors(check));
    comm_max_real(grid, GROUP_TENSOR, check->scale, tensors(check));
    for (int t = 0; t < tensors(check); t++)
        if (check->scale[t] == 0) check->scale[t] = (real)ZERO_SCALE;
}

static int list_parts(Check *check) {
    for (int t = 0; t < tensors(check); t++) check->parts += shards_of(check, t);
    check->part = memory_allocate((size_t)check->parts * sizeof *check->part, "list of shards");
    if (!check->part) return WEFT_RUNTIME;
    Part *part = check->part;
    for (int t = 0; t < tensors(check); t++)
        for (int s = 0; s < shards_of(check, t); s++) {
            int64_t size = size_of(check, t, s), times = 1 + LEAST_SAMPLED / shards_of(check, t);
            int64_t wanted = 1 + times * check->options.samples;
            *part = (Part){t, s, check->elements, size < wanted ? size : wanted};
            check->elements += part++->count;
        }
    check->place = memory_allocate((size_t)check->elements * sizeof(Place), "list of elements");
    check->outcome = memory_allocate((size_t)check->elements * sizeof(Outcome), "outcomes");
    check->size = memory_allocate((size_t)tensors(check) * sizeof(real), "gradient sizes");
    check->scale = memory_allocate((size_t)tensors(check) * sizeof(real), "value sizes");
    return check->place && check->outcome && check->size && check->scale ? 0 : WEFT_RUNTIME;
}

/* ---- element by element ---- */

static double size_in_table(const Check *check, int tensor) {
    return fmax((double)check->size[tensor],
                LEAST_EFFECT * check->loss / (double)check->scale[tensor]);
}

static int check_element(Check *check, const Part *part, int64_t i) {
    const Place *place = &check->place[i];
    SlopeAnswer answer;
    SlopeQuestion question = {loss_at,
                              check,
                              place->value,
                              check->loss,
                              (double)check->scale[part->tensor],
                              place->gradient,
                              size_in_table(check, part->tensor),
                              check->options.bound};
    check->moved = part;
    check->moved_place = place;
    int status = slope_check(&question, &answer);
    if (!is_stream(check, part->tensor)) move_parameter(check, place->value);
    check->outcome[i] = (Outcome){answer.verdict, answer.slope, answer.error};
    return status;
}

static int check_elements(Check *check) {
    const Grid *grid = check->trainer->grid;
    for (int p = 0; p < check->parts; p++)
        for (int64_t i = 0; i < check->part[p].count; i++) {
            int64_t element = check->part[p].first + i;
            if (element % grid->dp != grid->data_rank) continue;
            int status = check_element(check, &check->part[p], element);
            if (status) return status;
        }
    comm_assemble(check->trainer->grid, GROUP_DATA, check->outcome,
                  check->elements * (int64_t)(sizeof(Outcome) / 8));
    return 0;
}

/* ---- the whole step ---- */

/* Moment 1 keeps the values, moment 2 the direction: up or down for each element, by its tensor's
 * largest value. */
static void lay_direction(Check *check, int direction) {
    const ParamSet *set = set_of(check);
    memcpy(set->arena[PARAM_MOMENT1], set->arena[PARAM_VALUE], params_bytes(set, 1));
    memset(set->arena[PARAM_MOMENT2], 0, params_bytes(set, 1));
    for (int p = 0; p < check->parts; p++) {
        const Part *part = &check->part[p];
        if (is_stream(check, part->tensor) || !is_owned(check, part->tensor, part->shard)) continue;
        PhiloxStream stream = {(uint64_t)check->options.seed, PHILOX_CHECK, 1,
                               (uint32_t)part->tensor, (uint32_t)direction};
        Tensor to = view(check, part->tensor, PARAM_MOMENT2, part->shard);
        int64_t row = first_row(check, part->tensor, part->shard);
        int64_t col = first_col(check, part->tensor, part->shard);
        for (int64_t i = 0; i < to.rows; i++)
            for (int64_t j = 0; j < to.cols; j++) {
                uint32_t word;
                philox_words(&stream, (uint32_t)(row + i), (Range){col + j, col + j + 1}, &word);
                real scale = check->scale[part->tensor];
                tensor_row(to, i)[j] = word % 2 ? scale : -scale;
            }
    }
}

static int step_loss_at(void *context, double x, double *loss) {
    const Check *check = context;
    const ParamSet *set = set_of(check);
    double norm;
    for (int64_t i = 0; i < set->elements; i++)
        set->arena[PARAM_VALUE][i] =
            (real)((double)set->arena[PARAM_MOMENT1][i] + x * (double)set->arena[PARAM_MOMENT2][i]);
    return trainer_gradient(check->trainer, loss, &norm);
}

/* The slope that the gradient claims along the direction, and the root of the sum of the squares of
 * its terms; shard by shard, so that it doesn't depend on the layout. */
static int claim_of(Check *check, double *claim, double *size) {
    const ParamSet *set = set_of(check);
    double *sum = memory_allocate((size_t)(2 * check->parts) * sizeof *sum, "sums of shards");
    int status = comm_agree(check->trainer->grid, GROUP_GRID, sum ? 0 : WEFT_RUNTIME);
    for (int p = 0; !status && p < check->parts; p++) {
        const Part *part = &check->part[p];
        if (is_stream(check, part->tensor) || !speaks(check, part->tensor, part->shard)) continue;
        int64_t first = set->param[part->tensor].offset[part->shard];
        for (int64_t i = first; i < first + size_of(check, part->tensor, part->shard); i++) {
            double direction = (double)set->arena[PARAM_MOMENT2][i];
            double term = (double)set->arena[PARAM_GRADIENT][i] * direction;
            sum[2 * p] += term;
            sum[2 * p + 1] += term * term;
        }
    }
    *claim = *size = 0;
    if (!status) comm_assemble(check->trainer->grid, GROUP_TENSOR, sum, (int64_t)2 * check->parts);
    for (int p = 0; !status && p < check->parts; p++) {
        *claim += sum[2 * p];
        *size += sum[2 * p + 1];
    }
    *size = fmax(sqrt(*size), LEAST_EFFECT * check->loss);
    free(sum);
    return status;
}

static int check_direction(Check *check, int direction, SlopeAnswer *answer) {
    const ParamSet *set = set_of(check);
    SlopeQuestion question = {.evaluate = step_loss_at,
                              .context = check,
                              .scale = STEP_SCALE,
                              .bound = check->options.bound};
    lay_direction(check, direction);
    int status = step_loss_at(check, 0, &question.value);
    if (!status) status = claim_of(check, &question.claim, &question.size);
    if (!status) status = slope_check(&question, answer);
    memcpy(set->arena[PARAM_VALUE], set->arena[PARAM_MOMENT1], params_bytes(set, 1));
    return status;
}

/* ---- all of it ---- */

static void tell_work(const Check *check) {
    const Config *config = &check->trainer->config;
    const Grid *grid = check->trainer->grid;
    enum { EVALUATIONS = 6 };
    double forward = check->seconds / 3;
    double batches = (double)(config->train.global_batch / config->train.micro_batch / grid->dp);
    double seconds = EVALUATIONS * ((double)check->elements * forward / grid->dp +
                                    DIRECTIONS * batches * check->seconds);
    log_info("%lld elements of %d tensors, about %.0f s or more", (long long)check->elements,
             tensors(check), ceil(seconds));
    if (seconds > PATIENCE)
        log_warn("that is long: a small config (--set model.d_model=64 ...), fewer shards "
                 "(--set grid.tensor=2) or --samples 0 prove the same code");
}

static void fill_row(const Check *check, int tensor, GradcheckRow *row) {
    const ParamSet *set = set_of(check);
    const Model *model = &check->trainer->model;
    bool stream = is_stream(check, tensor);
    const Param *param = stream ? NULL : &set->param[tensor];
    *row = (GradcheckRow){.name = stream ? "input of the first layer" : param->name,
                          .rank = stream ? 2 : param->rank,
                          .rows = stream ? model->space.rows : param->rows,
                          .cols = stream ? model->stream[0].cols : param->cols,
                          .shards = shards_of(check, tensor)};
    for (int p = 0; p < check->parts; p++) {
        const Part *part = &check->part[p];
        for (int64_t i = part->first; part->tensor == tensor && i < part->first + part->count; i++)
            gradcheck_row_add(
                row, &(GradcheckElement){check->place[i].row,
                                         check->place[i].col,
                                         check->place[i].gradient,
                                         {(SlopeVerdict)check->outcome[i].verdict,
                                          check->outcome[i].slope, check->outcome[i].error}});
    }
}

static void tell_elements(const Check *check, GradcheckTable *table) {
    int stream = set_of(check)->count;
    gradcheck_table_begin(table, set_of(check));
    for (int t = -1; t < stream; t++) {
        GradcheckRow row;
        fill_row(check, t < 0 ? stream : t, &row);
        gradcheck_table_add(table, &row);
    }
}

static int check_step(Check *check, GradcheckTable *table) {
    GradcheckRow row = {.name = "the whole step, in some directions"};
    for (int d = 0; d < DIRECTIONS; d++) {
        GradcheckElement found = {.row = d};
        int status = check_direction(check, d, &found.answer);
        if (status) return status;
        gradcheck_row_add(&row, &found);
    }
    gradcheck_table_add(table, &row);
    return 0;
}

static int run_check(Check *check, GradcheckTable *table) {
    int status = read_batch(check);
    if (!status) status = differentiate(check); /* which takes longer than any later one: */
    if (!status) status = differentiate(check);
    if (status) return status;
    if (!isfinite(check->loss)) /* the same on all ranks */
        return comm_agree(
            check->trainer->grid, GROUP_GRID,
            error_set(WEFT_RUNTIME, "the loss is %g: there is no gradient", check->loss));
    choose_all(check);
    tell_work(check);
    status = check_elements(check);
    if (status) return status;
    tell_elements(check, table);
    return check_step(check, table);
}

int gradcheck_trainer(Trainer *trainer, const GradcheckOptions *options, GradcheckResult *result) {
    Check check = {.trainer = trainer, .options = *options};
    GradcheckTable table = {.result = result};
    *result = (GradcheckResult){.error = 0};
    table.bound = check.options.bound;
    int status = comm_agree(trainer->grid, GROUP_GRID, list_parts(&check));
    if (!status) status = run_check(&check, &table);
    if (!status)
        status = comm_agree(trainer->grid, GROUP_GRID, gradcheck_table_end(&table, trainer->grid));
    free(check.part);
    free(check.place);
    free(check.outcome);
    free(check.size);
    free(check.scale);
    return status;
}

int gradcheck_run(const Config *config, const GradcheckOptions *options, const Session *session) {
    Trainer trainer;
    GradcheckResult result;
    int status = trainer_open(&trainer, config, session->grid, session->threads, true);
    if (!status) status = trainer_survey(&trainer);
    if (!status) status = gradcheck_trainer(&trainer, options, &result);
    if (!status || error_is_agreed()) trainer_close(&trainer);
    return status;
}
