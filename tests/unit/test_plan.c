/* The planner's numbers against published and hand-computed ones. */
#include "base/error.h"
#include "config/width.h"
#include "run/plan.h"
#include "run/plan_ledger.h"
#include "run/plan_traffic.h"
#include "support/configs.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

static LedgerRow ffn_of(const Config *config) {
    Ledger ledger;
    ck_assert_msg(!ledger_make(config, &ledger), "%s", error_message());
    return ledger_ffn_layer(config, &ledger);
}

/* Llama 2 7B's widths (Touvron et al. 2023) beside the dense one of 4 d, whose count 8 d^2 they are
 * to meet. */
START_TEST(published_counts) {
    Config dense = CONFIG("model.d_model=4096", "ffn.kind=dense", "ffn.d_ff=16384");
    Config gated = CONFIG("model.d_model=4096", "ffn.width=llama");
    Config small = CONFIG("model.d_model=128", "ffn.width=floor");
    ck_assert_int_eq(ffn_of(&dense).weights, 134217728);
    ck_assert_int_eq(ffn_of(&gated).weights, 135266304);
    ck_assert_int_eq(ffn_of(&small).weights, 130944);
    ck_assert_int_eq(ffn_of(&small).biases, 0);
    int64_t d_ff;
    double exact;
    ck_assert_int_eq(width_of(&gated, &d_ff, &exact), 0);
    ck_assert_double_eq_tol(3 * 4096 * exact, 134217728, 1e-6); /* 3 d (8/3 d) = 8 d^2 */
    ck_assert_double_eq_tol(3 * 4096 * ((double)d_ff - exact), 1048576, 1e-6);
}
END_TEST

/* 8192 rows of the same model in elements of 2 bytes. */
START_TEST(published_activations) {
    ck_assert_double_eq(ledger_tensor_bytes(8192, 4096, 2), 64.0 * MIB);
    ck_assert_double_eq(ledger_tensor_bytes(8192, 11008, 2), 172.0 * MIB);
    Config gated = CONFIG("model.d_model=4096", "ffn.width=llama");
    FfnTensor tensor[FFN_TENSORS];
    int count = ledger_ffn_tensors(&gated, 1, tensor);
    double wide = 0;
    ck_assert_int_eq(count, 5);
    for (int i = 0; i < count; i++)
        if (tensor[i].is_wide) wide += ledger_tensor_bytes(8192, gated.ffn.d_ff, 2);
    ck_assert_double_eq(wide, 688.0 * MIB); /* G, U, act(G), H */
    ck_assert_int_eq(tensor[3].fate[RECOMPUTE_NONE], TENSOR_NEVER);
}
END_TEST

static void assert_row(const LedgerRow *row, int64_t weights, int64_t biases, double forward,
                       double input_gradient, double weight_gradient, double again) {
    ck_assert_int_eq(row->weights, weights);
    ck_assert_int_eq(row->biases, biases);
    ck_assert_double_eq(row->forward, forward);
    ck_assert_double_eq(row->input_gradient, input_gradient);
    ck_assert_double_eq(row->weight_gradient, weight_gradient);
    ck_assert_double_eq(row->again, again);
}

/* By hand: d 16, 4 heads of 4, 2 of keys and values, 2 layers, 10 channels, 50 tokens, context 6.
 */
START_TEST(a_decoder_by_hand) {
    Config config = CONFIG("model.d_model=16", "model.heads=4", "model.kv_heads=2",
                           "model.layers=2", "model.vocab=50", "model.context=6", "ffn.d_ff=10",
                           "ffn.gate_bias=true", "ffn.down_bias=true");
    Ledger ledger;
    ck_assert_msg(!ledger_make(&config, &ledger), "%s", error_message());
    assert_row(&ledger.row[LEDGER_ENTRY], 800, 0, 0, 0, 0, 0);
    /* q, o 16 x 16; k, v 8 x 16; scores and sums 16 * 6 / 2 each */
    assert_row(&ledger.row[LEDGER_ATTENTION], 1536, 0, 1536 + 192, 1536 + 480, 1536, 1536 + 192);
    assert_row(&ledger.row[LEDGER_GATE], 320, 20, 320, 320, 320, 320);
    assert_row(&ledger.row[LEDGER_UP], 320, 0, 320, 320, 320, 320);
    assert_row(&ledger.row[LEDGER_DOWN], 320, 32, 320, 320, 320, 0);
    assert_row(&ledger.row[LEDGER_NORMS], 80, 0, 0, 0, 0, 0);
    assert_row(&ledger.row[LEDGER_HEAD], 0, 0, 800, 800, 800, 0);
    ck_assert_int_eq(ledger.total.weights + ledger.total.biases, 800 + 1536 + 960 + 52 + 80);
    ck_assert_int_eq(ffn_of(&config).weights, 480);
    ck_assert_int_eq(ffn_of(&config).biases, 26);
}
END_TEST

START_TEST(an_mlp_by_hand) {
    Config config =
        CONFIG("model.kind=mlp", "model.inputs=7", "model.outputs=3", "model.d_model=16",
               "model.layers=2", "ffn.kind=dense", "ffn.d_ff=10", "ffn.bias=true");
    Ledger ledger;
    ck_assert_msg(!ledger_make(&config, &ledger), "%s", error_message());
    assert_row(&ledger.row[LEDGER_ENTRY], 112, 16, 112, 0, 112, 0);
    assert_row(&ledger.row[LEDGER_ATTENTION], 0, 0, 0, 0, 0, 0);
    assert_row(&ledger.row[LEDGER_GATE], 0, 0, 0, 0, 0, 0);
    assert_row(&ledger.row[LEDGER_UP], 320, 20, 320, 320, 320, 320);
    assert_row(&ledger.row[LEDGER_DOWN], 320, 32, 320, 320, 320, 0);
    assert_row(&ledger.row[LEDGER_NORMS], 48, 0, 0, 0, 0, 0);
    assert_row(&ledger.row[LEDGER_HEAD], 48, 3, 48, 48, 48, 0);
}
END_TEST

/* One rank tells nobody anything. */
START_TEST(a_rank_alone_is_silent) {
    Config config = CONFIG("run.seed=1");
    Traffic traffic[TRAFFIC_KINDS];
    ck_assert_int_eq(plan_traffic(&config, 1, 1, 0, 0, traffic), 0);
    for (int k = 0; k < TRAFFIC_KINDS; k++)
        ck_assert(traffic[k].collectives == 0 && traffic[k].bytes == 0);
}
END_TEST

/* By hand: 2 ranks own half of everything, so each sum is two halves of what they send: the other's
 * partial of a half, and the other's finished half. */
START_TEST(traffic_of_two_ranks) {
    Config config =
        CONFIG("model.d_model=16", "model.heads=4", "model.kv_heads=2", "model.layers=3",
               "model.vocab=256", "model.context=8", "ffn.d_ff=64", "grid.tensor=2", "grid.data=1",
               "train.micro_batch=2", "train.global_batch=4", "train.recompute=none");
    enum { MICROBATCHES = 2, ROWS = 16, BLOCK = ROWS * 16 };
    Traffic traffic[TRAFFIC_KINDS];
    ck_assert_int_eq(plan_traffic(&config, 2, 1, 1, 0, traffic), 0);
    int64_t sum = BLOCK * (int64_t)sizeof(real);
    ck_assert_int_eq(traffic[TRAFFIC_ENTRY].bytes, MICROBATCHES * sum);
    ck_assert_int_eq(traffic[TRAFFIC_FFN].collectives, MICROBATCHES * 6);
    ck_assert_int_eq(traffic[TRAFFIC_FFN].bytes, MICROBATCHES * 6 * sum);
    ck_assert_int_eq(traffic[TRAFFIC_ATTENTION].bytes, MICROBATCHES * 6 * sum);
    ck_assert_int_eq(traffic[TRAFFIC_HEAD].collectives, MICROBATCHES * 4);
    ck_assert_int_eq(traffic[TRAFFIC_HEAD].bytes,
                     MICROBATCHES * (sum + ROWS * (int64_t)(sizeof(real) + 16)));
    ck_assert_int_eq(traffic[TRAFFIC_GRADIENTS].collectives, 0);
    ck_assert_int_eq(traffic[TRAFFIC_STEP].collectives, 2);
}
END_TEST

/* The same with each rank its own 8 of the 16 rows. A sum is half of what it was, a gather the
 * other half of a block: two gathers and two sums a region, and one gather more in backward. */
START_TEST(traffic_of_two_ranks_with_rows_of_their_own) {
    Config config = CONFIG("model.d_model=16", "model.heads=4", "model.kv_heads=2",
                           "model.layers=3", "model.vocab=256", "model.context=8", "ffn.d_ff=64",
                           "ffn.bias=true", "grid.tensor=2", "grid.data=1", "train.micro_batch=2",
                           "train.global_batch=4", "parallel.sequence=true");
    enum { MICROBATCHES = 2, ROWS = 16, D = 16, LAYERS = 3, GAINS = 2 * LAYERS + 1 + LAYERS };
    Traffic traffic[TRAFFIC_KINDS];
    ck_assert_int_eq(plan_traffic(&config, 2, 1, 1, 0, traffic), 0);
    int64_t half = ROWS * D / 2 * (int64_t)sizeof(real);
    ck_assert_int_eq(traffic[TRAFFIC_ENTRY].collectives, MICROBATCHES * 2);
    ck_assert_int_eq(traffic[TRAFFIC_ENTRY].bytes, MICROBATCHES * 2 * half);
    ck_assert_int_eq(traffic[TRAFFIC_FFN].collectives, MICROBATCHES * LAYERS * 5);
    ck_assert_int_eq(traffic[TRAFFIC_FFN].bytes, MICROBATCHES * LAYERS * 5 * half);
    ck_assert_int_eq(traffic[TRAFFIC_ATTENTION].bytes, MICROBATCHES * LAYERS * 5 * half);
    ck_assert_int_eq(traffic[TRAFFIC_HEAD].bytes,
                     MICROBATCHES * (2 * half + ROWS * (int64_t)(sizeof(real) + 16)));
    ck_assert_int_eq(traffic[TRAFFIC_ROWS].collectives, MICROBATCHES);
    ck_assert_int_eq(traffic[TRAFFIC_ROWS].bytes, MICROBATCHES * GAINS * D * 8);
}
END_TEST

START_TEST(unequal_comparisons_are_told) {
    static const struct {
        const char *a[5], *b[5], *text; /* NULL: nothing to tell */
    } rows[] = {
        {{"model.d_model=4096", "ffn.d_ff=16384"},
         {"model.d_model=4096", "ffn.d_ff=16384", "ffn.kind=dense"},
         "at equal d_ff = 16384 the gated FFN has 1.500 times the parameters of the dense one; "
         "with ffn.d_ff = 10923 about as many"},
        {{"model.d_model=64", "ffn.d_ff=172", "ffn.kind=dense", "ffn.bias=true"},
         {"model.d_model=64", "ffn.d_ff=172", "ffn.kind=dual", "ffn.activation=relu"},
         "at equal d_ff = 172 the dual FFN has 1.484 times the parameters of the dense one; with "
         "ffn.d_ff = 116 about as many"},
        {{"model.d_model=4096", "ffn.width=llama"},
         {"model.d_model=4096", "ffn.d_ff=16384", "ffn.kind=dense"},
         NULL},
        {{"ffn.kind=dual", "ffn.activation=relu"}, {"ffn.kind=gated"}, NULL},
        {{"ffn.kind=dense"}, {"ffn.kind=dense", "ffn.activation=gelu"}, NULL},
        {{"model.d_model=128"}, {"model.d_model=256", "ffn.kind=dense"}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config a = config_with(rows[i].a), b = config_with(rows[i].b);
        char text[256] = "", other[256] = "";
        ck_assert(plan_unfair(&a, &b, text, sizeof text) == (rows[i].text != NULL));
        ck_assert(plan_unfair(&b, &a, other, sizeof other) == (rows[i].text != NULL));
        if (rows[i].text) ck_assert_str_eq(text, rows[i].text);
        ck_assert_str_eq(text, other);
    }
}
END_TEST

int main(void) {
    return run_suite("plan", TESTS(published_counts, published_activations, a_decoder_by_hand,
                                   an_mlp_by_hand, a_rank_alone_is_silent, traffic_of_two_ranks,
                                   traffic_of_two_ranks_with_rows_of_their_own,
                                   unequal_comparisons_are_told));
}
