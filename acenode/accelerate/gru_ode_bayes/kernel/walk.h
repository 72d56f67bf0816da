/* A block of series on its way, and its memory. */

#define JUMPS 128  /* whose gradients are gathered before they are summed */

typedef struct {  /* a row a jump; on the way back gradients take the place of the cell */
    float *hidden, *told, *inverse, *seen, *cell, *d_hidden, *d_out, *d_features, *d_seen;
    long used;
} Table;

typedef struct {
    const Scan *scan;
    int keep;         /* every row from mark to mark has its own place; else all have the same */
    long lo, count;   /* the series */
    long window;      /* of the course, that others are counted from */
    long jump, jump_end, look, look_end;
    float *h, *s, *gates, *read, *u;                     /* by row: r, o; r ⊙ s; s is h without attention */
    float *dh, *d_s, *d_read;                            /* d_s by row of a window */
    float *a, *soft, *across, *a_gates, *a_u, *mean, *tau;  /* by window; soft = σ(a), across = σ(a)ᵀ */
    float *a_read, *share, *da, *d_soft, *d_gates_in, *d_new_in, *d_mean;
    int live;  /* whether anything that is known so far depends on a */
    Table table;
} Walk;

static long lay_walk(Walk *walk, const Scan *scan, int keep, float *base) {
    const Job *job = scan->job;
    Sizes n = scan->to;
    Table *t = &walk->table;
    int with = job->attention != 0;
    long windows = keep ? job->span : 1, rows = keep ? windows * job->every : 1, H = job->block * n.H;
    long square = with * job->H * n.H, all = job->block * square, some = with * H;
    walk->scan = scan, walk->keep = keep;
    Place places[] = {
        {&walk->h, (rows + 1) * H}, {&walk->s, rows * some}, {&walk->gates, rows * 2 * H}, {&walk->read, rows * H},
        {&walk->u, rows * H}, {&walk->dh, H}, {&walk->d_s, job->every * some}, {&walk->d_read, H},
        {&walk->a, (windows + 1) * all}, {&walk->soft, windows * all}, {&walk->across, job->block * with * n.H * n.H},
        {&walk->a_gates, 2 * (keep ? windows * all : square)}, {&walk->a_u, keep ? windows * all : square},
        {&walk->mean, windows * some}, {&walk->tau, windows * job->block}, {&walk->a_read, square},
        {&walk->share, 3 * some}, {&walk->da, all}, {&walk->d_soft, with * n.H * n.H}, {&walk->d_gates_in, 2 * some},
        {&walk->d_new_in, some}, {&walk->d_mean, some},
        {&t->hidden, JUMPS * n.p}, {&t->told, JUMPS * 4 * n.D}, {&t->inverse, JUMPS * n.D},
        {&t->seen, JUMPS * (n.F + n.H)}, {&t->cell, JUMPS * 4 * n.H}, {&t->d_hidden, JUMPS * n.p},
        {&t->d_out, JUMPS * 4 * n.D}, {&t->d_features, JUMPS * n.F}, {&t->d_seen, JUMPS * (n.F + n.H)}};
    t->used = 0;
    return lay(places, sizeof places / sizeof *places, base);
}

static void begin(Walk *walk, long block, int at_end) {
    const Job *job = walk->scan->job;
    walk->lo = block * job->block;
    walk->count = job->B - walk->lo < job->block ? job->B - walk->lo : job->block;
    walk->jump = job->jumps.first[block + at_end], walk->jump_end = job->jumps.first[block + !at_end];
    walk->look = job->looks.first[block + at_end], walk->look_end = job->looks.first[block + !at_end];
    walk->live = 0;
}

/* where the numbers of the k-th row, or window, are */
INLINE float *place(const Walk *walk, float *base, long k, long size) { return walk->keep ? base + k * size : base; }

/* g's gates and u of a series at the end of window w */
INLINE void find_opened(const Walk *walk, long w, long b, float **gates, float **u) {
    const Job *job = walk->scan->job;
    long square = job->H * walk->scan->to.H, at = walk->keep ? w * walk->count + b : 0;
    long windows = (job->S - 2) / job->every, before = walk->lo * windows + (walk->window + w) * walk->count + b;
    *gates = job->opened ? job->opened + before * 3 * square : walk->a_gates + at * 2 * square;
    *u = job->opened ? *gates + 2 * square : walk->a_u + at * square;
}
