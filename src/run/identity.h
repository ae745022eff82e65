/* Who computes: what must be equal on all ranks for bits to be equal, and what a checkpoint records
 * of it. */
#ifndef WEFT_RUN_IDENTITY_H
#define WEFT_RUN_IDENTITY_H

/* Raised whenever tiles, blocks, trees or an approximation change the bits of a trajectory. */
#define NUMERICS_VERSION 2

/* "build ..., vectors x86-64-v3, float32, numerics 2": static text. */
const char *identity_text(void);

#endif
