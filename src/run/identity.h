/* Who computes: what must be equal on all ranks for bits to be equal, and what a checkpoint records
 * of it. */
#ifndef WEFT_RUN_IDENTITY_H
#define WEFT_RUN_IDENTITY_H

#include <stdbool.h>

/* Raised whenever tiles, blocks, trees or an approximation change the bits of a trajectory. */
#define NUMERICS_VERSION 2

/* "float32; numerics 2; build ...": static text. */
const char *identity_program(void);

/* "vectors avx512; " and the program: static text. The vectors are those that this core has got
 * (avx512 | avx2 | baseline); bits don't depend on them, so ranks may have different ones. */
const char *identity_text(void);

/* Whether two such texts name the same program, whatever their vectors. */
bool identity_same_program(const char *text, const char *other);

#endif
