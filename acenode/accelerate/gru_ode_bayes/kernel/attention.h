/* Attention: s = h', which the gates read, and the step of a at the end of a window:
 *
 *     s = σ(a) h                                          σ over each row of a; constant within a window
 *     m = Σ dt s / τ, τ = Σ dt                            over those rows
 *     r, o = σ(a W + m V), u = tanh((r ⊙ a) W' + m V'), a ← u + e^(−τ o) ⊙ (a − u)
 */

#define MIN_WINDOW 1e-12f

/* softmax of n numbers; `wide` is n rounded up to whole vectors, filled with zeros */
static void softmax(const float *from, long n, long wide, float *to) {
    vec top = all(from[0]), total = {0};
    float most = from[0], sum = 0.0f;
    copy(to, from, n);
    for (long j = n; j < wide; j++) to[j] = most;
    VECTORS(j, wide) top = choose(load(to + j) > top, load(to + j), top);
    EACH(k, LANES) most = top[k] > most ? top[k] : most;
    VECTORS(j, wide) store(to + j, exp_in_range(at_least(load(to + j) - most, -87.0f)));
    for (long j = n; j < wide; j++) to[j] = 0.0f;
    VECTORS(j, wide) total += load(to + j);
    EACH(k, LANES) sum += total[k];
    sum = 1.0f / sum;
    VECTORS(j, wide) store(to + j, load(to + j) * sum);
}

/* compute σ(a) and its transpose at the start of window w */
static void open_window(BlockState *state, long w) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count, square = pass->H * H;
    float *a = place(state, state->a, w, n * square), *soft = place(state, state->soft, w, n * square);
    EACH(b, n) EACH(i, pass->H) {
        float *to = soft + b * square + i * H, *soft_t = state->soft_t + b * H * H + i;
        softmax(a + b * square + i * H, pass->H, H, to);
        EACH(j, pass->H) soft_t[j * H] = to[j];
    }
    clear(place(state, state->mean, w, n * H), n * H);
    clear(place(state, state->tau, w, n), n);
}

static void attend(BlockState *state, long row, long k) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count, w = k / pass->every;
    const float *h = place(state, state->h, k, n * H);
    float *s = place(state, state->s, k, n * H), *mean = place(state, state->mean, w, n * H);
    float *tau = place(state, state->tau, w, n);
    EACH(b, n) {
        float dt = step_of(pass, row, state->lo + b);
        product(1, pass->H, H, h + b * H, H, state->soft_t + b * H * H, NULL, 0, s + b * H, H);
        tau[b] += dt;
        for (long j = b * H; j < b * H + H; j += LANES) store(mean + j, load(mean + j) + dt * load(s + j));
    }
}

/* the factor by which a step of length τ shrinks a − u */
INLINE vec decay(float tau, vec open) { return exp_in_range(at_least(-tau * open, -87.0f)); }

/* advance a at the end of window w */
static void close_window(BlockState *state, long w) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long H = scan->to.H, n = state->count, square = pass->H * H;
    float *mean = place(state, state->mean, w, n * H), *tau = place(state, state->tau, w, n);
    float *gates_in = state->share, *new_in = gates_in + n * 2 * H, *read = state->a_read;
    int again = state->save && pass->g_gates;
    EACH(b, n) VECTORS(j, H)
        store(mean + b * H + j, load(mean + b * H + j) / (tau[b] > MIN_WINDOW ? tau[b] : MIN_WINDOW));
    if (!again) {
        product(n, pass->H, 2 * H, mean, H, scan->w.g_gates_in, NULL, 0, gates_in, 2 * H);
        product(n, pass->H, H, mean, H, scan->w.g_new_in, NULL, 0, new_in, H);
    }
    EACH(b, n) {
        float *a = place(state, state->a, w, n * square) + b * square, *after = state->save ? a + n * square : a;
        float *gates, *u;
        find_g_gates(state, w, b, &gates, &u);
        if (!again) {
            product(pass->H, pass->H, 2 * H, a, H, scan->w.g_gates, gates_in + b * 2 * H, 0, gates, 2 * H);
            sigmoid_all_scaled(gates, 2 * square);
            EACH(i, pass->H) VECTORS(j, H) store(read + i * H + j, load(gates + i * 2 * H + j) * load(a + i * H + j));
            product(pass->H, pass->H, H, read, H, scan->w.g_new, new_in + b * H, 0, u, H);
            sigmoid_all_scaled(u, square);
            VECTORS(j, square) store(u + j, tanh_of(load(u + j)));
        }
        EACH(i, pass->H) VECTORS(j, H) {
            vec new = load(u + i * H + j), now = load(a + i * H + j);
            store(after + i * H + j, now + (1.0f - decay(tau[b], load(gates + i * 2 * H + H + j))) * (new - now));
        }
    }
}

/* compute ∂a before the step at the end of window w, and ∂ of the mean of s divided by τ */
static void close_window_back(BlockState *state, long w, const Matrices *g) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long H = scan->to.H, n = state->count, square = pass->H * H;
    float *mean = state->mean + w * n * H, *tau = state->tau + w * n, *read = state->a_read, *d_read = state->d_soft;
    clear(state->d_gates_in, n * 2 * H);
    clear(state->d_new_in, n * H);
    EACH(b, n) {
        const float *a = state->a + (w * n + b) * square;
        float *gates, *u, *da = state->da + b * square;
        find_g_gates(state, w, b, &gates, &u);
        EACH(i, pass->H) VECTORS(j, H) {
            float *r = gates + i * 2 * H + j, *o = r + H;
            long at = i * H + j;
            vec d = load(da + at), now = load(a + at), open = load(o), new = load(u + at);
            vec left = d * decay(tau[b], open);
            store(read + at, load(r) * now);
            store(o, through_sigmoid(left * tau[b] * (new - now), open));
            store(u + at, through_tanh(d - left, new));
            store(da + at, left);
        }
        product(pass->H, pass->H, H, u, H, scan->t.g_new, NULL, 0, d_read, H);
        EACH(i, pass->H) VECTORS(j, H) {
            float *r = gates + i * 2 * H + j;
            long at = i * H + j;
            vec d = load(d_read + at), reset = load(r);
            store(da + at, load(da + at) + d * reset);
            store(r, through_sigmoid(d * load(a + at), reset));
        }
        product(pass->H, 2 * H, H, gates, 2 * H, scan->t.g_gates, da, H, da, H);
        if (needs(pass, G_GATES)) outer(pass->H, H, 2 * H, a, H, gates, 2 * H, g->g_gates);
        if (needs(pass, G_NEW)) outer(pass->H, H, H, read, H, u, H, g->g_new);
        sums(pass->H, 2 * H, gates, state->d_gates_in + b * 2 * H);
        sums(pass->H, H, u, state->d_new_in + b * H);
    }
    if (needs(pass, G_GATES_IN)) outer(n, H, 2 * H, mean, H, state->d_gates_in, 2 * H, g->g_gates_in);
    if (needs(pass, G_NEW_IN)) outer(n, H, H, mean, H, state->d_new_in, H, g->g_new_in);
    product(n, 2 * H, H, state->d_gates_in, 2 * H, scan->t.g_gates_in, NULL, 0, state->d_mean, H);
    product(n, H, H, state->d_new_in, H, scan->t.g_new_in, state->d_mean, H, state->d_mean, H);
    EACH(b, n) VECTORS(j, H)
        store(state->d_mean + b * H + j, load(state->d_mean + b * H + j) / (tau[b] > MIN_WINDOW ? tau[b] : MIN_WINDOW));
}

/* add to ∂h what a row's ∂s contributes: s = σ(a) h */
static void attend_back(BlockState *state, long k) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count, square = pass->H * H;
    const float *d_s = state->d_s + k % pass->every * n * H, *soft = state->soft + k / pass->every * n * square;
    EACH(b, n) product(1, pass->H, H, d_s + b * H, H, soft + b * square, state->dh + b * H, H, state->dh + b * H, H);
}

/* add to ∂a, through the softmax, what ∂s of all rows of window w contributes */
static void open_window_back(BlockState *state, long w, long rows) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count, square = pass->H * H;
    if (pass->detach) return;
    EACH(b, n) {
        const float *soft = state->soft + (w * n + b) * square;
        float *da = state->da + b * square, *d = state->d_soft;
        clear(d, H * H);
        outer(rows, H, H, state->d_s + b * H, n * H, state->h + (w * pass->every * n + b) * H, n * H, d);
        EACH(i, pass->H) {
            vec sum = {0};
            float whole_sum = 0.0f;
            VECTORS(j, H) sum += load(soft + i * H + j) * load(d + i * H + j);
            EACH(j, LANES) whole_sum += sum[j];
            for (long j = i * H; j < i * H + H; j += LANES) {
                vec share = load(soft + j) * (load(d + j) - whole_sum);
                store(da + j, state->live ? load(da + j) + share : share);
            }
        }
    }
    state->live = 1;
}
