#include "tensor/philox.h"

#include <Random123/philox.h>
#include <math.h>

void philox_block(const PhiloxStream *stream, uint32_t row, uint32_t block, uint32_t word[4]) {
    philox4x32_key_t key = {{(uint32_t)stream->seed, (uint32_t)(stream->seed >> 32)}};
    philox4x32_ctr_t counter = {
        {block, row, stream->step,
         (uint32_t)stream->purpose << 26 | stream->layer << 16 | stream->microbatch}};
    philox4x32_ctr_t random = philox4x32(counter, key);
    for (int i = 0; i < 4; i++) word[i] = random.v[i];
}

void philox_words(const PhiloxStream *stream, uint32_t row, Range channels, uint32_t *words) {
    int64_t channel = channels.begin;
    while (channel < channels.end) {
        uint32_t word[4];
        philox_block(stream, row, (uint32_t)(channel / 4), word);
        for (int64_t i = channel % 4; i < 4 && channel < channels.end; i++, channel++)
            *words++ = word[i];
    }
}

/* Two normals from two words; (w + 1/2) / 2^32 is never 0 or 1. */
static void box_muller(uint32_t a, uint32_t b, double normal[2]) {
    double radius = sqrt(-2.0 * log(((double)a + 0.5) * 0x1p-32));
    double angle = 2.0 * M_PI * (((double)b + 0.5) * 0x1p-32);
    normal[0] = radius * cos(angle);
    normal[1] = radius * sin(angle);
}

void philox_normals(const PhiloxStream *stream, uint32_t row, Range channels, double *values) {
    int64_t channel = channels.begin;
    while (channel < channels.end) {
        uint32_t word[4];
        double normal[4];
        philox_block(stream, row, (uint32_t)(channel / 4), word);
        box_muller(word[0], word[1], normal);
        box_muller(word[2], word[3], normal + 2);
        for (int64_t i = channel % 4; i < 4 && channel < channels.end; i++, channel++)
            *values++ = normal[i];
    }
}
