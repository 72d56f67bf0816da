/* GRU-ODE-Bayes and ACE over a whole schedule, forward and backward, in single precision. An Euler step of h is
 *
 *     r, o = σ(s W), u = tanh((r ⊙ s) W'), h ← h + dt o ⊙ (u − s)
 *
 * with s = h, or σ(a) h with attention, and u − h instead of u − s with own_feedback. An observation changes h by
 *
 *     μ, log σ² = MLP(h), e = (x − μ)/σ, h ← GRU(ReLU([x, μ, log σ², e] F + b) ⊙ m, h)
 *
 * and the end of a window of rows changes a, where m is the mean of s over those rows:
 *
 *     m = Σ dt s / τ, τ = Σ dt, r, o = σ(a W + m V), u = tanh((r ⊙ a) W' + m V'), a ← u + e^(−τ o) ⊙ (a − u)
 *
 * Series are independent, so a block of them runs through all rows while its state stays in the cache. The forward pass
 * saves the state at intervals, h around the jumps and, if they fit, the gates of attention; the backward pass recomputes
 * the rest.
 */

#include "vectors.h"

#define MAX_JUMPS 128  /* gradients of so many jumps are collected before they are summed */
#define MIN_WINDOW 1e-12f

enum { F_GATES, F_NEW, HIDDEN, HIDDEN_BIAS, OUT, OUT_BIAS, FEATURES, FEATURES_BIAS, CELL, CELL_BIAS,
       G_GATES, G_NEW, G_GATES_IN, G_NEW_IN, WEIGHTS };

typedef struct {  /* observations or read points, sorted by block of series and then by row; series are those of a block */
    const int64_t *first, *row, *series;
} Points;

typedef struct {  /* rows of all tensors, and sections of columns of weights, are padded with zeros to whole vectors */
    int64_t B, S, units, H, D, Q, F;  /* `units` is H without padding */
    int64_t block, every, span, chunks;  /* series of a block, rows of a window, windows between saved states */
    int64_t attention, own_feedback, detach, threads;
    int64_t f_needed, jump_needed, g_needed;  /* whether the weights need a gradient */
    int64_t sizes[WEIGHTS];
    Points observations, reads;
    const float *dt, *h0, *a0, *x, *unobserved, *dropout;  /* `unobserved` is added to features: their ReLU is then 0 */
    const float *weights[WEIGHTS];     /* those of the gates of f and g as sigmoid_scaled takes them */
    const float *transposed[WEIGHTS];  /* (outputs, inputs); of the features without x, which has no gradient */
    float *predicted, *before, *after, *read, *h_saved, *a_saved;
    float *g_gates;  /* g's gates and u of all windows, if saved; the backward pass writes their gradients here */
    const float *d_predicted, *d_after, *d_read;
    float *d_h0, *d_a0, *shares;
} Pass;

typedef struct {
    const Pass *pass;
    int back;         /* then rows between saved states have memory of their own; otherwise they share it */
    long lo, count;   /* first series of the block, and how many */
    long window;      /* index of the first window since the last saved state */
    long next_observation, observation_end, next_read, read_end;
    float *g[WEIGHTS];                                   /* gradients of the weights */
    float *h, *s, *gates, *reset, *u;  /* by row; gates r, o; reset = r ⊙ s; s is h without attention */
    float *dh, *d_s, *d_reset;                           /* d_s by row of a window */
    float *a, *soft, *soft_t, *a_gates, *a_u, *mean, *tau;  /* by window; soft = σ(a), soft_t = σ(a)ᵀ */
    float *a_reset, *share, *da, *d_soft, *d_gates_in, *d_new_in, *d_mean;
    int live;  /* 1 once ∂a is nonzero */
    /* a table with one row per jump; the backward pass overwrites the cell with its gradients */
    float *hidden, *features_in, *inverse, *seen, *cell, *d_hidden, *d_out, *d_features, *d_seen;
    long jumps;
} State;

static long lay_state(void *of, float *base) {
    State *b = of;
    const Pass *p = b->pass;
    int with = p->attention != 0;
    long windows = b->back ? p->span : 1, rows = b->back ? windows * p->every : 1, H = p->block * p->H;
    long square = with * p->units * p->H, all = p->block * square, some = with * H, n = MAX_JUMPS;
    Place places[] = {
        {&b->h, (rows + 1) * H}, {&b->s, rows * some}, {&b->gates, rows * 2 * H}, {&b->reset, rows * H},
        {&b->u, rows * H}, {&b->dh, H}, {&b->d_s, p->every * some}, {&b->d_reset, H},
        {&b->a, (windows + 1) * all}, {&b->soft, windows * all}, {&b->soft_t, p->block * with * p->H * p->H},
        {&b->a_gates, 2 * (b->back ? windows * all : square)}, {&b->a_u, b->back ? windows * all : square},
        {&b->mean, windows * some}, {&b->tau, windows * p->block}, {&b->a_reset, square},
        {&b->share, 3 * some}, {&b->da, all}, {&b->d_soft, with * p->H * p->H}, {&b->d_gates_in, 2 * some},
        {&b->d_new_in, some}, {&b->d_mean, some},
        {&b->hidden, n * p->Q}, {&b->features_in, n * 4 * p->D}, {&b->inverse, n * p->D},
        {&b->seen, n * (p->F + p->H)}, {&b->cell, n * 4 * p->H}, {&b->d_hidden, n * p->Q}, {&b->d_out, n * 4 * p->D},
        {&b->d_features, n * p->F}, {&b->d_seen, n * (p->F + p->H)}};
    return lay(places, sizeof places / sizeof *places, base);
}

/* memory of the k-th row, or window */
INLINE float *place(const State *b, float *base, long k, long size) { return b->back ? base + k * size : base; }

/* Rows */

static void step(State *b, long row, long k) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count;
    float *h = place(b, b->h, k, n * H), *after = b->back ? h + n * H : h;
    const float *s = p->attention ? place(b, b->s, k, n * H) : h, *feedback = p->own_feedback ? h : s;
    float *gates = place(b, b->gates, k, n * 2 * H), *reset = place(b, b->reset, k, n * H);
    float *u = place(b, b->u, k, n * H);
    product(n, p->units, 2 * H, s, H, p->weights[F_GATES], NULL, 0, gates, 2 * H);
    sigmoid_all_scaled(gates, n * 2 * H);
    EACH(i, n) VECTORS(j, H) store(reset + i * H + j, load(gates + i * 2 * H + j) * load(s + i * H + j));
    product(n, p->units, H, reset, H, p->weights[F_NEW], NULL, 0, u, H);
    sigmoid_all_scaled(u, n * H);
    EACH(i, n) {
        float dt = p->dt[row * p->B + b->lo + i];
        for (long j = i * H, o = i * 2 * H + H; j < i * H + H; j += LANES, o += LANES) {
            vec new = tanh_of(load(u + j));
            store(u + j, new);
            store(after + j, load(h + j) + dt * load(gates + o) * (new - load(feedback + j)));
        }
    }
}

/* compute ∂h before a step from that after it, and overwrite the gates and u with their gradients; with attention, put
 * ∂s into d_s */
static void step_back(State *b, long row, long k) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count;
    float *h = b->h + k * n * H, *gates = b->gates + k * n * 2 * H, *u = b->u + k * n * H, *dh = b->dh;
    const float *s = p->attention ? b->s + k * n * H : h, *feedback = p->own_feedback ? h : s;
    float *d_s = p->attention ? b->d_s + k % p->every * n * H : dh, *d_reset = b->d_reset;
    EACH(i, n) {
        float dt = p->dt[row * p->B + b->lo + i];
        for (long j = i * H, o = i * 2 * H + H; j < i * H + H; j += LANES, o += LANES) {
            vec d = load(dh + j), open = load(gates + o), new = load(u + j), scaled = d * dt, d_new = scaled * open;
            store(gates + o, through_sigmoid(scaled * (new - load(feedback + j)), open));
            store(u + j, through_tanh(d_new, new));
            if (p->attention) {
                vec mean = load(b->d_mean + j) * dt;
                store(dh + j, p->own_feedback ? d - d_new : d);
                store(d_s + j, p->own_feedback ? mean : mean - d_new);
            } else {
                store(dh + j, d - d_new);
            }
        }
    }
    product(n, p->units, H, u, H, p->transposed[F_NEW], NULL, 0, d_reset, H);
    EACH(i, n) for (long j = i * H, g = i * 2 * H; j < i * H + H; j += LANES, g += LANES) {
        vec d = load(d_reset + j), r = load(gates + g);
        store(d_s + j, load(d_s + j) + d * r);
        store(gates + g, through_sigmoid(d * load(s + j), r));
    }
    product(n, 2 * H, H, gates, 2 * H, p->transposed[F_GATES], d_s, H, d_s, H);
}

/* add the gradients of f's weights over the rows of a window, from row k on */
static void add_row_gradients(const State *b, long k, long rows) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count;
    const float *s = (p->attention ? b->s : b->h) + k * n * H;
    if (!p->f_needed) return;
    outer(rows * n, H, 2 * H, s, H, b->gates + k * n * 2 * H, 2 * H, b->g[F_GATES]);
    outer(rows * n, H, H, b->reset + k * n * H, H, b->u + k * n * H, H, b->g[F_NEW]);
}

/* Attention */

/* compute σ(a) and its transpose at the start of window w */
static void open_window(State *b, long w) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, square = p->units * H;
    float *a = place(b, b->a, w, n * square), *soft = place(b, b->soft, w, n * square);
    EACH(i, n) EACH(row, p->units) {
        float *to = soft + i * square + row * H, *soft_t = b->soft_t + i * H * H + row;
        softmax(a + i * square + row * H, p->units, H, to);
        EACH(j, p->units) soft_t[j * H] = to[j];
    }
    clear(place(b, b->mean, w, n * H), n * H);
    clear(place(b, b->tau, w, n), n);
}

static void attend(State *b, long row, long k) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, w = k / p->every;
    const float *h = place(b, b->h, k, n * H);
    float *s = place(b, b->s, k, n * H), *mean = place(b, b->mean, w, n * H), *tau = place(b, b->tau, w, n);
    EACH(i, n) {
        float dt = p->dt[row * p->B + b->lo + i];
        product(1, p->units, H, h + i * H, H, b->soft_t + i * H * H, NULL, 0, s + i * H, H);
        tau[i] += dt;
        for (long j = i * H; j < i * H + H; j += LANES) store(mean + j, load(mean + j) + dt * load(s + j));
    }
}

/* divide n rows by the lengths of their windows */
static void divide(long n, long H, float *rows, const float *tau) {
    EACH(i, n) VECTORS(j, H) store(rows + i * H + j, load(rows + i * H + j) / (tau[i] > MIN_WINDOW ? tau[i] : MIN_WINDOW));
}

/* the factor by which a step of length τ shrinks a − u */
INLINE vec decay(float tau, vec open) { return exp_in_range(at_least(-tau * open, -87.0f)); }

/* find g's gates and u of series i at the end of window w */
INLINE void find_g_gates(const State *b, long w, long i, float **gates, float **u) {
    const Pass *p = b->pass;
    long square = p->units * p->H, at = b->back ? w * b->count + i : 0, windows = (p->S - 2) / p->every;
    long before = b->lo * windows + (b->window + w) * b->count + i;
    *gates = p->g_gates ? p->g_gates + before * 3 * square : b->a_gates + at * 2 * square;
    *u = p->g_gates ? *gates + 2 * square : b->a_u + at * square;
}

/* advance a at the end of window w */
static void close_window(State *b, long w) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, square = p->units * H;
    float *mean = place(b, b->mean, w, n * H), *tau = place(b, b->tau, w, n);
    float *gates_in = b->share, *new_in = gates_in + n * 2 * H, *reset = b->a_reset;
    int known = b->back && p->g_gates;
    divide(n, H, mean, tau);
    if (!known) {
        product(n, p->units, 2 * H, mean, H, p->weights[G_GATES_IN], NULL, 0, gates_in, 2 * H);
        product(n, p->units, H, mean, H, p->weights[G_NEW_IN], NULL, 0, new_in, H);
    }
    EACH(i, n) {
        float *a = place(b, b->a, w, n * square) + i * square, *after = b->back ? a + n * square : a;
        float *gates, *u;
        find_g_gates(b, w, i, &gates, &u);
        if (!known) {
            product(p->units, p->units, 2 * H, a, H, p->weights[G_GATES], gates_in + i * 2 * H, 0, gates, 2 * H);
            sigmoid_all_scaled(gates, 2 * square);
            EACH(row, p->units) VECTORS(j, H)
                store(reset + row * H + j, load(gates + row * 2 * H + j) * load(a + row * H + j));
            product(p->units, p->units, H, reset, H, p->weights[G_NEW], new_in + i * H, 0, u, H);
            sigmoid_all_scaled(u, square);
            VECTORS(j, square) store(u + j, tanh_of(load(u + j)));
        }
        EACH(row, p->units) VECTORS(j, H) {
            vec new = load(u + row * H + j), now = load(a + row * H + j);
            vec left = decay(tau[i], load(gates + row * 2 * H + H + j));
            store(after + row * H + j, now + (1.0f - left) * (new - now));
        }
    }
}

/* compute ∂a before the step at the end of window w, and ∂ of the mean of s divided by τ */
static void close_window_back(State *b, long w) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, square = p->units * H;
    float *mean = b->mean + w * n * H, *tau = b->tau + w * n, *reset = b->a_reset, *d_reset = b->d_soft;
    clear(b->d_gates_in, n * 2 * H);
    clear(b->d_new_in, n * H);
    EACH(i, n) {
        const float *a = b->a + (w * n + i) * square;
        float *gates, *u, *da = b->da + i * square;
        find_g_gates(b, w, i, &gates, &u);
        EACH(row, p->units) VECTORS(j, H) {
            float *r = gates + row * 2 * H + j, *o = r + H;
            long at = row * H + j;
            vec d = load(da + at), now = load(a + at), open = load(o), new = load(u + at);
            vec left = d * decay(tau[i], open);
            store(reset + at, load(r) * now);
            store(o, through_sigmoid(left * tau[i] * (new - now), open));
            store(u + at, through_tanh(d - left, new));
            store(da + at, left);
        }
        product(p->units, p->units, H, u, H, p->transposed[G_NEW], NULL, 0, d_reset, H);
        EACH(row, p->units) VECTORS(j, H) {
            float *r = gates + row * 2 * H + j;
            long at = row * H + j;
            vec d = load(d_reset + at), open = load(r);
            store(da + at, load(da + at) + d * open);
            store(r, through_sigmoid(d * load(a + at), open));
        }
        product(p->units, 2 * H, H, gates, 2 * H, p->transposed[G_GATES], da, H, da, H);
        if (p->g_needed) {
            outer(p->units, H, 2 * H, a, H, gates, 2 * H, b->g[G_GATES]);
            outer(p->units, H, H, reset, H, u, H, b->g[G_NEW]);
        }
        sums(p->units, 2 * H, gates, b->d_gates_in + i * 2 * H);
        sums(p->units, H, u, b->d_new_in + i * H);
    }
    if (p->g_needed) {
        outer(n, H, 2 * H, mean, H, b->d_gates_in, 2 * H, b->g[G_GATES_IN]);
        outer(n, H, H, mean, H, b->d_new_in, H, b->g[G_NEW_IN]);
    }
    product(n, 2 * H, H, b->d_gates_in, 2 * H, p->transposed[G_GATES_IN], NULL, 0, b->d_mean, H);
    product(n, H, H, b->d_new_in, H, p->transposed[G_NEW_IN], b->d_mean, H, b->d_mean, H);
    divide(n, H, b->d_mean, tau);
}

/* add to ∂h what a row's ∂s contributes: s = σ(a) h */
static void attend_back(State *b, long k) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, square = p->units * H;
    const float *d_s = b->d_s + k % p->every * n * H, *soft = b->soft + k / p->every * n * square;
    EACH(i, n) product(1, p->units, H, d_s + i * H, H, soft + i * square, b->dh + i * H, H, b->dh + i * H, H);
}

/* add to ∂a, through the softmax, what ∂s of all rows of window w contributes */
static void open_window_back(State *b, long w, long rows) {
    const Pass *p = b->pass;
    long H = p->H, n = b->count, square = p->units * H;
    if (p->detach) return;
    EACH(i, n) {
        const float *soft = b->soft + (w * n + i) * square;
        float *da = b->da + i * square, *d = b->d_soft;
        clear(d, H * H);
        outer(rows, H, H, b->d_s + i * H, n * H, b->h + (w * p->every * n + i) * H, n * H, d);
        EACH(row, p->units) {
            vec sum = {0};
            VECTORS(j, H) sum += load(soft + row * H + j) * load(d + row * H + j);
            float whole = total(sum);
            for (long j = row * H; j < row * H + H; j += LANES) {
                vec share = load(soft + j) * (load(d + j) - whole);
                store(da + j, b->live ? load(da + j) + share : share);
            }
        }
    }
    b->live = 1;
}

/* Jumps */

/* compute n jumps from observation `first` on into the table from row `at` on; h before them is in the last columns of
 * `seen`. Fills features_in with x, μ, log σ² and e = (x − μ)/σ, and cell with r, z, n and h's term of n */
static void jump(State *b, long at, long n, long first) {
    const Pass *p = b->pass;
    long F = p->F, H = p->H, D = p->D, Q = p->Q;
    float *hidden = b->hidden + at * Q, *features_in = b->features_in + at * 4 * D, *inverse = b->inverse + at * D;
    float *seen = b->seen + at * (F + H), *cell = b->cell + at * 4 * H;
    product(n, p->units, Q, seen + F, F + H, p->weights[HIDDEN], p->weights[HIDDEN_BIAS], 0, hidden, Q);
    VECTORS(j, n * Q) {
        vec y = positive(load(hidden + j));
        store(hidden + j, p->dropout ? y * load(p->dropout + first * Q + j) : y);
    }
    product(n, Q, 4 * D, hidden, Q, p->weights[OUT], p->weights[OUT_BIAS], 0, features_in, 4 * D);
    EACH(i, n) {
        const float *x = p->x + (first + i) * D, *unobserved = p->unobserved + (first + i) * F;
        float *half = features_in + i * 4 * D, *error = half + 3 * D;
        VECTORS(j, D) {
            vec one = exponential(load(half + j));
            store(inverse + i * D + j, one);
            store(error + j, (load(error + j) + load(x + j)) * one);
            store(half + j, load(x + j));
        }
        VECTORS(j, F) store(seen + i * (F + H) + j, load(p->weights[FEATURES_BIAS] + j) + load(unobserved + j));
    }
    product(n, 4 * D, F, features_in, 4 * D, p->weights[FEATURES], seen, F + H, seen, F + H);
    EACH(i, n) VECTORS(j, F) store(seen + i * (F + H) + j, positive(load(seen + i * (F + H) + j)));
    product(n, F + H, 4 * H, seen, F + H, p->weights[CELL], p->weights[CELL_BIAS], 0, cell, 4 * H);
    EACH(i, n) VECTORS(j, H) {
        float *c = cell + i * 4 * H + j;
        vec r = sigmoid(load(c));
        store(c, r);
        store(c + H, sigmoid(load(c + H)));
        store(c + 2 * H, tanh_of(sigmoid(2.0f * (load(c + 2 * H) + r * load(c + 3 * H)))));
    }
}

/* compute ∂h before n jumps from that after them */
static void jump_back(State *b, long at, long n, long first) {
    const Pass *p = b->pass;
    const int64_t *series = p->observations.series + first;
    long F = p->F, H = p->H, D = p->D, Q = p->Q;
    float *hidden = b->hidden + at * Q, *features_in = b->features_in + at * 4 * D, *inverse = b->inverse + at * D;
    float *seen = b->seen + at * (F + H), *cell = b->cell + at * 4 * H, *d_hidden = b->d_hidden + at * Q;
    float *d_out = b->d_out + at * 4 * D, *d_features = b->d_features + at * F, *d_seen = b->d_seen + at * (F + H);
    EACH(i, n) {
        VECTORS(j, H) {
            float *c = cell + i * 4 * H + j;
            vec now = load(b->dh + series[i] * H + j) + load(p->d_after + (first + i) * H + j);
            vec r = load(c), z = load(c + H), new = load(c + 2 * H), own = load(c + 3 * H);
            vec h = load(seen + i * (F + H) + F + j), stay = now * z;
            vec d_new = through_tanh(now - stay, new);
            store(c, through_sigmoid(d_new * own, r));
            store(c + H, through_sigmoid(now * (h - new), z));
            store(c + 2 * H, d_new);
            store(c + 3 * H, d_new * r);
            store(d_seen + i * (F + H) + F + j, stay);
        }
        clear(d_seen + i * (F + H), F);
    }
    product(n, 4 * H, F + H, cell, 4 * H, p->transposed[CELL], d_seen, F + H, d_seen, F + H);
    EACH(i, n) {
        VECTORS(j, F)
            store(d_features + i * F + j, where_positive(load(seen + i * (F + H) + j), load(d_seen + i * (F + H) + j)));
        clear(d_out + i * 4 * D, 4 * D);
        copy(d_out + i * 4 * D + D, p->d_predicted + (first + i) * 2 * D, 2 * D);
    }
    product(n, F, 3 * D, d_features, F, p->transposed[FEATURES], d_out + D, 4 * D, d_out + D, 4 * D);
    EACH(i, n) VECTORS(j, D) {
        float *d = d_out + i * 4 * D + j;
        vec error = load(d + 3 * D);
        store(d, error * load(features_in + i * 4 * D + 3 * D + j));
        store(d + 3 * D, error * load(inverse + i * D + j));
    }
    product(n, 4 * D, Q, d_out, 4 * D, p->transposed[OUT], NULL, 0, d_hidden, Q);
    VECTORS(j, n * Q) {
        vec d = load(d_hidden + j);
        store(d_hidden + j, where_positive(load(hidden + j), p->dropout ? d * load(p->dropout + first * Q + j) : d));
    }
    product(n, Q, H, d_hidden, Q, p->transposed[HIDDEN], d_seen + F, F + H, d_seen + F, F + H);
    EACH(i, n) copy(b->dh + series[i] * H, d_seen + i * (F + H) + F, H);
}

/* add the gradients of the weights over the jumps in the table */
static void add_jump_gradients(State *b) {
    const Pass *p = b->pass;
    long n = b->jumps, F = p->F, H = p->H, D = p->D, Q = p->Q;
    b->jumps = 0;
    if (!p->jump_needed) return;
    outer(n, H, Q, b->seen + F, F + H, b->d_hidden, Q, b->g[HIDDEN]);
    sums(n, Q, b->d_hidden, b->g[HIDDEN_BIAS]);
    outer(n, Q, 4 * D, b->hidden, Q, b->d_out, 4 * D, b->g[OUT]);
    sums(n, 4 * D, b->d_out, b->g[OUT_BIAS]);
    outer(n, 4 * D, F, b->features_in, 4 * D, b->d_features, F, b->g[FEATURES]);
    sums(n, F, b->d_features, b->g[FEATURES_BIAS]);
    outer(n, F + H, 4 * H, b->seen, F + H, b->cell, 4 * H, b->g[CELL]);
    sums(n, 4 * H, b->cell, b->g[CELL_BIAS]);
}

/* count the points of a row from `at` on, or before it, up to `end`: at most `most`, each of another series */
static long points_of_row(const Points *points, long at, long end, long row, long most) {
    long n = 0, way = at < end ? 1 : -1;
    for (; n < most && at + way * n != end; n++) {
        long one = at + way * n - (way < 0);
        if (points->row[one] != row || (n && points->series[one - way] == points->series[one])) break;
    }
    return n;
}

/* read h at the read points of a row, then update it at the observations */
static void read_and_observe(State *b, long row, float *h) {
    const Pass *p = b->pass;
    long F = p->F, H = p->H, D = p->D;
    for (; b->next_read < b->read_end && p->reads.row[b->next_read] == row; b->next_read++)
        copy(p->read + b->next_read * H, h + p->reads.series[b->next_read] * H, H);
    for (long n, first; (n = points_of_row(&p->observations, b->next_observation, b->observation_end, row, MAX_JUMPS));) {
        const int64_t *series = p->observations.series + b->next_observation;
        first = b->next_observation, b->next_observation += n;
        EACH(i, n) {
            copy(b->seen + i * (F + H) + F, h + series[i] * H, H);
            copy(p->before + (first + i) * H, h + series[i] * H, H);
        }
        jump(b, 0, n, first);
        EACH(i, n) {
            float *own = h + series[i] * H, *c = b->cell + i * 4 * H;
            VECTORS(j, H)
                store(own + j, load(c + 2 * H + j) + load(c + H + j) * (load(own + j) - load(c + 2 * H + j)));
            copy(p->after + (first + i) * H, own, H);
            copy(p->predicted + (first + i) * 2 * D, b->features_in + i * 4 * D + D, 2 * D);
        }
    }
}

/* gradient of the same: first the observations, then the read points, last one first */
static void read_and_observe_back(State *b, long row) {
    const Pass *p = b->pass;
    long F = p->F, H = p->H;
    for (long n; (n = points_of_row(&p->observations, b->next_observation, b->observation_end, row, MAX_JUMPS));) {
        b->next_observation -= n;
        if (b->jumps + n > MAX_JUMPS) add_jump_gradients(b);
        EACH(i, n) copy(b->seen + (b->jumps + i) * (F + H) + F, p->before + (b->next_observation + i) * H, H);
        jump(b, b->jumps, n, b->next_observation);
        jump_back(b, b->jumps, n, b->next_observation);
        b->jumps += n;
    }
    for (; b->next_read > b->read_end && p->reads.row[b->next_read - 1] == row; b->next_read--) {
        float *d = b->dh + p->reads.series[b->next_read - 1] * H;
        VECTORS(j, H) store(d + j, load(d + j) + load(p->d_read + (b->next_read - 1) * H + j));
    }
}

/* All rows */

/* run the rows between two saved states; `jump` is their first observation, whose results a backward pass knows */
static void run_rows(State *b, long first, long end, long jump) {
    const Pass *p = b->pass;
    long H = p->H;
    b->window = (first - 1) / p->every;
    for (long row = first, k = 0; row < end; row++, k++) {
        if (p->attention) {
            if (k % p->every == 0) open_window(b, k / p->every);
            attend(b, row, k);
        }
        step(b, row, k);
        if (!b->back) read_and_observe(b, row, b->h);
        else for (; jump < b->next_observation && p->observations.row[jump] == row; jump++)
            copy(b->h + ((k + 1) * b->count + p->observations.series[jump]) * H, p->after + jump * H, H);
        int last = k % p->every == p->every - 1 && row + 1 < p->S;  /* a is not read after the last row */
        if (p->attention && last) close_window(b, k / p->every);
    }
}

static void run_rows_back(State *b, long first, long end) {
    const Pass *p = b->pass;
    for (long row = end - 1, rows = 0; row >= first; row--) {
        long k = row - first, w = k / p->every;
        if (p->attention && !rows) {
            if (b->live) close_window_back(b, w);
            else clear(b->d_mean, b->count * p->H);
        }
        read_and_observe_back(b, row);
        step_back(b, row, k);
        if (p->attention) attend_back(b, k);
        rows++;
        if (k % p->every) continue;
        add_row_gradients(b, k, rows);
        if (p->attention) open_window_back(b, w, rows);
        rows = 0;
    }
}

static void run_block(void *of, long block, float *gradients) {
    State *b = of;
    const Pass *p = b->pass;
    const Points *points = &p->observations;
    b->lo = block * p->block;
    b->count = p->B - b->lo < p->block ? p->B - b->lo : p->block;
    b->next_observation = points->first[block + b->back], b->observation_end = points->first[block + !b->back];
    b->next_read = p->reads.first[block + b->back], b->read_end = p->reads.first[block + !b->back];
    b->live = b->jumps = 0;
    long rows = p->every * p->span, n = b->count, size = n * p->H, square = p->attention * p->units * p->H;
    if (!b->back) {
        copy(b->h, p->h0 + b->lo * p->H, size);
        if (square) copy(b->a, p->a0 + b->lo * square, n * square);
        read_and_observe(b, 0, b->h);
        for (long first = 1, saved = 0; first < p->S; first += rows, saved++) {
            copy(p->h_saved + (saved * p->B + b->lo) * p->H, b->h, size);
            if (square) copy(p->a_saved + (saved * p->B + b->lo) * square, b->a, n * square);
            run_rows(b, first, first + rows < p->S ? first + rows : p->S, 0);
        }
        return;
    }
    for (long i = 0; i < WEIGHTS; gradients += p->sizes[i++]) b->g[i] = gradients;
    clear(b->dh, size);
    for (long saved = (p->S - 2) / rows, end = p->S; end > 1; saved--, end = saved * rows + rows + 1) {
        long first = saved * rows + 1, jump = b->next_observation;
        while (jump > b->observation_end && points->row[jump - 1] >= first) jump--;
        copy(b->h, p->h_saved + (saved * p->B + b->lo) * p->H, size);
        if (square) copy(b->a, p->a_saved + (saved * p->B + b->lo) * square, n * square);
        run_rows(b, first, end, jump);
        run_rows_back(b, first, end);
    }
    read_and_observe_back(b, 0);
    add_jump_gradients(b);
    copy(p->d_h0 + b->lo * p->H, b->dh, size);
    if (b->live) copy(p->d_a0 + b->lo * square, b->da, n * square);
}

static int run(const Pass *p, int back) {
    State state = {.pass = p, .back = back};
    long size = 0;
    EACH(i, WEIGHTS) size += p->sizes[i];
    return run_blocks(&state, sizeof state, lay_state, run_block, (p->B + p->block - 1) / p->block, p->chunks,
                      p->threads, back ? p->shares : NULL, size);
}

int lanes(void) { return LANES; }

/* return 0, or 1 if there is no memory */
int pass_forward(const Pass *p) { return run(p, 0); }
int pass_backward(const Pass *p) { return run(p, 1); }
