/* What the control of BLAS threads in e2e/controls.sh rests on: that a product of its config does
 * come out in other bits when OpenBLAS computes it on two threads. */
#include "config/config.h"
#include "math/gemm.h"
#include "support/arrays.h"
#include "support/support.h"
#include "tensor/shard.h"

#include <cblas.h>
#include <stdlib.h>

typedef struct {
    int64_t rows, inputs, outputs;
} Shape;

/* The FFN's gate in the first shard: [rows, inputs] times [outputs, inputs] transposed. */
static Shape gate_of_config(const char *path) {
    Config config;
    config_defaults(&config);
    ck_assert_int_eq(config_read(&config, path), 0);
    Range channels = shard_range(config.ffn.d_ff, (int)config.grid.tensor, 0);
    return (Shape){config.train.micro_batch * config.model.context, config.model.d_model,
                   range_size(channels)};
}

/* The product of fixed factors, on so many BLAS threads; to be freed. */
static real *multiply(Shape s, int blas_threads) {
    real *x = malloc((size_t)(s.rows * s.inputs) * sizeof *x);
    real *weight = malloc((size_t)(s.outputs * s.inputs) * sizeof *weight);
    real *y = malloc((size_t)(s.rows * s.outputs) * sizeof *y);
    ck_assert(x && weight && y);
    array_fill(x, s.rows * s.inputs, 1, 1);
    array_fill(weight, s.outputs * s.inputs, 1, 2);
    GemmCall product = {.form = GEMM_NT,
                        .m = s.rows,
                        .n = s.outputs,
                        .k = s.inputs,
                        .a = x,
                        .lda = s.inputs,
                        .b = weight,
                        .ldb = s.inputs,
                        .alpha = 1,
                        .c = y,
                        .ldc = s.outputs};
    openblas_set_num_threads(blas_threads);
    gemm_blas(&product);
    free(weight);
    free(x);
    return y;
}

START_TEST(two_threads_change_bits_of_the_config) {
    Shape shape = gate_of_config("tests/configs/wide.ini");
    ck_assert_int_ge(shape.rows, 512);
    real *one = multiply(shape, 1), *again = multiply(shape, 1), *two = multiply(shape, 2);
    int64_t count = shape.rows * shape.outputs;
    ck_assert(array_same(one, again, count));
    ck_assert(!array_same(one, two, count));
    free(two);
    free(again);
    free(one);
}
END_TEST

int main(void) { return run_suite("BLAS threads", TESTS(two_threads_change_bits_of_the_config)); }
