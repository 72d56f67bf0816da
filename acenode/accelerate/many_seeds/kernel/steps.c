/* Runge–Kutta steps of the image models for several seeds at once, and their gradients.
 *
 * The state of a sample is its blocks (h, or h and a), each a map (P, C). Samples are independent of each other, so all
 * stages of a step are computed for one sample after another, within the cache of a core. A seed has its own time, step
 * size and parameters. Gradients of the parameters are summed for each chunk of a seed's samples, so that the sums do
 * not depend on the number of threads.
 */

#include "field.h"

#define MAX_STAGES 16

typedef struct {
    int64_t count;  /* seeds that take part */
    int64_t B, height, side, blocks, chunks, threads, detach, stages;
    int64_t parameter_size, gradient_size, kept_size;  /* floats of a seed, of a chunk, of an evaluation */
    Field f, g;
    double rtol, atol;
    double c[MAX_STAGES], a[MAX_STAGES][MAX_STAGES], error[MAX_STAGES + 1];
    const int64_t *seed;  /* (count), their numbers */
    const double *t, *dt;  /* (seeds) */
    const int64_t *end_used;  /* (seeds): whether the gradient of the last slope is not zero */
    const float *parameters;  /* (seeds, parameter_size) */
    const float *y, *k;  /* (seeds, B, blocks P C): state and slope at the start */
    float *y1, *k1;  /* at the end */
    float *kept;  /* (seeds, B, stages, kept_size) */
    double *squares;  /* (seeds, B, blocks): of the error in units of the tolerance */
    float *dy, *dk;  /* gradients of state and slope: at the end, then at the start */
    float *gradients;  /* (seeds, chunks, gradient_size) */
} Job;

typedef struct {
    const Job *job;
    long n, size;  /* floats of a map and of a state */
    Layer f[MAX_CONVS + 1], g[MAX_CONVS + 1];
    LayerGradient df[MAX_CONVS + 1], dg[MAX_CONVS + 1];
    Scratch scratch;
    float *stage, *attended, *slope, *stages;  /* a state, a map, a state, and a state for each stage */
} Worker;

/* ∂(h, a)/∂t of one sample at y; keeps what the gradient needs */
static void evaluate(Worker *w, float t, const float *y, float *k, float *kept) {
    const Job *job = w->job;
    long n = w->n;
    Kept f[MAX_CONVS + 1], g[MAX_CONVS + 1];
    copy(kept, y, n);
    if (job->blocks == 1) {
        walk_kept(&job->f, w->scratch.P, kept + n, f);
        field_forward(&job->f, w->f, f, &w->scratch, t, y, k);
        return;
    }
    float *gate = kept + n;
    walk_kept(&job->g, w->scratch.P, walk_kept(&job->f, w->scratch.P, gate + n, f), g);
    VECTORS(i, n) {
        vec s = sigmoid(load(y + n + i));
        store(gate + i, s);
        store(w->attended + i, load(y + i) * s);
    }
    field_forward(&job->f, w->f, f, &w->scratch, t, w->attended, k);
    field_forward(&job->g, w->g, g, &w->scratch, t, w->attended, k + n);
}

/* d: the gradient of the slopes, then of the state */
static void evaluate_back(Worker *w, float t, float *kept, float *d) {
    const Job *job = w->job;
    long n = w->n;
    Kept f[MAX_CONVS + 1], g[MAX_CONVS + 1];
    const float *h = kept, *gate = kept + n;
    if (job->blocks == 1) {
        walk_kept(&job->f, w->scratch.P, kept + n, f);
        field_backward(&job->f, w->f, f, &w->scratch, t, h, d, job->f.trains ? w->df : NULL);
        return;
    }
    walk_kept(&job->g, w->scratch.P, walk_kept(&job->f, w->scratch.P, kept + 2 * n, f), g);
    VECTORS(i, n) store(w->attended + i, load(h + i) * load(gate + i));
    field_backward(&job->f, w->f, f, &w->scratch, t, w->attended, d, job->f.trains ? w->df : NULL);
    field_backward(&job->g, w->g, g, &w->scratch, t, w->attended, d + n, job->g.trains ? w->dg : NULL);
    VECTORS(i, n) {
        vec s = load(gate + i), both = load(d + i) + load(d + n + i);
        store(d + i, both * s);
        store(d + n + i, job->detach ? (vec){0} : through_sigmoid(both * load(h + i), s));
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

static void attempt(Worker *w, long seed, long sample) {
    const Job *job = w->job;
    long size = w->size, n = w->n, at = (seed * job->B + sample) * size;
    double t = job->t[seed], dt = job->dt[seed];
    float *ks = w->stages, *kept = job->kept + (seed * job->B + sample) * job->stages * job->kept_size;
    copy(ks, job->k + at, size);
    EACH(i, job->stages) {
        combine(size, w->stage, job->y + at, i + 1, job->a[i], 1, dt, ks);
        evaluate(w, (float)(t + job->c[i] * dt), w->stage, ks + (i + 1) * size, kept + i * job->kept_size);
    }
    copy(job->y1 + at, w->stage, size);
    copy(job->k1 + at, ks + job->stages * size, size);
    combine(size, w->slope, NULL, job->stages + 1, job->error, 1, dt, ks);
    EACH(b, job->blocks) {
        double total = 0;
        EACH(i, n) {
            float y0 = __builtin_fabsf(job->y[at + b * n + i]), y1 = __builtin_fabsf(w->stage[b * n + i]);
            float larger = y0 > y1 ? y0 : y1;
            float e = w->slope[b * n + i] / ((float)job->atol + (float)job->rtol * larger);
            total += (double)e * e;
        }
        job->squares[(seed * job->B + sample) * job->blocks + b] = total;
    }
}

static void attempt_back(Worker *w, long seed, long sample) {
    const Job *job = w->job;
    long size = w->size, last = job->stages - 1, at = (seed * job->B + sample) * size;
    double t = job->t[seed], dt = job->dt[seed];
    float *kept = job->kept + (seed * job->B + sample) * job->stages * job->kept_size;
    float *of_stages = w->stages, *dy = job->dy + at, *dk = job->dk + at;  /* gradients of the stages' states */
    for (long i = last; i >= 0; i--) {
        float *d = of_stages + i * size;
        int used = i == last ? job->end_used[seed] != 0 : 0;
        for (long l = i + 1; l <= last; l++) used |= job->a[l][i + 1] != 0;
        if (i == last) copy(d, dk, size);
        else combine(size, d, NULL, last - i, &job->a[i + 1][i + 1], MAX_STAGES, dt, of_stages + (i + 1) * size);
        if (used) evaluate_back(w, (float)(t + job->c[i] * dt), kept + i * job->kept_size, d);
        else clear(d, size);
        if (i == last) VECTORS(j, size) store(d + j, load(d + j) + load(dy + j));
    }
    combine(size, dk, NULL, job->stages, &job->a[0][0], MAX_STAGES, dt, of_stages);
    VECTORS(i, size) {
        vec sum = {0};
        EACH(l, job->stages) sum += load(of_stages + l * size + i);
        store(dy + i, sum);
    }
}

static void first(Worker *w, long seed, long sample) {
    const Job *job = w->job;
    long at = (seed * job->B + sample) * w->size;
    evaluate(w, (float)job->t[seed], job->y + at, job->k1 + at, job->kept + (seed * job->B + sample) * job->kept_size);
}

static void first_back(Worker *w, long seed, long sample) {
    const Job *job = w->job;
    long at = (seed * job->B + sample) * w->size;
    float *dk = job->dk + at, *dy = job->dy + at;
    evaluate_back(w, (float)job->t[seed], job->kept + (seed * job->B + sample) * job->kept_size, dk);
    VECTORS(i, w->size) store(dy + i, load(dy + i) + load(dk + i));
}

static int work(const Job *job, void (*each)(Worker *, long, long), int back) {
    int failed = 0;
#pragma omp parallel num_threads((int)job->threads) reduction(| : failed)
    {
        long P = job->height * job->side, widest = 0;
        EACH(l, job->f.convs + 1) widest = job->f.width[l] > widest ? job->f.width[l] : widest;
        if (job->blocks == 2) EACH(l, job->g.convs + 1) widest = job->g.width[l] > widest ? job->g.width[l] : widest;
        long n = P * job->f.width[0], size = job->blocks * n, most = P * widest;
        Worker w = {.job = job, .n = n, .size = size, .scratch = {.height = job->height, .side = job->side, .P = P}};
        Place places[] = {{&w.scratch.columns, 9 * most}, {&w.scratch.u, most}, {&w.scratch.sums, 2 * widest},
                          {&w.stage, size}, {&w.attended, most}, {&w.slope, size},
                          {&w.stages, (job->stages + 1) * size}};
        long count = sizeof places / sizeof *places;
        float *memory = allocate(lay(places, count, NULL));
        if (memory) lay(places, count, memory);
        else failed = 1;
#pragma omp for schedule(dynamic)
        for (long i = 0; i < job->count * job->chunks; i++) {
            if (!memory) continue;
            long seed = job->seed[i / job->chunks], chunk = i % job->chunks;
            const float *p = walk_parameters(&job->f, P, job->parameters + seed * job->parameter_size, w.f);
            if (job->blocks == 2) walk_parameters(&job->g, P, p, w.g);
            if (back) {
                float *to = job->gradients + (seed * job->chunks + chunk) * job->gradient_size;
                to = walk_gradients(&job->f, P, to, w.df);
                if (job->blocks == 2) walk_gradients(&job->g, P, to, w.dg);
            }
            for (long b = job->B * chunk / job->chunks; b < job->B * (chunk + 1) / job->chunks; b++) each(&w, seed, b);
        }
        free(memory);
    }
    return failed;
}

/* each returns 0, or 1 if there is no memory */
int step_first(const Job *job) { return work(job, first, 0); }
int step_attempt(const Job *job) { return work(job, attempt, 0); }
int step_attempt_back(const Job *job) { return work(job, attempt_back, 1); }
int step_first_back(const Job *job) { return work(job, first_back, 1); }
int lanes(void) { return LANES; }
