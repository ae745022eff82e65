/* Philox keys of initial values: one per kind of tensor; the layer is another coordinate. Never
 * renumbered: the initial weights of every run depend on them. */
#ifndef WEFT_NN_INIT_KEYS_H
#define WEFT_NN_INIT_KEYS_H

enum {
    INIT_KEY_EMBEDDING = 1,
    INIT_KEY_HEAD = 2,
    INIT_KEY_Q = 3,
    INIT_KEY_K = 4,
    INIT_KEY_V = 5,
    INIT_KEY_O = 6,
    INIT_KEY_GATE = 7,
    INIT_KEY_UP = 8,
    INIT_KEY_DOWN = 9,
    INIT_KEY_INPUT = 10,
    INIT_KEY_OUTPUT = 11,
};

#endif
