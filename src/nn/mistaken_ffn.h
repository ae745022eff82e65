/* The mistakes of base/mistakes.h that an FFN can make: for tests, nothing of it in other builds.
 */
#ifndef WEFT_NN_MISTAKEN_FFN_H
#define WEFT_NN_MISTAKEN_FFN_H

#include "nn/ffn.h"

#ifdef WEFT_FAULTS

/* A tensor's name (gate, up, down) and init key before they are declared. */
void mistaken_ffn_tensor(const char **name, uint32_t *init_key);

/* Another kind, activation or bias in what has been declared. */
void mistaken_ffn_declared(Ffn *ffn);

/* What is read of x [T, D]: x itself, or a copy that lives until the next; and the partial sums of
 * y [T, D] after down. */
Tensor mistaken_ffn_input(Tensor x);
void mistaken_ffn_output(const Partials *y);

/* Whether one of the next is on, or mistaken_ffn_output's: then the sum may not end in an epilogue.
 */
bool mistaken_ffn_output_on(void);

/* y, the rows of the stream that are here, summed over all shards, before down's bias; `right` is
 * the config without mistakes, x the same rows of what the FFN was given. */
void mistaken_ffn_sum(const Ffn *ffn, const FfnConfig *right, const Pass *pass, Tensor x, Tensor y);

#else

static inline void mistaken_ffn_tensor(const char **name, uint32_t *init_key) {
    (void)name, (void)init_key;
}
static inline void mistaken_ffn_declared(Ffn *ffn) { (void)ffn; }
static inline Tensor mistaken_ffn_input(Tensor x) { return x; }
static inline void mistaken_ffn_output(const Partials *y) { (void)y; }
static inline bool mistaken_ffn_output_on(void) { return false; }
static inline void mistaken_ffn_sum(const Ffn *ffn, const FfnConfig *right, const Pass *pass,
                                    Tensor x, Tensor y) {
    (void)ffn, (void)right, (void)pass, (void)x, (void)y;
}

#endif

#endif
