#include "checkpoint/fingerprint.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

Hash128 fingerprint_piece(const CatalogTensor *tensor, int role, ParamPiece piece, const real *data,
                          int64_t ld) {
    char text[CATALOG_DATASET];
    snprintf(text, sizeof text, "%s/%s", catalog_roles[role].name, tensor->name);
    Hash128 name = hash_text(text), sum = {0, 0};
    int64_t first = piece.row * tensor->cols + piece.col;
    if (piece.cols == tensor->cols && ld == piece.cols)
        return hash_elements(name, first, data, piece.rows * piece.cols, sizeof(real));
    for (int64_t i = 0; i < piece.rows; i++)
        sum = hash_add(sum, hash_elements(name, first + i * tensor->cols, data + i * ld, piece.cols,
                                          sizeof(real)));
    return sum;
}

int fingerprint_json(const json_t *value, Hash128 *hash) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    if (!text) return error_set(WEFT_RUNTIME, "out of memory: JSON text");
    *hash = hash_text(text);
    free(text);
    return 0;
}

int fingerprint_identity(const Catalog *catalog, const json_t *function, int64_t step,
                         int64_t tokens, Hash128 *hash) {
    json_t *identity = json_pack("{s:O, s:I, s:I}", "function", function, "step", (json_int_t)step,
                                 "tokens", (json_int_t)tokens);
    if (!identity) return error_set(WEFT_RUNTIME, "out of memory: fingerprint");
    int status = fingerprint_json(identity, hash);
    json_decref(identity);
    for (int i = 0; i < catalog->tensors; i++) {
        const CatalogTensor *tensor = &catalog->tensor[i];
        char text[PARAM_NAME + 80];
        snprintf(text, sizeof text, "%s %d %" PRId64 " %" PRId64 " %s", tensor->name, tensor->rank,
                 tensor->rows, tensor->cols, REAL_NAME);
        *hash = hash_add(*hash, hash_text(text));
    }
    return status;
}
