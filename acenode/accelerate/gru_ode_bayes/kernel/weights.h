/* What a pass is given, and its weights packed: rows and sections of columns filled up to whole vectors. */

enum { F_RESET, F_OPEN, F_NEW, HIDDEN, HIDDEN_BIAS, OUT, OUT_BIAS, FEATURES, FEATURES_BIAS, CELL, CELL_BIAS,
       G_GATES, G_NEW, G_GATES_IN, G_NEW_IN, WEIGHTS };

typedef struct {  /* the halts of a kind, by block of series and then by row */
    const int64_t *first, *order, *row, *series;
} Halts;

typedef struct {
    int64_t B, H, D, p, F, S;
    int64_t block, every, span;  /* series that go together, rows of a window, windows from mark to mark */
    int64_t own_steps, attention, own_feedback, detach;
    int64_t threads, needed;  /* a bit a weight */
    const float *dt, *h0, *a0, *x, *m, *kept;
    const float *weights[WEIGHTS];
    Halts jumps, looks;
    float *said, *before, *after, *reads, *marks, *a_marks;
    float *opened;  /* g's gates and u of all windows, where there is room; on the way back their gradients */
    const float *d_said, *d_after, *d_reads;
    float *d_h0, *d_a0;
    float *d_weights[WEIGHTS];
} Job;

typedef struct {
    long H, D, p, F;
} Sizes;

typedef struct {  /* of weights or of their gradients: gates (H, 2H), news (H, H), the others as in Weights */
    float *gates, *news, *hidden, *hidden_bias, *out, *out_bias, *features, *features_bias, *cell, *cell_bias;
    float *g_gates, *g_new, *g_gates_in, *g_new_in;
} Matrices;

typedef struct {
    const Job *job;
    Sizes to;
    Matrices w, t;  /* and turned: (outputs, inputs) */
} Scan;

INLINE float step_of(const Job *job, long row, long series) {
    return job->own_steps ? job->dt[row * job->B + series] : job->dt[row];
}

INLINE int needs(const Job *job, int weight) { return job->needed >> weight & 1; }

static long lay_matrices(Matrices *m, const Scan *scan, float *base) {
    Sizes n = scan->to;
    long g = scan->job->attention ? n.H * n.H : 0;
    Place places[] = {
        {&m->gates, n.H * 2 * n.H}, {&m->news, n.H * n.H}, {&m->hidden, n.H * n.p}, {&m->hidden_bias, n.p},
        {&m->out, n.p * 4 * n.D}, {&m->out_bias, 4 * n.D}, {&m->features, 4 * n.D * n.F}, {&m->features_bias, n.F},
        {&m->cell, (n.F + n.H) * 4 * n.H}, {&m->cell_bias, 4 * n.H},
        {&m->g_gates, 2 * g}, {&m->g_new, g}, {&m->g_gates_in, 2 * g}, {&m->g_new_in, g}};
    return lay(places, sizeof places / sizeof *places, base);
}

typedef struct {  /* a given matrix in a packed one of N columns: sections of rows and of columns, each filled up */
    int which;
    long skip;  /* entries before it */
    float *packed;
    long N, rows, row, row_to, columns, column, column_to;
} Entry;

#define ENTRIES (WEIGHTS + 1)

static long entries(const Scan *scan, const Matrices *m, Entry *found) {
    const Job *job = scan->job;
    Sizes n = scan->to;
    long H = job->H, D = job->D, p = job->p, F = job->F;
    Entry every[ENTRIES] = {
        {F_RESET, 0, m->gates, 2 * n.H, H, H, n.H, H, H, n.H},
        {F_OPEN, 0, m->gates + n.H, 2 * n.H, H, H, n.H, H, H, n.H},
        {F_NEW, 0, m->news, n.H, H, H, n.H, H, H, n.H},
        {HIDDEN, 0, m->hidden, n.p, H, H, n.H, p, p, n.p},
        {HIDDEN_BIAS, 0, m->hidden_bias, n.p, 1, 1, 1, p, p, n.p},
        {OUT, 0, m->out, 4 * n.D, p, p, n.p, 4 * D, D, n.D},
        {OUT_BIAS, 0, m->out_bias, 4 * n.D, 1, 1, 1, 4 * D, D, n.D},
        {FEATURES, 0, m->features, n.F, 4 * D, D, n.D, F, F, n.F},
        {FEATURES_BIAS, 0, m->features_bias, n.F, 1, 1, 1, F, F, n.F},
        {CELL, 0, m->cell, 4 * n.H, F, F, n.F, 4 * H, H, n.H},
        {CELL, F * 4 * H, m->cell + n.F * 4 * n.H, 4 * n.H, H, H, n.H, 4 * H, H, n.H},
        {CELL_BIAS, 0, m->cell_bias, 4 * n.H, 1, 1, 1, 4 * H, H, n.H},
        {G_GATES, 0, m->g_gates, 2 * n.H, H, H, n.H, 2 * H, H, n.H},
        {G_NEW, 0, m->g_new, n.H, H, H, n.H, H, H, n.H},
        {G_GATES_IN, 0, m->g_gates_in, 2 * n.H, H, H, n.H, 2 * H, H, n.H},
        {G_NEW_IN, 0, m->g_new_in, n.H, H, H, n.H, H, H, n.H}};
    memcpy(found, every, sizeof every);
    return job->attention ? ENTRIES : ENTRIES - 4;
}

/* between a matrix as it is given and its packed form, in either direction */
static void move(const Entry *e, const float *from, float *to) {
    EACH(i, e->rows) EACH(j, e->columns) {
        long row = i / e->row * e->row_to + i % e->row, column = j / e->column * e->column_to + j % e->column;
        float *packed = e->packed + row * e->N + column;
        if (from) *packed = from[e->skip + i * e->columns + j];
        else to[e->skip + i * e->columns + j] = *packed;
    }
}

static void turn_over(const float *from, long rows, long columns, float *to) {
    EACH(i, rows) EACH(j, columns) to[j * rows + i] = from[i * columns + j];
}

/* what the products give is then ready to be opened */
static void ready(float *gates, float *news, long H) {
    EACH(i, 2 * H * H) gates[i] *= TO_OPEN;
    EACH(i, H * H) news[i] *= 2.0f * TO_OPEN;
}

static float *pack(Scan *scan) {
    Sizes n = scan->to;
    Matrices *w = &scan->w, *t = &scan->t;
    Entry found[ENTRIES];
    long size = lay_matrices(w, scan, NULL);
    float *memory = room(2 * size);
    if (!memory) return NULL;
    lay_matrices(w, scan, memory);
    lay_matrices(t, scan, memory + size);
    long count = entries(scan, w, found);
    EACH(e, count) move(found + e, scan->job->weights[found[e].which], NULL);
    turn_over(w->gates, n.H, 2 * n.H, t->gates);
    turn_over(w->news, n.H, n.H, t->news);
    turn_over(w->hidden, n.H, n.p, t->hidden);
    turn_over(w->out, n.p, 4 * n.D, t->out);
    turn_over(w->features + n.D * n.F, 3 * n.D, n.F, t->features);  /* x has no gradient */
    turn_over(w->cell, n.F + n.H, 4 * n.H, t->cell);
    ready(w->gates, w->news, n.H);
    if (!scan->job->attention) return memory;
    turn_over(w->g_gates, n.H, 2 * n.H, t->g_gates);
    turn_over(w->g_new, n.H, n.H, t->g_new);
    turn_over(w->g_gates_in, n.H, 2 * n.H, t->g_gates_in);
    turn_over(w->g_new_in, n.H, n.H, t->g_new_in);
    ready(w->g_gates, w->g_new, n.H);
    ready(w->g_gates_in, w->g_new_in, n.H);
    return memory;
}

/* the gradients: shares of equal size added in order, and each matrix to its own place */
static void hand_out(const Scan *scan, float *shares, long count, long size) {
    Entry found[ENTRIES];
    Matrices g;
    for (long c = 1; c < count; c++) EACH(i, size) shares[i] += shares[c * size + i];
    lay_matrices(&g, scan, shares);
    long n = entries(scan, &g, found);
    EACH(e, n) if (scan->job->d_weights[found[e].which]) move(found + e, NULL, scan->job->d_weights[found[e].which]);
}
