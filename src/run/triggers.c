#include "run/triggers.h"

void triggers_catch(void) {}

void triggers_open(Triggers *triggers, double max_minutes, double save_minutes, bool clocks) {
    (void)max_minutes, (void)save_minutes;
    *triggers = (Triggers){.clocks = clocks};
}

void triggers_step(Triggers *triggers, double step, double save) {
    (void)triggers, (void)step, (void)save;
}

int64_t triggers_wish(const Triggers *triggers) {
    (void)triggers;
    return 0;
}

bool triggers_wants_save(int64_t wish) { return wish != 0; }
bool triggers_wants_stop(int64_t wish) { return wish != 0; }
const char *triggers_reason(int64_t wish) { return wish ? "?" : ""; }
void triggers_saved(Triggers *triggers) { (void)triggers; }
