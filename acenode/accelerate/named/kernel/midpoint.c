/* Named variables by steps of the midpoint rule, forward and backward, in single precision.
 *
 *     k1 = F(t, y)        k2 = F(t + dt/2, y + dt/2 k1)        y ← y + dt k2
 *
 * Series are independent, so a block of them runs through all steps while its state stays in the cache. The forward pass
 * saves the states at the ends of steps and, if they fit, the hidden layers; the backward pass recomputes the rest. Parts
 * of the batch sum the gradients of the weights separately and the sums are added in a fixed order, so the result does not
 * depend on the number of threads.
 */

#include "vectors.h"
#include "field.h"

#define CHUNKS 32  /* separate sums of gradients, at most */

int lanes(void) { return LANES; }

static long lay_block(Block *b, const Shape *to, int back, float *base) {
    const Solve *solve = to->solve;
    long n = solve->block, V = to->V, R = n * V, Vp = to->Vp, Kp = to->Kp, Rp = to->Rp;
    long pairs = solve->attention == EVOLVING ? R * Vp : 0, hidden = solve->save ? 0 : R * to->Up, g = back ? 1 : 0;
    Place places[48];
    long count = 0;
#define TAKE(pointer, size) places[count++] = (Place){&(pointer), size}
    EACH(i, back ? 2 : 1) {
        Stage *s = b->stage + i;
        TAKE(s->x, R * to->X); TAKE(s->S, pairs); TAKE(s->u, R * Rp); TAKE(s->w, R * Rp);
        TAKE(s->own_z1, hidden); TAKE(s->own_z2, hidden);
    }
    TAKE(b->h, R * Kp); TAKE(b->a, pairs); TAKE(b->h_mid, R * Kp); TAKE(b->a_mid, pairs);
    TAKE(b->dh, R * Kp); TAKE(b->da, pairs);
    TAKE(b->wT, Rp * Vp); TAKE(b->row1, V * to->Up); TAKE(b->row_u, V * Rp); TAKE(b->row_w, V * Rp);
    TAKE(b->gh, g * R * Kp); TAKE(b->ga, g * pairs); TAKE(b->gh_mid, g * R * Kp); TAKE(b->ga_mid, g * pairs);
    TAKE(b->gk_h, g * R * Kp); TAKE(b->gk_a, g * pairs); TAKE(b->dz1, g * R * to->Up); TAKE(b->dz2, g * R * to->Up);
    TAKE(b->dx, g * R * to->X); TAKE(b->dm, g * R * Kp); TAKE(b->hT, g * Kp * Vp); TAKE(b->dS, g * V * Vp);
    TAKE(b->sum, g * Vp * Kp); TAKE(b->du, g * V * Rp); TAKE(b->dw, g * Vp * Rp);
#undef TAKE
    return lay(places, count, base);
}

/* copy h between rows of K numbers and padded rows */
static void unpad(const Block *b, const float *from, float *to) {
    const Shape *shape = b->shape;
    EACH(r, b->count * shape->V) copy(to + (b->lo * shape->V + r) * shape->solve->K, from + r * shape->Kp, shape->solve->K);
}

static void pad(const Block *b, const float *from, float *to) {
    const Shape *shape = b->shape;
    EACH(r, b->count * shape->V) copy(to + r * shape->Kp, from + (b->lo * shape->V + r) * shape->solve->K, shape->solve->K);
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

static void forward_block(Block *b, long block) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, all = solve->B * V * solve->K, n = b->count * V * to->Kp;
    long pairs = solve->attention == EVOLVING ? b->count * V * to->Vp : 0;
    float *da = pairs ? b->da : NULL;
    pad(b, solve->h0, b->h);
    if (pairs) EACH(i, b->count) copy(b->a + i * V * to->Vp, solve->weights[A0], V * to->Vp);
    unpad(b, b->h, solve->h);
    solve->failed[block] = solve->N;
    EACH(i, solve->N) {
        float dt = solve->dt[i];
        if (pairs && solve->a_saved) copy(solve->a_saved + (i * solve->B + b->lo) * V * to->Vp, b->a, pairs);
        evaluate(b, b->stage, 2 * i, b->h, b->a, b->dh, da, 0);
        if (solve->slopes) unpad(b, b->dh, solve->k + i * all);
        combine(n, b->h, 0.5f * dt, b->dh, b->h_mid);
        combine(pairs, b->a, 0.5f * dt, b->da, b->a_mid);
        evaluate(b, b->stage, 2 * i + 1, b->h_mid, b->a_mid, b->dh, da, 0);
        combine(n, b->h, dt, b->dh, b->h);
        combine(pairs, b->a, dt, b->da, b->a);
        unpad(b, b->h, solve->h + (i + 1) * all);
        if (solve->failed[block] == solve->N && !(is_finite(n, b->h) && is_finite(pairs, b->a))) solve->failed[block] = i;
    }
    if (!solve->slopes) return;
    if (pairs && solve->a_saved) copy(solve->a_saved + (solve->N * solve->B + b->lo) * V * to->Vp, b->a, pairs);
    evaluate(b, b->stage, 2 * solve->N, b->h, b->a, b->dh, NULL, 0);
    unpad(b, b->dh, solve->k + solve->N * all);
}

/* add the gradient of h, or of its slope, at the end of a step */
static void add_output_gradient(Block *b, const float *d, long step, float *to) {
    const Shape *shape = b->shape;
    const Solve *solve = shape->solve;
    long V = shape->V, K = solve->K;
    const float *from = d + (step * solve->B + b->lo) * V * K;
    EACH(r, b->count * V) EACH(j, K) to[r * shape->Kp + j] += from[r * K + j];
}

static void backward_block(Block *b, float *const *g) {
    const Shape *to = b->shape;
    const Solve *solve = to->solve;
    long V = to->V, all = solve->B * V * solve->K, n = b->count * V * to->Kp, N = solve->N;
    long pairs = solve->attention == EVOLVING ? b->count * V * to->Vp : 0;
    int live = pairs && !solve->detach;  /* a has a gradient */
    clear(b->gh, n);
    clear(b->ga, pairs);
    for (long i = N; i >= 0; i--) {
        int step = i < N;
        if (!step && !solve->slopes) {
            add_output_gradient(b, solve->d_h, i, b->gh);
            continue;
        }
        pad(b, solve->h + i * all, b->h);
        const float *a = pairs ? solve->a_saved + (i * solve->B + b->lo) * V * to->Vp : NULL;
        evaluate(b, b->stage, 2 * i, b->h, a, step ? b->dh : NULL, step && pairs ? b->da : NULL, 1);
        clear(b->gk_h, n);
        clear(b->gk_a, pairs);
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
            evaluate_back(b, b->stage + 1, b->gk_h, live ? b->gk_a : NULL, b->gh_mid, b->ga_mid, g);
            combine(n, b->gh, 1.0f, b->gh_mid, b->gh);
            combine(pairs, b->ga, 1.0f, b->ga_mid, b->ga);
            clear(b->gk_h, n);
            clear(b->gk_a, pairs);
            combine(n, b->gk_h, 0.5f * dt, b->gh_mid, b->gk_h);
            if (live) combine(pairs, b->gk_a, 0.5f * dt, b->ga_mid, b->gk_a);
        }
        if (solve->slopes) add_output_gradient(b, solve->d_k, i, b->gk_h);
        evaluate_back(b, b->stage, b->gk_h, live && step ? b->gk_a : NULL, b->gh, b->ga, g);
        add_output_gradient(b, solve->d_h, i, b->gh);
    }
    unpad(b, b->gh, solve->d_h0);
    if (live) EACH(i, b->count) combine(V * to->Vp, g[A0], 1.0f, b->ga + i * V * to->Vp, g[A0]);
}

/* fill in the sizes and the transposed weights; return their memory, or NULL if there is none */
static float *prepare(Shape *to, const Solve *solve) {
    long V = solve->V, Vp = round_up(V), Kp = round_up(solve->K), Cp = round_up(solve->C), Up = round_up(solve->U);
    long attends = solve->attention != NO_ATTENTION, X = Kp * (1 + attends) + Cp;
    long Rp = solve->attention == EVOLVING ? round_up(solve->R) : 0;
    *to = (Shape){.solve = solve, .V = V, .Vp = Vp, .Kp = Kp, .Cp = Cp, .X = X, .Up = Up, .Rp = Rp, .attends = attends};
    const long sizes[WEIGHTS] = {X * Up, V * Up, Up, Up * Up, Up, Up * Kp, Kp, Kp * Rp, V * Rp, Rp, Kp * Rp, V * Rp, Rp,
                                 attends * V * Vp};
    memcpy(to->sizes, sizes, sizeof sizes);
    float *memory = allocate(X * Up + Up * Up + Up * Kp + 2 * Kp * Rp), *at = memory;
    if (!memory) return NULL;
    const struct { int weight; long rows, columns; const float **to; } parts[] = {
        {W1, X, Up, &to->W1t}, {W2, Up, Up, &to->W2t}, {W3, Up, Kp, &to->W3t}, {WU, Kp, Rp, &to->WUt},
        {WW, Kp, Rp, &to->WWt}};
    EACH(i, 5) {
        if (sizes[parts[i].weight]) transpose(parts[i].rows, parts[i].columns, solve->weights[parts[i].weight],
                                              parts[i].columns, at, parts[i].rows);
        *parts[i].to = at;
        at += parts[i].rows * parts[i].columns;
    }
    return memory;
}

static int run(const Solve *solve, int back) {
    Shape to;
    float *transposed = prepare(&to, solve);
    long blocks = (solve->B + solve->block - 1) / solve->block, chunks = blocks < CHUNKS ? blocks : CHUNKS, size = 0;
    EACH(i, WEIGHTS) size += back ? to.sizes[i] : 0;
    float *shares = allocate(size * chunks);
    int failed = !transposed || !shares;
    if (!failed) {
#pragma omp parallel num_threads((int)solve->threads) reduction(| : failed)
        {
            Block b = {.shape = &to};
            float *memory = allocate(lay_block(&b, &to, back, NULL));
            if (memory) lay_block(&b, &to, back, memory);
            else failed = 1;
#pragma omp for schedule(dynamic)
            for (long c = 0; c < chunks; c++) {
                float *g[WEIGHTS], *at = shares + c * size;
                EACH(i, WEIGHTS) g[i] = at, at += to.sizes[i];
                for (long block = blocks * c / chunks; memory && block < blocks * (c + 1) / chunks; block++) {
                    b.lo = block * solve->block;
                    b.count = b.lo + solve->block < solve->B ? solve->block : solve->B - b.lo;
                    if (back) backward_block(&b, g);
                    else forward_block(&b, block);
                }
            }
            free(memory);
        }
        for (long i = 0, at = 0; back && i < WEIGHTS; at += to.sizes[i++])
            if (solve->d_weights[i]) EACH(c, chunks) {
                const float *from = shares + c * size + at;
                EACH(j, to.sizes[i]) solve->d_weights[i][j] = (c ? solve->d_weights[i][j] : 0.0f) + from[j];
            }
    }
    free(transposed);
    free(shares);
    return failed;
}

/* return 0, or 1 if there is no memory */
int solve_forward(const Solve *solve) { return run(solve, 0); }
int solve_backward(const Solve *solve) { return run(solve, 1); }
