#include "data/order.h"

#include "tensor/philox.h"

enum { ROUNDS = 8 };

/* One pass of the network over 2 * half_bits bits: a permutation of [0, 4^half_bits) whatever the
 * round function is. */
static uint64_t feistel(const SampleOrder *order, uint64_t epoch, int half_bits, uint64_t x) {
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        PhiloxStream stream = {.seed = order->seed,
                               .purpose = PHILOX_SAMPLE_ORDER,
                               .layer = round,
                               .step = (uint32_t)epoch};
        uint32_t word[4];
        philox_block(&stream, (uint32_t)right, (uint32_t)(epoch >> 32), word);
        uint64_t next = left ^ (word[0] & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t order_permute(const SampleOrder *order, int64_t epoch, int64_t index) {
    uint64_t samples = (uint64_t)order->samples, x = (uint64_t)index;
    int half_bits = 1; /* samples < 2^62, so a half is at most 31 bits */
    while (UINT64_C(1) << 2 * half_bits < samples) half_bits++;
    do {
        x = feistel(order, (uint64_t)epoch, half_bits, x);
    } while (x >= samples); /* less than 4 passes on average */
    return (int64_t)x;
}

int64_t order_sample(const SampleOrder *order, int64_t step, int64_t global_batch, int64_t place) {
    int64_t position = step * global_batch + place;
    return order_permute(order, position / order->samples, position % order->samples);
}
