/* Samples of token files: sequences of context tokens, whose targets are the next tokens. */
#include "data/sample_kind.h"
#include "data/source.h"

#include <string.h>

static int open_tokens(void **source, const DatasetSpec *spec, const char *path) {
    TokenSource *tokens;
    int status = source_open(&tokens, path, spec->kind, spec->token_bytes, spec->vocab);
    *source = tokens;
    return status;
}

static void close_tokens(void *source) { source_close(source); }
static int64_t tokens_length(const void *source) { return source_length(source); }
static int tokens_digest(const void *source, Hash128 *digest) {
    return source_digest(source, digest);
}

/* Each token is read once. */
static int read_sequence(const void *source, int64_t context, int64_t first, int64_t end,
                         int32_t *tokens, int32_t *targets) {
    int64_t count = end - first - 1;
    if (count > context) count = context;
    if (count < 0) count = 0;
    if (count) {
        int status = source_read(source, first, count, tokens);
        if (!status) status = source_read(source, first + count, 1, &targets[count - 1]);
        if (status) return status;
        memcpy(targets, tokens + 1, (size_t)(count - 1) * sizeof *targets);
    }
    for (int64_t i = count; i < context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return 0;
}

static int read_sequences(const Dataset *data, const void *source, const int64_t *first,
                          int64_t end, const Microbatch *batch) {
    int64_t context = data->context;
    int status = 0;
    for (int64_t i = 0; !status && i < data->micro_batch; i++)
        status = read_sequence(source, context, first[i], end, batch->tokens + i * context,
                               batch->targets + i * context);
    return status;
}

const SampleKind samples_of_tokens = {.items = "tokens",
                                      .beyond = 1,
                                      .open = open_tokens,
                                      .close = close_tokens,
                                      .length = tokens_length,
                                      .digest = tokens_digest,
                                      .read = read_sequences};
