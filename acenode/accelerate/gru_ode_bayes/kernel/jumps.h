/* The GRU-Bayes update at an observation, and its gradient:
 *
 *     μ, log σ² = MLP(h), e = (x − μ)/σ, h ← GRU(ReLU([x, μ, log σ², e] F + b) ⊙ m, h)
 */

#define UNOBSERVED -1e9f  /* added to the features of unobserved variables, so that their ReLU is 0 */

/* compute n jumps from row `first` of the table on; h before them is in the last columns of `seen`. Fills feature_inputs
 * with x, μ, log σ² and e = (x − μ)/σ, and cell with r, z, n and h's term of n */
static void jump(const Scan *scan, Table *t, long first, long n, const int64_t *which) {
    const Pass *pass = scan->pass;
    Sizes to = scan->to;
    long F = to.F, H = to.H, D = to.D, Q = to.Q, each = pass->F / pass->D;
    float *hidden = t->hidden + first * Q, *feature_inputs = t->feature_inputs + first * 4 * D;
    float *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    product(n, pass->H, Q, seen + F, F + H, scan->w.hidden, scan->w.hidden_bias, 0, hidden, Q);
    EACH(i, n) {
        VECTORS(j, Q) store(hidden + i * Q + j, positive(load(hidden + i * Q + j)));
        if (pass->dropout) EACH(j, pass->Q) hidden[i * Q + j] *= pass->dropout[which[i] * pass->Q + j];
    }
    product(n, pass->Q, 4 * D, hidden, Q, scan->w.out, scan->w.out_bias, 0, feature_inputs, 4 * D);
    EACH(i, n) {
        const float *x = pass->x + which[i] * pass->D, *m = pass->m + which[i] * pass->D;
        float *half = feature_inputs + i * 4 * D, *error = half + 3 * D, *v = seen + i * (F + H);
        EACH(d, pass->D) error[d] += x[d];
        VECTORS(j, D) {
            vec one = exponential(load(half + j));
            store(inverse + i * D + j, one);
            store(error + j, load(error + j) * one);
        }
        copy(half, x, pass->D);
        copy(v, scan->w.features_bias, F);
        EACH(d, pass->D) EACH(k, each) v[d * each + k] += (1.0f - m[d]) * UNOBSERVED;
    }
    product(n, 4 * D, F, feature_inputs, 4 * D, scan->w.features, seen, F + H, seen, F + H);
    EACH(i, n) VECTORS(j, F) {
        float *v = seen + i * (F + H) + j;
        store(v, positive(load(v)));
    }
    product(n, F + H, 4 * H, seen, F + H, scan->w.cell, scan->w.cell_bias, 0, cell, 4 * H);
    EACH(i, n) VECTORS(j, H) {
        float *c = cell + i * 4 * H + j;
        vec r = sigmoid(load(c));
        store(c, r);
        store(c + H, sigmoid(load(c + H)));
        store(c + 2 * H, tanh_of(sigmoid(2.0f * (load(c + 2 * H) + r * load(c + 3 * H)))));
    }
}

/* compute ∂h before n jumps from that after them */
static void jump_back(const Scan *scan, Table *t, long first, long n, const int64_t *which, const int64_t *series,
                      long lo, float *dh) {
    const Pass *pass = scan->pass;
    Sizes to = scan->to;
    long F = to.F, H = to.H, D = to.D, Q = to.Q;
    float *hidden = t->hidden + first * Q, *feature_inputs = t->feature_inputs + first * 4 * D;
    float *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    float *d_hidden = t->d_hidden + first * Q, *d_out = t->d_out + first * 4 * D;
    float *d_features = t->d_features + first * F, *d_seen = t->d_seen + first * (F + H);
    EACH(i, n) {
        float *d = dh + (series[which[i]] - lo) * H;
        const float *more = pass->d_after + which[i] * pass->H;
        EACH(j, pass->H) d[j] += more[j];
        VECTORS(j, H) {
            float *c = cell + i * 4 * H + j;
            vec r = load(c), z = load(c + H), new = load(c + 2 * H), own = load(c + 3 * H), now = load(d + j);
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
    product(n, 4 * H, F + H, cell, 4 * H, scan->t.cell, d_seen, F + H, d_seen, F + H);
    EACH(i, n) {
        const float *d_p = pass->d_predicted + which[i] * 2 * pass->D;
        float *d = d_out + i * 4 * D;
        VECTORS(j, F)
            store(d_features + i * F + j, where_positive(load(seen + i * (F + H) + j), load(d_seen + i * (F + H) + j)));
        clear(d, 4 * D);
        copy(d + D, d_p, pass->D);
        copy(d + 2 * D, d_p + pass->D, pass->D);
    }
    product(n, F, 3 * D, d_features, F, scan->t.features, d_out + D, 4 * D, d_out + D, 4 * D);
    EACH(i, n) VECTORS(j, D) {
        float *d = d_out + i * 4 * D + j;
        vec error = load(d + 3 * D);
        store(d, error * load(feature_inputs + i * 4 * D + 3 * D + j));
        store(d + 3 * D, error * load(inverse + i * D + j));
    }
    product(n, 4 * D, Q, d_out, 4 * D, scan->t.out, NULL, 0, d_hidden, Q);
    EACH(i, n) {
        if (pass->dropout) EACH(j, pass->Q) d_hidden[i * Q + j] *= pass->dropout[which[i] * pass->Q + j];
        VECTORS(j, Q)
            store(d_hidden + i * Q + j, where_positive(load(hidden + i * Q + j), load(d_hidden + i * Q + j)));
    }
    product(n, Q, H, d_hidden, Q, scan->t.hidden, d_seen + F, F + H, d_seen + F, F + H);
    EACH(i, n) copy(dh + (series[which[i]] - lo) * H, d_seen + i * (F + H) + F, H);
}

/* add the gradients of the weights over the jumps in the table */
static void add_jump_gradients(const Scan *scan, Table *t, const Matrices *g) {
    const Pass *pass = scan->pass;
    Sizes to = scan->to;
    long n = t->used, F = to.F, H = to.H, D = to.D;
    t->used = 0;
    if (needs(pass, HIDDEN)) outer(n, H, to.Q, t->seen + F, F + H, t->d_hidden, to.Q, g->hidden);
    if (needs(pass, HIDDEN_BIAS)) sums(n, to.Q, t->d_hidden, g->hidden_bias);
    if (needs(pass, OUT)) outer(n, to.Q, 4 * D, t->hidden, to.Q, t->d_out, 4 * D, g->out);
    if (needs(pass, OUT_BIAS)) sums(n, 4 * D, t->d_out, g->out_bias);
    if (needs(pass, FEATURES)) outer(n, 4 * D, F, t->feature_inputs, 4 * D, t->d_features, F, g->features);
    if (needs(pass, FEATURES_BIAS)) sums(n, F, t->d_features, g->features_bias);
    if (needs(pass, CELL)) outer(n, F + H, 4 * H, t->seen, F + H, t->cell, 4 * H, g->cell);
    if (needs(pass, CELL_BIAS)) sums(n, 4 * H, t->cell, g->cell_bias);
}

/* count the points from `at` on, in either direction, that belong to a row: at most `most`, each of another series */
static long points_of_row(const Points *points, long at, long end, int back, long row, long most) {
    long n = 0;
    for (; n < most && (back ? at - n > end : at + n < end); n++) {
        int64_t one = points->order[back ? at - 1 - n : at + n];
        if (points->row[one] != row) break;
        if (n && points->series[points->order[back ? at - n : at + n - 1]] == points->series[one]) break;
    }
    return n;
}

/* read h at the read points of a row, then update it at the observations */
static void read_and_observe(BlockState *state, long row, float *h) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long F = scan->to.F, H = scan->to.H, D = scan->to.D;
    Table *t = &state->table;
    for (; state->next_read < state->read_end; state->next_read++) {
        int64_t one = pass->reads.order[state->next_read];
        if (pass->reads.row[one] != row) break;
        copy(pass->read + one * pass->H, h + (pass->reads.series[one] - state->lo) * H, pass->H);
    }
    for (long n;; state->next_observation += n) {
        n = points_of_row(&pass->observations, state->next_observation, state->observation_end, 0, row, MAX_JUMPS);
        if (!n) break;
        const int64_t *which = pass->observations.order + state->next_observation;
        EACH(i, n) {
            const float *own = h + (pass->observations.series[which[i]] - state->lo) * H;
            copy(t->seen + i * (F + H) + F, own, H);
            copy(pass->before + which[i] * pass->H, own, pass->H);
        }
        jump(scan, t, 0, n, which);
        EACH(i, n) {
            float *own = h + (pass->observations.series[which[i]] - state->lo) * H, *c = t->cell + i * 4 * H;
            VECTORS(j, H)
                store(own + j, load(c + 2 * H + j) + load(c + H + j) * (load(own + j) - load(c + 2 * H + j)));
            copy(pass->after + which[i] * pass->H, own, pass->H);
            copy(pass->predicted + which[i] * 2 * pass->D, t->feature_inputs + i * 4 * D + D, pass->D);
            copy(pass->predicted + which[i] * 2 * pass->D + pass->D, t->feature_inputs + i * 4 * D + 2 * D, pass->D);
        }
    }
}

/* gradient of the same: first the observations, then the read points, last one first */
static void read_and_observe_back(BlockState *state, long row, const Matrices *g) {
    const Scan *scan = state->scan;
    const Pass *pass = scan->pass;
    long F = scan->to.F, H = scan->to.H;
    Table *t = &state->table;
    for (long n;;) {
        n = points_of_row(&pass->observations, state->next_observation, state->observation_end, 1, row, MAX_JUMPS);
        if (!n) break;
        state->next_observation -= n;
        const int64_t *which = pass->observations.order + state->next_observation;
        if (t->used + n > MAX_JUMPS) add_jump_gradients(scan, t, g);
        EACH(i, n) copy(t->seen + (t->used + i) * (F + H) + F, pass->before + which[i] * pass->H, pass->H);
        jump(scan, t, t->used, n, which);
        jump_back(scan, t, t->used, n, which, pass->observations.series, state->lo, state->dh);
        t->used += n;
    }
    for (; state->next_read > state->read_end; state->next_read--) {
        int64_t one = pass->reads.order[state->next_read - 1];
        if (pass->reads.row[one] != row) break;
        float *d = state->dh + (pass->reads.series[one] - state->lo) * H;
        EACH(j, pass->H) d[j] += pass->d_read[one * pass->H + j];
    }
}
