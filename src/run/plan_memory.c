#include "run/plan_memory.h"

#include "run/setup.h"
#include "run/state.h"
#include "run/trainer.h"

#include <stdio.h>

/* What a process takes beside its arenas, as measured (tests/bench/memory; Debian 12): program,
 * BLAS, HDF5 and what saving has opened; a thread's stack and packed panels; Open MPI, where there
 * is more than one rank. The first rank writes and checks the view, in which HDF5 keeps names and
 * selections of every piece of every tensor. */
typedef struct {
    double program, thread, mpi, view_piece;
} ProcessBytes;
static const ProcessBytes process = {24e6, 0.5e6, 8e6, 6e3};

/* ---- exchanges ---- */

/* Whether the second exchange finds the first's buffers large enough: for windows all ranks must.
 */
static bool serves(const ExchangeSpec *first, const ExchangeSpec *second, int rank) {
    bool window = first->reduction == REDUCTION_EXACT && first->transport != TRANSPORT_MESSAGES;
    Range ranks = window ? (Range){0, first->axis->ranks} : (Range){rank, rank + 1};
    bool fits = true;
    for (int r = (int)ranks.begin; r < ranks.end; r++)
        fits &= exchange_bytes_predicted(second, r) <= exchange_bytes_predicted(first, r);
    return fits;
}

/* What a stream that is cut by rows has beside: two buffers of all rows, and sums of doubles. */
static size_t stream_buffers(const Model *model, int rank) {
    const ModelConfig *config = &model->config;
    const Stream *stream = &model->space.stream;
    if (!stream->cut) return 0;
    GatherSpec gather =
        stream_gather_spec(stream, config->reduction, config->transport, config->threads);
    ExchangeSpec sums = stream_sums_spec(stream);
    return 2 * gather_bytes_predicted(&gather, rank) + exchange_bytes_predicted(&sums, rank);
}

/* Those over tensor ranks: the FFN's serves the others where it is large enough. */
static size_t tensor_exchanges(const Model *model, int rank) {
    const AxisLayout *others[] = {&model->groups, &model->vocab};
    ExchangeSpec ffn = model_exchange_spec(model, &model->channels);
    size_t bytes = exchange_bytes_predicted(&ffn, rank);
    for (int i = 0; i < 2; i++) {
        ExchangeSpec other = model_exchange_spec(model, others[i]);
        if (other.axis->units > 0 && !serves(&ffn, &other, rank))
            bytes += exchange_bytes_predicted(&other, rank);
    }
    return bytes + stream_buffers(model, rank);
}

static size_t data_exchange(const Model *model, const AxisLayout *batch, int rank) {
    ExchangeSpec spec = {.group = GROUP_DATA,
                         .axis = batch,
                         .rows = 1,
                         .cols = model->set.elements,
                         .reduction = model->config.reduction,
                         .transport = model->config.transport};
    return exchange_bytes_predicted(&spec, rank);
}

/* ---- the trainer's own ---- */

/* What a model reads, and where that came from. */
static size_t batch_bytes(const Config *config, const Model *model) {
    size_t rows = (size_t)model->space.rows;
    size_t bytes = memory_aligned(rows * sizeof(int32_t)) +
                   memory_aligned((size_t)config->train.global_batch * sizeof(int64_t));
    if (model->config.kind == MODEL_DECODER) bytes += memory_aligned(rows * sizeof(int32_t));
    if (model->config.kind == MODEL_MLP)
        bytes += memory_aligned(rows * (size_t)model->config.inputs * sizeof(real));
    if (model->config.loss == LOSS_SQUARED_ERROR)
        bytes += memory_aligned(rows * (size_t)model->config.outputs * sizeof(real));
    return bytes;
}

static int norm_bytes(const ParamSet *set, size_t *bytes) {
    GradientNorm norm;
    int status = gradient_norm_init(&norm, set);
    *bytes = memory_aligned((size_t)norm.blocks * sizeof(double)) +
             memory_aligned((size_t)norm.shards * sizeof(double));
    gradient_norm_release(&norm);
    return status;
}

/* ---- the whole ---- */

static size_t process_bytes(const Config *config, const ParamSet *set, int threads, int ranks,
                            bool is_first) {
    int64_t pieces = 0;
    for (int i = 0; i < set->count; i++)
        pieces += set->param[i].shards * config->grid.data * (PARAM_ROLES - 1);
    return (size_t)(process.program + process.thread * threads + (ranks > 1 ? process.mpi : 0) +
                    (is_first ? process.view_piece * (double)pieces : 0));
}

static int declare(Model *model, const Config *config, int threads, int tp, int tensor_rank) {
    ModelConfig shape = setup_model(config, config->train.micro_batch, threads);
    return model_declare(model, &shape, tensor_rank, tp);
}

int plan_memory(const Config *config, int threads, int tp, int dp, int tensor_rank, int data_rank,
                MemoryPlan *memory) {
    Model model;
    int status = declare(&model, config, threads, tp, tensor_rank);
    *memory = (MemoryPlan){0};
    if (!status) {
        AxisLayout batch = axis_layout(config->grid.data, (int)config->grid.data, dp);
        CheckpointPlaces places = state_places(config, tp, dp);
        size_t one = params_bytes(&model.set, 1);
        memory->parameters = one;
        memory->gradients = one * (size_t)(1 + trainer_spares(&batch, data_rank));
        memory->moments = 2 * one;
        memory->activations = model_activation_bytes(&model);
        memory->exchanges =
            tensor_exchanges(&model, tensor_rank) + data_exchange(&model, &batch, data_rank);
        status = norm_bytes(&model.set, &memory->buffers);
        memory->buffers += batch_bytes(config, &model);
        memory->process =
            process_bytes(config, &model.set, threads, tp * dp, tensor_rank == 0 && data_rank == 0);
        if (!status)
            status =
                saver_bytes_predicted(&model.set, &places, tensor_rank, data_rank, &memory->copy);
    }
    model_forget(&model);
    return status;
}

size_t memory_plan_total(const MemoryPlan *memory) {
    return memory->parameters + memory->gradients + memory->moments + memory->activations +
           memory->exchanges + memory->copy + memory->buffers + memory->process;
}

int plan_activations(const Config *config, int threads, int tp, int tensor_rank,
                     const char *recompute, size_t *bytes) {
    Model model;
    Config changed = *config;
    snprintf(changed.train.recompute, sizeof changed.train.recompute, "%s", recompute);
    int status = declare(&model, &changed, threads, tp, tensor_rank);
    *bytes = status ? 0 : model_activation_bytes(&model);
    model_forget(&model);
    return status;
}

int plan_sequence(const Config *config, int threads, int tp, int tensor_rank, bool sequence,
                  size_t *bytes) {
    Model model;
    Config changed = *config;
    changed.parallel.sequence = sequence;
    int status = declare(&model, &changed, threads, tp, tensor_rank);
    *bytes = status ? 0 : model_activation_bytes(&model) + tensor_exchanges(&model, tensor_rank);
    model_forget(&model);
    return status;
}
