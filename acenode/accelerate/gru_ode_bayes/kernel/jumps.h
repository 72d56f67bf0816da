/* What an observation makes of h, and back:
 *
 *     μ, log σ² = MLP(h), e = (x − μ)/σ, h ← GRU(ReLU([x, μ, log σ², e] F + b) ⊙ m, h)
 */

#define NOTHING -1e9f  /* added to the features of what is not observed, so that the ReLU gives 0 */

/* those of n jumps from place `first` of the table on; h before them is in its seen columns. told becomes x, μ, log σ²
 * and e = (x − μ)/σ; cell r, z, n and the own share of n */
static void jump(const Scan *scan, Table *t, long first, long n, const int64_t *which) {
    const Job *job = scan->job;
    Sizes to = scan->to;
    long F = to.F, H = to.H, D = to.D, p = to.p, each = job->F / job->D;
    float *hidden = t->hidden + first * p, *told = t->told + first * 4 * D, *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    product(n, job->H, p, seen + F, F + H, scan->w.hidden, scan->w.hidden_bias, 0, hidden, p);
    EACH(i, n) {
        VECTORS(j, p) store(hidden + i * p + j, positive(load(hidden + i * p + j)));
        if (job->kept) EACH(j, job->p) hidden[i * p + j] *= job->kept[which[i] * job->p + j];
    }
    product(n, job->p, 4 * D, hidden, p, scan->w.out, scan->w.out_bias, 0, told, 4 * D);
    EACH(i, n) {
        const float *x = job->x + which[i] * job->D, *m = job->m + which[i] * job->D;
        float *half = told + i * 4 * D, *error = half + 3 * D, *v = seen + i * (F + H);
        EACH(d, job->D) error[d] += x[d];
        VECTORS(j, D) {
            vec one = exponential(load(half + j));
            store(inverse + i * D + j, one);
            store(error + j, load(error + j) * one);
        }
        copy(half, x, job->D);
        copy(v, scan->w.features_bias, F);
        EACH(d, job->D) EACH(k, each) v[d * each + k] += (1.0f - m[d]) * NOTHING;
    }
    product(n, 4 * D, F, told, 4 * D, scan->w.features, seen, F + H, seen, F + H);
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

/* ∂h before n jumps from that after them, for those series */
static void jump_back(const Scan *scan, Table *t, long first, long n, const int64_t *which, const int64_t *series,
                      long lo, float *dh) {
    const Job *job = scan->job;
    Sizes to = scan->to;
    long F = to.F, H = to.H, D = to.D, p = to.p;
    float *hidden = t->hidden + first * p, *told = t->told + first * 4 * D, *inverse = t->inverse + first * D;
    float *seen = t->seen + first * (F + H), *cell = t->cell + first * 4 * H;
    float *d_hidden = t->d_hidden + first * p, *d_out = t->d_out + first * 4 * D;
    float *d_features = t->d_features + first * F, *d_seen = t->d_seen + first * (F + H);
    EACH(i, n) {
        float *d = dh + (series[which[i]] - lo) * H;
        const float *more = job->d_after + which[i] * job->H;
        EACH(j, job->H) d[j] += more[j];
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
        const float *said = job->d_said + which[i] * 2 * job->D;
        float *d = d_out + i * 4 * D;
        VECTORS(j, F)
            store(d_features + i * F + j, where_positive(load(seen + i * (F + H) + j), load(d_seen + i * (F + H) + j)));
        clear(d, 4 * D);
        copy(d + D, said, job->D);
        copy(d + 2 * D, said + job->D, job->D);
    }
    product(n, F, 3 * D, d_features, F, scan->t.features, d_out + D, 4 * D, d_out + D, 4 * D);
    EACH(i, n) VECTORS(j, D) {
        float *d = d_out + i * 4 * D + j;
        vec error = load(d + 3 * D);
        store(d, error * load(told + i * 4 * D + 3 * D + j));
        store(d + 3 * D, error * load(inverse + i * D + j));
    }
    product(n, 4 * D, p, d_out, 4 * D, scan->t.out, NULL, 0, d_hidden, p);
    EACH(i, n) {
        if (job->kept) EACH(j, job->p) d_hidden[i * p + j] *= job->kept[which[i] * job->p + j];
        VECTORS(j, p)
            store(d_hidden + i * p + j, where_positive(load(hidden + i * p + j), load(d_hidden + i * p + j)));
    }
    product(n, p, H, d_hidden, p, scan->t.hidden, d_seen + F, F + H, d_seen + F, F + H);
    EACH(i, n) copy(dh + (series[which[i]] - lo) * H, d_seen + i * (F + H) + F, H);
}

/* what the jumps in the table add to the gradients of their weights */
static void settle_jumps(const Scan *scan, Table *t, const Matrices *g) {
    const Job *job = scan->job;
    Sizes to = scan->to;
    long n = t->used, F = to.F, H = to.H, D = to.D;
    t->used = 0;
    if (needs(job, HIDDEN)) outer(n, H, to.p, t->seen + F, F + H, t->d_hidden, to.p, g->hidden);
    if (needs(job, HIDDEN_BIAS)) sums(n, to.p, t->d_hidden, g->hidden_bias);
    if (needs(job, OUT)) outer(n, to.p, 4 * D, t->hidden, to.p, t->d_out, 4 * D, g->out);
    if (needs(job, OUT_BIAS)) sums(n, 4 * D, t->d_out, g->out_bias);
    if (needs(job, FEATURES)) outer(n, 4 * D, F, t->told, 4 * D, t->d_features, F, g->features);
    if (needs(job, FEATURES_BIAS)) sums(n, F, t->d_features, g->features_bias);
    if (needs(job, CELL)) outer(n, F + H, 4 * H, t->seen, F + H, t->cell, 4 * H, g->cell);
    if (needs(job, CELL_BIAS)) sums(n, 4 * H, t->cell, g->cell_bias);
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
    Table *t = &walk->table;
    for (; walk->look < walk->look_end; walk->look++) {
        int64_t one = job->looks.order[walk->look];
        if (job->looks.row[one] != row) break;
        copy(job->reads + one * job->H, h + (job->looks.series[one] - walk->lo) * H, job->H);
    }
    for (long n; (n = together(&job->jumps, walk->jump, walk->jump_end, 0, row, JUMPS)); walk->jump += n) {
        const int64_t *which = job->jumps.order + walk->jump;
        EACH(i, n) {
            const float *own = h + (job->jumps.series[which[i]] - walk->lo) * H;
            copy(t->seen + i * (F + H) + F, own, H);
            copy(job->before + which[i] * job->H, own, job->H);
        }
        jump(scan, t, 0, n, which);
        EACH(i, n) {
            float *own = h + (job->jumps.series[which[i]] - walk->lo) * H, *c = t->cell + i * 4 * H;
            VECTORS(j, H)
                store(own + j, load(c + 2 * H + j) + load(c + H + j) * (load(own + j) - load(c + 2 * H + j)));
            copy(job->after + which[i] * job->H, own, job->H);
            copy(job->said + which[i] * 2 * job->D, t->told + i * 4 * D + D, job->D);
            copy(job->said + which[i] * 2 * job->D + job->D, t->told + i * 4 * D + 2 * D, job->D);
        }
    }
}

/* the jumps and then the reads of a row, last one first */
static void halt_back(Walk *walk, long row, const Matrices *g) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long F = scan->to.F, H = scan->to.H;
    Table *t = &walk->table;
    for (long n; (n = together(&job->jumps, walk->jump, walk->jump_end, 1, row, JUMPS)); ) {
        walk->jump -= n;
        const int64_t *which = job->jumps.order + walk->jump;
        if (t->used + n > JUMPS) settle_jumps(scan, t, g);
        EACH(i, n) copy(t->seen + (t->used + i) * (F + H) + F, job->before + which[i] * job->H, job->H);
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
