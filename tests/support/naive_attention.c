#include "support/naive.h"

#include <math.h>
#include <stdlib.h>

/* Su et al. 2021, equation 34, with the pairs half a head apart as Hugging Face stores them. */
void naive_rotate(int64_t rows, int64_t context, int64_t heads, int64_t head_dim, double theta,
                  int direction, double *x) {
    int64_t half = head_dim / 2;
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t h = 0; h < heads; h++) {
            double *head = x + (t * heads + h) * head_dim;
            for (int64_t i = 0; i < half; i++) {
                double frequency = pow(theta, -2.0 * (double)i / (double)head_dim);
                double angle = direction * (double)(t % context) * frequency;
                double a = head[i], b = head[i + half];
                head[i] = a * cos(angle) - b * sin(angle);
                head[i + half] = b * cos(angle) + a * sin(angle);
            }
        }
    }
}

static double dot(int64_t n, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The place of one query head's vectors: row t of head h in q, of its group's kv head in k, v. */
static int64_t query_at(const NaiveHeads *n, int64_t t, int64_t h) {
    return (t * n->heads + h) * n->head_dim;
}

static int64_t key_at(const NaiveHeads *n, int64_t t, int64_t h) {
    return (t * n->kv_heads + h / (n->heads / n->kv_heads)) * n->head_dim;
}

/* Softmax over the rows first..t that row t may look at; probabilities [t - first + 1]. */
static void attention_row(const NaiveHeads *n, int64_t first, int64_t t, int64_t h, const double *q,
                          const double *k, double *probabilities) {
    double largest = -INFINITY, sum = 0;
    for (int64_t s = first; s <= t; s++) {
        double score = dot(n->head_dim, q + query_at(n, t, h), k + key_at(n, s, h)) /
                       sqrt((double)n->head_dim);
        probabilities[s - first] = score;
        largest = fmax(largest, score);
    }
    for (int64_t s = first; s <= t; s++) sum += exp(probabilities[s - first] - largest);
    for (int64_t s = first; s <= t; s++)
        probabilities[s - first] = exp(probabilities[s - first] - largest) / sum;
}

void naive_causal_attention(const NaiveHeads *n, const double *q, const double *k, const double *v,
                            double *o) {
    double *probabilities = naive_array(n->context);
    for (int64_t t = 0; t < n->sequences * n->context; t++) {
        int64_t first = t - t % n->context;
        for (int64_t h = 0; h < n->heads; h++) {
            double *out = o + query_at(n, t, h);
            attention_row(n, first, t, h, q, k, probabilities);
            for (int64_t i = 0; i < n->head_dim; i++) {
                out[i] = 0;
                for (int64_t s = first; s <= t; s++)
                    out[i] += probabilities[s - first] * v[key_at(n, s, h) + i];
            }
        }
    }
    free(probabilities);
}

/* One row of one head: with p the softmax and dp_s = d_o . v_s,
 * dscore_s = p_s (dp_s - sum_r p_r dp_r). */
static void attention_row_backward(const NaiveHeads *n, int64_t first, int64_t t, int64_t h,
                                   const double *q, const double *k, const double *v,
                                   const double *p, const double *d_o, double *dq, double *dk,
                                   double *dv) {
    int64_t at = query_at(n, t, h);
    double mean = 0, scale = 1 / sqrt((double)n->head_dim);
    for (int64_t s = first; s <= t; s++)
        mean += p[s - first] * dot(n->head_dim, d_o + at, v + key_at(n, s, h));
    for (int64_t s = first; s <= t; s++) {
        int64_t key = key_at(n, s, h);
        double dscore = p[s - first] * (dot(n->head_dim, d_o + at, v + key) - mean) * scale;
        for (int64_t i = 0; i < n->head_dim; i++) {
            dv[key + i] += p[s - first] * d_o[at + i];
            dk[key + i] += dscore * q[at + i];
            dq[at + i] += dscore * k[key + i];
        }
    }
}

void naive_causal_attention_backward(const NaiveHeads *n, const double *q, const double *k,
                                     const double *v, const double *d_o, double *dq, double *dk,
                                     double *dv) {
    double *probabilities = naive_array(n->context);
    for (int64_t t = 0; t < n->sequences * n->context; t++) {
        int64_t first = t - t % n->context;
        for (int64_t h = 0; h < n->heads; h++) {
            attention_row(n, first, t, h, q, k, probabilities);
            attention_row_backward(n, first, t, h, q, k, v, probabilities, d_o, dq, dk, dv);
        }
    }
    free(probabilities);
}

/* Queries and what is added up from the values: [T, H*hd]; keys and values: [T, K*hd]. */
typedef struct {
    double *q, *k, *v, *o;
} Streams;

static Streams allocate_streams(const NaiveHeads *n) {
    int64_t wide = n->sequences * n->context * n->heads * n->head_dim;
    int64_t narrow = n->sequences * n->context * n->kv_heads * n->head_dim;
    return (Streams){naive_array(wide), naive_array(narrow), naive_array(narrow),
                     naive_array(wide)};
}

static void free_streams(Streams *streams) {
    free(streams->q);
    free(streams->k);
    free(streams->v);
    free(streams->o);
}

static void rotate_both(const NaiveAttention *attention, int direction, Streams *streams) {
    const NaiveHeads *n = &attention->heads;
    int64_t rows = n->sequences * n->context;
    naive_rotate(rows, n->context, n->heads, n->head_dim, attention->rope_theta, direction,
                 streams->q);
    naive_rotate(rows, n->context, n->kv_heads, n->head_dim, attention->rope_theta, direction,
                 streams->k);
}

static Streams compute_streams(const NaiveAttention *attention, const double *x) {
    const NaiveHeads *n = &attention->heads;
    int64_t rows = n->sequences * n->context, d = attention->d_model;
    int64_t wide = n->heads * n->head_dim, narrow = n->kv_heads * n->head_dim;
    Streams streams = allocate_streams(n);
    naive_linear(rows, wide, d, x, attention->q, NULL, streams.q);
    naive_linear(rows, narrow, d, x, attention->k, NULL, streams.k);
    naive_linear(rows, narrow, d, x, attention->v, NULL, streams.v);
    rotate_both(attention, 1, &streams);
    naive_causal_attention(n, streams.q, streams.k, streams.v, streams.o);
    return streams;
}

void naive_attention(const NaiveAttention *attention, const double *x, double *y) {
    const NaiveHeads *n = &attention->heads;
    Streams streams = compute_streams(attention, x);
    naive_linear(n->sequences * n->context, attention->d_model, n->heads * n->head_dim, streams.o,
                 attention->o, NULL, y);
    free_streams(&streams);
}

void naive_attention_backward(const NaiveAttention *attention, const double *x, const double *dy,
                              double *dx, const NaiveAttentionGradients *gradients) {
    const NaiveHeads *n = &attention->heads;
    int64_t rows = n->sequences * n->context, d = attention->d_model;
    int64_t wide = n->heads * n->head_dim, narrow = n->kv_heads * n->head_dim;
    Streams at = compute_streams(attention, x), slope = allocate_streams(n);
    naive_linear_backward(rows, d, wide, at.o, attention->o, dy, slope.o, gradients->o, NULL);
    naive_causal_attention_backward(n, at.q, at.k, at.v, slope.o, slope.q, slope.k, slope.v);
    rotate_both(attention, -1, &slope);
    naive_linear_backward(rows, wide, d, x, attention->q, slope.q, dx, gradients->q, NULL);
    naive_linear_backward(rows, narrow, d, x, attention->k, slope.k, dx, gradients->k, NULL);
    naive_linear_backward(rows, narrow, d, x, attention->v, slope.v, dx, gradients->v, NULL);
    free_streams(&at);
    free_streams(&slope);
}
