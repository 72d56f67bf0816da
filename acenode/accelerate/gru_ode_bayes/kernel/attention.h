/* Attention beside h: what the gates read, and its own step at the end of a window:
 *
 *     s = σ(a) h                                          σ over the rows of a, held for the rows of a window
 *     m = Σ dt s / τ, τ = Σ dt                            over those rows
 *     r, o = σ(a W + m V), u = tanh((r ⊙ a) W' + m V'), a ← u + e^(−τ o) ⊙ (a − u)
 */

#define SHORTEST 1e-12f

/* σ of a row of n numbers, `wide` with what fills it up */
static void softmax(const float *from, long n, long wide, float *to) {
    vec top = all(from[0]), total = {0};
    float most = from[0], sum = 0.0f;
    copy(to, from, n);
    for (long j = n; j < wide; j++) to[j] = most;
    VECTORS(j, wide) top = choose(load(to + j) > top, load(to + j), top);
    EACH(k, LANES) most = top[k] > most ? top[k] : most;
    VECTORS(j, wide) store(to + j, power(at_least(load(to + j) - most, -87.0f)));
    for (long j = n; j < wide; j++) to[j] = 0.0f;
    VECTORS(j, wide) total += load(to + j);
    EACH(k, LANES) sum += total[k];
    sum = 1.0f / sum;
    VECTORS(j, wide) store(to + j, load(to + j) * sum);
}

/* σ(a) at the beginning of window w, both ways round */
static void open_window(Walk *walk, long w) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count, square = job->H * H;
    float *a = place(walk, walk->a, w, n * square), *soft = place(walk, walk->soft, w, n * square);
    EACH(b, n) EACH(i, job->H) {
        float *to = soft + b * square + i * H, *across = walk->across + b * H * H + i;
        softmax(a + b * square + i * H, job->H, H, to);
        EACH(j, job->H) across[j * H] = to[j];
    }
    clear(place(walk, walk->mean, w, n * H), n * H);
    clear(place(walk, walk->tau, w, n), n);
}

static void attend(Walk *walk, long row, long k) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count, w = k / job->every;
    const float *h = place(walk, walk->h, k, n * H);
    float *s = place(walk, walk->s, k, n * H), *mean = place(walk, walk->mean, w, n * H);
    float *tau = place(walk, walk->tau, w, n);
    EACH(b, n) {
        float dt = step_of(job, row, walk->lo + b);
        product(1, job->H, H, h + b * H, H, walk->across + b * H * H, NULL, 0, s + b * H, H);
        tau[b] += dt;
        for (long j = b * H; j < b * H + H; j += LANES) store(mean + j, load(mean + j) + dt * load(s + j));
    }
}

/* what is left of a − u after a step of length τ */
INLINE vec left(float tau, vec open) { return power(at_least(-tau * open, -87.0f)); }

/* a after window w */
static void close_window(Walk *walk, long w) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count, square = job->H * H;
    float *mean = place(walk, walk->mean, w, n * H), *tau = place(walk, walk->tau, w, n);
    float *gates_in = walk->share, *new_in = gates_in + n * 2 * H, *read = walk->a_read;
    int again = walk->keep && job->opened;
    EACH(b, n) VECTORS(j, H)
        store(mean + b * H + j, load(mean + b * H + j) / (tau[b] > SHORTEST ? tau[b] : SHORTEST));
    if (!again) {
        product(n, job->H, 2 * H, mean, H, scan->w.g_gates_in, NULL, 0, gates_in, 2 * H);
        product(n, job->H, H, mean, H, scan->w.g_new_in, NULL, 0, new_in, H);
    }
    EACH(b, n) {
        float *a = place(walk, walk->a, w, n * square) + b * square, *after = walk->keep ? a + n * square : a;
        float *gates, *u;
        find_opened(walk, w, b, &gates, &u);
        if (!again) {
            product(job->H, job->H, 2 * H, a, H, scan->w.g_gates, gates_in + b * 2 * H, 0, gates, 2 * H);
            open_all(gates, 2 * square);
            EACH(i, job->H) VECTORS(j, H) store(read + i * H + j, load(gates + i * 2 * H + j) * load(a + i * H + j));
            product(job->H, job->H, H, read, H, scan->w.g_new, new_in + b * H, 0, u, H);
            open_all(u, square);
            VECTORS(j, square) store(u + j, tanh_of(load(u + j)));
        }
        EACH(i, job->H) VECTORS(j, H) {
            vec new = load(u + i * H + j), now = load(a + i * H + j);
            store(after + i * H + j, now + (1.0f - left(tau[b], load(gates + i * 2 * H + H + j))) * (new - now));
        }
    }
}

/* ∂a before its step at the end of window w, and ∂ of the mean that it read over τ */
static void close_window_back(Walk *walk, long w, const Matrices *g) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count, square = job->H * H;
    float *mean = walk->mean + w * n * H, *tau = walk->tau + w * n, *read = walk->a_read, *d_read = walk->d_soft;
    clear(walk->d_gates_in, n * 2 * H);
    clear(walk->d_new_in, n * H);
    EACH(b, n) {
        const float *a = walk->a + (w * n + b) * square;
        float *gates, *u, *da = walk->da + b * square;
        find_opened(walk, w, b, &gates, &u);
        EACH(i, job->H) VECTORS(j, H) {
            float *r = gates + i * 2 * H + j, *o = r + H;
            long at = i * H + j;
            vec d = load(da + at), now = load(a + at), open = load(o), new = load(u + at);
            vec kept = d * left(tau[b], open);
            store(read + at, load(r) * now);
            store(o, through_sigmoid(kept * tau[b] * (new - now), open));
            store(u + at, through_tanh(d - kept, new));
            store(da + at, kept);
        }
        product(job->H, job->H, H, u, H, scan->t.g_new, NULL, 0, d_read, H);
        EACH(i, job->H) VECTORS(j, H) {
            float *r = gates + i * 2 * H + j;
            long at = i * H + j;
            vec d = load(d_read + at), reset = load(r);
            store(da + at, load(da + at) + d * reset);
            store(r, through_sigmoid(d * load(a + at), reset));
        }
        product(job->H, 2 * H, H, gates, 2 * H, scan->t.g_gates, da, H, da, H);
        if (needs(job, G_GATES)) outer(job->H, H, 2 * H, a, H, gates, 2 * H, g->g_gates);
        if (needs(job, G_NEW)) outer(job->H, H, H, read, H, u, H, g->g_new);
        sums(job->H, 2 * H, gates, walk->d_gates_in + b * 2 * H);
        sums(job->H, H, u, walk->d_new_in + b * H);
    }
    if (needs(job, G_GATES_IN)) outer(n, H, 2 * H, mean, H, walk->d_gates_in, 2 * H, g->g_gates_in);
    if (needs(job, G_NEW_IN)) outer(n, H, H, mean, H, walk->d_new_in, H, g->g_new_in);
    product(n, 2 * H, H, walk->d_gates_in, 2 * H, scan->t.g_gates_in, NULL, 0, walk->d_mean, H);
    product(n, H, H, walk->d_new_in, H, scan->t.g_new_in, walk->d_mean, H, walk->d_mean, H);
    EACH(b, n) VECTORS(j, H)
        store(walk->d_mean + b * H + j, load(walk->d_mean + b * H + j) / (tau[b] > SHORTEST ? tau[b] : SHORTEST));
}

/* h's share in ∂s of a row */
static void attend_back(Walk *walk, long k) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count, square = job->H * H;
    const float *d_s = walk->d_s + k % job->every * n * H, *soft = walk->soft + k / job->every * n * square;
    EACH(b, n) product(1, job->H, H, d_s + b * H, H, soft + b * square, walk->dh + b * H, H, walk->dh + b * H, H);
}

/* a's share in ∂s of all rows of window w, through the softmax */
static void open_window_back(Walk *walk, long w, long rows) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count, square = job->H * H;
    if (job->detach) return;
    EACH(b, n) {
        const float *soft = walk->soft + (w * n + b) * square;
        float *da = walk->da + b * square, *d = walk->d_soft;
        clear(d, H * H);
        outer(rows, H, H, walk->d_s + b * H, n * H, walk->h + (w * job->every * n + b) * H, n * H, d);
        EACH(i, job->H) {
            vec sum = {0};
            float whole_sum = 0.0f;
            VECTORS(j, H) sum += load(soft + i * H + j) * load(d + i * H + j);
            EACH(j, LANES) whole_sum += sum[j];
            for (long j = i * H; j < i * H + H; j += LANES) {
                vec share = load(soft + j) * (load(d + j) - whole_sum);
                store(da + j, walk->live ? load(da + j) + share : share);
            }
        }
    }
    walk->live = 1;
}
