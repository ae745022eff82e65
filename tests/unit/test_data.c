/* Token sources and batches. Files are memory files, reached through /proc. */
#include "base/error.h"
#include "data/batch.h"
#include "data/source.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A microbatch of tokens [T] and targets [T]. */
#define BATCH(t, y)                                                                                \
    &(Microbatch) { .tokens = (t), .targets = (y) }

typedef struct {
    int descriptor;
    char path[64];
} MemoryFile;

static MemoryFile file_of(const void *bytes, size_t size) {
    MemoryFile file = {.descriptor = memfd_create("weft-test", 0)};
    ck_assert_int_ge(file.descriptor, 0);
    ck_assert_int_eq(write(file.descriptor, bytes, size), (ssize_t)size);
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.descriptor);
    return file;
}

/* A tokens file of `count` tokens of 4 bytes in which every token is its own position. */
static MemoryFile positions_file(int64_t count) {
    uint32_t *token = malloc((size_t)count * sizeof *token);
    for (int64_t i = 0; i < count; i++) token[i] = (uint32_t)i;
    MemoryFile file = file_of(token, (size_t)count * sizeof *token);
    free(token);
    return file;
}

static DatasetSpec positions_spec(const MemoryFile *file) {
    return (DatasetSpec){.kind = "tokens",
                         .train = file->path,
                         .held = "",
                         .held_out = 0.1,
                         .token_bytes = 4,
                         .vocab = 1 << 30,
                         .context = 8,
                         .micro_batch = 2,
                         .global_batch = 4,
                         .seed = 7};
}

/* ---- sources ---- */

START_TEST(tokens_are_little_endian) {
    static const unsigned char bytes[] = {0x01, 0x02, 0x00, 0x00, 0xff, 0xfe, 0xff, 0x7f};
    MemoryFile file = file_of(bytes, sizeof bytes);
    TokenSource *source;
    int32_t token[4];

    ck_assert_int_eq(source_open(&source, file.path, "tokens", 2, 65536), 0);
    ck_assert_int_eq(source_length(source), 4);
    ck_assert_int_eq(source_read(source, 0, 4, token), 0);
    ck_assert_int_eq(token[0], 0x0201);
    ck_assert_int_eq(token[1], 0);
    ck_assert_int_eq(token[2], 0xfeff);
    ck_assert_int_eq(token[3], 0x7fff);
    source_close(source);

    ck_assert_int_eq(source_open(&source, file.path, "tokens", 4, INT32_MAX), 0);
    ck_assert_int_eq(source_length(source), 2);
    ck_assert_int_eq(source_read(source, 0, 1, token), 0);
    ck_assert_int_eq(token[0], 0x00000201);
    source_close(source);

    ck_assert_int_eq(source_open(&source, file.path, "text", 4, 256), 0);
    ck_assert_int_eq(source_length(source), 8);
    ck_assert_int_eq(source_read(source, 4, 2, token), 0);
    ck_assert_int_eq(token[0], 0xff);
    ck_assert_int_eq(token[1], 0xfe);
    source_close(source);
}
END_TEST

/* Larger than the buffers, read and hashed from odd places. */
START_TEST(long_files_read_and_hash_whole) {
    enum { SIZE = (3 << 20) + 17 };
    unsigned char *bytes = malloc(SIZE);
    int32_t *token = malloc(SIZE * sizeof *token);
    for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    MemoryFile file = file_of(bytes, SIZE);
    TokenSource *source;
    Hash128 digest;
    ck_assert_int_eq(source_open(&source, file.path, "text", 0, 256), 0);
    ck_assert_int_eq(source_read(source, 5, SIZE - 5, token), 0);
    int wrong = 0;
    for (int i = 5; i < SIZE; i++) wrong += token[i - 5] != bytes[i];
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_eq(source_digest(source, &digest), 0);
    ck_assert(hash_equal(digest, hash_bytes(bytes, SIZE)));
    source_close(source);
    free(token);
    free(bytes);
}
END_TEST

static void assert_error(int status, const char *part) {
    ck_assert_int_eq(status, WEFT_INPUT);
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

START_TEST(bad_files_are_named) {
    char folder[] = "/tmp/weft-test-XXXXXX", fifo[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    MemoryFile empty = file_of("", 0), odd = file_of("abc", 3);
    const struct {
        const char *path, *kind, *message;
    } rows[] = {
        {"/nonexistent/text", "text", "/nonexistent/text: can't open: No such file"},
        {folder, "text", "is a directory"},
        {fifo, "text", "fifo: not a regular file"},
        {"/dev/null", "text", "/dev/null: not a regular file"},
        {empty.path, "text", "is empty"},
        {empty.path, "tokens", "is empty"},
        {odd.path, "tokens", "3 bytes are not a whole number of tokens of 2 bytes"},
        {"", "text", "can't open"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        TokenSource *source = (TokenSource *)&rows;
        assert_error(source_open(&source, rows[i].path, rows[i].kind, 2, 256), rows[i].message);
        assert_error(WEFT_INPUT, rows[i].path);
        ck_assert_ptr_null(source);
    }
    unlink(fifo);
    rmdir(folder);
}
END_TEST

START_TEST(bad_tokens_and_ranges_are_named) {
    static const uint16_t narrow[] = {5, 9, 10, 3};
    static const uint32_t wide[] = {1, 0x80000000u, 0xffffffffu};
    MemoryFile file = file_of(narrow, sizeof narrow);
    TokenSource *source;
    int32_t token[4];
    ck_assert_int_eq(source_open(&source, file.path, "tokens", 2, 10), 0);
    ck_assert_int_eq(source_read(source, 0, 2, token), 0);
    assert_error(source_read(source, 1, 3, token), "token 2 is 10; model.vocab = 10");
    assert_error(source_read(source, 0, 5, token), "5 tokens from 0 wanted; the file has 4");
    assert_error(source_read(source, 5, 0, token), "the file has 4");
    assert_error(source_read(source, -1, 1, token), "the file has 4");
    assert_error(source_read(source, 1, INT64_MAX, token), "the file has 4");
    source_close(source);

    file = file_of(wide, sizeof wide);
    ck_assert_int_eq(source_open(&source, file.path, "tokens", 4, INT32_MAX), 0);
    assert_error(source_read(source, 0, 3, token), "token 1 is 2147483648;");
    assert_error(source_read(source, 2, 1, token), "token 2 is 4294967295;");
    source_close(source);
}
END_TEST

START_TEST(a_file_cut_short_is_an_error) {
    MemoryFile file = file_of("0123456789", 10);
    TokenSource *source;
    Hash128 digest;
    int32_t token[10];
    ck_assert_int_eq(source_open(&source, file.path, "text", 0, 256), 0);
    ck_assert_int_eq(ftruncate(file.descriptor, 4), 0);
    ck_assert_int_eq(source_read(source, 0, 4, token), 0);
    assert_error(source_read(source, 0, 10, token), "ends at byte 4, had 10 bytes when opened");
    assert_error(source_digest(source, &digest), "ends at byte 4");
    source_close(source);
}
END_TEST

/* ---- batches ---- */

START_TEST(training_batches_are_the_samples) {
    MemoryFile file = positions_file(1000);
    DatasetSpec spec = positions_spec(&file);
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    ck_assert_int_eq(data.train_items, 900);
    ck_assert_int_eq(data.order.samples, 112); /* (900 - 1) / 8 */
    for (int64_t step = 0; step < 60; step++)
        for (int64_t m = 0; m < 2; m++) {
            int32_t token[16], target[16];
            int64_t sample[2];
            ck_assert_int_eq(dataset_train_batch(&data, step, 4, m, BATCH(token, target), sample),
                             0);
            for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(sample[i], order_sample(&data.order, step, 4, 2 * m + i));
                for (int t = 0; t < 8; t++) {
                    ck_assert_int_eq(token[8 * i + t], 8 * sample[i] + t);
                    ck_assert_int_eq(target[8 * i + t], 8 * sample[i] + t + 1);
                }
            }
        }
    dataset_close(&data);
}
END_TEST

/* The same places of the global batch, whatever the microbatch. */
START_TEST(samples_do_not_depend_on_the_microbatch) {
    MemoryFile file = positions_file(1000);
    DatasetSpec spec = positions_spec(&file);
    int64_t expected[12], sample[12];
    for (spec.micro_batch = 1; spec.micro_batch <= 12; spec.micro_batch++) {
        if (12 % spec.micro_batch) continue;
        int32_t token[12 * 8], target[12 * 8];
        Dataset data;
        ck_assert_int_eq(dataset_open(&data, &spec), 0);
        for (int64_t m = 0; m < 12 / spec.micro_batch; m++)
            ck_assert_int_eq(dataset_train_batch(&data, 21, 12, m, BATCH(token, target),
                                                 sample + m * spec.micro_batch),
                             0);
        if (spec.micro_batch == 1) memcpy(expected, sample, sizeof expected);
        ck_assert_mem_eq(sample, expected, sizeof expected);
        dataset_close(&data);
    }
}
END_TEST

/* Over an epoch training reads everything before the held-out part that fills a sample, and
 * nothing of it. */
START_TEST(training_never_reads_held_out) {
    for (int64_t count = 80; count < 140; count++) {
        MemoryFile file = positions_file(count);
        DatasetSpec spec = positions_spec(&file);
        spec.held_out = 0.25;
        spec.micro_batch = 1;
        Dataset data;
        ck_assert_int_eq(dataset_open(&data, &spec), 0);
        ck_assert_int_eq(data.held_first, count - count / 4);
        int32_t largest = 0, token[8], target[8];
        for (int64_t i = 0; i < data.order.samples; i++) {
            ck_assert_int_eq(dataset_train_batch(&data, i, 1, 0, BATCH(token, target), NULL), 0);
            for (int t = 0; t < 8; t++)
                if (target[t] > largest) largest = target[t];
        }
        ck_assert_int_lt(largest, data.held_first);
        ck_assert_int_ge(largest, data.held_first - 8);
        dataset_close(&data);
        close(file.descriptor);
    }
}
END_TEST

/* Every held-out token but the first is a target exactly once, after the token before it; all else
 * is masked. Takes a spec whose held part is tokens first ... first + count - 1. */
static void check_eval(const DatasetSpec *spec, int32_t first, int64_t count) {
    int64_t rows = spec->micro_batch * spec->context;
    int32_t *token = malloc((size_t)rows * sizeof *token);
    int32_t *target = malloc((size_t)rows * sizeof *target);
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, spec), 0);
    int64_t batches = dataset_eval_batches(&data, 0);
    ck_assert_int_eq(batches, (count - 1 + rows - 1) / rows);
    int32_t next = first + 1;
    for (int64_t m = 0; m < batches; m++) {
        ck_assert_int_eq(dataset_eval_batch(&data, 0, m, BATCH(token, target)), 0);
        for (int64_t i = 0; i < rows; i++) {
            if (next == first + count) {
                ck_assert_int_eq(token[i], 0);
                ck_assert_int_eq(target[i], -1);
                continue;
            }
            ck_assert_int_eq(token[i], next - 1);
            ck_assert_int_eq(target[i], next);
            next++;
        }
    }
    ck_assert_int_eq(next, first + count);
    dataset_close(&data);
    free(token);
    free(target);
}

START_TEST(eval_covers_the_held_out_part_once) {
    for (int64_t count = 80; count < 140; count++) {
        MemoryFile file = positions_file(count);
        DatasetSpec spec = positions_spec(&file);
        spec.held_out = 0.5;
        for (spec.micro_batch = 1; spec.micro_batch < 4; spec.micro_batch++)
            check_eval(&spec, (int32_t)(count - count / 2), count / 2);
        close(file.descriptor);
    }
}
END_TEST

START_TEST(eval_takes_a_file_of_its_own) {
    MemoryFile file = positions_file(200), held = positions_file(50);
    DatasetSpec spec = positions_spec(&file);
    spec.held = held.path;
    check_eval(&spec, 0, 50);
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    ck_assert_int_eq(data.train_items, 200);
    dataset_close(&data);
}
END_TEST

START_TEST(eval_stops_after_so_many_sequences) {
    MemoryFile file = positions_file(400);
    DatasetSpec spec = positions_spec(&file); /* 40 held out: 5 windows of 8, the last of 7 */
    Dataset data;
    int32_t token[16], target[16];
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    ck_assert_int_eq(dataset_eval_batches(&data, 0), 3);
    ck_assert_int_eq(dataset_eval_batches(&data, 99), 3);
    ck_assert_int_eq(dataset_eval_batches(&data, 3), 2);
    ck_assert_int_eq(dataset_eval_batches(&data, 1), 1);
    /* 3 of 5: the first, second and fourth */
    ck_assert_int_eq(dataset_eval_batch(&data, 3, 1, BATCH(token, target)), 0);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(target[i], 360 + 24 + i + 1);
    for (int i = 8; i < 16; i++) ck_assert_int_eq(target[i], -1);
    dataset_close(&data);
}
END_TEST

START_TEST(nothing_held_out_is_nothing_to_evaluate) {
    MemoryFile file = positions_file(400);
    DatasetSpec spec = positions_spec(&file);
    spec.held_out = 0;
    Dataset data;
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    ck_assert_int_eq(data.train_items, 400);
    ck_assert_int_eq(dataset_eval_batches(&data, 0), 0);
    dataset_close(&data);
}
END_TEST

/* The shortest text that works, and one token less. */
START_TEST(short_texts_are_refused_with_figures) {
    for (int missing = 0; missing < 2; missing++) {
        MemoryFile file = positions_file(33 - missing);
        DatasetSpec spec = positions_spec(&file);
        spec.held_out = 0;
        Dataset data;
        int status = dataset_open(&data, &spec);
        if (missing) {
            assert_error(status, "too short: 32 tokens to train on; one global batch of 4 "
                                 "sequences of 8 needs 33");
            assert_error(status, file.path);
            ck_assert_ptr_null(data.train);
        } else {
            ck_assert_int_eq(status, 0);
        }
        dataset_close(&data);
    }
    MemoryFile file = positions_file(100), one = positions_file(1);
    DatasetSpec spec = positions_spec(&file);
    Dataset data;
    spec.held_out = 0.015;
    assert_error(dataset_open(&data, &spec), "too short: 1 tokens are held out of 100");
    spec.held = one.path;
    assert_error(dataset_open(&data, &spec), "too short: 1 tokens are held out of 1;");
    assert_error(WEFT_INPUT, one.path);
    spec.held = "/nonexistent/held";
    assert_error(dataset_open(&data, &spec), "/nonexistent/held: can't open");
}
END_TEST

START_TEST(a_bad_token_ends_the_batch) {
    uint16_t token[100] = {0};
    token[37] = 300;
    MemoryFile file = file_of(token, sizeof token);
    DatasetSpec spec = positions_spec(&file);
    spec.token_bytes = 2;
    spec.vocab = 300;
    spec.global_batch = spec.micro_batch = 11; /* all samples */
    Dataset data;
    int32_t tokens[88], targets[88];
    ck_assert_int_eq(dataset_open(&data, &spec), 0);
    assert_error(dataset_train_batch(&data, 0, 11, 0, BATCH(tokens, targets), NULL),
                 "token 37 is 300");
    dataset_close(&data);
}
END_TEST

int main(void) {
    return run_suite(
        "data", TESTS(tokens_are_little_endian, long_files_read_and_hash_whole, bad_files_are_named,
                      bad_tokens_and_ranges_are_named, a_file_cut_short_is_an_error,
                      training_batches_are_the_samples, samples_do_not_depend_on_the_microbatch,
                      training_never_reads_held_out, eval_covers_the_held_out_part_once,
                      eval_takes_a_file_of_its_own, eval_stops_after_so_many_sequences,
                      nothing_held_out_is_nothing_to_evaluate, short_texts_are_refused_with_figures,
                      a_bad_token_ends_the_batch));
}
