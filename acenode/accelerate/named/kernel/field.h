/* The vector field of named variables for a block of series, and its gradient.
 *
 *     m = S h, S = softmax(a)      dh = W3 tanh(W2 tanh(W1 [h, m, c] + e1 + t w1) + b2) + b3
 *                                  da = u wᵀ − ρ (a − a(0)), u and w linear in m
 *
 * e1, eu and ew are the terms of the layers' embeddings and biases: a row for each variable, the same for all t.
 * Columns of a that pad its rows are LEAST, so that their softmax is zero.
 */

#define LEAST -1e30f

enum { NO_ATTENTION, FIXED, EVOLVING };
/* weights, stored by input; of fixed attention A0 is S */
enum { W1, E1, T1, W2, B2, W3, B3, WU, EU, TU, WW, EW, TW, A0, WEIGHTS };

typedef struct {
    int64_t B, V, K, C, U, R, N;  /* series, variables, block of h, controls, units, rank, steps */
    int64_t attention, detach, slopes, save, block, threads, needed;
    double pull;
    const float *t, *dt, *h0, *control;  /* times of the 2N + 1 evaluations, step sizes; control is (2N + 1, B, V, C) */
    const float *weights[WEIGHTS];
    float *h, *k, *a_saved, *z1_saved, *z2_saved;  /* h and its slopes at the ends of steps, (N + 1, B, V, K) */
    int64_t *failed;  /* for each block of series the first step whose end is not finite */
    const float *d_h, *d_k;
    float *d_h0, *d_weights[WEIGHTS];
} Solve;

typedef struct {
    const Solve *solve;
    long V, Vp, Kp, Cp, X, Up, Rp, attends;  /* padded sizes; X is the width of [h, m, c] */
    long sizes[WEIGHTS];
    const float *W1t, *W2t, *W3t, *WUt, *WWt;  /* transposed */
} Shape;

/* what an evaluation computes and its gradient needs */
typedef struct {
    float *x, *S, *u, *w, *z1, *z2, *own_z1, *own_z2;
    const float *h, *a;
    long index;
} Stage;

typedef struct {
    const Shape *shape;
    long lo, count;  /* series of the block */
    Stage stage[2];
    float *h, *a, *h_mid, *a_mid, *dh, *da;
    float *gh, *ga, *gh_mid, *ga_mid, *gk_h, *gk_a, *dz1, *dz2, *dx, *dm;  /* gradients */
    float *wT, *hT, *dS, *sum, *du, *dw, *row1, *row_u, *row_w;  /* of one series */
} Block;

INLINE float total(vec v) {
    float s = 0;
    UNROLL for (int l = 0; l < LANES; l++) s += v[l];
    return s;
}

INLINE vec maximum(vec a, vec b) { return choose(a > b, a, b); }

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

static void softmax_rows(long V, long Vp, const float *a, float *S) {
    EACH(i, V) {
        const float *from = a + i * Vp;
        float *to = S + i * Vp, most = from[0];
        vec largest = load(from), sum = {0};
        for (long j = LANES; j < Vp; j += LANES) largest = maximum(largest, load(from + j));
        UNROLL for (int l = 0; l < LANES; l++) most = largest[l] > most ? largest[l] : most;
        VECTORS(j, Vp) {
            vec y = exponential(load(from + j) - most);
            store(to + j, y);
            sum += y;
        }
        float scale = 1.0f / total(sum);
        VECTORS(j, Vp) store(to + j, load(to + j) * scale);
    }
}

/* fill x with [h, m, c] of the block, and S */
static void gather(Block *b, Stage *s) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, X = to->X, Kp = to->Kp;
    EACH(r, b->count * V) copy(s->x + r * X, s->h + r * Kp, Kp);
    if (to->attends) EACH(n, b->count) {
        const float *S = solve->weights[A0];
        if (solve->attention == EVOLVING) {
            softmax_rows(V, to->Vp, s->a + n * V * to->Vp, s->S + n * V * to->Vp);
            S = s->S + n * V * to->Vp;
        }
        product(V, V, Kp, S, to->Vp, s->h + n * V * Kp, NULL, 0, s->x + n * V * X + Kp, X);
    }
    if (solve->C) {
        const float *c = solve->control + (s->index * solve->B + b->lo) * V * solve->C;
        EACH(r, b->count * V) EACH(j, solve->C) s->x[r * X + X - to->Cp + j] = c[r * solve->C + j];
    }
}

static void hidden_layers(Block *b, Stage *s) {
    const Shape *to = b->shape;
    const float *const *w = to->solve->weights;
    long V = to->V, R = b->count * V, Up = to->Up;
    rows_at(V, Up, w[E1], w[T1], to->solve->t[s->index], b->row1);
    EACH(n, b->count)
        product(V, to->X, Up, s->x + n * V * to->X, to->X, w[W1], b->row1, Up, s->z1 + n * V * Up, Up);
    tanh_all(s->z1, R * Up);
    product(R, Up, Up, s->z1, Up, w[W2], w[B2], 0, s->z2, Up);
    tanh_all(s->z2, R * Up);
}

/* da = u wᵀ − ρ (a − a(0)) */
static void attention_slope(Block *b, Stage *s, float *da) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    const float *const *w = solve->weights, *a0 = w[A0];
    long V = to->V, Vp = to->Vp, Rp = to->Rp;
    float t = solve->t[s->index], pull = (float)solve->pull;
    rows_at(V, Rp, w[EU], w[TU], t, b->row_u);
    rows_at(V, Rp, w[EW], w[TW], t, b->row_w);
    EACH(n, b->count) {
        const float *m = s->x + n * V * to->X + to->Kp, *a = s->a + n * V * Vp;
        float *u = s->u + n * V * Rp, *v = s->w + n * V * Rp, *out = da + n * V * Vp;
        product(V, to->Kp, Rp, m, to->X, w[WU], b->row_u, Rp, u, Rp);
        product(V, to->Kp, Rp, m, to->X, w[WW], b->row_w, Rp, v, Rp);
        transpose(V, Rp, v, Rp, b->wT, Vp);
        product(V, Rp, Vp, u, Rp, b->wT, NULL, 0, out, Vp);
        VECTORS(i, V * Vp) store(out + i, load(out + i) - pull * (load(a + i) - load(a0 + i)));
    }
}

/* evaluate the field at (h, a); da may be NULL. `known`: the hidden layers are saved already */
static void evaluate(Block *b, Stage *s, long index, const float *h, const float *a, float *dh, float *da, int known) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long place = (index * solve->B + b->lo) * to->V * to->Up;
    s->h = h, s->a = a, s->index = index;
    s->z1 = solve->save ? solve->z1_saved + place : s->own_z1;
    s->z2 = solve->save ? solve->z2_saved + place : s->own_z2;
    gather(b, s);
    if (!(known && solve->save)) hidden_layers(b, s);
    if (dh) product(b->count * to->V, to->Up, to->Kp, s->z2, to->Up, solve->weights[W3], solve->weights[B3], 0, dh, to->Kp);
    if (da) attention_slope(b, s, da);
}

/* the gradient of da: adds to that of m, of a and of the weights of g */
static void attention_slope_back(Block *b, Stage *s, const float *gda, float *ga, float *const *g) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, Vp = to->Vp, Rp = to->Rp, Kp = to->Kp;
    float t = solve->t[s->index], pull = (float)solve->pull;
    EACH(n, b->count) {
        const float *G = gda + n * V * Vp, *m = s->x + n * V * to->X + Kp;
        float *dm = b->dm + n * V * Kp;
        product(V, V, Rp, G, Vp, s->w + n * V * Rp, NULL, 0, b->du, Rp);
        clear(b->dw, Vp * Rp);
        outer(V, Vp, Rp, G, Vp, s->u + n * V * Rp, Rp, b->dw);
        product(V, Rp, Kp, b->du, Rp, to->WUt, dm, Kp, dm, Kp);
        product(V, Rp, Kp, b->dw, Rp, to->WWt, dm, Kp, dm, Kp);
        outer(V, Kp, Rp, m, to->X, b->du, Rp, g[WU]);
        outer(V, Kp, Rp, m, to->X, b->dw, Rp, g[WW]);
        EACH(i, V) VECTORS(j, Rp) {
            vec du = load(b->du + i * Rp + j), dw = load(b->dw + i * Rp + j);
            store(g[EU] + i * Rp + j, load(g[EU] + i * Rp + j) + du);
            store(g[EW] + i * Rp + j, load(g[EW] + i * Rp + j) + dw);
            store(g[TU] + j, load(g[TU] + j) + t * du);
            store(g[TW] + j, load(g[TW] + j) + t * dw);
        }
        VECTORS(i, V * Vp) {
            vec d = pull * load(G + i);
            store(ga + n * V * Vp + i, load(ga + n * V * Vp + i) - d);
            store(g[A0] + i, load(g[A0] + i) + d);
        }
    }
}

/* the gradient of m = S h: adds to that of h, and of a or of a fixed S */
static void attend_back(Block *b, Stage *s, float *gh, float *ga, float *const *g) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, Vp = to->Vp, Kp = to->Kp;
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
            product(V, Kp, Vp, dm, Kp, b->hT, g[A0], Vp, g[A0], Vp);
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
static void evaluate_back(Block *b, Stage *s, const float *gdh, const float *gda, float *gh, float *ga,
                          float *const *g) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, R = b->count * V, Up = to->Up, Kp = to->Kp, X = to->X;
    int f_needed = (solve->needed & 1) != 0;
    product(R, Kp, Up, gdh, Kp, to->W3t, NULL, 0, b->dz2, Up);
    back_through_tanh(b->dz2, s->z2, R * Up);
    product(R, Up, Up, b->dz2, Up, to->W2t, NULL, 0, b->dz1, Up);
    back_through_tanh(b->dz1, s->z1, R * Up);
    product(R, Up, X, b->dz1, Up, to->W1t, NULL, 0, b->dx, X);
    if (f_needed) {
        float t = solve->t[s->index];
        outer(R, Up, Kp, s->z2, Up, gdh, Kp, g[W3]);
        sums(R, Kp, gdh, g[B3]);
        outer(R, Up, Up, s->z1, Up, b->dz2, Up, g[W2]);
        sums(R, Up, b->dz2, g[B2]);
        outer(R, X, Up, s->x, X, b->dz1, Up, g[W1]);
        VECTORS(j, Up) {
            vec all_rows = {0};
            EACH(i, V) {
                vec own = {0};
                EACH(n, b->count) own += load(b->dz1 + (n * V + i) * Up + j);
                store(g[E1] + i * Up + j, load(g[E1] + i * Up + j) + own);
                all_rows += own;
            }
            store(g[T1] + j, load(g[T1] + j) + t * all_rows);
        }
    }
    EACH(r, R) VECTORS(j, Kp) store(gh + r * Kp + j, load(gh + r * Kp + j) + load(b->dx + r * X + j));
    if (!to->attends) return;
    EACH(r, R) copy(b->dm + r * Kp, b->dx + r * X + Kp, Kp);
    if (gda) attention_slope_back(b, s, gda, ga, g);
    attend_back(b, s, gh, ga, g);
}
