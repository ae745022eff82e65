#include "run/metrics.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t FILE_LIMIT = (size_t)1 << 36;

/* The step that a metrics line is about; -1 when it isn't one (cut short by a crash, say). */
static int64_t line_step(const char *line, size_t length) {
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    int64_t value = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(object);
    return value;
}

/* A resumed run owns what comes after its step: later lines are dropped. */
static int keep_until(const char *path, int64_t step) {
    char *text;
    size_t size, kept = 0;
    int unreadable = 0;
    int status = files_read(path, FILE_LIMIT, &text, &size);
    if (status) return status;
    for (char *line = text; line < text + size;) {
        char *newline = memchr(line, '\n', size - (size_t)(line - text));
        if (!newline) { /* cut short */
            unreadable++;
            break;
        }
        size_t length = (size_t)(newline - line) + 1;
        int64_t about = line_step(line, length);
        unreadable += about < 0;
        if (about >= 0 && about <= step) {
            memmove(text + kept, line, length);
            kept += length;
        }
        line = newline + 1;
    }
    if (unreadable) log_warn("%s: %d unreadable lines are dropped", path, unreadable);
    if (kept != size) status = files_write(path, text, kept);
    free(text);
    return status;
}

/* Of the terminal at stderr; behind mpirun, which makes it a pipe, what launch/local has said. */
static int terminal_columns(void) {
    const char *told = getenv("WEFT_TERMINAL");
    if (isatty(2) || !told) return log_terminal_columns();
    long columns = strtol(told, NULL, 10);
    return columns >= 20 && columns < 1000 ? (int)columns : 80;
}

int metrics_open(Metrics *metrics, const char *run_dir, int64_t step, int64_t every) {
    *metrics = (Metrics){.every = every, .columns = terminal_columns()};
    char path[FILES_PATH];
    int status = files_join(path, sizeof path, run_dir, "metrics.jsonl");
    if (!status && files_exists(path)) status = keep_until(path, step);
    if (status) return status;
    metrics->file = fopen(path, "a");
    if (!metrics->file)
        return error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(errno));
    return 0;
}

json_t *metrics_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static double accuracy(const HeldOut *held) { return (double)held->hits / (double)held->targets; }

static void add_held_out(json_t *object, MetricWords words, const HeldOut *held) {
    char hex[64];
    snprintf(hex, sizeof hex, "%a", held->loss);
    json_object_set_new(object, "held_out_loss", metrics_number(held->loss));
    json_object_set_new(object, "held_out_loss_hex", json_string(hex));
    json_object_set_new(object, words.rows ? "held_out_rows" : "held_out_tokens",
                        json_integer(held->targets));
    if (!words.rows)
        json_object_set_new(object, "held_out_bits_per_byte", metrics_number(held->loss / M_LN2));
    if (words.classes)
        json_object_set_new(object, "held_out_accuracy", metrics_number(accuracy(held)));
}

int metrics_write(Metrics *metrics, const StepReport *r) {
    char loss_hex[64], samples[HASH_TEXT];
    snprintf(loss_hex, sizeof loss_hex, "%a", r->loss);
    hash_format(r->samples, samples);
    double compute = r->seconds - r->communication - r->optimizer;
    bool rows = r->words.rows;
    json_t *object = json_pack(
        "{s:I, s:o, s:s, s:o*, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:s}", "step",
        (json_int_t)r->step, "loss", metrics_number(r->loss), "loss_hex", loss_hex, "bits_per_byte",
        rows ? NULL : metrics_number(r->loss / M_LN2), "lr", metrics_number(r->rate), "grad_norm",
        metrics_number(r->norm), rows ? "rows" : "tokens", (json_int_t)r->tokens,
        rows ? "rows_per_second" : "tokens_per_second",
        metrics_number((double)r->step_tokens / r->seconds), "seconds_compute",
        metrics_number(compute), "seconds_communication", metrics_number(r->communication),
        "seconds_optimizer", metrics_number(r->optimizer), "seconds_checkpoint",
        metrics_number(r->checkpoint), "peak_rss_bytes", (json_int_t)r->peak_bytes, "samples",
        samples);
    if (object && r->repeated) json_object_set_new(object, "repeated", json_true());
    if (object && r->skipped) json_object_set_new(object, "skipped", json_true());
    if (object && r->evaluated) add_held_out(object, r->words, &r->held_out);
    if (object && r->stats) json_object_set(object, "stats", r->stats);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (!text)
        return error_set(WEFT_RUNTIME, "out of memory: metrics of step %lld", (long long)r->step);
    int failed = fprintf(metrics->file, "%s\n", text) < 0 || fflush(metrics->file);
    free(text);
    return failed ? error_set(WEFT_RUNTIME, "metrics.jsonl: can't write: %s", strerror(errno)) : 0;
}

static void format_span(double seconds, char *text, size_t capacity) {
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(text, capacity, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else
        snprintf(text, capacity, "%ldm%02lds", s / 60, s % 60);
}

/* "held out 2.1034 bpb"; of an mlp "held out 0.0712, accuracy 97.8 %". */
static void progress_held_out(const StepReport *r, char *text, size_t capacity) {
    const HeldOut *held = &r->held_out;
    if (!r->words.rows)
        snprintf(text, capacity, "  held out %.4f bpb", held->loss / M_LN2);
    else if (r->words.classes)
        snprintf(text, capacity, "  held out %.4f, accuracy %.1f %%", held->loss,
                 100 * accuracy(held));
    else
        snprintf(text, capacity, "  held out %.6f", held->loss);
}

void metrics_progress(Metrics *metrics, const StepReport *r) {
    double *smooth = &metrics->smooth_seconds;
    double all = r->seconds + r->checkpoint + r->evaluation;
    *smooth = *smooth > 0 ? 0.95 * *smooth + 0.05 * all : all;
    bool due = r->step == r->steps || r->evaluated ||
               (metrics->every > 0 && r->step % metrics->every == 0);
    if (!log_enabled() || (!metrics->columns && !due)) return;
    char eta[32], line[512], held[64] = "", bits[32] = "";
    format_span(*smooth * (double)(r->steps - r->step), eta, sizeof eta);
    if (r->evaluated) progress_held_out(r, held, sizeof held);
    if (!r->words.rows) snprintf(bits, sizeof bits, "  %.4f bpb", r->loss / M_LN2);
    snprintf(line, sizeof line,
             "step %lld/%lld  loss %.4f%s%s  ETA %s  %.0f %s/s  lr %.2e  norm %.3f  comm %.0f%%",
             (long long)r->step, (long long)r->steps, r->loss, bits, held, eta,
             (double)r->step_tokens / r->seconds, r->words.rows ? "rows" : "tok", r->rate, r->norm,
             100 * r->communication / r->seconds);
    if (metrics->columns)
        log_progress(line, metrics->columns - 1, r->evaluated || r->step == r->steps);
    else
        log_info("%s", line);
}

void metrics_describe(MetricWords words, const HeldOut *held, char *text, size_t capacity) {
    char second[64] = "";
    if (!words.rows)
        snprintf(second, sizeof second, " nats, %.4f bits per byte", held->loss / M_LN2);
    else if (words.classes)
        snprintf(second, sizeof second, ", accuracy %.1f %%", 100 * accuracy(held));
    snprintf(text, capacity, "%.6f%s over %lld %s", held->loss, second, (long long)held->targets,
             words.rows ? "rows" : "tokens");
}

void metrics_close(Metrics *metrics) {
    if (metrics->file) fclose(metrics->file);
    *metrics = (Metrics){0};
}
