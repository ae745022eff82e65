/* Predictions of a step's time against hand-computed ones, and what must hold of them whatever the
 * machine: nothing here is measured. */
#include "base/error.h"
#include "run/plan_memory.h"
#include "run/scaling.h"
#include "support/scaling.h"
#include "support/support.h"

#include <string.h>

/* ---- units ---- */

START_TEST(networks_are_read) {
    static const struct {
        const char *text;
        double latency, bandwidth;
    } rows[] = {{"2us,10GB/s", 2e-6, 10e9},
                {"0s,1B/s", 0, 1},
                {"1.5ms,100Mbit/s", 1.5e-3, 12.5e6},
                {"700ns,25Gbit/s", 7e-7, 3.125e9},
                {"1e1us,3kB/s", 1e-5, 3e3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Network network;
        ck_assert_msg(!network_parse(rows[i].text, &network), "%s", error_message());
        CLOSE(network.latency, rows[i].latency);
        CLOSE(network.seconds * rows[i].bandwidth, 1.0);
    }
}
END_TEST

START_TEST(bad_networks_are_told) {
    static const struct {
        const char *text, *told;
    } rows[] = {{"", "LATENCY,BANDWIDTH is expected"},
                {"2us", "LATENCY,BANDWIDTH is expected"},
                {"2us,10GB/s,1", "LATENCY,BANDWIDTH is expected"},
                {"2,10GB/s", "the latency \"2\" has no unit; after the number ns, us, ms or s"},
                {"2 us,10GB/s", "the latency \"2 us\" has a unit that isn't known"},
                {"us,10GB/s", "the latency \"us\" doesn't begin with a number"},
                {",10GB/s", "the latency \"\" doesn't begin with a number"},
                {"2us,", "the bandwidth \"\" doesn't begin with a number"},
                {"2us,10", "the bandwidth \"10\" has no unit"},
                {"2us,10GB", "the bandwidth \"10GB\" has a unit that isn't known"},
                {"2us,10gb/s", "the bandwidth \"10gb/s\" has a unit that isn't known"},
                {"2us,nanGB/s", "doesn't begin with a number"},
                {"2us,infGB/s", "doesn't begin with a number"},
                {"0x10us,10GB/s", "the latency \"0x10us\" doesn't begin with a number"},
                {" 2us,10GB/s", "doesn't begin with a number"},
                {"2us,0x1p3GB/s", "doesn't begin with a number"},
                {"2us,0GB/s", "a bandwidth from 1 B/s to 1e+06 GB/s"},
                {"2us,-3GB/s", "a bandwidth from 1 B/s"},
                {"2us,1e300GB/s", "a bandwidth from 1 B/s"},
                {"-2us,3GB/s", "a latency from 0 to 10 s"},
                {"60s,3GB/s", "a latency from 0 to 10 s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Network network;
        ck_assert_int_eq(network_parse(rows[i].text, &network), WEFT_USAGE);
        ck_assert_msg(strstr(error_message(), rows[i].told), "%s: %s", rows[i].text,
                      error_message());
        ck_assert_msg(strstr(error_message(), "--net "), "%s", error_message());
    }
}
END_TEST

/* ---- links ---- */

/* add 1, 2; copy 4, 8 ns a byte; meet 3 us */
static const MemoryRates node = {{1e-9, 2e-9}, {4e-9, 8e-9}, 3e-6};
static const Network network = {10e-6, 1e-9};

START_TEST(links_by_place) {
    Link one = link_of(1, 1, 1, 1, &network, &node);
    ck_assert_int_eq(one.ranks, 1);
    Link far = link_of(4, 1, 4, 1, &network, &node);
    ck_assert(!far.one_node);
    CLOSE(far.latency, 10e-6);
    CLOSE(far.seconds, 1e-9);
    Link near = link_of(4, 1, 8, 4, &network, &node);
    ck_assert(near.one_node);
    CLOSE(near.latency, 4e-6); /* 1 us and the barrier's */
    CLOSE(near.seconds, 16e-9);
    /* 4 of 8 ranks, 2 on a node: of 3 partners 2 are elsewhere, and 2 ranks share the node's
     * network
     */
    Link mixed = link_of(4, 1, 8, 2, &network, &node);
    ck_assert(!mixed.one_node);
    CLOSE(mixed.latency, 2.0 / 3 * 10e-6 + 1.0 / 3 * 4e-6);
    CLOSE(mixed.seconds, 2.0 / 3 * 2e-9 + 1.0 / 3 * 16e-9);
    /* along the data axis of 4 x 2 with 4 ranks on a node: each partner is elsewhere */
    Link data = link_of(2, 4, 8, 4, &network, &node);
    CLOSE(data.latency, 10e-6);
    CLOSE(data.seconds, 4e-9);
    /* groups of 3 on nodes of 4: the second of them straddles */
    ck_assert(!link_of(3, 1, 6, 4, &network, &node).one_node);
    ck_assert(link_of(3, 1, 3, 4, &network, &node).one_node);
}
END_TEST

/* ---- collectives ---- */

static void assert_cost(Collective collective, int ranks, int node_ranks, double latency,
                        double bytes) {
    Link link = link_of(ranks, 1, ranks, node_ranks, &network, &node);
    CollectiveCost cost = collective_cost(&collective, &link);
    CLOSE(cost.latency, latency);
    CLOSE(cost.bytes, bytes);
}

/* 4000 bytes over 4 ranks: parts of 1000. */
START_TEST(collectives_by_hand) {
    Collective sum = {.form = COLLECTIVE_SUM,
                      .window = true,
                      .times = 1,
                      .calls = 1,
                      .bytes = 6000,
                      .block = 4000,
                      .sends = 1,
                      .receives = 3};
    /* 3 messages, then 2 for the all-gather; 6000 bytes in, 3 x 1000 added */
    assert_cost(sum, 4, 1, 5 * 10e-6, 6000e-9 + 3000e-9);
    /* 3 barriers; 3 x 1000 added, 4000 copied */
    assert_cost(sum, 4, 4, 3 * 3e-6, 3000e-9 + 16000e-9);
    /* 2 partials a rank: 6 messages out and in, 7 x 1000 added */
    Collective two = sum;
    two.sends = 2, two.receives = 6, two.bytes = 9000;
    assert_cost(two, 4, 1, 8 * 10e-6, 9000e-9 + 7000e-9);
    Collective own = sum;
    own.form = COLLECTIVE_SUM_OWN, own.bytes = 3000;
    assert_cost(own, 4, 1, 3 * 10e-6, 3000e-9 + 3000e-9);
    Collective gather = {
        .form = COLLECTIVE_GATHER, .times = 2, .calls = 2, .bytes = 6000, .block = 4000};
    assert_cost(gather, 4, 1, 2 * 2 * 10e-6, 6000e-9);
    /* a ring from 512 KB on */
    gather.calls = gather.times = 1, gather.block = 1 << 20, gather.bytes = 3 << 18;
    assert_cost(gather, 4, 1, 3 * 10e-6, (3 << 18) * 1e-9);
    /* short: 2 x (message of 4000, added up); long: 4 messages, 6000 bytes, 3000 added */
    Collective reduce = {
        .form = COLLECTIVE_REDUCE, .times = 1, .calls = 1, .bytes = 4000, .block = 4000};
    assert_cost(reduce, 4, 1, 2 * 10e-6, 2 * 4000 * 2e-9);
    reduce.block = 4000000;
    assert_cost(reduce, 4, 1, 4 * 10e-6, 6e6 * 1e-9 + 3e6 * 1e-9);
    assert_cost(sum, 1, 1, 0, 0);
}
END_TEST

/* ---- steps ---- */

static ShareRates share_of(double seconds) {
    ShareRates share = {.zero = 0.25, .add = 0.5, .norm = 2, .update = 3};
    share.part[STEP_FFN_PRODUCTS] = seconds;
    share.part[STEP_HEAD] = 0.1 * seconds;
    share.part[STEP_NORM] = 0.01 * seconds;
    return share;
}

static Prediction predict(const Config *config, Network net, int node_ranks, int tp, int dp) {
    ScalingCase scaling = {config, net, node_ranks, 1};
    ShareRates share = share_of(1.0 / tp);
    Prediction prediction;
    ck_assert_msg(!scaling_predict(&scaling, tp, dp, &share, &node, &prediction), "%s",
                  error_message());
    return prediction;
}

/* 8 microbatches and 4 batch shards on one rank: zeroed 4 times, added up 3 times. */
START_TEST(one_rank_by_hand) {
    Config config = scaling_small();
    Prediction one = predict(&config, network, 1, 1, 1);
    CLOSE(one.part[SCALING_PRODUCTS], 8);
    CLOSE(one.part[SCALING_POINTWISE], 0.8);
    CLOSE(one.part[SCALING_ROWS], 0.08);
    CLOSE(one.part[SCALING_OPTIMIZER], 4 * 0.25 + 3 * 0.5 + 2 + 3);
    CLOSE(prediction_exposed(&one), 0);
    CLOSE(one.seconds, 8.88 + 7.5);
    /* 3 data ranks: one has 2 of the 4 batch shards */
    Prediction three = predict(&config, network, 1, 1, 3);
    CLOSE(three.part[SCALING_PRODUCTS], 4);
    CLOSE(three.part[SCALING_OPTIMIZER], 2 * 0.25 + 0.5 + 2 + 3);
}
END_TEST

/* 2 ranks on two nodes, 8 microbatches. A block of 32 x 32 floats is 4096 bytes; each of the two
 * sums of attention, of the FFN, and the head's is a message, an all-gather of one message, 2048
 * bytes of the other's partials and 2048 of its result, 2048 added. */
START_TEST(tensor_axis_by_hand) {
    Config config = scaling_small();
    Prediction two = predict(&config, network, 1, 2, 1);
    double sums = 8 * 5, reductions = 8 * 3, doubles = 8, others = 2;
    /* entry: 4096 bytes; largest logits 32 floats, targets 32 doubles; norm and finite?; by
     * doubling
     */
    CLOSE(two.part[SCALING_TENSOR_LATENCY], (2 * sums + reductions + doubles + others) * 10e-6);
    int64_t norm_bytes = 0;
    Collective row[COLLECTIVES_MAX];
    int count;
    ck_assert_int_eq(plan_collectives(&config, 2, 1, 0, 0, row, &count), 0);
    for (int i = 0; i < count; i++)
        if (row[i].kind == TRAFFIC_STEP) norm_bytes += row[i].bytes;
    double reduced = 8 * (4096 + 32 * 4 + 32 * 8) + (double)norm_bytes;
    CLOSE(two.part[SCALING_TENSOR_BYTES],
          sums * (4096 * 1e-9 + 2048 * 1e-9) + reduced * 2e-9 + 8 * 32 * 8 * 1e-9);
    CLOSE(two.part[SCALING_DATA_LATENCY] + two.part[SCALING_DATA_BYTES], 0);
}
END_TEST

START_TEST(a_perfect_network_leaves_the_work) {
    Config config = scaling_small();
    const MemoryRates none = {{0, 0}, {0, 0}, 0};
    ScalingCase scaling = {&config, {0, 0}, 1, 1};
    ShareRates share = share_of(0.25);
    Prediction all;
    ck_assert_int_eq(scaling_predict(&scaling, 4, 4, &share, &none, &all), 0);
    CLOSE(prediction_exposed(&all), 0);
    CLOSE(all.seconds, 2 * 0.25 * 1.11 + 0.25 + 5);
}
END_TEST

static Config small_by_rows(void) {
    Config config = scaling_small();
    ck_assert(!config_set(&config, "parallel.sequence=true"));
    return config;
}

static double seconds_on(const Config *config, double latency, double byte, int node_ranks, int tp,
                         int dp) {
    return predict(config, (Network){latency, byte}, node_ranks, tp, dp).seconds;
}

/* Ranks on several nodes wait longer, those of one node as long as before. */
static void assert_slower_network(const Config *config, int node_ranks, int tp, int dp) {
    double before = seconds_on(config, 0, 1e-10, node_ranks, tp, dp);
    bool reaches = tp * dp > node_ranks;
    for (double latency = 1e-6; latency < 1; latency *= 10) {
        double next = seconds_on(config, latency, 1e-10, node_ranks, tp, dp);
        ck_assert(reaches ? next > before : next == before);
        before = next;
    }
    before = seconds_on(config, 0.1, 1e-10, node_ranks, tp, dp);
    for (double byte = 1e-9; byte < 1e-3; byte *= 10) {
        double next = seconds_on(config, 0.1, byte, node_ranks, tp, dp);
        ck_assert(reaches ? next > before : next == before);
        before = next;
    }
}

START_TEST(slower_networks_take_longer) {
    const Config configs[] = {scaling_small(), small_by_rows()};
    for (int i = 0; i < 2; i++)
        for (int node_ranks = 1; node_ranks <= 4; node_ranks++)
            for (int tp = 1; tp <= 4; tp++)
                for (int dp = 1; dp <= 4; dp++)
                    assert_slower_network(&configs[i], node_ranks, tp, dp);
}
END_TEST

/* Of a cut stream, as in tensor_axis_by_hand: attention's 2 sums, the FFN's 2 and the head's are
 * one message and 2048 bytes each, without a gather; 3 gathers of attention, 3 of the FFN, 1 of the
 * head and 1 of the first rows' gradients one message and 2048 bytes; the first rows are scattered.
 */
START_TEST(cut_rows_by_hand) {
    Config config = small_by_rows();
    Collective row[COLLECTIVES_MAX];
    int count;
    double latency = 0, bytes = 0;
    ck_assert_int_eq(plan_collectives(&config, 2, 1, 0, 0, row, &count), 0);
    Link link = link_of(2, 1, 2, 1, &network, &node);
    for (int i = 0; i < count; i++) {
        if (row[i].block != 4096) continue;
        CollectiveCost cost = collective_cost(&row[i], &link);
        latency += cost.latency;
        bytes += cost.bytes;
    }
    CLOSE(latency, 8 * (5 + 8 + 1) * 10e-6);
    CLOSE(bytes, 8 * (5 * (2048 * 1e-9 + 2048 * 1e-9) + 8 * 2048 * 1e-9 + 2048 * 2e-9));
}
END_TEST

START_TEST(memory_falls_with_tensor_ranks) {
    const Config configs[] = {scaling_small(), small_by_rows()};
    for (int i = 0; i < 2; i++) {
        ScalingCase scaling = {&configs[i], network, 1, 1};
        size_t before = SIZE_MAX, bytes;
        for (int tp = 1; tp <= 4; tp *= 2) {
            ck_assert_int_eq(scaling_memory(&scaling, tp, 4, &bytes), 0);
            ck_assert_uint_lt(bytes, before);
            before = bytes;
        }
    }
}
END_TEST

/* Of uneven batch shards too: the busiest of 22 data ranks over 64 isn't the first, which makes the
 * views of what is saved. */
START_TEST(memory_is_of_the_largest) {
    Config config = scaling_small();
    ck_assert(!config_set(&config, "grid.data=64") && !config_set(&config, "train.micro_batch=1"));
    ck_assert(!config_set(&config, "train.global_batch=64"));
    ScalingCase scaling = {&config, network, 64, 1};
    const int data_ranks[] = {1, 22, 64};
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        int dp = data_ranks[i];
        ck_assert_int_eq(scaling_memory(&scaling, 1, dp, &bytes), 0);
        for (int d = 0; d < dp; d++) {
            MemoryPlan memory;
            ck_assert_int_eq(plan_memory(&config, 1, 1, dp, 0, d, &memory), 0);
            ck_assert_uint_ge(bytes, memory_plan_total(&memory));
        }
    }
}
END_TEST

/* What plan_traffic counts is what the collectives bring. */
START_TEST(bytes_are_counted_once) {
    Config config = scaling_small(), rows = small_by_rows();
    for (int i = 0; i < 2; i++) {
        Collective row[COLLECTIVES_MAX];
        Traffic traffic[TRAFFIC_KINDS];
        int count;
        int64_t bytes = 0, times = 0;
        const Config *of = i ? &rows : &config;
        ck_assert_int_eq(plan_collectives(of, 3, 2, 1, 1, row, &count), 0);
        ck_assert_int_eq(plan_traffic(of, 3, 2, 1, 1, traffic), 0);
        for (int k = 0; k < TRAFFIC_KINDS; k++) {
            bytes += traffic[k].bytes;
            times += traffic[k].collectives;
        }
        for (int k = 0; k < count; k++) {
            bytes -= row[k].bytes;
            times -= row[k].times;
            ck_assert_int_ge(row[k].calls, row[k].times);
        }
        ck_assert_int_eq(bytes, 0);
        ck_assert_int_eq(times, 0);
    }
}
END_TEST

int main(void) {
    return run_suite("scaling",
                     TESTS(networks_are_read, bad_networks_are_told, links_by_place,
                           collectives_by_hand, one_rank_by_hand, tensor_axis_by_hand,
                           a_perfect_network_leaves_the_work, slower_networks_take_longer,
                           cut_rows_by_hand, memory_falls_with_tensor_ranks,
                           memory_is_of_the_largest, bytes_are_counted_once));
}
