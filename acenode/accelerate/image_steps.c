/* Runge–Kutta steps of the image models and their gradients.
 *
 * A map is (P, C): pixels by channels, and channels are a whole number of vectors. A field is, layer by layer,
 * x -> conv(relu(norm(x))) + bias + t share, and a norm at the end. The state of a sample is its blocks (h, or h and a),
 * each a map. Samples are independent of each other, so all stages of a step are computed for one sample after another,
 * within the cache of a core. Gradients of the parameters are summed for each chunk of the samples, so that the sums do
 * not depend on the number of threads.
 */

#include "vectors.h"

#define MAX_STAGES 16

typedef struct {
    int64_t B, height, side, C, groups, blocks, chunks, threads, detach, stages, end_used;
    int64_t convs[2], trains[2];  /* of f and g */
    int64_t gradient_size, kept_size;  /* floats of a chunk, of an evaluation */
    double t, dt, eps, rtol, atol;
    double c[MAX_STAGES], a[MAX_STAGES][MAX_STAGES], error[MAX_STAGES + 1];
    const float *parameters;
    const float *y, *k;  /* (B, blocks P C): state and slope at the start */
    float *y1, *k1;  /* at the end */
    float *kept;  /* (B, stages, kept_size) */
    double *squares;  /* (B, blocks): of the error in units of the tolerance */
    float *dy, *dk;  /* gradients of state and slope: at the end, then at the start */
    float *gradients;  /* (chunks, gradient_size) */
} Job;

typedef struct Worker {
    const Job *job;
    void (*each)(struct Worker *, long);  /* what is done for a sample */
    long P, C, n, size;  /* pixels, channels, floats of a map and of a state */
    float *columns, *u, *sums;
    float *stage, *attended, *slope, *stages;  /* a state, a map, a state, and a state for each stage */
    float *gradients;
} Worker;

typedef struct {
    const float *scale, *shift;
    const float *forward;   /* (9 C, C) */
    const float *backward;  /* (9 C, C), the taps in reverse order */
    const float *bias, *share;  /* (C), (P, C) */
} Layer;

typedef struct {
    float *scale, *shift, *forward;
    float *map, *timed;  /* (P, C): the sums of dy and of t dy */
} LayerGradient;

/* the first float of g's part, where all layers of f have `each` floats, and the norm at its end 2 C */
INLINE long after_f(const Worker *w, long each) { return w->job->convs[0] * each + 2 * w->C; }

static Layer layer_of(const Worker *w, int g, long l) {
    long C = w->C, each = 3 * C + 18 * C * C + w->n;
    const float *p = w->job->parameters + (g ? after_f(w, each) : 0) + l * each;
    return (Layer){p, p + C, p + 2 * C, p + 2 * C + 9 * C * C, p + 2 * C + 18 * C * C, p + 3 * C + 18 * C * C};
}

static LayerGradient gradient_of(const Worker *w, int g, long l) {
    long C = w->C, each = 2 * C + 9 * C * C + 2 * w->n;
    float *p = w->gradients + (g ? after_f(w, each) : 0) + l * each;
    return (LayerGradient){p, p + C, p + 2 * C, p + 2 * C + 9 * C * C, p + 2 * C + 9 * C * C + w->n};
}

/* replace the sums over a channel by the mean over its group */
static void group_means(const Worker *w, float *sums) {
    long size = w->C / w->job->groups;
    EACH(g, w->job->groups) {
        float total = 0;
        EACH(c, size) total += sums[g * size + c];
        EACH(c, size) sums[g * size + c] = total / (float)(size * w->P);
    }
}

/* (2, C): mean and 1 / standard deviation of the norm, for each channel */
static void norm_statistics(const Worker *w, const float *x, float *stats) {
    long C = w->C;
    float *mean = stats, *rate = stats + C;
    clear(stats, 2 * C);
    EACH(p, w->P) VECTORS(c, C) store(mean + c, load(mean + c) + load(x + p * C + c));
    group_means(w, mean);
    EACH(p, w->P) VECTORS(c, C) {
        vec d = load(x + p * C + c) - load(mean + c);
        store(rate + c, load(rate + c) + d * d);
    }
    group_means(w, rate);
    EACH(c, C) rate[c] = 1.0f / __builtin_sqrtf(rate[c] + (float)w->job->eps);
}

INLINE vec normalised(const float *stats, long C, long c, vec x) { return (x - load(stats + c)) * load(stats + C + c); }

static void norm_output(const Worker *w, const Layer *layer, const float *stats, const float *x, float *out, int relu) {
    long C = w->C;
    EACH(p, w->P) VECTORS(c, C) {
        vec y = normalised(stats, C, c, load(x + p * C + c)) * load(layer->scale + c) + load(layer->shift + c);
        store(out + p * C + c, relu ? choose(y <= all(0.0f), all(0.0f), y) : y);
    }
}

/* d -> the gradient of x, in place; the gradients of scale and shift are added to `to` */
static void norm_backward(const Worker *w, const Layer *layer, const float *stats, const float *x, float *d,
                          const LayerGradient *to) {
    long C = w->C;
    float *first = w->sums, *second = w->sums + C;
    clear(first, 2 * C);
    EACH(p, w->P) VECTORS(c, C) {
        vec dy = load(d + p * C + c);
        store(first + c, load(first + c) + dy);
        store(second + c, load(second + c) + dy * normalised(stats, C, c, load(x + p * C + c)));
    }
    VECTORS(c, C) {
        if (to) store(to->shift + c, load(to->shift + c) + load(first + c));
        if (to) store(to->scale + c, load(to->scale + c) + load(second + c));
        store(first + c, load(first + c) * load(layer->scale + c));
        store(second + c, load(second + c) * load(layer->scale + c));
    }
    group_means(w, first);
    group_means(w, second);
    EACH(p, w->P) VECTORS(c, C) {
        vec xhat = normalised(stats, C, c, load(x + p * C + c));
        vec dx = load(d + p * C + c) * load(layer->scale + c) - load(first + c) - xhat * load(second + c);
        store(d + p * C + c, dx * load(stats + C + c));
    }
}

/* row p of `columns` (P, 9 C): the channels of the nine neighbours of pixel p, zeros outside the image */
static void neighbours(const Worker *w, const float *x) {
    long C = w->C, height = w->job->height, side = w->job->side;
    float *to = w->columns;
    EACH(row, height) EACH(column, side)
        for (long i = -1; i <= 1; i++) for (long j = -1; j <= 1; j++, to += C) {
            long y = row + i, z = column + j;
            if (y < 0 || y >= height || z < 0 || z >= side) clear(to, C);
            else copy(to, x + (y * side + z) * C, C);
        }
}

/* what is kept of an evaluation of a field: for each layer the statistics of its norm, then the convolution's output */
INLINE float *stats_at(const Worker *w, float *kept, long l) { return kept + l * (2 * w->C + w->n); }
INLINE float *output_at(const Worker *w, float *kept, long l) { return stats_at(w, kept, l) + 2 * w->C; }

static void field_forward(const Worker *w, int g, float *kept, float t, const float *x, float *out) {
    long C = w->C, convs = w->job->convs[g];
    EACH(l, convs + 1) {
        Layer layer = layer_of(w, g, l);
        float *stats = stats_at(w, kept, l), *y = output_at(w, kept, l);
        norm_statistics(w, x, stats);
        norm_output(w, &layer, stats, x, l == convs ? out : w->u, l < convs);
        if (l == convs) return;
        neighbours(w, w->u);
        EACH(p, w->P) VECTORS(o, C) store(y + p * C + o, load(layer.bias + o) + t * load(layer.share + p * C + o));
        product(w->P, 9 * C, C, w->columns, 9 * C, layer.forward, y, C, y, C);
        x = y;
    }
}

/* d (P, C): the gradient of the field's output, then of its input x; adds the gradients of the parameters */
static void field_backward(const Worker *w, int g, float *kept, float t, const float *x, float *d) {
    long C = w->C, P = w->P, convs = w->job->convs[g];
    for (long l = convs; l >= 0; l--) {
        Layer layer = layer_of(w, g, l);
        LayerGradient to = gradient_of(w, g, l);
        const float *input = l ? output_at(w, kept, l - 1) : x, *stats = stats_at(w, kept, l);
        if (l < convs) {
            norm_output(w, &layer, stats, input, w->u, 1);
            if (w->job->trains[g]) {
                neighbours(w, w->u);
                outer(P, 9 * C, C, w->columns, 9 * C, d, C, to.forward);
                VECTORS(i, w->n) {
                    vec dy = load(d + i);
                    store(to.map + i, load(to.map + i) + dy);
                    store(to.timed + i, load(to.timed + i) + t * dy);
                }
            }
            neighbours(w, d);
            product(P, 9 * C, C, w->columns, 9 * C, layer.backward, NULL, 0, d, C);
            VECTORS(i, w->n) store(d + i, where_positive(load(w->u + i), load(d + i)));
        }
        norm_backward(w, &layer, stats, input, d, w->job->trains[g] ? &to : NULL);
    }
}

/* what is kept of an evaluation: h, then with attention its gate; then that of f, then that of g */
INLINE float *kept_of(const Worker *w, float *kept, int g) {
    return kept + w->job->blocks * w->n + (g ? after_f(w, 2 * w->C + w->n) : 0);
}

/* ∂(h, a)/∂t of one sample at y; keeps what the gradient needs */
static void evaluate(Worker *w, double t, const float *y, float *k, float *kept) {
    long n = w->n;
    copy(kept, y, n);
    if (w->job->blocks == 1) {
        field_forward(w, 0, kept_of(w, kept, 0), (float)t, y, k);
        return;
    }
    VECTORS(i, n) {
        vec s = sigmoid(load(y + n + i));
        store(kept + n + i, s);
        store(w->attended + i, load(y + i) * s);
    }
    for (int g = 0; g < 2; g++) field_forward(w, g, kept_of(w, kept, g), (float)t, w->attended, k + g * n);
}

/* d: the gradient of the slopes, then of the state */
static void evaluate_back(Worker *w, double t, float *kept, float *d) {
    long n = w->n;
    const float *h = kept, *gate = kept + n;
    if (w->job->blocks == 1) {
        field_backward(w, 0, kept_of(w, kept, 0), (float)t, h, d);
        return;
    }
    VECTORS(i, n) store(w->attended + i, load(h + i) * load(gate + i));
    for (int g = 0; g < 2; g++) field_backward(w, g, kept_of(w, kept, g), (float)t, w->attended, d + g * n);
    VECTORS(i, n) {
        vec s = load(gate + i), both = load(d + i) + load(d + n + i);
        store(d + i, both * s);
        store(d + n + i, w->job->detach ? (vec){0} : through_sigmoid(both * load(h + i), s));
    }
}

/* to = from + Σ weights_j terms_j, for a state; `from` may be NULL */
static void combine(long size, float *to, const float *from, long count, const double *weights, long stride, double dt,
                    const float *terms) {
    float used[MAX_STAGES + 1];
    const float *term[MAX_STAGES + 1];
    long n = 0;
    EACH(j, count) {
        double weight = weights[j * stride] * dt;
        if (weight != 0) {
            used[n] = (float)weight;
            term[n++] = terms + j * size;
        }
    }
    VECTORS(i, size) {
        vec sum = from ? load(from + i) : (vec){0};
        EACH(j, n) sum += used[j] * load(term[j] + i);
        store(to + i, sum);
    }
}

static float *kept_by(const Job *job, long sample) { return job->kept + sample * job->stages * job->kept_size; }

static void attempt(Worker *w, long sample) {
    const Job *job = w->job;
    long size = w->size, n = w->n, at = sample * size;
    float *ks = w->stages, *kept = kept_by(job, sample);
    copy(ks, job->k + at, size);
    EACH(i, job->stages) {
        combine(size, w->stage, job->y + at, i + 1, job->a[i], 1, job->dt, ks);
        evaluate(w, job->t + job->c[i] * job->dt, w->stage, ks + (i + 1) * size, kept + i * job->kept_size);
    }
    copy(job->y1 + at, w->stage, size);
    copy(job->k1 + at, ks + job->stages * size, size);
    combine(size, w->slope, NULL, job->stages + 1, job->error, 1, job->dt, ks);
    EACH(b, job->blocks) {
        double total = 0;
        EACH(i, n) {
            float y0 = __builtin_fabsf(job->y[at + b * n + i]), y1 = __builtin_fabsf(w->stage[b * n + i]);
            float larger = y0 > y1 ? y0 : y1;
            float e = w->slope[b * n + i] / ((float)job->atol + (float)job->rtol * larger);
            total += (double)e * e;
        }
        job->squares[sample * job->blocks + b] = total;
    }
}

static void attempt_back(Worker *w, long sample) {
    const Job *job = w->job;
    long size = w->size, last = job->stages - 1, at = sample * size;
    float *of_stages = w->stages, *dy = job->dy + at, *dk = job->dk + at;  /* gradients of the stages' states */
    for (long i = last; i >= 0; i--) {
        float *d = of_stages + i * size;
        int used = i == last ? job->end_used != 0 : 0;
        for (long l = i + 1; l <= last; l++) used |= job->a[l][i + 1] != 0;
        if (i == last) copy(d, dk, size);
        else combine(size, d, NULL, last - i, &job->a[i + 1][i + 1], MAX_STAGES, job->dt, of_stages + (i + 1) * size);
        if (used) evaluate_back(w, job->t + job->c[i] * job->dt, kept_by(job, sample) + i * job->kept_size, d);
        else clear(d, size);
        if (i == last) VECTORS(j, size) store(d + j, load(d + j) + load(dy + j));
    }
    combine(size, dk, NULL, job->stages, &job->a[0][0], MAX_STAGES, job->dt, of_stages);
    VECTORS(i, size) {
        vec sum = {0};
        EACH(l, job->stages) sum += load(of_stages + l * size + i);
        store(dy + i, sum);
    }
}

static void first(Worker *w, long sample) {
    long at = sample * w->size;
    evaluate(w, w->job->t, w->job->y + at, w->job->k1 + at, w->job->kept + sample * w->job->kept_size);
}

static void first_back(Worker *w, long sample) {
    float *dk = w->job->dk + sample * w->size, *dy = w->job->dy + sample * w->size;
    evaluate_back(w, w->job->t, w->job->kept + sample * w->job->kept_size, dk);
    VECTORS(i, w->size) store(dy + i, load(dy + i) + load(dk + i));
}

static long lay_worker(void *of, float *base) {
    Worker *w = of;
    Place places[] = {{&w->columns, 9 * w->n}, {&w->u, w->n}, {&w->sums, 2 * w->C}, {&w->stage, w->size},
                      {&w->attended, w->n}, {&w->slope, w->size}, {&w->stages, (w->job->stages + 1) * w->size}};
    return lay(places, sizeof places / sizeof *places, base);
}

static void run_chunk(void *of, long chunk, float *unused) {
    Worker *w = of;
    const Job *job = w->job;
    (void)unused;
    w->gradients = job->gradients + chunk * job->gradient_size;
    for (long b = job->B * chunk / job->chunks; b < job->B * (chunk + 1) / job->chunks; b++) w->each(w, b);
}

static int work(const Job *job, void (*each)(Worker *, long)) {
    long P = job->height * job->side, n = P * job->C;
    Worker w = {.job = job, .P = P, .C = job->C, .n = n, .size = job->blocks * n, .each = each};
    return run_blocks(&w, sizeof w, lay_worker, run_chunk, job->chunks, job->chunks, job->threads, NULL, 0);
}

/* each returns 0, or 1 if there is no memory */
int step_first(const Job *job) { return work(job, first); }
int step_attempt(const Job *job) { return work(job, attempt); }
int step_attempt_back(const Job *job) { return work(job, attempt_back); }
int step_first_back(const Job *job) { return work(job, first_back); }
int lanes(void) { return LANES; }
