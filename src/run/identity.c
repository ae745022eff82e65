#include "run/identity.h"

#include "base/fault.h"
#include "base/real.h"
#include "base/wide.h"
#include "build_id.h"

#include <stdio.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTORS "avx512"
#elif defined(__AVX2__)
#define VECTORS "avx2"
#else
#define VECTORS "baseline"
#endif

/* Those of the kernels that are compiled twice (base/wide.h), on this core. */
static const char *vectors(void) {
    if (fault_on("other-core")) return "others";
#ifdef WIDE_HERE
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return "avx512";
#endif
    return VECTORS;
}

const char *identity_program(void) {
    static char text[1024];
    snprintf(text, sizeof text, "%s; numerics %d; build %s", REAL_NAME, NUMERICS_VERSION,
             WEFT_BUILD_ID);
    return text;
}

const char *identity_text(void) {
    static char text[1100];
    snprintf(text, sizeof text, "vectors %s; %s", vectors(), identity_program());
    return text;
}

bool identity_same_program(const char *text, const char *other) {
    const char *program = strstr(text, "; "), *other_program = strstr(other, "; ");
    return program && other_program && !strcmp(program, other_program);
}
