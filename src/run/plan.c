#include "run/plan.h"

#include "base/log.h"
#include "run/layout.h"
#include "run/setup.h"
#include "run/state.h"
#include "run/trainer.h"

/* What a save takes of the cores, per byte of the state: fingerprint, digests, proof, writing and
 * reading back (tests/bench/saving: a run of a 25 M model takes 1 s longer on two cores). */
static const double save_core_seconds = 7e-9;

enum { LEAST_K = 128 }; /* below this a BLAS call loses speed (measured: about 5 %) */

static size_t exchange_plan(const Model *model, int tensor_rank, const AxisLayout *batch,
                            int data_rank) {
    const ModelConfig *config = &model->config;
    ExchangeSpec tensor = {.group = GROUP_TENSOR,
                           .rows = model->space.rows,
                           .cols = config->attention.d_model,
                           .reduction = config->reduction,
                           .transport = config->transport};
    const AxisLayout *axes[] = {&model->channels, &model->groups, &model->vocab};
    size_t largest = 0; /* one exchange's buffers serve the others where they are large enough */
    for (int i = 0; i < 3; i++) {
        tensor.axis = axes[i];
        size_t bytes = exchange_bytes_predicted(&tensor, tensor_rank);
        if (bytes > largest) largest = bytes;
    }
    ExchangeSpec data = {.group = GROUP_DATA,
                         .axis = batch,
                         .rows = 1,
                         .cols = model->set.elements,
                         .reduction = config->reduction,
                         .transport = config->transport};
    return largest + exchange_bytes_predicted(&data, data_rank);
}

int plan_memory(const Config *config, int threads, int tp, int dp, int tensor_rank, int data_rank,
                MemoryPlan *memory) {
    Model model;
    ModelConfig shape = setup_model(config, config->train.micro_batch, threads);
    int status = model_declare(&model, &shape, tensor_rank, tp);
    if (!status) {
        AxisLayout batch = axis_layout(config->grid.data, (int)config->grid.data, dp);
        size_t one = params_bytes(&model.set, 1);
        *memory = (MemoryPlan){.parameters = one,
                               .gradients = one * (size_t)(1 + trainer_spares(&batch, data_rank)),
                               .moments = 2 * one,
                               .activations = model_activation_bytes(&model),
                               .exchanges = exchange_plan(&model, tensor_rank, &batch, data_rank)};
        CheckpointPlaces places = state_places(config, tp, dp);
        status = saver_bytes_predicted(&model.set, &places, tensor_rank, data_rank, &memory->copy);
    }
    model_forget(&model);
    return status;
}

static double megabytes(size_t bytes) { return (double)bytes / 1e6; }

static void print_small_k(const char *what, const AxisLayout *axis, int64_t unit) {
    int64_t smallest = axis->units * unit;
    for (int s = 0; s < axis->shards; s++)
        if (range_size(axis_units(axis, s)) * unit < smallest)
            smallest = range_size(axis_units(axis, s)) * unit;
    if (smallest < LEAST_K)
        log_print("note: a shard of %s has %lld columns; products with fewer than %d run slower: a "
                  "smaller grid.tensor helps\n",
                  what, (long long)smallest, LEAST_K);
}

static int print_model(const Config *config, int threads) {
    Model model;
    ModelConfig shape = setup_model(config, config->train.micro_batch, threads);
    int status = model_declare(&model, &shape, 0, 1);
    if (!status) {
        double products = model_forward_products(&shape);
        log_print("parameters      %lld in %d tensors\n", (long long)params_count(&model.set),
                  model.set.count);
        log_print("forward         %.0f multiply-adds a token; a step %.3g\n", products,
                  3 * products * (double)(config->train.global_batch * config->model.context));
        log_print("logical grid    %lld tensor x %lld data shards; microbatch of %lld rows\n",
                  (long long)config->grid.tensor, (long long)config->grid.data,
                  (long long)model.space.rows);
        double state = 3 * (double)params_count(&model.set) * sizeof(real);
        log_print(
            "checkpoint      %.1f MB in %lld files; a save takes about %.1f core-seconds beside "
            "training\n",
            state / 1e6, (long long)(config->grid.tensor * config->grid.data + 2),
            state * save_core_seconds);
        print_small_k("d_ff", &model.channels, 1);
        print_small_k("the attention output", &model.groups,
                      model.config.attention.d_model / model.config.attention.kv_heads);
    }
    model_forget(&model);
    return status;
}

int plan_print(const Config *config, int ranks, int tp, int dp) {
    int threads = setup_threads(config, ranks);
    LayoutChoice choice;
    int status = print_model(config, threads);
    if (!status) status = layout_choose(config, ranks, threads, tp, dp, &choice);
    if (status) return status;
    char text[256];
    layout_describe(&choice, ranks, text, sizeof text);
    log_print("%s\n", text);
    log_print("rank   parameters  gradients    moments  activations  exchanges  save copy      "
              "total (MB)\n");
    for (int r = 0; r < choice.tp * choice.dp; r++) {
        MemoryPlan m;
        status =
            plan_memory(config, threads, choice.tp, choice.dp, r % choice.tp, r / choice.tp, &m);
        if (status) return status;
        size_t all[] = {m.parameters, m.gradients, m.moments, m.activations, m.exchanges, m.copy};
        size_t total = 0;
        for (int i = 0; i < 6; i++) total += all[i];
        log_print("%4d   %10.1f %10.1f %10.1f   %10.1f %10.1f %10.1f %10.1f\n", r,
                  megabytes(all[0]), megabytes(all[1]), megabytes(all[2]), megabytes(all[3]),
                  megabytes(all[4]), megabytes(all[5]), megabytes(total));
    }
    return 0;
}
