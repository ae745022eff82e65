#include "run/generate.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "nn/model.h"
#include "run/session.h"
#include "run/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A token from softmax(logits / temperature), by one Philox word for the position: same text on
 * every layout. */
static int32_t sample(const double *logits, int64_t vocab, const GenerateOptions *options,
                      int64_t position) {
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    if (options->temperature <= 0) return (int32_t)best;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((logits[v] - logits[best]) / options->temperature);
    uint32_t word[4];
    PhiloxStream stream = {(uint64_t)options->seed, PHILOX_GENERATE, 0, 0, 0};
    philox_block(&stream, (uint32_t)position, 0, word);
    double left = sum * ((double)word[0] + 0.5) * 0x1p-32;
    for (int64_t v = 0; v < vocab; v++) {
        left -= exp((logits[v] - logits[best]) / options->temperature);
        if (left < 0) return (int32_t)v;
    }
    return (int32_t)best;
}

/* The last `context` tokens of the text predict the next one. */
static int next_token(Model *model, const int32_t *text, int64_t length, int32_t *window,
                      double *logits) {
    int64_t context = model->config.context, used = length < context ? length : context;
    memset(window, 0, (size_t)context * sizeof *window);
    memcpy(window, text + length - used, (size_t)used * sizeof *window);
    return model_logits(model, &(Microbatch){.tokens = window}, used - 1, logits);
}

static int write_text(Model *model, const GenerateOptions *options) {
    int64_t given = (int64_t)strlen(options->prompt), vocab = model->config.vocab;
    int64_t length = given ? given : 1;
    int32_t *text = calloc((size_t)(length + options->bytes), sizeof *text);
    int32_t *window = calloc((size_t)model->config.context, sizeof *window);
    double *logits = calloc((size_t)vocab, sizeof *logits);
    int status =
        text && window && logits ? 0 : error_set(WEFT_RUNTIME, "out of memory: generated text");
    status = comm_agree(model->grid, GROUP_GRID, status);
    if (status) goto done;
    text[0] = '\n'; /* what an empty prompt stands for */
    for (int64_t i = 0; i < given; i++) text[i] = (unsigned char)options->prompt[i];
    log_print("%s", options->prompt);
    for (int64_t i = 0; i < options->bytes && !status; i++) {
        status = next_token(model, text, length, window, logits);
        text[length] = sample(logits, vocab, options, length);
        log_print("%c", (int)text[length++]);
    }
    log_print("\n");
done:
    free(text);
    free(window);
    free(logits);
    return status;
}

static int generate_on_grid(const Config *config, const GenerateOptions *options, Grid *grid,
                            int threads) {
    Model model;
    ModelConfig shape = setup_model(config, 1, threads);
    int status = model_declare(&model, &shape, grid->tensor_rank, grid->tp);
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) status = model_allocate(&model, grid, false);
    if (!status) status = checkpoint_load(grid, &model.set, options->directory);
    if (!status) status = write_text(&model, options);
    if (!status || error_is_agreed()) model_release(&model);
    return status;
}

int generate_run(const Config *config, const GenerateOptions *options, Grid *grid) {
    Session session;
    if (strcmp(config->model.kind, "decoder"))
        return comm_agree(grid, GROUP_WORLD,
                          error_set(WEFT_USAGE,
                                    "model.kind = %s writes no text: generate wants a "
                                    "decoder; weft eval tells how good an mlp is",
                                    config->model.kind));
    int status = session_open(&session, grid, config, options->tp, 1);
    if (status) return status;
    int result = grid->surplus ? 0 : generate_on_grid(config, options, grid, session.threads);
    if (result && !error_is_agreed()) return result;
    return session_close(&session, result);
}
