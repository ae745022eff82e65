/* What `weft plan --net` finds and prints, from predictions as if they had been made; what
 * repetitions of a measurement come to; and measuring itself, whatever it measures. */
#include "base/error.h"
#include "math/gemm.h"
#include "run/others.h"
#include "run/rates_quiet.h"
#include "run/scaling_axes.h"
#include "run/scaling_print.h"
#include "run/setup.h"
#include "run/team.h"
#include "support/scaling.h"
#include "support/support.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const Network network = {10e-6, 1e-9};

/* ---- repetitions ---- */

/* Eight of ten were held up by other programs for a turn of the scheduler. */
START_TEST(held_up_barriers_are_left_out) {
    double meet[100];
    for (int i = 0; i < 100; i++) meet[i] = i % 10 < 8 ? 4e-3 + i : 3e-7 + 1e-9 * (i % 10);
    CLOSE(rates_tenth(meet, 100), 3.09e-7);
    double few[] = {9, 2, 5};
    CLOSE(rates_tenth(few, 3), 2);
}
END_TEST

/* Copies were quiet in one round, barriers in the other. */
START_TEST(rates_of_memory_are_kept_one_by_one) {
    MemoryRates kept = {{1, 9}, {2, 8}, 4e-3};
    const MemoryRates round = {{3, 4}, {1, 9}, 3e-7};
    rates_keep_memory(&kept, &round);
    CLOSE(kept.add[0], 1);
    CLOSE(kept.add[1], 4);
    CLOSE(kept.copy[0], 1);
    CLOSE(kept.copy[1], 8);
    CLOSE(kept.meet, 3e-7);
}
END_TEST

START_TEST(the_quiet_round_of_a_share_is_kept) {
    const double seconds[] = {1, 2, 2.5, 3, 3, 3, 3.5, 9};
    CLOSE(rates_spread(seconds, 8), 3.5 / 2.5 - 1);
    CLOSE(rates_spread(seconds, 1), 0);
    ShareRates kept = {.update = 3, .passes = 8, .spread = 2};
    rates_keep_share(&kept, &(ShareRates){.update = 2, .passes = 8, .spread = 0.1});
    CLOSE(kept.update, 2);
    CLOSE(kept.spread, 0.1);
    rates_keep_share(&kept, &(ShareRates){.update = 4, .passes = 8, .spread = 0.9});
    CLOSE(kept.update, 2);
    CLOSE(kept.spread, 0.1);
    /* one pass a round: theirs is the spread */
    ShareRates slow = {.update = 6, .passes = 1};
    rates_keep_share(&slow, &(ShareRates){.update = 4, .passes = 1});
    CLOSE(slow.update, 4);
    CLOSE(slow.spread, 0.5);
}
END_TEST

/* Of cores 1 and 11 all but what they were idle or waited. */
START_TEST(what_cores_did_is_read) {
    char text[] = "cpu  900 900 900 900 900 900 900 900 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
                  "cpu1 100 20 30 5000 6000 4 5 6 70 8\ncpu11 1000 0 0 9 9 0 0 0 0 0\n"
                  "intr 5 4 3 2 1 2 3 4 5 6\n";
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(1, &cores);
    CPU_SET(11, &cores);
    FILE *file = fmemopen(text, sizeof text - 1, "r");
    ck_assert(file != NULL);
    CLOSE(others_busy(file, &cores), (165. + 1000) / (double)sysconf(_SC_CLK_TCK));
    fclose(file);
}
END_TEST

static int note_cores(int member, void *context) {
    cpu_set_t *cores = context;
    return sched_getaffinity(0, sizeof *cores, &cores[member]);
}

/* Ranks that are measured side by side never wait for each other's core. */
START_TEST(members_have_cores_of_their_own) {
    Team team;
    cpu_set_t all, cores[2], both;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    ck_assert_int_eq(team_run(&team, 1, note_cores, cores), 0);
    ck_assert(CPU_EQUAL(&all, &cores[0]));
    if (CPU_COUNT(&all) < 2) return;
    ck_assert_int_eq(team_run(&team, 2, note_cores, cores), 0);
    CPU_AND(&both, &cores[0], &cores[1]);
    ck_assert_int_eq(CPU_COUNT(&both), 0);
    ck_assert_int_eq(CPU_COUNT(&cores[0]), CPU_COUNT(&all) / 2);
    ck_assert_int_eq(CPU_COUNT(&cores[1]), CPU_COUNT(&all) / 2);
}
END_TEST

/* Even channels: whoever has most heads has as many channels and words as anybody. */
START_TEST(a_rank_that_leads_in_all_is_measured_once) {
    Config config = CONFIG("model.d_model=24", "model.heads=6", "model.kv_heads=3",
                           "model.vocab=64", "ffn.d_ff=64", "grid.tensor=8");
    int rank[RATES_AXES];
    for (int tp = 1; tp <= 8; tp++) {
        if (tp != 1 && tp != 2 && tp != 4 && tp != 8) continue;
        ck_assert_int_eq(rates_busiest(&config, tp, rank), 0);
        ck_assert_int_eq(rank[0], rank[1]);
        ck_assert_int_eq(rank[0], rank[2]);
    }
    Model model;
    ModelConfig shape = setup_model(&config, 1, 1);
    ck_assert_int_eq(model_declare(&model, &shape, 0, 8), 0);
    ck_assert_int_eq(range_size(axis_owned_units(&model.groups, rank[1])), 1);
    model_forget(&model);
}
END_TEST

/* ---- the search ---- */

/* As if layouts of one axis had been predicted: ranks and seconds. */
static ScalingSearch found(const Config *config, Prediction *prediction, int count) {
    return (ScalingSearch){
        .scaling = {config, network, 1, 1}, .prediction = prediction, .count = count};
}

START_TEST(limits) {
    Config config = scaling_small(); /* 16 ranks at most */
    Prediction fast_first[] = {
        {.tp = 2,
         .dp = 4,
         .seconds = 2.0,
         .part = {[SCALING_PRODUCTS] = 1.0, [SCALING_DATA_BYTES] = 1.0}},
        {.tp = 1,
         .dp = 4,
         .seconds = 2.3,
         .part = {[SCALING_PRODUCTS] = 2.0, [SCALING_DATA_BYTES] = 0.3}},
        {.tp = 1, .dp = 2, .seconds = 4.2},
        {.tp = 1, .dp = 1, .seconds = 8},
    };
    ScalingSearch search = found(&config, fast_first, 4);
    ck_assert_ptr_eq(scaling_best(&search, 3, 0), &fast_first[2]);
    ck_assert_ptr_eq(scaling_best(&search, 3, 1), &fast_first[3]);
    ck_assert_ptr_null(scaling_best(&search, 3, 2));
    ck_assert_ptr_eq(scaling_best(&search, 1024, 0), &fast_first[0]);
    const Prediction *layout, *more;
    scaling_limit(&search, &layout, &more);
    ck_assert_ptr_eq(layout, &fast_first[1]);
    ck_assert_ptr_eq(more, &fast_first[0]);
    CLOSE(scaling_excess(layout, more, SCALING_DATA_BYTES), 1.0 - 0.3 / 2);
    CLOSE(scaling_excess(layout, more, SCALING_PRODUCTS), 0);
    Prediction ideal[] = {{.tp = 4, .dp = 4, .seconds = 0.5},
                          {.tp = 2, .dp = 4, .seconds = 1},
                          {.tp = 1, .dp = 4, .seconds = 2},
                          {.tp = 1, .dp = 2, .seconds = 4},
                          {.tp = 1, .dp = 1, .seconds = 8}};
    search = found(&config, ideal, 5);
    scaling_limit(&search, &layout, &more);
    ck_assert_ptr_eq(layout, &ideal[0]);
    ck_assert_ptr_null(more);
    /* the best of 4 ranks uses 3: it is held against those of 4 to 8 */
    Prediction idle[] = {{.tp = 3, .dp = 1, .seconds = 1},
                         {.tp = 2, .dp = 4, .seconds = 1.5},
                         {.tp = 2, .dp = 1, .seconds = 4},
                         {.tp = 1, .dp = 1, .seconds = 8}};
    search = found(&config, idle, 4);
    scaling_limit(&search, &layout, &more);
    ck_assert_ptr_eq(layout, &idle[0]);
    ck_assert_ptr_eq(more, &idle[1]);
    /* 2 ranks aren't worth it, 4 are */
    Prediction late[] = {{.tp = 4, .dp = 2, .seconds = 3.9},
                         {.tp = 4, .dp = 1, .seconds = 4},
                         {.tp = 2, .dp = 1, .seconds = 7},
                         {.tp = 1, .dp = 1, .seconds = 8}};
    search = found(&config, late, 4);
    scaling_limit(&search, &layout, &more);
    ck_assert_ptr_eq(layout, &late[1]);
    ck_assert_ptr_eq(more, &late[0]);
}
END_TEST

/* 3 heads, 10 channels and 7 batch shards: loads by hand. */
START_TEST(axes_by_hand) {
    Config config = CONFIG("model.d_model=24", "model.heads=6", "model.kv_heads=3",
                           "model.vocab=12", "ffn.d_ff=10", "grid.tensor=8", "grid.data=7",
                           "train.micro_batch=1", "train.global_batch=7");
    ScalingAxis axis[SCALING_AXES];
    scaling_axes(&config, axis);
    ck_assert_str_eq(axis[0].key, "ffn.d_ff");
    ck_assert_int_eq(scaling_axis_load(&axis[0], 1), 10);
    ck_assert_int_eq(scaling_axis_load(&axis[0], 8), 2); /* 8 shards of 1 or 2 */
    ck_assert_str_eq(axis[1].key, "model.kv_heads");
    ck_assert_int_eq(scaling_axis_load(&axis[1], 2), 2);
    ck_assert_int_eq(scaling_axis_load(&axis[1], 8), 1);
    ck_assert_str_eq(axis[3].key, "grid.data");
    const bool data[] = {true, true, true, true, false, false, true}; /* 7 4 3 2 2 2 1 */
    for (int dp = 1; dp <= 7; dp++)
        ck_assert_int_eq(scaling_axes_shrink(&config, dp, true), data[dp - 1]);
    ck_assert(scaling_axes_shrink(&config, 3, false));
    ck_assert(!scaling_axes_shrink(&config, 7, false)); /* d_ff 2, a head, vocab 2 as on 6 */
}
END_TEST

/* Whatever was measured: the grid's layouts, each once, from the least on. */
START_TEST(a_search_finds_the_least) {
    Config config = scaling_small();
    ScalingSearch search;
    ck_assert_msg(!scaling_search(&search, &config, &network, 1, 1, 0, 0), "%s", error_message());
    ck_assert_int_eq(search.count, 9); /* 1, 2 and 4 of each */
    for (int ranks = 1; ranks <= 32; ranks++) {
        const Prediction *best = scaling_best(&search, ranks, 0);
        ck_assert_int_le(best->tp * best->dp, ranks);
        for (int i = 0; i < search.count; i++)
            if (search.prediction[i].tp * search.prediction[i].dp <= ranks)
                ck_assert(best->seconds <= search.prediction[i].seconds);
    }
    scaling_search_release(&search);
    ck_assert_msg(!scaling_search(&search, &config, &network, 1, 12, 3, 0), "%s", error_message());
    ck_assert_int_eq(search.count, 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(search.prediction[i].tp, 3);
    scaling_search_release(&search);
}
END_TEST

/* Where nothing is said of more ranks, shares that only they have aren't measured. */
START_TEST(nothing_is_measured_in_vain) {
    Config config = scaling_small();
    ScalingSearch search;
    ck_assert_msg(!scaling_search(&search, &config, &network, 1, 4, 0, 2), "%s", error_message());
    ck_assert_int_eq(search.count, 2); /* 1 and 2 tensor ranks on each of 2 data ranks */
    ck_assert_int_eq(search.spread.shares, 2);
    scaling_search_release(&search);
    ck_assert_msg(!scaling_search(&search, &config, &network, 1, 1, 0, 0), "%s", error_message());
    ck_assert_int_eq(search.spread.shares, 3); /* of 1, 2 and 4; one alone is one of one */
    scaling_search_release(&search);
}
END_TEST

START_TEST(more_threads_than_cores_are_refused) {
    Config config = scaling_small();
    ScalingSearch search;
    int cores = setup_node_cores();
    config.run.threads = cores + 1;
    ck_assert_int_eq(scaling_search(&search, &config, &network, 1, 1, 1, 1), WEFT_USAGE);
    scaling_search_release(&search);
    char told[100];
    snprintf(told, sizeof told, "run.threads = %d: this machine has %d core", cores + 1, cores);
    ck_assert_msg(strstr(error_message(), told), "%s", error_message());
    snprintf(told, sizeof told, "--set run.threads=%d", cores);
    ck_assert_msg(strstr(error_message(), told), "%s", error_message());
}
END_TEST

/* ---- what is printed ---- */

/* Of a search with these layouts on one rank and on two. */
static const char *printed(double one, double two, ScalingSpread spread) {
    static char text[8192];
    static const int ranks[] = {1, 2};
    Config config = scaling_small();
    Prediction layout[] = {{.tp = 1, .dp = 2, .seconds = two}, {.tp = 1, .dp = 1, .seconds = one}};
    ScalingSearch search = found(&config, layout, 2);
    search.one = layout[1];
    search.spread = spread;
    search.dp = 2; /* no limit is looked for */
    FILE *file = tmpfile();
    int before = dup(1);
    ck_assert(file && before >= 0 && dup2(fileno(file), 1) >= 0);
    ck_assert_int_eq(scaling_print_found(&search, ranks, 2), 0);
    dup2(before, 1);
    close(before);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void assert_lines_fit(const char *text) {
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        ck_assert_msg(end - text <= 100, "%.*s", (int)(end - text), text);
}

START_TEST(better_than_ideal_is_explained) {
    const ScalingSpread quiet = {.shares = 2};
    ck_assert_ptr_null(strstr(printed(8, 4.0, quiet), "above 100 %"));
    ck_assert_ptr_nonnull(strstr(printed(8, 4.0, quiet), "100.0 %"));
    ck_assert_ptr_nonnull(strstr(printed(8, 3.9, quiet), "102.6 %"));
    ck_assert_ptr_nonnull(strstr(printed(8, 3.9, quiet), "\nefficiency above 100 %: smaller"));
    assert_lines_fit(printed(8, 3.9, quiet));
}
END_TEST

START_TEST(an_unquiet_machine_is_told) {
    const ScalingSpread quiet = {64, 0, 0.19, 1, 0.1}, unquiet = {65, 64, 30, 64, 1};
    ck_assert_ptr_null(strstr(printed(8, 4, quiet), "unquiet"));
    ck_assert_ptr_nonnull(
        strstr(printed(8, 4, (ScalingSpread){9, 2, 0.37, 8, 0}),
               "machine unquiet repeated, 2 of 9 shares spread over 20 %, tp 8 by "
               "37 %: figures are uncertain\n"));
    ck_assert_ptr_nonnull(
        strstr(printed(8, 4, (ScalingSpread){9, 0, 0.1, 8, 0.47}),
               "machine unquiet others used 47 % of the cores meanwhile: figures are uncertain\n"));
    assert_lines_fit(printed(8, 4, unquiet));
}
END_TEST

/* Measuring works at all: every part that a decoder has takes time, alone and beside others. */
START_TEST(a_share_is_measured) {
    Config config = scaling_small();
    static const StepPart parts[] = {STEP_EMBEDDING, STEP_NORM,          STEP_ATTENTION_PRODUCTS,
                                     STEP_ATTENTION, STEP_FFN_PRODUCTS,  STEP_FFN,
                                     STEP_RESIDUAL,  STEP_HEAD_PRODUCTS, STEP_HEAD};
    ck_assert_int_eq(gemm_setup(), 0);
    for (int tp = 1; tp <= 4; tp++) {
        ShareRates share;
        ck_assert_msg(!rates_share(&config, (RatesNode){1, tp > 2 ? 2 : 1}, tp, &share), "%s",
                      error_message());
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            ck_assert_msg(share.part[parts[i]] > 0, "%s", stopwatch_part_name(parts[i]));
        ck_assert(share.norm > 0 && share.update > 0 && share.zero > 0 && share.add > 0);
    }
}
END_TEST

int main(void) {
    return run_suite("scaling search",
                     TESTS(held_up_barriers_are_left_out, rates_of_memory_are_kept_one_by_one,
                           the_quiet_round_of_a_share_is_kept, what_cores_did_is_read,
                           members_have_cores_of_their_own,
                           a_rank_that_leads_in_all_is_measured_once, limits, axes_by_hand,
                           a_search_finds_the_least, nothing_is_measured_in_vain,
                           more_threads_than_cores_are_refused, better_than_ideal_is_explained,
                           an_unquiet_machine_is_told, a_share_is_measured));
}
