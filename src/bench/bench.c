#include "bench/bench.h"

#include "base/error.h"
#include "base/log.h"
#include "bench/figure.h"
#include "math/gemm.h"
#include "run/identity.h"
#include "run/session.h"

#include <stdio.h>
#include <string.h>

const BenchPart bench_parts[] = {
    {"step", "a training step against sgemm, and its parts", bench_step},
    {"sgemm", "each product of the model against BLAS; threads", bench_sgemm},
    {"ffn", "the FFN alone, forward and backward, against sgemm", bench_ffn},
    {"attention", "the attention sublayer alone, and its heads, against sgemm", bench_attention},
    {"adamw", "the update of all parameters against a stream in place", bench_adamw},
    {"pointwise", "activations, norms, residuals, loss, each against a stream", bench_pointwise},
    {"exchange", "sums over ranks against MPI_Allreduce and without order", bench_exchange},
    {"reduction", "steps with exact sums against MPI_Allreduce", bench_reduction},
    {"checkpoint", "saving and loading against memcpy, plain writing and reading",
     bench_checkpoint},
    {NULL, NULL, NULL},
};

int bench_find(const char *name, const BenchPart **part) {
    char list[512] = "";
    size_t used = 0;
    for (*part = bench_parts; (*part)->name; (*part)++) {
        if (!name || !strcmp(name, (*part)->name)) return 0;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 (*part)->name);
    }
    return error_set(WEFT_USAGE, "--part %s: there is no such part; there are %s", name, list);
}

static void introduce(const Bench *bench, const BenchPart *part) {
    log_print("%s\n", identity_text());
    log_print("products by the %s kernel, gemm by %s\n", gemm_kernel_name(), gemm_blas_name());
    log_print("%s: %s; tp %d x dp %d, %d thread%s a rank\n", part->name, part->summary,
              bench->grid->tp, bench->grid->dp, bench->threads, bench->threads == 1 ? "" : "s");
    series_explain(bench->pairs);
}

int bench_run(const Config *config, const BenchPart *part, int pairs, int tp, int dp, Grid *grid) {
    Session session;
    int status = session_open(&session, grid, config, tp, dp);
    if (status) return status;
    Bench bench = {config, grid, session.threads, pairs};
    if (!grid->surplus && part != &bench_server) introduce(&bench, part);
    int result = grid->surplus ? 0 : part->run(&bench);
    if (result && !error_is_agreed()) return result;
    return session_close(&session, result);
}
