#include "run/plan_print.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

Shown show_count(double count) {
    Shown shown;
    char digits[32];
    if (count >= 1e10) {
        snprintf(shown.text, sizeof shown.text, "%.5g", count);
        return shown;
    }
    int length = snprintf(digits, sizeof digits, "%.0f", count), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) shown.text[at++] = ',';
        shown.text[at++] = digits[i];
    }
    shown.text[at] = '\0';
    return shown;
}

Shown show_megabytes(double bytes) {
    Shown shown;
    snprintf(shown.text, sizeof shown.text, "%.1f", bytes / 1e6);
    return shown;
}

ShownKind show_kind(const Config *config) {
    ShownKind shown;
    FfnBiases bias = config_ffn_biases(config);
    int at =
        snprintf(shown.text, sizeof shown.text, "%s, %s", config->ffn.kind, config->ffn.activation);
    const struct {
        const char *word;
        double value, off;
    } extra[] = {{"beta", config->ffn.swish_beta, 1},
                 {"gate <=", config->ffn.gate_clamp, 0},
                 {"|up| <=", config->ffn.linear_clamp, 0},
                 {"up +", config->ffn.linear_offset, 0}};
    for (int i = 0; i < 4; i++)
        if (extra[i].value != extra[i].off)
            at += snprintf(shown.text + at, sizeof shown.text - (size_t)at, ", %s %g",
                           extra[i].word, extra[i].value);
    if (bias.gate || bias.up || bias.down)
        snprintf(shown.text + at, sizeof shown.text - (size_t)at, ", bias%s%s%s",
                 bias.gate ? " gate" : "", bias.up ? " up" : "", bias.down ? " down" : "");
    return shown;
}

void print_wrapped(const char *text) {
    enum { COLUMNS = 80, INDENT = 4 };
    int indent = 0;
    while (*text) {
        int room = COLUMNS - indent, length = (int)strlen(text), end = length;
        if (length > room) {
            end = room;
            while (end > 0 && text[end] != ' ') end--;
            if (end == 0) end = (int)strcspn(text, " ");
        }
        log_print("%*s%.*s\n", indent, "", end, text);
        text += end + (text[end] == ' ');
        indent = INDENT;
    }
}
