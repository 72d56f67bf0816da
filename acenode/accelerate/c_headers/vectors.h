/* Vectors of floats, the functions of a gated unit, and products of small matrices.
 *
 * Rows of matrices are padded with zeros to a whole number of vectors. A NaN stays a NaN.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define EACH(i, n) for (long i = 0; i < (n); i++)
#define VECTORS(j, n) for (long j = 0; j < (n); j += LANES)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec all(float x) { return x - (vec){0}; }
INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }
INLINE float total(vec v) {
    float s = 0;
    UNROLL for (int l = 0; l < LANES; l++) s += v[l];
    return s;
}

#ifdef __ARM_NEON
INLINE vec at_most(vec x, float most) { return vminq_f32(x, all(most)); }
INLINE vec at_least(vec x, float least) { return vmaxq_f32(x, all(least)); }
INLINE vec reciprocal(vec x) {  /* an 8-bit estimate with two Newton steps, faster than a division */
    vec y = vrecpeq_f32(x);
    y *= vrecpsq_f32(x, y);
    return y * vrecpsq_f32(x, y);
}
#else
INLINE vec at_most(vec x, float most) { return choose(x > all(most), all(most), x); }
INLINE vec at_least(vec x, float least) { return choose(x < all(least), all(least), x); }
INLINE vec reciprocal(vec x) { return 1.0f / x; }
#endif

/* e^x = 2^n e^f, |f| <= log(2)/2, for x where e^x is a normal number */
INLINE vec exp_in_range(vec x) {
    const float magic = 12582912.0f;  /* 1.5 · 2^23: adding it rounds and leaves n in the lowest bits */
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
    vec y = exp_in_range(at_least(at_most(x, 88.0f), -87.0f));
    y = choose(x > all(88.72f), all(__builtin_inff()), y);
    return choose(x < all(-87.33f), all(0.0f), y);
}

/* σ(x) = sigmoid_scaled(SIGMOID_SCALE x); packed weights of gates contain the factor */
#define SIGMOID_SCALE -1.44269504088896341f

/* 1 / (1 + 2^y), 2^y = 2^n 2^f, |f| <= 1/2 */
INLINE vec sigmoid_scaled(vec y) {
    const float magic = 12582912.0f + 127.0f;
    y = at_least(at_most(y, 120.0f), -120.0f);
    vec n = y + magic;
    vec scale = (vec)(((ivec)n) << 23), f = y - (n - magic);
    vec square = f * f, p = f * 1.3276455e-3f + 9.6755421e-3f;
    p = p * square + (f * 5.5507134e-2f + 2.4022120e-1f);
    p = p * square + (f * 6.9314697e-1f + 1.0f);
    return reciprocal(p * scale + 1.0f);
}

/* apply sigmoid_scaled to n numbers, a whole number of vectors, four vectors at a time */
static void sigmoid_all_scaled(float *x, long n) {
    long i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec y[4];
        UNROLL for (int k = 0; k < 4; k++) y[k] = load(x + i + k * LANES);
        UNROLL for (int k = 0; k < 4; k++) y[k] = sigmoid_scaled(y[k]);
        UNROLL for (int k = 0; k < 4; k++) store(x + i + k * LANES, y[k]);
    }
    for (; i < n; i += LANES) store(x + i, sigmoid_scaled(load(x + i)));
}

INLINE vec sigmoid(vec x) { return sigmoid_scaled(x * SIGMOID_SCALE); }
INLINE vec tanh_of(vec sigmoid_of_2x) { return 2.0f * sigmoid_of_2x - 1.0f; }  /* tanh(x) = 2 σ(2x) − 1 */
INLINE vec positive(vec x) { return at_least(x, 0.0f); }
INLINE vec where_positive(vec x, vec d) { return choose(x <= all(0.0f), all(0.0f), d); }
INLINE vec through_sigmoid(vec d, vec y) { return d * y * (1.0f - y); }
INLINE vec through_tanh(vec d, vec y) { return d * (1.0f - y * y); }

#ifdef __ARM_NEON
#define BY_LANE 1  /* the processor can multiply by one lane of a vector, which saves loads */
#else
#define BY_LANE 0
#endif

#if defined(__ARM_NEON) || defined(__AVX512VL__)
#define TALL 5  /* rows and vectors of a tile, at most: with the operands they fill 32 registers, or 16 */
#define WIDE 4
#else
#define TALL 4
#define WIDE 3
#endif

/* C = C0 + A B for M rows and V vectors of columns, with the sums in registers */
INLINE void tile(const int M, const int V, long K, const float *A, long lda, const float *B, long ldb,
                 const float *C0, long ld0, float *C, long ldc) {
    vec sum[TALL][8];
    long k = 0;
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int j = 0; j < V; j++) sum[i][j] = C0 ? load(C0 + i * ld0 + j * LANES) : (vec){0};
    for (; BY_LANE && k + LANES <= K; k += LANES) {
        vec a[TALL];
        UNROLL for (int i = 0; i < M; i++) a[i] = load(A + i * lda + k);
        UNROLL for (int l = 0; l < LANES; l++, B += ldb)
            UNROLL for (int j = 0; j < V; j++) {
                vec b = load(B + j * LANES);
                UNROLL for (int i = 0; i < M; i++) sum[i][j] += a[i][l] * b;
            }
    }
    for (; k < K; k++, B += ldb) {
        vec b[8];
        UNROLL for (int j = 0; j < V; j++) b[j] = load(B + j * LANES);
        UNROLL for (int i = 0; i < M; i++) {
            float a = A[i * lda + k];
            UNROLL for (int j = 0; j < V; j++) sum[i][j] += a * b[j];
        }
    }
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int j = 0; j < V; j++) store(C + i * ldc + j * LANES, sum[i][j]);
}

#define TILE(M, V) case 8 * M + V: tile(M, V, K, A, lda, B, ldb, C0, ld0, C, ldc); break;

static void tiles(long M, long V, long K, const float *A, long lda, const float *B, long ldb, const float *C0, long ld0,
                  float *C, long ldc) {
    switch (8 * M + V) {
        TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(1, 4) TILE(1, 5) TILE(1, 6) TILE(1, 7)
        TILE(2, 1) TILE(2, 2) TILE(2, 3) TILE(2, 4) TILE(2, 5) TILE(2, 6)
        TILE(3, 1) TILE(3, 2) TILE(3, 3) TILE(3, 4) TILE(4, 1) TILE(4, 2) TILE(4, 3) TILE(4, 4)
#if TALL > 4
        TILE(5, 1) TILE(5, 2) TILE(5, 3) TILE(5, 4)
#endif
    }
}

/* divide the remaining vectors into panels whose widths differ by at most one */
INLINE long width(long left, long most) {
    long panels = (left + most - 1) / most;
    return (left + panels - 1) / panels;
}

/* C (M, N) = C0 + A (M, K) B (K, N); C0 may be NULL, C itself, or one row for all (ld0 = 0) */
static void product(long M, long K, long N, const float *A, long lda, const float *B, const float *C0, long ld0,
                    float *C, long ldc) {
    long most = M == 1 ? 7 : M == 2 ? 6 : WIDE;
    for (long j = 0, n = N / LANES, V; j < n; j += V) {
        V = width(n - j, most);
        long at = j * LANES;
        for (long i = 0, rows; i < M; i += rows) {
            rows = width(M - i, TALL);
            tiles(rows, V, K, A + i * lda, lda, B + at, N, C0 ? C0 + i * ld0 + at : NULL, ld0,
                  C + i * ldc + at, ldc);
        }
    }
}

INLINE void outer_tile(const int V, long R, const float *X, long ldx, const float *Y, long ldy, float *G, long ldg) {
    vec sum[4][4];
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < V; j++) sum[i][j] = load(G + i * ldg + j * LANES);
    for (long r = 0; r < R; r++, X += ldx, Y += ldy) {
        vec x = BY_LANE ? load(X) : (vec){0};
        UNROLL for (int j = 0; j < V; j++) {
            vec y = load(Y + j * LANES);
            UNROLL for (int i = 0; i < 4; i++) sum[i][j] += (BY_LANE ? x[i] : X[i]) * y;
        }
    }
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < V; j++) store(G + i * ldg + j * LANES, sum[i][j]);
}

/* G (K, N) += Xᵀ Y for X and Y of R rows; K is a whole number of vectors too */
static void outer(long R, long K, long N, const float *X, long ldx, const float *Y, long ldy, float *G) {
    for (long j = 0, n = N / LANES, V; j < n; j += V) {
        V = width(n - j, WIDE);
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

/* g (N) += the sum of R rows */
static void sums(long R, long N, const float *Y, float *g) {
    EACH(r, R) VECTORS(j, N) store(g + j, load(g + j) + load(Y + r * N + j));
}

static void copy(float *to, const float *from, long n) { memcpy(to, from, (size_t)n * sizeof(float)); }
static void clear(float *to, long n) { memset(to, 0, (size_t)n * sizeof(float)); }

/* softmax of n numbers; `wide` is n rounded up to whole vectors, filled with zeros */
static void softmax(const float *from, long n, long wide, float *to) {
    vec top = all(from[0]), sum = {0};
    float most = from[0];
    copy(to, from, n);
    for (long j = n; j < wide; j++) to[j] = most;
    VECTORS(j, wide) top = choose(load(to + j) > top, load(to + j), top);
    EACH(k, LANES) most = top[k] > most ? top[k] : most;
    VECTORS(j, wide) store(to + j, exp_in_range(at_least(load(to + j) - most, -87.0f)));
    for (long j = n; j < wide; j++) to[j] = 0.0f;
    VECTORS(j, wide) sum += load(to + j);
    float scale = 1.0f / total(sum);
    VECTORS(j, wide) store(to + j, load(to + j) * scale);
}

/* allocate zeros; NULL if there is no memory */
static float *allocate(long n) {
    long bytes = (n * 4 + 127) / 64 * 64;
    float *p = aligned_alloc(64, (size_t)bytes);
    if (p) memset(p, 0, (size_t)bytes);
    return p;
}

typedef struct {
    float **to;
    long size;
} Place;

/* assign consecutive memory from `base` on, unless it is NULL; return how many floats are needed */
static long lay(const Place *places, long n, float *base) {
    long used = 0;
    EACH(i, n) {
        if (base) *places[i].to = base + used;
        used += (places[i].size + 15) / 16 * 16;
    }
    return used;
}

/* Run blocks of series in parallel. Each thread has a copy of `start` with memory of its own, which `lay_state` assigns.
 * The blocks of a chunk add their gradients to `size` floats of `shares`, if that is not NULL, and the sums of the chunks
 * are added to the first in order, so the result does not depend on the number of threads. Return 0, or 1 if there is no
 * memory. */
static inline int run_blocks(const void *start, size_t bytes, long (*lay_state)(void *, float *),
                             void (*run)(void *, long, float *), long blocks, long chunks, long threads, float *shares,
                             long size) {
    int failed = 0;
#pragma omp parallel num_threads((int)threads) reduction(| : failed)
    {
        void *state = memcpy(malloc(bytes), start, bytes);
        float *memory = allocate(lay_state(state, NULL));
        if (memory) lay_state(state, memory);
        else failed = 1;
#pragma omp for schedule(dynamic)
        for (long c = 0; c < chunks; c++)
            for (long block = blocks * c / chunks; memory && block < blocks * (c + 1) / chunks; block++)
                run(state, block, shares ? shares + c * size : NULL);
        free(memory);
        free(state);
    }
    for (long c = 1; shares && c < chunks; c++) EACH(i, size) shares[i] += shares[c * size + i];
    return failed;
}
