/* Configs in a line, for tests. */
#ifndef WEFT_TESTS_CONFIGS_H
#define WEFT_TESTS_CONFIGS_H

#include "config/config.h"

/* Defaults and these assignments, up to a NULL; the test fails where one is refused. */
Config config_with(const char *const *set);

/* The same of KEY=VALUE, ..., resolved. */
Config config_resolved(const char *const *set);
#define CONFIG(...) config_resolved((const char *const[]){__VA_ARGS__, NULL})

#endif
