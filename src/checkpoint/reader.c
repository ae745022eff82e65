#include "checkpoint/reader.h"

#include "base/error.h"

int reader_open(Reader *reader, const char *directory) {
    *reader = (Reader){0};
    return error_set(WEFT_RUNTIME, "%s: the reader is being written", directory);
}

int reader_block(Reader *reader, int role, int tensor, ParamPiece block, real *data) {
    (void)reader, (void)role, (void)tensor, (void)block, (void)data;
    return WEFT_RUNTIME;
}

int64_t reader_rows_at_once(const CatalogTensor *tensor, int64_t elements) {
    int64_t rows = elements / tensor->cols;
    return rows < 1 ? 1 : rows > tensor->rows ? tensor->rows : rows;
}

void reader_close(Reader *reader) { (void)reader; }
