/* Named variables by steps of the midpoint rule, forward and backward, in single precision.
 *
 *     k1 = F(t, y)        k2 = F(t + dt/2, y + dt/2 k1)        y ← y + dt k2
 *     m = S h, S = softmax(a)      dh = W3 tanh(W2 tanh(W1 [h, m, c] + e1 + t w1) + b2) + b3
 *                                  da = u wᵀ − ρ (a − a(0)), u and w linear in m
 *
 * e1, eu and ew are the terms of the layers' embeddings and biases: a row for each variable, the same for all t.
 * Series are independent, so a block of them runs through all steps while its state stays in the cache. The forward pass
 * saves the states at the ends of steps and, if they fit, the hidden layers; the backward pass recomputes the rest.
 */

#include "vectors.h"

enum { NO_ATTENTION, FIXED, EVOLVING };
/* weights, stored by input; of fixed attention A0 is S */
enum { W1, E1, T1, W2, B2, W3, B3, WU, EU, TU, WW, EW, TW, A0, WEIGHTS };

typedef struct {  /* rows of all tensors are padded with zeros to whole vectors */
    int64_t B, V, N;           /* series, variables, steps */
    int64_t P, K, C, X, U, R;  /* padded: row of a, block of h, controls, [h, m, c], hidden units, rank */
    int64_t attention, detach, slopes, save, block, chunks, threads, f_needed;
    int64_t sizes[WEIGHTS];
    double pull;
    const float *t, *dt, *h0, *control;  /* times of the 2N + 1 evaluations, step sizes; control is (2N + 1, B, V, C) */
    const float *weights[WEIGHTS], *transposed[WEIGHTS];
    float *h, *k, *a_saved, *z1_saved, *z2_saved;  /* h and its slopes at the ends of steps, (N + 1, B, V, K) */
    int64_t *failed;  /* for each block of series the first step whose end is not finite */
    const float *d_h, *d_k;
    float *d_h0, *shares;
} Solve;

/* what an evaluation computes and its gradient needs */
typedef struct {
    float *x, *S, *u, *w, *z1, *z2, *own_z1, *own_z2;
    const float *h, *a;
    long index;
} Stage;

typedef struct {
    const Solve *solve;
    int back;
    long lo, count, pairs;  /* series of the block; numbers of its a, if that evolves */
    Stage stage[2];
    float *h, *a, *h_mid, *a_mid, *dh, *da;
    float *gh, *ga, *gh_mid, *ga_mid, *gk_h, *gk_a, *dz1, *dz2, *dx, *dm;  /* gradients */
    float *wT, *hT, *dS, *sum, *du, *dw, *row1, *row_u, *row_w;  /* of one series */
    float *g[WEIGHTS];
} Block;

static void transpose(long rows, long columns, const float *from, long ld, float *to, long ldt) {
    EACH(i, rows) EACH(j, columns) to[j * ldt + i] = from[i * ld + j];
}

/* to = e + t w for each of V rows */
static void rows_at(long V, long n, const float *e, const float *w, float t, float *to) {
    EACH(i, V) VECTORS(j, n) store(to + i * n + j, load(e + i * n + j) + t * load(w + j));
}

static void tanh_all(float *x, long n) {
    EACH(first, (n + 255) / 256) {  /* part by part, so that numbers stay in the cache */
        long lo = first * 256, hi = lo + 256 < n ? lo + 256 : n;
        for (long i = lo; i < hi; i += LANES) store(x + i, load(x + i) * (2.0f * SIGMOID_SCALE));
        sigmoid_all_scaled(x + lo, hi - lo);
        for (long i = lo; i < hi; i += LANES) store(x + i, tanh_of(load(x + i)));
    }
}

/* d ⊙ (1 − y²), in d */
static void back_through_tanh(float *d, const float *y, long n) {
    VECTORS(i, n) store(d + i, through_tanh(load(d + i), load(y + i)));
}

/* fill x with [h, m, c] of the block, and S */
static void gather(Block *b, Stage *s) {
    const Solve *solve = b->solve;
    long V = solve->V, X = solve->X, Kp = solve->K;
    EACH(r, b->count * V) copy(s->x + r * X, s->h + r * Kp, Kp);
    if (solve->attention) EACH(n, b->count) {
        const float *S = solve->weights[A0];
        if (solve->attention == EVOLVING) {
            float *to = s->S + n * V * solve->P;
            EACH(i, V) softmax(s->a + (n * V + i) * solve->P, V, solve->P, to + i * solve->P);
            S = to;
        }
        product(V, V, Kp, S, solve->P, s->h + n * V * Kp, NULL, 0, s->x + n * V * X + Kp, X);
    }
    if (solve->C) {
        const float *c = solve->control + (s->index * solve->B + b->lo) * V * solve->C;
        EACH(r, b->count * V) copy(s->x + r * X + X - solve->C, c + r * solve->C, solve->C);
    }
}

static void hidden_layers(Block *b, Stage *s) {
    const Solve *solve = b->solve;
    const float *const *w = solve->weights;
    long V = solve->V, R = b->count * V, Up = solve->U;
    rows_at(V, Up, w[E1], w[T1], solve->t[s->index], b->row1);
    EACH(n, b->count)
        product(V, solve->X, Up, s->x + n * V * solve->X, solve->X, w[W1], b->row1, Up, s->z1 + n * V * Up, Up);
    tanh_all(s->z1, R * Up);
    product(R, Up, Up, s->z1, Up, w[W2], w[B2], 0, s->z2, Up);
    tanh_all(s->z2, R * Up);
}

/* da = u wᵀ − ρ (a − a(0)) */
static void attention_slope(Block *b, Stage *s, float *da) {
    const Solve *solve = b->solve;
    const float *const *w = solve->weights, *a0 = w[A0];
    long V = solve->V, Vp = solve->P, Rp = solve->R;
    float t = solve->t[s->index], pull = (float)solve->pull;
    rows_at(V, Rp, w[EU], w[TU], t, b->row_u);
    rows_at(V, Rp, w[EW], w[TW], t, b->row_w);
    EACH(n, b->count) {
        const float *m = s->x + n * V * solve->X + solve->K, *a = s->a + n * V * Vp;
        float *u = s->u + n * V * Rp, *v = s->w + n * V * Rp, *out = da + n * V * Vp;
        product(V, solve->K, Rp, m, solve->X, w[WU], b->row_u, Rp, u, Rp);
        product(V, solve->K, Rp, m, solve->X, w[WW], b->row_w, Rp, v, Rp);
        transpose(V, Rp, v, Rp, b->wT, Vp);
        product(V, Rp, Vp, u, Rp, b->wT, NULL, 0, out, Vp);
        VECTORS(i, V * Vp) store(out + i, load(out + i) - pull * (load(a + i) - load(a0 + i)));
    }
}

/* evaluate the field at (h, a); da may be NULL. `known`: the hidden layers are saved already */
static void evaluate(Block *b, Stage *s, long index, const float *h, const float *a, float *dh, float *da, int known) {
    const Solve *solve = b->solve;
    long place = (index * solve->B + b->lo) * solve->V * solve->U;
    s->h = h, s->a = a, s->index = index;
    s->z1 = solve->save ? solve->z1_saved + place : s->own_z1;
    s->z2 = solve->save ? solve->z2_saved + place : s->own_z2;
    gather(b, s);
    if (!(known && solve->save)) hidden_layers(b, s);
    if (dh) product(b->count * solve->V, solve->U, solve->K, s->z2, solve->U, solve->weights[W3], solve->weights[B3], 0,
                    dh, solve->K);
    if (da) attention_slope(b, s, da);
}

/* the gradient of da: adds to that of m, of a and of the weights of g */
static void attention_slope_back(Block *b, Stage *s, const float *gda, float *ga) {
    const Solve *solve = b->solve;
    long V = solve->V, Vp = solve->P, Rp = solve->R, Kp = solve->K;
    float t = solve->t[s->index], pull = (float)solve->pull;
    EACH(n, b->count) {
        const float *G = gda + n * V * Vp, *m = s->x + n * V * solve->X + Kp;
        float *dm = b->dm + n * V * Kp;
        product(V, V, Rp, G, Vp, s->w + n * V * Rp, NULL, 0, b->du, Rp);
        clear(b->dw, Vp * Rp);
        outer(V, Vp, Rp, G, Vp, s->u + n * V * Rp, Rp, b->dw);
        product(V, Rp, Kp, b->du, Rp, solve->transposed[WU], dm, Kp, dm, Kp);
        product(V, Rp, Kp, b->dw, Rp, solve->transposed[WW], dm, Kp, dm, Kp);
        outer(V, Kp, Rp, m, solve->X, b->du, Rp, b->g[WU]);
        outer(V, Kp, Rp, m, solve->X, b->dw, Rp, b->g[WW]);
        EACH(i, V) VECTORS(j, Rp) {
            vec du = load(b->du + i * Rp + j), dw = load(b->dw + i * Rp + j);
            store(b->g[EU] + i * Rp + j, load(b->g[EU] + i * Rp + j) + du);
            store(b->g[EW] + i * Rp + j, load(b->g[EW] + i * Rp + j) + dw);
            store(b->g[TU] + j, load(b->g[TU] + j) + t * du);
            store(b->g[TW] + j, load(b->g[TW] + j) + t * dw);
        }
        VECTORS(i, V * Vp) {
            vec d = pull * load(G + i);
            store(ga + n * V * Vp + i, load(ga + n * V * Vp + i) - d);
            store(b->g[A0] + i, load(b->g[A0] + i) + d);
        }
    }
}

/* the gradient of m = S h: adds to that of h, and of a or of a fixed S */
static void attend_back(Block *b, Stage *s, float *gh, float *ga) {
    const Solve *solve = b->solve;
    long V = solve->V, Vp = solve->P, Kp = solve->K;
    int evolving = solve->attention == EVOLVING;
    EACH(n, b->count) {
        const float *S = evolving ? s->S + n * V * Vp : solve->weights[A0];
        const float *dm = b->dm + n * V * Kp;
        clear(b->sum, Vp * Kp);
        outer(V, Vp, Kp, S, Vp, dm, Kp, b->sum);
        VECTORS(i, V * Kp) store(gh + n * V * Kp + i, load(gh + n * V * Kp + i) + load(b->sum + i));
        if (solve->detach) continue;
        transpose(V, Kp, s->h + n * V * Kp, Kp, b->hT, Vp);
        if (!evolving) {
            product(V, Kp, Vp, dm, Kp, b->hT, b->g[A0], Vp, b->g[A0], Vp);
            continue;
        }
        product(V, Kp, Vp, dm, Kp, b->hT, NULL, 0, b->dS, Vp);
        EACH(i, V) {
            const float *dS = b->dS + i * Vp, *row = S + i * Vp;
            float *out = ga + (n * V + i) * Vp;
            vec sum = {0};
            VECTORS(j, Vp) sum += load(row + j) * load(dS + j);
            float mean = total(sum);
            VECTORS(j, Vp) store(out + j, load(out + j) + load(row + j) * (load(dS + j) - mean));
        }
    }
}

/* add the gradients of a stage's h and a to gh and ga, and those of the weights to g */
static void evaluate_back(Block *b, Stage *s, const float *gdh, const float *gda, float *gh, float *ga) {
    const Solve *solve = b->solve;
    long V = solve->V, R = b->count * V, Up = solve->U, Kp = solve->K, X = solve->X;
    product(R, Kp, Up, gdh, Kp, solve->transposed[W3], NULL, 0, b->dz2, Up);
    back_through_tanh(b->dz2, s->z2, R * Up);
    product(R, Up, Up, b->dz2, Up, solve->transposed[W2], NULL, 0, b->dz1, Up);
    back_through_tanh(b->dz1, s->z1, R * Up);
    product(R, Up, X, b->dz1, Up, solve->transposed[W1], NULL, 0, b->dx, X);
    if (solve->f_needed) {
        float t = solve->t[s->index];
        outer(R, Up, Kp, s->z2, Up, gdh, Kp, b->g[W3]);
        sums(R, Kp, gdh, b->g[B3]);
        outer(R, Up, Up, s->z1, Up, b->dz2, Up, b->g[W2]);
        sums(R, Up, b->dz2, b->g[B2]);
        outer(R, X, Up, s->x, X, b->dz1, Up, b->g[W1]);
        VECTORS(j, Up) {
            vec all_rows = {0};
            EACH(i, V) {
                vec own = {0};
                EACH(n, b->count) own += load(b->dz1 + (n * V + i) * Up + j);
                store(b->g[E1] + i * Up + j, load(b->g[E1] + i * Up + j) + own);
                all_rows += own;
            }
            store(b->g[T1] + j, load(b->g[T1] + j) + t * all_rows);
        }
    }
    EACH(r, R) VECTORS(j, Kp) store(gh + r * Kp + j, load(gh + r * Kp + j) + load(b->dx + r * X + j));
    if (!solve->attention) return;
    EACH(r, R) copy(b->dm + r * Kp, b->dx + r * X + Kp, Kp);
    if (gda) attention_slope_back(b, s, gda, ga);
    attend_back(b, s, gh, ga);
}

static long lay_block(void *of, float *base) {
    Block *b = of;
    const Solve *solve = b->solve;
    long V = solve->V, R = solve->block * V, P = solve->P, K = solve->K, U = solve->U, Rp = solve->R, g = b->back;
    long pairs = solve->attention == EVOLVING ? R * P : 0, hidden = solve->save ? 0 : R * U;
    Place places[48];
    long count = 0;
#define TAKE(pointer, size) places[count++] = (Place){&(pointer), size}
    EACH(i, b->back ? 2 : 1) {
        Stage *s = b->stage + i;
        TAKE(s->x, R * solve->X); TAKE(s->S, pairs); TAKE(s->u, R * Rp); TAKE(s->w, R * Rp);
        TAKE(s->own_z1, hidden); TAKE(s->own_z2, hidden);
    }
    TAKE(b->h, R * K); TAKE(b->a, pairs); TAKE(b->h_mid, R * K); TAKE(b->a_mid, pairs);
    TAKE(b->dh, R * K); TAKE(b->da, pairs);
    TAKE(b->wT, Rp * P); TAKE(b->row1, V * U); TAKE(b->row_u, V * Rp); TAKE(b->row_w, V * Rp);
    TAKE(b->gh, g * R * K); TAKE(b->ga, g * pairs); TAKE(b->gh_mid, g * R * K); TAKE(b->ga_mid, g * pairs);
    TAKE(b->gk_h, g * R * K); TAKE(b->gk_a, g * pairs); TAKE(b->dz1, g * R * U); TAKE(b->dz2, g * R * U);
    TAKE(b->dx, g * R * solve->X); TAKE(b->dm, g * R * K); TAKE(b->hT, g * K * P); TAKE(b->dS, g * V * P);
    TAKE(b->sum, g * P * K); TAKE(b->du, g * V * Rp); TAKE(b->dw, g * P * Rp);
#undef TAKE
    return lay(places, count, base);
}

/* to = y + scale k */
static void combine(long n, const float *y, float scale, const float *k, float *to) {
    VECTORS(i, n) store(to + i, load(y + i) + scale * load(k + i));
}

static int is_finite(long n, const float *x) {
    vec sum = {0};
    VECTORS(i, n) sum += 0.0f * load(x + i);
    return total(sum) == 0.0f;
}

/* where a block's part of a tensor (·, B, V, width) starts at an index */
INLINE long part(const Block *b, long index, long width) {
    return (index * b->solve->B + b->lo) * b->solve->V * width;
}

static void forward_block(Block *b, long block) {
    const Solve *solve = b->solve;
    long V = solve->V, K = solve->K, P = solve->P, N = solve->N, n = b->count * V * K, pairs = b->pairs;
    float *da = pairs ? b->da : NULL;
    copy(b->h, solve->h0 + part(b, 0, K), n);
    if (pairs) EACH(i, b->count) copy(b->a + i * V * P, solve->weights[A0], V * P);
    copy(solve->h + part(b, 0, K), b->h, n);
    solve->failed[block] = N;
    EACH(i, N) {
        float dt = solve->dt[i];
        if (pairs && solve->a_saved) copy(solve->a_saved + part(b, i, P), b->a, pairs);
        evaluate(b, b->stage, 2 * i, b->h, b->a, b->dh, da, 0);
        if (solve->slopes) copy(solve->k + part(b, i, K), b->dh, n);
        combine(n, b->h, 0.5f * dt, b->dh, b->h_mid);
        combine(pairs, b->a, 0.5f * dt, b->da, b->a_mid);
        evaluate(b, b->stage, 2 * i + 1, b->h_mid, b->a_mid, b->dh, da, 0);
        combine(n, b->h, dt, b->dh, b->h);
        combine(pairs, b->a, dt, b->da, b->a);
        copy(solve->h + part(b, i + 1, K), b->h, n);
        if (solve->failed[block] == N && !(is_finite(n, b->h) && is_finite(pairs, b->a))) solve->failed[block] = i;
    }
    if (!solve->slopes) return;
    if (pairs && solve->a_saved) copy(solve->a_saved + part(b, N, P), b->a, pairs);
    evaluate(b, b->stage, 2 * N, b->h, b->a, b->dh, NULL, 0);
    copy(solve->k + part(b, N, K), b->dh, n);
}

static void backward_block(Block *b) {
    const Solve *solve = b->solve;
    long V = solve->V, K = solve->K, P = solve->P, N = solve->N, n = b->count * V * K, pairs = b->pairs;
    int live = pairs && !solve->detach;  /* a has a gradient */
    clear(b->gh, n);
    clear(b->ga, pairs);
    for (long i = N; i >= 0; i--) {
        int step = i < N;
        const float *d_h = solve->d_h + part(b, i, K), *a = pairs ? solve->a_saved + part(b, i, P) : NULL;
        if (step || solve->slopes) {
            copy(b->h, solve->h + part(b, i, K), n);
            evaluate(b, b->stage, 2 * i, b->h, a, step ? b->dh : NULL, step && pairs ? b->da : NULL, 1);
            clear(b->gk_h, n);
            clear(b->gk_a, pairs);
        }
        if (step) {
            float dt = solve->dt[i];
            combine(n, b->h, 0.5f * dt, b->dh, b->h_mid);
            if (pairs) combine(pairs, a, 0.5f * dt, b->da, b->a_mid);
            evaluate(b, b->stage + 1, 2 * i + 1, b->h_mid, b->a_mid, NULL, NULL, 1);
            if (live) attention_slope(b, b->stage + 1, b->da);
            combine(n, b->gk_h, dt, b->gh, b->gk_h);
            if (live) combine(pairs, b->gk_a, dt, b->ga, b->gk_a);
            clear(b->gh_mid, n);
            clear(b->ga_mid, pairs);
            evaluate_back(b, b->stage + 1, b->gk_h, live ? b->gk_a : NULL, b->gh_mid, b->ga_mid);
            combine(n, b->gh, 1.0f, b->gh_mid, b->gh);
            combine(pairs, b->ga, 1.0f, b->ga_mid, b->ga);
            clear(b->gk_h, n);
            clear(b->gk_a, pairs);
            combine(n, b->gk_h, 0.5f * dt, b->gh_mid, b->gk_h);
            if (live) combine(pairs, b->gk_a, 0.5f * dt, b->ga_mid, b->gk_a);
        }
        if (solve->slopes) combine(n, b->gk_h, 1.0f, solve->d_k + part(b, i, K), b->gk_h);
        if (step || solve->slopes) evaluate_back(b, b->stage, b->gk_h, live && step ? b->gk_a : NULL, b->gh, b->ga);
        combine(n, b->gh, 1.0f, d_h, b->gh);
    }
    copy(solve->d_h0 + part(b, 0, K), b->gh, n);
    if (live) EACH(i, b->count) combine(V * P, b->g[A0], 1.0f, b->ga + i * V * P, b->g[A0]);
}

static void run_block(void *of, long block, float *gradients) {
    Block *b = of;
    const Solve *solve = b->solve;
    b->lo = block * solve->block;
    b->count = b->lo + solve->block < solve->B ? solve->block : solve->B - b->lo;
    b->pairs = solve->attention == EVOLVING ? b->count * solve->V * solve->P : 0;
    if (!b->back) forward_block(b, block);
    for (long i = 0; b->back && i < WEIGHTS; gradients += solve->sizes[i++]) b->g[i] = gradients;
    if (b->back) backward_block(b);
}

static int run(const Solve *solve, int back) {
    Block block = {.solve = solve, .back = back};
    long size = 0;
    EACH(i, WEIGHTS) size += solve->sizes[i];
    return run_blocks(&block, sizeof block, lay_block, run_block, (solve->B + solve->block - 1) / solve->block,
                      solve->chunks, solve->threads, back ? solve->shares : NULL, size);
}

int lanes(void) { return LANES; }

/* return 0, or 1 if there is no memory */
int solve_forward(const Solve *solve) { return run(solve, 0); }
int solve_backward(const Solve *solve) { return run(solve, 1); }
