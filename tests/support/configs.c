#include "support/configs.h"

#include "base/error.h"
#include "support/support.h"

Config config_with(const char *const *set) {
    Config config;
    config_defaults(&config);
    for (; *set; set++) ck_assert_msg(!config_set(&config, *set), "%s", error_message());
    return config;
}

Config config_resolved(const char *const *set) {
    Config config = config_with(set);
    ck_assert_msg(!config_resolve(&config), "%s", error_message());
    return config;
}
