/* Reads the golden files: tests/golden/README.md says what is in each.
 *
 * `file` is a name within tests/golden ("llama_tied.h5"), found from the repository's root, where
 * tests are run. Functions that return int return 0, or -1 after a message on stderr. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include <stdint.h>

enum { GOLDEN_MAX_RANK = 4 };

typedef struct {
    double *data; /* row-major */
    int64_t count, dim[GOLDEN_MAX_RANK];
    int rank;
} GoldenArray;

/* A whole dataset ("gradients/model.norm.weight") of any number type, as doubles. */
int golden_read(const char *file, const char *dataset, GoldenArray *array);
void golden_release(GoldenArray *array);

/* A number among the file's attributes ("rms_norm_eps"). */
int golden_attribute(const char *file, const char *name, double *value);

/* How many datasets a group ("weights") has, or -1. */
int64_t golden_count(const char *file, const char *group);

#endif
