#include "run/identity.h"

#include "base/fault.h"
#include "base/real.h"
#include "build_id.h"

#include <stdio.h>

#if defined(__AVX512F__)
#define VECTORS "avx512"
#elif defined(__AVX2__)
#define VECTORS "avx2"
#else
#define VECTORS "baseline"
#endif

const char *identity_text(void) {
    static char text[1024];
    snprintf(text, sizeof text, "vectors %s; %s; numerics %d; build %s",
             fault_on("other-core") ? "others" : VECTORS, REAL_NAME, NUMERICS_VERSION,
             WEFT_BUILD_ID);
    return text;
}
