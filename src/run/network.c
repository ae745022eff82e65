#include "run/network.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    double factor;
} Unit;

static const Unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
static const Unit rates[] = {
    {"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
    {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {NULL, 0}};

static const double MOST_BANDWIDTH = 1e15;

/* One half of the text: what it is called, its units, and what is said of them. */
typedef struct {
    const char *name, *units, *example;
    const Unit *unit;
} Half;

static const Half halves[] = {
    {"latency", "ns, us, ms or s", "2us", times},
    {"bandwidth", "B/s, kB/s, MB/s, GB/s, kbit/s, Mbit/s or Gbit/s", "10GB/s", rates},
};

/* Of one like Gb/s or gbps, to append. */
static const char *near_unit(const Half *half, const char *unit) {
    bool near = half->unit == rates && unit[0] && strchr("kKmMgG", unit[0]) &&
                (unit[1] == 'b' || unit[1] == 'B');
    return near ? " (bit/s are bits, B/s bytes)" : "";
}

static int parse_half(const char *whole, const Half *half, const char *text, size_t length,
                      double *value) {
    char *end;
    double number = strtod(text, &end);
    size_t left = end > text && end <= text + length ? (size_t)(text + length - end) : 0;
    bool decimal = end == text + strspn(text, "0123456789.e+-"); /* not hex, inf, blanks */
    if (end == text || end > text + length || !decimal || !isfinite(number))
        return error_set(WEFT_USAGE,
                         "--net %s: the %s \"%.*s\" doesn't begin with a number (like %s)", whole,
                         half->name, (int)length, text, half->example);
    const Unit *unit = half->unit;
    while (unit->name && (strlen(unit->name) != left || strncmp(unit->name, end, left) != 0))
        unit++;
    if (!unit->name)
        return error_set(
            WEFT_USAGE, "--net %s: the %s \"%.*s\" %s%s; after the number %s is expected", whole,
            half->name, (int)length, text, left ? "has a unit that isn't known" : "has no unit",
            left ? near_unit(half, end) : "", half->units);
    *value = number * unit->factor;
    return 0;
}

int network_parse(const char *text, Network *network) {
    double latency, bandwidth;
    const char *comma = strchr(text, ',');
    if (!comma || strchr(comma + 1, ','))
        return error_set(
            WEFT_USAGE,
            "--net %s: LATENCY,BANDWIDTH is expected, two values with one comma between "
            "them, like 2us,10GB/s",
            text);
    int status = parse_half(text, &halves[0], text, (size_t)(comma - text), &latency);
    if (!status) status = parse_half(text, &halves[1], comma + 1, strlen(comma + 1), &bandwidth);
    if (status) return status;
    if (latency < 0 || latency > 10)
        return error_set(WEFT_USAGE, "--net %s: a latency from 0 to 10 s is expected", text);
    if (!(bandwidth >= 1 && bandwidth <= MOST_BANDWIDTH))
        return error_set(WEFT_USAGE, "--net %s: a bandwidth from 1 B/s to %g GB/s is expected",
                         text, MOST_BANDWIDTH / 1e9);
    *network = (Network){latency, 1 / bandwidth};
    return 0;
}
