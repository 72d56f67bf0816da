/* GRU-ODE-Bayes over a whole course, forward and back: the mathematics of jump_scan.py and jump_back.py, without
 * attention, in single precision.
 *
 * Series do not see each other, so a block of them is taken through all rows while its state stays near the core. What
 * is kept for the way back is h at every WINDOW-th row and around the jumps; the rest is computed again. A block's
 * share of the weights' gradients is summed by itself and the shares are added in order, so that the result does not
 * depend on the number of threads.
 *
 * Every matrix is packed with rows of a whole number of vectors, filled up with zeros. A NaN stays one.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define BLOCK 16   /* series */
#define WINDOW 16  /* rows */
#define ROOM 128   /* jumps whose shares are summed at once */
#define CHUNKS 64  /* sums of gradients, at most */
#define NOTHING -1e9f
#define INLINE static inline __attribute__((always_inline))
#define EACH(i, n) for (long i = 0; i < (n); i++)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

enum { F_RESET, F_OPEN, F_NEW, HIDDEN, HIDDEN_BIAS, OUT, OUT_BIAS, FEATURES, FEATURES_BIAS, CELL, CELL_BIAS, WEIGHTS };

typedef struct {  /* the halts of a kind, by block of series and then by row */
    const int64_t *first, *order, *row, *series;
} Halts;

typedef struct {
    int64_t B, H, D, p, F, S, own_steps, threads, needed;
    const float *dt, *h0, *x, *m, *kept;
    const float *weights[WEIGHTS];
    Halts jumps, looks;
    float *said, *before, *after, *reads, *marks;
    const float *d_said, *d_after, *d_reads;
    float *d_h0;
    float *d_weights[WEIGHTS];
} Job;

/* Vectors ---------------------------------------------------------------------------------------------------------- */

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec both(float x) { return x - (vec){0}; }
INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }

/* e^x = 2^n e^f, |f| <= log(2)/2, for x within what a normal number holds */
INLINE vec power(vec x) {
    const float magic = 12582912.0f;
    vec n = x * 1.44269504088896341f + magic;
    ivec scale = (((ivec)n) << 23) + (127 << 23);
    n -= magic;
    vec f = x - n * 0.693359375f - n * -2.12194440e-4f;
    vec y = f * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * f + 8.3334519073e-3f;
    y = y * f + 4.1665795894e-2f;
    y = y * f + 1.6666665459e-1f;
    y = y * f + 5.0000001201e-1f;
    y = y * f * f + f + 1.0f;
    return y * (vec)scale;
}

INLINE vec exponential(vec x) {
    vec held = choose(x > both(88.0f), both(88.0f), choose(x < both(-87.0f), both(-87.0f), x));
    vec y = choose(x > both(88.72f), both(__builtin_inff()), power(held));
    return choose(x < both(-87.33f), both(0.0f), y);
}

INLINE vec sigmoid(vec x) {
    x = choose(x < both(-80.0f), both(-80.0f), choose(x > both(80.0f), both(80.0f), x));
    return 1.0f / (1.0f + power(-x));
}

INLINE vec positive(vec x) { return choose(x < both(0.0f), both(0.0f), x); }
INLINE vec where_positive(vec x, vec d) { return choose(x <= both(0.0f), both(0.0f), d); }

/* Products --------------------------------------------------------------------------------------------------------- */

#define UNROLL _Pragma("GCC unroll 8")

/* C = C0 + A B for M rows and V vectors of columns */
INLINE void tile(const int M, const int V, long K, const float *A, long lda, const float *B, long ldb,
                 const float *C0, long ld0, float *C, long ldc) {
    vec sum[4][4];
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int j = 0; j < V; j++) sum[i][j] = C0 ? load(C0 + i * ld0 + j * LANES) : (vec){0};
    for (long k = 0; k < K; k++, B += ldb) {
        vec b[4];
        UNROLL for (int j = 0; j < V; j++) b[j] = load(B + j * LANES);
        UNROLL for (int i = 0; i < M; i++) {
            float a = A[i * lda + k];
            UNROLL for (int j = 0; j < V; j++) sum[i][j] += a * b[j];
        }
    }
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int j = 0; j < V; j++) store(C + i * ldc + j * LANES, sum[i][j]);
}

#define TILE(M, V) case 4 * M + V - 5: tile(M, V, K, A, lda, B, ldb, C0, ld0, C, ldc); break;

static void tiles(int M, int V, long K, const float *A, long lda, const float *B, long ldb, const float *C0, long ld0,
                  float *C, long ldc) {
    switch (4 * M + V - 5) {
        TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(1, 4) TILE(2, 1) TILE(2, 2) TILE(2, 3) TILE(2, 4)
        TILE(3, 1) TILE(3, 2) TILE(3, 3) TILE(3, 4) TILE(4, 1) TILE(4, 2) TILE(4, 3) TILE(4, 4)
    }
}

/* the widths of the panels that n vectors are cut into differ by at most one */
INLINE int width(long n, long j) {
    long left = n - j, panels = (left + 3) / 4;
    return (int)((left + panels - 1) / panels);
}

/* C (M, N) = C0 + A (M, K) B (K, N); C0 may be none, C itself, or one row for all (ld0 = 0) */
static void product(long M, long K, long N, const float *A, long lda, const float *B, const float *C0, long ld0,
                    float *C, long ldc) {
    for (long j = 0, n = N / LANES, V; j < n; j += V) {
        V = width(n, j);
        long at = j * LANES;
        for (long i = 0; i < M; i += 4)
            tiles(M - i < 4 ? (int)(M - i) : 4, (int)V, K, A + i * lda, lda, B + at, N,
                  C0 ? C0 + i * ld0 + at : NULL, ld0, C + i * ldc + at, ldc);
    }
}

INLINE void outer_tile(const int V, long R, const float *X, long ldx, const float *Y, long ldy, float *G, long ldg) {
    vec sum[4][4];
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < V; j++) sum[i][j] = load(G + i * ldg + j * LANES);
    for (long r = 0; r < R; r++, X += ldx, Y += ldy) {
        vec y[4];
        UNROLL for (int j = 0; j < V; j++) y[j] = load(Y + j * LANES);
        UNROLL for (int i = 0; i < 4; i++) {
            float x = X[i];
            UNROLL for (int j = 0; j < V; j++) sum[i][j] += x * y[j];
        }
    }
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < V; j++) store(G + i * ldg + j * LANES, sum[i][j]);
}

/* G (K, N) += Xᵀ Y, both of R rows; G has room for a multiple of four rows */
static void outer(long R, long K, long N, const float *X, long ldx, const float *Y, long ldy, float *G) {
    for (long j = 0, n = N / LANES, V; j < n; j += V) {
        V = width(n, j);
        for (long i = 0; i < K; i += 4) {
            float *to = G + i * N + j * LANES;
            const float *from = Y + j * LANES;
            switch (V) {
                case 1: outer_tile(1, R, X + i, ldx, from, ldy, to, N); break;
                case 2: outer_tile(2, R, X + i, ldx, from, ldy, to, N); break;
                case 3: outer_tile(3, R, X + i, ldx, from, ldy, to, N); break;
                default: outer_tile(4, R, X + i, ldx, from, ldy, to, N);
            }
        }
    }
}

static void sums(long R, long N, const float *Y, float *g) {
    EACH(r, R) for (long j = 0; j < N; j += LANES) store(g + j, load(g + j) + load(Y + r * N + j));
}

/* Packed weights --------------------------------------------------------------------------------------------------- */

typedef struct {  /* sizes filled up to whole vectors */
    long H, D, p, F;
} Padded;

typedef struct {  /* of weights, or of their gradients: gates (H, 2H), news (H, H) and as in Weights */
    float *gates, *news, *hidden, *hidden_bias, *out, *out_bias, *features, *features_bias, *cell, *cell_bias;
} Matrices;

typedef struct {
    const Job *job;
    Padded to;
    Matrices w, t;  /* and turned: (outputs, inputs) */
} Scan;

static long whole(long n) { return (n + LANES - 1) / LANES * LANES; }

static float *room(long n) {
    float *p = aligned_alloc(64, (size_t)((n * 4 + 127) / 64 * 64));
    if (p) memset(p, 0, (size_t)((n * 4 + 127) / 64 * 64));
    return p;
}

/* gives each its place from `base` on, and says how many numbers that takes */
static long lay(Matrices *to, Padded n, float *base) {
    long used = 0;
    struct { float **to; long size; } all[] = {
        {&to->gates, n.H * 2 * n.H}, {&to->news, n.H * n.H}, {&to->hidden, n.H * n.p}, {&to->hidden_bias, n.p},
        {&to->out, n.p * 4 * n.D}, {&to->out_bias, 4 * n.D}, {&to->features, 4 * n.D * n.F}, {&to->features_bias, n.F},
        {&to->cell, (n.F + n.H) * 4 * n.H}, {&to->cell_bias, 4 * n.H}};
    EACH(i, 10) {
        if (base) *all[i].to = base + used;
        used += (all[i].size + 15) / 16 * 16;
    }
    return used;
}

/* `blocks` sections of n rows or columns, each filled up to `padded` */
INLINE long place(long i, long n, long padded) { return i / n * padded + i % n; }

typedef struct {  /* where an entry of a given matrix lies in the packed one */
    long rows, row, row_to, columns, column, column_to;
} Form;

typedef struct {
    int which;
    float *packed;
    long N;  /* columns of the packed one */
    Form form;
} Entry;

/* every given matrix as sections of rows and of columns in a packed one; gates holds two of them side by side */
static int entries(const Job *job, Padded n, Matrices m, Entry *all) {
    long H = job->H, D = job->D, p = job->p, F = job->F;
    Entry found[] = {
        {F_RESET, m.gates, 2 * n.H, {H, H, n.H, H, H, n.H}},
        {F_OPEN, m.gates + n.H, 2 * n.H, {H, H, n.H, H, H, n.H}},
        {F_NEW, m.news, n.H, {H, H, n.H, H, H, n.H}},
        {HIDDEN, m.hidden, n.p, {H, H, n.H, p, p, n.p}},
        {HIDDEN_BIAS, m.hidden_bias, n.p, {1, 1, 1, p, p, n.p}},
        {OUT, m.out, 4 * n.D, {p, p, n.p, 4 * D, D, n.D}},
        {OUT_BIAS, m.out_bias, 4 * n.D, {1, 1, 1, 4 * D, D, n.D}},
        {FEATURES, m.features, n.F, {4 * D, D, n.D, F, F, n.F}},
        {FEATURES_BIAS, m.features_bias, n.F, {1, 1, 1, F, F, n.F}},
        {CELL, m.cell, 4 * n.H, {F, F, n.F, 4 * H, H, n.H}},
        {CELL, m.cell + n.F * 4 * n.H, 4 * n.H, {H, H, n.H, 4 * H, H, n.H}},
        {CELL_BIAS, m.cell_bias, 4 * n.H, {1, 1, 1, 4 * H, H, n.H}}};
    memcpy(all, found, sizeof found);
    return sizeof found / sizeof *found;
}

/* the second entry of the cell begins after the first one's F rows */
INLINE long skipped(const Job *job, const Entry *e, const Matrices *m) {
    return e->which == CELL && e->packed != m->cell ? job->F * 4 * job->H : 0;
}

static void turn(const float *from, long rows, long columns, float *to) {
    EACH(i, rows) EACH(j, columns) to[j * rows + i] = from[i * columns + j];
}

static float *pack(Scan *scan) {
    const Job *job = scan->job;
    Padded n = scan->to;
    Entry all[WEIGHTS + 1];
    long size = lay(&scan->w, n, NULL);
    float *memory = room(2 * size);
    if (!memory) return NULL;
    lay(&scan->w, n, memory);
    lay(&scan->t, n, memory + size);
    int count = entries(job, n, scan->w, all);
    EACH(e, count) {
        const float *from = job->weights[all[e].which] + skipped(job, all + e, &scan->w);
        Form f = all[e].form;
        EACH(i, f.rows) EACH(j, f.columns)
            all[e].packed[place(i, f.row, f.row_to) * all[e].N + place(j, f.column, f.column_to)] =
                from[i * f.columns + j];
    }
    turn(scan->w.gates, n.H, 2 * n.H, scan->t.gates);
    turn(scan->w.news, n.H, n.H, scan->t.news);
    turn(scan->w.hidden, n.H, n.p, scan->t.hidden);
    turn(scan->w.out, n.p, 4 * n.D, scan->t.out);
    turn(scan->w.features + n.D * n.F, 3 * n.D, n.F, scan->t.features);  /* x has no gradient */
    turn(scan->w.cell, n.F + n.H, 4 * n.H, scan->t.cell);
    EACH(i, n.H * n.H) scan->w.news[i] *= 2.0f;  /* tanh(y) = 2 σ(2y) − 1 */
    return memory;
}

/* One step of h ---------------------------------------------------------------------------------------------------- */

/* rows of n.H for each of `count` series; `trace` is where r, o (2H), r ⊙ h and u go */
static void step(const Scan *scan, long count, long row, long lo, const float *h, float *gates, float *read, float *u,
                 float *after) {
    const Job *job = scan->job;
    long H = scan->to.H;
    product(count, job->H, 2 * H, h, H, scan->w.gates, NULL, 0, gates, 2 * H);
    EACH(b, count) {
        float *r = gates + b * 2 * H, *o = r + H;
        const float *own = h + b * H;
        for (long j = 0; j < H; j += LANES) {
            vec open = sigmoid(load(r + j));
            store(r + j, open);
            store(read + b * H + j, open * load(own + j));
            store(o + j, sigmoid(load(o + j)));
        }
    }
    product(count, job->H, H, read, H, scan->w.news, NULL, 0, u, H);
    EACH(b, count) {
        float dt = job->own_steps ? job->dt[row * job->B + lo + b] : job->dt[row];
        for (long j = 0; j < H; j += LANES) {
            vec own = load(h + b * H + j), new = 2.0f * sigmoid(load(u + b * H + j)) - 1.0f;
            store(u + b * H + j, new);
            store(after + b * H + j, own + dt * load(gates + b * 2 * H + H + j) * (new - own));
        }
    }
}

/* Jumps ------------------------------------------------------------------------------------------------------------ */

typedef struct {  /* a row a jump; on the way back the gradients replace the cell's own columns */
    float *hidden, *told, *inverse, *seen, *cell, *d_hidden, *d_out, *d_features, *d_seen;
    long used;
} Table;

static long table_size(Padded n) { return 2 * n.p + 9 * n.D + 3 * n.F + 6 * n.H; }

static void lay_table(Table *t, Padded n, float *at) {
    t->used = 0;
    t->hidden = at, at += ROOM * n.p;
    t->told = at, at += ROOM * 4 * n.D;
    t->inverse = at, at += ROOM * n.D;
    t->seen = at, at += ROOM * (n.F + n.H);
    t->cell = at, at += ROOM * 4 * n.H;
    t->d_hidden = at, at += ROOM * n.p;
    t->d_out = at, at += ROOM * 4 * n.D;
    t->d_features = at, at += ROOM * n.F;
    t->d_seen = at, at += ROOM * (n.F + n.H);
}

/* those of n jumps from place `first` of the table on; h before them is in its seen columns. told becomes x, μ, log σ²
 * and e = (x − μ)/σ; cell r, z, n and the own share of n */
static void jump(const Scan *scan, Table *t, long first, long n, const int64_t *which) {
    const Job *job = scan->job;
    Padded to = scan->to;
    long F = to.F, H = to.H, D = to.D, p = to.p, each = job->F / job->D;
    float *hidden = t->hidden + first * p, *told = t->told + first * 4 * D, *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    product(n, job->H, p, seen + F, F + H, scan->w.hidden, scan->w.hidden_bias, 0, hidden, p);
    EACH(i, n) {
        for (long j = 0; j < p; j += LANES) store(hidden + i * p + j, positive(load(hidden + i * p + j)));
        if (job->kept) EACH(j, job->p) hidden[i * p + j] *= job->kept[which[i] * job->p + j];
    }
    product(n, job->p, 4 * D, hidden, p, scan->w.out, scan->w.out_bias, 0, told, 4 * D);
    EACH(i, n) {
        const float *x = job->x + which[i] * job->D, *m = job->m + which[i] * job->D;
        float *half = told + i * 4 * D, *error = half + 3 * D, *v = seen + i * (F + H);
        EACH(d, job->D) error[d] += x[d];
        for (long j = 0; j < D; j += LANES) {
            vec one = exponential(load(half + j));
            store(inverse + i * D + j, one);
            store(error + j, load(error + j) * one);
        }
        memcpy(half, x, (size_t)job->D * 4);
        memcpy(v, scan->w.features_bias, (size_t)F * 4);
        EACH(d, job->D) EACH(k, each) v[d * each + k] += (1.0f - m[d]) * NOTHING;
    }
    product(n, 4 * D, F, told, 4 * D, scan->w.features, seen, F + H, seen, F + H);
    EACH(i, n) for (long j = 0; j < F; j += LANES) {
        float *v = seen + i * (F + H) + j;
        store(v, positive(load(v)));
    }
    product(n, F + H, 4 * H, seen, F + H, scan->w.cell, scan->w.cell_bias, 0, cell, 4 * H);
    EACH(i, n) for (long j = 0; j < H; j += LANES) {
        float *c = cell + i * 4 * H + j;
        vec r = sigmoid(load(c));
        store(c, r);
        store(c + H, sigmoid(load(c + H)));
        store(c + 2 * H, 2.0f * sigmoid(2.0f * (load(c + 2 * H) + r * load(c + 3 * H))) - 1.0f);
    }
}

/* ∂h before n jumps from that after them, for those series */
static void jump_back(const Scan *scan, Table *t, long first, long n, const int64_t *which, const int64_t *series,
                      long lo, float *dh) {
    const Job *job = scan->job;
    Padded to = scan->to;
    long F = to.F, H = to.H, D = to.D, p = to.p;
    float *hidden = t->hidden + first * p, *told = t->told + first * 4 * D, *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    float *d_hidden = t->d_hidden + first * p, *d_out = t->d_out + first * 4 * D;
    float *d_features = t->d_features + first * F, *d_seen = t->d_seen + first * (F + H);
    EACH(i, n) {
        float *d = dh + (series[which[i]] - lo) * H;
        const float *more = job->d_after + which[i] * job->H;
        EACH(j, job->H) d[j] += more[j];
        for (long j = 0; j < H; j += LANES) {
            float *c = cell + i * 4 * H + j;
            vec r = load(c), z = load(c + H), new = load(c + 2 * H), own = load(c + 3 * H), now = load(d + j);
            vec h = load(seen + i * (F + H) + F + j), stay = now * z;
            vec d_new = (now - stay) * (1.0f - new * new);
            store(c, d_new * own * r * (1.0f - r));
            store(c + H, now * (h - new) * z * (1.0f - z));
            store(c + 2 * H, d_new);
            store(c + 3 * H, d_new * r);
            store(d_seen + i * (F + H) + F + j, stay);
        }
        memset(d_seen + i * (F + H), 0, (size_t)F * 4);
    }
    product(n, 4 * H, F + H, cell, 4 * H, scan->t.cell, d_seen, F + H, d_seen, F + H);
    EACH(i, n) {
        const float *said = job->d_said + which[i] * 2 * job->D;
        float *d = d_out + i * 4 * D;
        for (long j = 0; j < F; j += LANES)
            store(d_features + i * F + j, where_positive(load(seen + i * (F + H) + j), load(d_seen + i * (F + H) + j)));
        memset(d, 0, (size_t)D * 16);
        memcpy(d + D, said, (size_t)job->D * 4);
        memcpy(d + 2 * D, said + job->D, (size_t)job->D * 4);
    }
    product(n, F, 3 * D, d_features, F, scan->t.features, d_out + D, 4 * D, d_out + D, 4 * D);
    EACH(i, n) for (long j = 0; j < D; j += LANES) {
        float *d = d_out + i * 4 * D + j;
        vec error = load(d + 3 * D);
        store(d, error * load(told + i * 4 * D + 3 * D + j));
        store(d + 3 * D, error * load(inverse + i * D + j));
    }
    product(n, 4 * D, p, d_out, 4 * D, scan->t.out, NULL, 0, d_hidden, p);
    EACH(i, n) {
        if (job->kept) EACH(j, job->p) d_hidden[i * p + j] *= job->kept[which[i] * job->p + j];
        for (long j = 0; j < p; j += LANES)
            store(d_hidden + i * p + j, where_positive(load(hidden + i * p + j), load(d_hidden + i * p + j)));
    }
    product(n, p, H, d_hidden, p, scan->t.hidden, d_seen + F, F + H, d_seen + F, F + H);
    EACH(i, n) memcpy(dh + (series[which[i]] - lo) * H, d_seen + i * (F + H) + F, (size_t)H * 4);
}

/* what the jumps in the table add to the gradients of their weights */
static void settle(const Scan *scan, Table *t, const Matrices *g) {
    int64_t needed = scan->job->needed;
    Padded to = scan->to;
    long n = t->used, F = to.F, H = to.H, D = to.D;
    t->used = 0;
    if (needed >> HIDDEN & 1) outer(n, H, to.p, t->seen + F, F + H, t->d_hidden, to.p, g->hidden);
    if (needed >> HIDDEN_BIAS & 1) sums(n, to.p, t->d_hidden, g->hidden_bias);
    if (needed >> OUT & 1) outer(n, to.p, 4 * D, t->hidden, to.p, t->d_out, 4 * D, g->out);
    if (needed >> OUT_BIAS & 1) sums(n, 4 * D, t->d_out, g->out_bias);
    if (needed >> FEATURES & 1) outer(n, 4 * D, F, t->told, 4 * D, t->d_features, F, g->features);
    if (needed >> FEATURES_BIAS & 1) sums(n, F, t->d_features, g->features_bias);
    if (needed >> CELL & 1) outer(n, F + H, 4 * H, t->seen, F + H, t->cell, 4 * H, g->cell);
    if (needed >> CELL_BIAS & 1) sums(n, 4 * H, t->cell, g->cell_bias);
}

/* One block of series ---------------------------------------------------------------------------------------------- */

typedef struct {
    const Scan *scan;
    long lo, count;          /* its series */
    long jump, jump_end, look, look_end;
    float *h, *gates, *read, *u;  /* WINDOW rows of the block; of h one more */
    float *dh, *d_read;
    Table table;
} Walk;

static long walk_size(Padded n) { return BLOCK * n.H * (5 * WINDOW + 3) + ROOM * table_size(n); }

static void lay_walk(Walk *walk, const Scan *scan, float *at) {
    long H = scan->to.H;
    walk->scan = scan;
    walk->h = at, at += (WINDOW + 1) * BLOCK * H;
    walk->gates = at, at += WINDOW * BLOCK * 2 * H;
    walk->read = at, at += WINDOW * BLOCK * H;
    walk->u = at, at += WINDOW * BLOCK * H;
    walk->dh = at, at += BLOCK * H;
    walk->d_read = at, at += BLOCK * H;
    lay_table(&walk->table, scan->to, at);
}

static void begin(Walk *walk, long block, int at_end) {
    const Job *job = walk->scan->job;
    walk->lo = block * BLOCK;
    walk->count = job->B - walk->lo < BLOCK ? job->B - walk->lo : BLOCK;
    walk->jump = job->jumps.first[block + at_end], walk->jump_end = job->jumps.first[block + !at_end];
    walk->look = job->looks.first[block + at_end], walk->look_end = job->looks.first[block + !at_end];
}

/* how many halts from `at` on, in either direction, are those of a row: of as many series, at most `most` */
static long together(const Halts *halts, long at, long end, int back, long row, long most) {
    long n = 0;
    for (; n < most && (back ? at - n > end : at + n < end); n++) {
        int64_t one = halts->order[back ? at - 1 - n : at + n];
        if (halts->row[one] != row) break;
        if (n && halts->series[halts->order[back ? at - n : at + n - 1]] == halts->series[one]) break;
    }
    return n;
}

/* the reads and then the jumps of a row */
static void halt(Walk *walk, long row, float *h) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long F = scan->to.F, H = scan->to.H, D = scan->to.D;
    size_t wide = (size_t)job->H * 4, narrow = (size_t)job->D * 4;
    Table *t = &walk->table;
    for (; walk->look < walk->look_end; walk->look++) {
        int64_t one = job->looks.order[walk->look];
        if (job->looks.row[one] != row) break;
        memcpy(job->reads + one * job->H, h + (job->looks.series[one] - walk->lo) * H, wide);
    }
    for (long n; (n = together(&job->jumps, walk->jump, walk->jump_end, 0, row, ROOM)); walk->jump += n) {
        const int64_t *which = job->jumps.order + walk->jump;
        EACH(i, n) {
            const float *own = h + (job->jumps.series[which[i]] - walk->lo) * H;
            memcpy(t->seen + i * (F + H) + F, own, (size_t)H * 4);
            memcpy(job->before + which[i] * job->H, own, wide);
        }
        jump(scan, t, 0, n, which);
        EACH(i, n) {
            float *own = h + (job->jumps.series[which[i]] - walk->lo) * H, *c = t->cell + i * 4 * H;
            for (long j = 0; j < H; j += LANES)
                store(own + j, load(c + 2 * H + j) + load(c + H + j) * (load(own + j) - load(c + 2 * H + j)));
            memcpy(job->after + which[i] * job->H, own, wide);
            memcpy(job->said + which[i] * 2 * job->D, t->told + i * 4 * D + D, narrow);
            memcpy(job->said + which[i] * 2 * job->D + job->D, t->told + i * 4 * D + 2 * D, narrow);
        }
    }
}

static void forward_block(Walk *walk, long block) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H;
    begin(walk, block, 0);
    float *h = walk->h, *next = h + BLOCK * H;
    memset(h, 0, (size_t)(BLOCK * H) * 4);
    EACH(b, walk->count) memcpy(h + b * H, job->h0 + (walk->lo + b) * job->H, (size_t)job->H * 4);
    halt(walk, 0, h);
    for (long row = 1; row < job->S; row++) {
        if (row % WINDOW == 1)
            EACH(b, walk->count) memcpy(job->marks + (row / WINDOW * job->B + walk->lo + b) * job->H, h + b * H,
                                        (size_t)job->H * 4);
        step(scan, walk->count, row, walk->lo, h, walk->gates, walk->read, walk->u, next);
        float *old = h;
        h = next, next = old;
        halt(walk, row, h);
    }
}

/* The way back ----------------------------------------------------------------------------------------------------- */

/* the jumps and then the reads of a row, last one first */
static void halt_back(Walk *walk, long row, const Matrices *g) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long F = scan->to.F, H = scan->to.H;
    Table *t = &walk->table;
    for (long n; (n = together(&job->jumps, walk->jump, walk->jump_end, 1, row, ROOM)); ) {
        walk->jump -= n;
        const int64_t *which = job->jumps.order + walk->jump;
        if (t->used + n > ROOM) settle(scan, t, g);
        EACH(i, n) memcpy(t->seen + (t->used + i) * (F + H) + F, job->before + which[i] * job->H, (size_t)job->H * 4);
        jump(scan, t, t->used, n, which);
        jump_back(scan, t, t->used, n, which, job->jumps.series, walk->lo, walk->dh);
        t->used += n;
    }
    for (; walk->look > walk->look_end; walk->look--) {
        int64_t one = job->looks.order[walk->look - 1];
        if (job->looks.row[one] != row) break;
        float *d = walk->dh + (job->looks.series[one] - walk->lo) * H;
        EACH(j, job->H) d[j] += job->d_reads[one * job->H + j];
    }
}

/* ∂h before a step; the gradients of what the gates and u are made of take their places */
static void step_back(Walk *walk, long row, long k) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count;
    float *h = walk->h + k * n * H, *gates = walk->gates + k * n * 2 * H, *u = walk->u + k * n * H, *dh = walk->dh;
    float *d_read = walk->d_read;
    EACH(b, n) {
        float dt = job->own_steps ? job->dt[row * job->B + walk->lo + b] : job->dt[row];
        for (long j = 0; j < H; j += LANES) {
            vec d = load(dh + b * H + j), o = load(gates + b * 2 * H + H + j), new = load(u + b * H + j);
            vec scaled = d * dt, d_u = scaled * o;
            store(gates + b * 2 * H + H + j, scaled * (new - load(h + b * H + j)) * o * (1.0f - o));
            store(u + b * H + j, d_u * (1.0f - new * new));
            store(dh + b * H + j, d - d_u);
        }
    }
    product(n, job->H, H, u, H, scan->t.news, NULL, 0, d_read, H);
    EACH(b, n) for (long j = 0; j < H; j += LANES) {
        vec d = load(d_read + b * H + j), r = load(gates + b * 2 * H + j);
        store(dh + b * H + j, load(dh + b * H + j) + d * r);
        store(gates + b * 2 * H + j, d * load(h + b * H + j) * r * (1.0f - r));
    }
    product(n, 2 * H, H, gates, 2 * H, scan->t.gates, dh, H, dh, H);
}

/* the rows of a window again, from its mark; the jumps are known */
static void replay(Walk *walk, long first, long end, long jump) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count;
    EACH(b, n) memcpy(walk->h + b * H, job->marks + (first / WINDOW * job->B + walk->lo + b) * job->H,
                      (size_t)job->H * 4);
    for (long row = first; row < end; row++) {
        long k = row - first;
        float *h = walk->h + k * n * H, *after = h + n * H;
        step(scan, n, row, walk->lo, h, walk->gates + k * n * 2 * H, walk->read + k * n * H, walk->u + k * n * H,
             after);
        for (; jump < walk->jump && job->jumps.row[job->jumps.order[jump]] == row; jump++) {
            int64_t one = job->jumps.order[jump];
            memcpy(after + (job->jumps.series[one] - walk->lo) * H, job->after + one * job->H, (size_t)job->H * 4);
        }
    }
}

static void backward_block(Walk *walk, long block, const Matrices *g) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H;
    int64_t rows = job->needed & (1 << F_RESET | 1 << F_OPEN);
    begin(walk, block, 1);
    memset(walk->dh, 0, (size_t)(BLOCK * H) * 4);
    memset(walk->h, 0, (size_t)(BLOCK * H) * 4);
    for (long end = job->S, first; end > 1; end = first) {
        first = (end - 2) / WINDOW * WINDOW + 1;
        long jump = walk->jump;
        while (jump > walk->jump_end && job->jumps.row[job->jumps.order[jump - 1]] >= first) jump--;
        replay(walk, first, end, jump);
        for (long row = end - 1; row >= first; row--) {
            halt_back(walk, row, g);
            step_back(walk, row, row - first);
        }
        long n = (end - first) * walk->count;
        if (rows) outer(n, H, 2 * H, walk->h, H, walk->gates, 2 * H, g->gates);
        if (job->needed >> F_NEW & 1) outer(n, H, H, walk->read, H, walk->u, H, g->news);
    }
    halt_back(walk, 0, g);
    settle(scan, &walk->table, g);
    EACH(b, walk->count) memcpy(job->d_h0 + (walk->lo + b) * job->H, walk->dh + b * H, (size_t)job->H * 4);
}

/* Both ways, all blocks -------------------------------------------------------------------------------------------- */

static void hand_out(const Scan *scan, float *sums, long chunks, long size) {
    const Job *job = scan->job;
    Entry all[WEIGHTS + 1];
    Matrices g;
    for (long c = 1; c < chunks; c++) EACH(i, size) sums[i] += sums[c * size + i];
    lay(&g, scan->to, sums);
    int count = entries(job, scan->to, g, all);
    EACH(e, count) {
        float *to = job->d_weights[all[e].which];
        if (!to) continue;
        to += skipped(job, all + e, &g);
        Form f = all[e].form;
        EACH(i, f.rows) EACH(j, f.columns) to[i * f.columns + j] =
            all[e].packed[place(i, f.row, f.row_to) * all[e].N + place(j, f.column, f.column_to)];
    }
}

static int run(const Job *job, int back) {
    Scan scan = {.job = job, .to = {whole(job->H), whole(job->D), whole(job->p), whole(job->F)}};
    long blocks = (job->B + BLOCK - 1) / BLOCK, chunks = blocks < CHUNKS ? blocks : CHUNKS, size = lay(&scan.w, scan.to, NULL);
    float *packed = pack(&scan), *sums = back ? room(size * (chunks ? chunks : 1)) : NULL;
    int failed = !packed || (back && !sums);
    if (!failed) {
#pragma omp parallel num_threads((int)job->threads) reduction(| : failed)
        {
            Walk walk;
            float *memory = room(walk_size(scan.to));
            failed |= !memory;
            if (memory) lay_walk(&walk, &scan, memory);
#pragma omp for schedule(dynamic)
            for (long c = 0; c < chunks; c++) {
                Matrices g;
                if (!memory) continue;
                if (back) lay(&g, scan.to, sums + c * size);
                for (long block = blocks * c / chunks; block < blocks * (c + 1) / chunks; block++) {
                    if (back) backward_block(&walk, block, &g);
                    else forward_block(&walk, block);
                }
            }
            free(memory);
        }
        if (back && !failed) hand_out(&scan, sums, chunks, size);
    }
    free(packed);
    free(sums);
    return failed;
}

int jump_forward(const Job *job) { return run(job, 0); }

int jump_backward(const Job *job) { return run(job, 1); }

int jump_block(void) { return BLOCK; }

int jump_window(void) { return WINDOW; }
