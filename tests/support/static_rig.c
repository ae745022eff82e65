#include "support/static_rig.h"

#include "base/error.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

void static_rig_begin(StaticRig *rig, const char *const *settings) {
    rig->manifest = NULL;
    scratch_make(rig->run_dir);
    model_checkpoint_open(&rig->made, settings);
}

void static_rig_save(StaticRig *rig) {
    model_checkpoint_save(&rig->made, rig->run_dir);
    snprintf(rig->directory, sizeof rig->directory, "%s/step-%08d", rig->run_dir,
             (int)rig->made.state.step);
    ck_assert_msg(checkpoint_manifest(rig->directory, &rig->manifest) == 0, "%s", error_message());
}

void static_rig_end(StaticRig *rig) {
    json_decref(rig->manifest);
    model_checkpoint_close(&rig->made);
    ck_assert_int_eq(files_remove_tree(rig->run_dir), 0);
}

bool static_rig_tells(const Findings *findings, const char *text) {
    for (int i = 0; i < findings->count; i++)
        if (strstr(findings->text[i], text)) return true;
    return false;
}

const char *static_rig_text(const Findings *findings) {
    static char text[4096];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < findings->count && used < sizeof text - 1; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "\n    %s", findings->text[i]);
    return text;
}

void static_rig_clean(const StaticRig *rig, const char *what) {
    StaticReport report;
    int status = static_verify(rig->directory, &report);
    ck_assert_msg(status == 0 && report.findings.count == 0, "%s: %s", what,
                  static_rig_text(&report.findings));
    static_release(&report);
}

void static_rig_finds(const StaticRig *rig, const char *what, int count, const char *expected) {
    StaticReport report;
    int status = static_verify(rig->directory, &report);
    ck_assert_msg(status == WEFT_CHECK, "%s: %d, %s", what, status, error_message());
    ck_assert_str_eq(error_message(), report.findings.text[0]);
    ck_assert_msg(static_rig_tells(&report.findings, expected), "%s: not \"%s\" in%s", what,
                  expected, static_rig_text(&report.findings));
    ck_assert_msg(count == 0 || report.findings.count == count, "%s: %d findings, not %d:%s", what,
                  report.findings.count, count, static_rig_text(&report.findings));
    static_release(&report);
}

json_t *static_rig_json(const char *json) {
    json_t *value = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
    ck_assert(!json || value);
    return value;
}
