/* An Euler step of h for all series of a block, and its gradient:
 *
 *     r, o = σ(s W), u = tanh((r ⊙ s) W'), h ← h + dt o ⊙ (u − s)
 *
 * with s = h, or σ(a) h with attention; with own_feedback u − h instead of u − s
 */

static void step(BlockState *state, long row, long k) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long H = scan->to.H, n = state->count;
    float *h = place(state, state->h, k, n * H), *after = state->save ? h + n * H : h;
    const float *s = pass->attention ? place(state, state->s, k, n * H) : h, *back = pass->own_feedback ? h : s;
    float *gates = place(state, state->gates, k, n * 2 * H), *read = place(state, state->read, k, n * H);
    float *u = place(state, state->u, k, n * H);
    product(n, pass->H, 2 * H, s, H, scan->w.gates, NULL, 0, gates, 2 * H);
    sigmoid_all_scaled(gates, n * 2 * H);
    EACH(b, n) VECTORS(j, H) store(read + b * H + j, load(gates + b * 2 * H + j) * load(s + b * H + j));
    product(n, pass->H, H, read, H, scan->w.news, NULL, 0, u, H);
    sigmoid_all_scaled(u, n * H);
    EACH(b, n) {
        float dt = step_of(pass, row, state->lo + b);
        for (long j = b * H, o = b * 2 * H + H; j < b * H + H; j += LANES, o += LANES) {
            vec new = tanh_of(load(u + j));
            store(u + j, new);
            store(after + j, load(h + j) + dt * load(gates + o) * (new - load(back + j)));
        }
    }
}

/* compute ∂h before a step from that after it, and overwrite the gates and u with their gradients; with attention, put
 * ∂s into d_s */
static void step_back(BlockState *state, long row, long k) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long H = scan->to.H, n = state->count;
    float *h = state->h + k * n * H, *gates = state->gates + k * n * 2 * H, *u = state->u + k * n * H;
    const float *s = pass->attention ? state->s + k * n * H : h, *back = pass->own_feedback ? h : s;
    float *dh = state->dh, *d_s = pass->attention ? state->d_s + k % pass->every * n * H : dh, *d_read = state->d_read;
    EACH(b, n) {
        float dt = step_of(pass, row, state->lo + b);
        for (long j = b * H, o = b * 2 * H + H; j < b * H + H; j += LANES, o += LANES) {
            vec d = load(dh + j), open = load(gates + o), new = load(u + j), scaled = d * dt, d_new = scaled * open;
            store(gates + o, through_sigmoid(scaled * (new - load(back + j)), open));
            store(u + j, through_tanh(d_new, new));
            if (pass->attention) {
                vec mean = load(state->d_mean + j) * dt;
                store(dh + j, pass->own_feedback ? d - d_new : d);
                store(d_s + j, pass->own_feedback ? mean : mean - d_new);
            } else {
                store(dh + j, d - d_new);
            }
        }
    }
    product(n, pass->H, H, u, H, scan->t.news, NULL, 0, d_read, H);
    EACH(b, n) for (long j = b * H, g = b * 2 * H; j < b * H + H; j += LANES, g += LANES) {
        vec d = load(d_read + j), r = load(gates + g);
        store(d_s + j, load(d_s + j) + d * r);
        store(gates + g, through_sigmoid(d * load(s + j), r));
    }
    product(n, 2 * H, H, gates, 2 * H, scan->t.gates, d_s, H, d_s, H);
}

/* add the gradients of f's weights over the rows of a window, from row k on */
static void add_row_gradients(const BlockState *state, long k, long rows, const Matrices *g) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count;
    const float *s = (pass->attention ? state->s : state->h) + k * n * H;
    if (needs(pass, F_RESET) || needs(pass, F_OPEN))
        outer(rows * n, H, 2 * H, s, H, state->gates + k * n * 2 * H, 2 * H, g->gates);
    if (needs(pass, F_NEW)) outer(rows * n, H, H, state->read + k * n * H, H, state->u + k * n * H, H, g->news);
}
