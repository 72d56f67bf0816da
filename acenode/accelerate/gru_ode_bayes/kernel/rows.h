/* A step of h in all series of a block, and back:
 *
 *     r, o = σ(s W), u = tanh((r ⊙ s) W'), h ← h + dt o ⊙ (u − s)      s = h, or σ(a) h with attention; or u − h
 */

static void step(Walk *walk, long row, long k) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count;
    float *h = place(walk, walk->h, k, n * H), *after = walk->keep ? h + n * H : h;
    const float *s = job->attention ? place(walk, walk->s, k, n * H) : h, *back = job->own_feedback ? h : s;
    float *gates = place(walk, walk->gates, k, n * 2 * H), *read = place(walk, walk->read, k, n * H);
    float *u = place(walk, walk->u, k, n * H);
    product(n, job->H, 2 * H, s, H, scan->w.gates, NULL, 0, gates, 2 * H);
    open_all(gates, n * 2 * H);
    EACH(b, n) VECTORS(j, H) store(read + b * H + j, load(gates + b * 2 * H + j) * load(s + b * H + j));
    product(n, job->H, H, read, H, scan->w.news, NULL, 0, u, H);
    open_all(u, n * H);
    EACH(b, n) {
        float dt = step_of(job, row, walk->lo + b);
        for (long j = b * H, o = b * 2 * H + H; j < b * H + H; j += LANES, o += LANES) {
            vec new = tanh_of(load(u + j));
            store(u + j, new);
            store(after + j, load(h + j) + dt * load(gates + o) * (new - load(back + j)));
        }
    }
}

/* ∂h before a step from that after it; gradients take the place of the gates and of u. With attention the share of s is
 * left in d_s */
static void step_back(Walk *walk, long row, long k) {
    const Scan *scan = walk->scan;
    const Job *job = scan->job;
    long H = scan->to.H, n = walk->count;
    float *h = walk->h + k * n * H, *gates = walk->gates + k * n * 2 * H, *u = walk->u + k * n * H;
    const float *s = job->attention ? walk->s + k * n * H : h, *back = job->own_feedback ? h : s;
    float *dh = walk->dh, *d_s = job->attention ? walk->d_s + k % job->every * n * H : dh, *d_read = walk->d_read;
    EACH(b, n) {
        float dt = step_of(job, row, walk->lo + b);
        for (long j = b * H, o = b * 2 * H + H; j < b * H + H; j += LANES, o += LANES) {
            vec d = load(dh + j), open = load(gates + o), new = load(u + j), scaled = d * dt, d_new = scaled * open;
            store(gates + o, through_sigmoid(scaled * (new - load(back + j)), open));
            store(u + j, through_tanh(d_new, new));
            if (job->attention) {
                vec mean = load(walk->d_mean + j) * dt;
                store(dh + j, job->own_feedback ? d - d_new : d);
                store(d_s + j, job->own_feedback ? mean : mean - d_new);
            } else {
                store(dh + j, d - d_new);
            }
        }
    }
    product(n, job->H, H, u, H, scan->t.news, NULL, 0, d_read, H);
    EACH(b, n) for (long j = b * H, g = b * 2 * H; j < b * H + H; j += LANES, g += LANES) {
        vec d = load(d_read + j), r = load(gates + g);
        store(d_s + j, load(d_s + j) + d * r);
        store(gates + g, through_sigmoid(d * load(s + j), r));
    }
    product(n, 2 * H, H, gates, 2 * H, scan->t.gates, d_s, H, d_s, H);
}

/* what the rows of a window, from k on, add to the gradients of their weights */
static void settle_rows(const Walk *walk, long k, long rows, const Matrices *g) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count;
    const float *s = (job->attention ? walk->s : walk->h) + k * n * H;
    if (needs(job, F_RESET) || needs(job, F_OPEN))
        outer(rows * n, H, 2 * H, s, H, walk->gates + k * n * 2 * H, 2 * H, g->gates);
    if (needs(job, F_NEW)) outer(rows * n, H, H, walk->read + k * n * H, H, walk->u + k * n * H, H, g->news);
}
