/* The kinds themselves, one file each, and what they share when they declare. */
#ifndef WEFT_NN_FFN_KINDS_H
#define WEFT_NN_FFN_KINDS_H

#include "nn/ffn.h"
#include "nn/init_keys.h"

extern const FfnKind ffn_gated, ffn_dual, ffn_dense;

/* Declares PREFIX.NAME_proj.weight, column-parallel [d_ff, D] or row-parallel [D, d_ff], and its
 * bias if it has one (-1 in *bias otherwise). */
int ffn_declare_column(Ffn *ffn, const char *prefix, const char *name, uint32_t init_key,
                       bool has_bias, int *weight, int *bias);
int ffn_declare_row(Ffn *ffn, const char *prefix, const char *name, uint32_t init_key,
                    bool has_bias, int *weight, int *bias);

/* Operations of FfnKind for kinds with a gate and an up branch. */
int ffn_pair_declare(Ffn *ffn, const char *prefix);
void ffn_pair_take(const Ffn *ffn, Arena *arena, int rank, int64_t rows, FfnSaved *saved);

/* And what activate and differentiate of such a kind hand to its kernel (math/activation.h): rows
 * and columns of one shard. */
void ffn_pair_activate(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved,
                       void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                      const real *u, real *h));
void ffn_pair_differentiate(const Ffn *ffn, Range rows, Range cols, int shard,
                            const FfnSaved *saved,
                            void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                           const real *u, const real *dh, real *dg, real *du));

#endif
