/* The inputs of a pass, and its weights with rows and sections of columns padded to whole vectors. */

enum { F_RESET, F_OPEN, F_NEW, HIDDEN, HIDDEN_BIAS, OUT, OUT_BIAS, FEATURES, FEATURES_BIAS, CELL, CELL_BIAS,
       G_GATES, G_NEW, G_GATES_IN, G_NEW_IN, WEIGHTS };

typedef struct {  /* observations or read points, sorted by block of series and then by row */
    const int64_t *first, *order, *row, *series;
} Points;

typedef struct {
    int64_t B, H, D, Q, F, S;
    int64_t block, every, span;  /* series of a block, rows of a window, windows between saved states */
    int64_t own_steps, attention, own_feedback, detach;
    int64_t threads, needed;  /* one bit per weight that needs a gradient */
    const float *dt, *h0, *a0, *x, *m, *dropout;
    const float *weights[WEIGHTS];
    Points observations, reads;
    float *predicted, *before, *after, *read, *h_saved, *a_saved;
    float *g_gates;  /* g's gates and u of all windows, if saved; the backward pass writes their gradients here */
    const float *d_predicted, *d_after, *d_read;
    float *d_h0, *d_a0;
    float *d_weights[WEIGHTS];
} Pass;

typedef struct {
    long H, D, Q, F;
} Sizes;

typedef struct {  /* weights or their gradients: gates (H, 2H), news (H, H), the others as in PackedWeights */
    float *gates, *news, *hidden, *hidden_bias, *out, *out_bias, *features, *features_bias, *cell, *cell_bias;
    float *g_gates, *g_new, *g_gates_in, *g_new_in;
} Matrices;

typedef struct {
    const Pass *pass;
    Sizes to;
    Matrices w, t;  /* weights, and transposed: (outputs, inputs) */
} Scan;

INLINE float step_of(const Pass *pass, long row, long series) {
    return pass->own_steps ? pass->dt[row * pass->B + series] : pass->dt[row];
}

INLINE int needs(const Pass *pass, int weight) { return pass->needed >> weight & 1; }

static long lay_matrices(Matrices *m, const Scan *scan, float *base) {
    Sizes n = scan->to;
    long g = scan->pass->attention ? n.H * n.H : 0;
    Place places[] = {
        {&m->gates, n.H * 2 * n.H}, {&m->news, n.H * n.H}, {&m->hidden, n.H * n.Q}, {&m->hidden_bias, n.Q},
        {&m->out, n.Q * 4 * n.D}, {&m->out_bias, 4 * n.D}, {&m->features, 4 * n.D * n.F}, {&m->features_bias, n.F},
        {&m->cell, (n.F + n.H) * 4 * n.H}, {&m->cell_bias, 4 * n.H},
        {&m->g_gates, 2 * g}, {&m->g_new, g}, {&m->g_gates_in, 2 * g}, {&m->g_new_in, g}};
    return lay(places, sizeof places / sizeof *places, base);
}

typedef struct {  /* where a matrix lies in a padded one of N columns: sections of rows and of columns, each padded */
    int which;
    long skip;  /* entries of the unpadded matrix before it */
    float *packed;
    long N, rows, row, row_to, columns, column, column_to;
} Entry;

#define ENTRIES (WEIGHTS + 1)

static long entries(const Scan *scan, const Matrices *m, Entry *found) {
    const Pass *pass = scan->pass;
    Sizes n = scan->to;
    long H = pass->H, D = pass->D, Q = pass->Q, F = pass->F;
    Entry every[ENTRIES] = {
        {F_RESET, 0, m->gates, 2 * n.H, H, H, n.H, H, H, n.H},
        {F_OPEN, 0, m->gates + n.H, 2 * n.H, H, H, n.H, H, H, n.H},
        {F_NEW, 0, m->news, n.H, H, H, n.H, H, H, n.H},
        {HIDDEN, 0, m->hidden, n.Q, H, H, n.H, Q, Q, n.Q},
        {HIDDEN_BIAS, 0, m->hidden_bias, n.Q, 1, 1, 1, Q, Q, n.Q},
        {OUT, 0, m->out, 4 * n.D, Q, Q, n.Q, 4 * D, D, n.D},
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
    return pass->attention ? ENTRIES : ENTRIES - 4;
}

/* copy a matrix to its padded form (from) or back (to) */
static void move(const Entry *e, const float *from, float *to) {
    EACH(i, e->rows) EACH(j, e->columns) {
        long row = i / e->row * e->row_to + i % e->row, column = j / e->column * e->column_to + j % e->column;
        float *packed = e->packed + row * e->N + column;
        if (from) *packed = from[e->skip + i * e->columns + j];
        else to[e->skip + i * e->columns + j] = *packed;
    }
}

static void transpose(const float *from, long rows, long columns, float *to) {
    EACH(i, rows) EACH(j, columns) to[j * rows + i] = from[i * columns + j];
}

/* scale weights of gates, so that their products are inputs of sigmoid_scaled */
static void scale_for_sigmoid(float *gates, float *news, long H) {
    EACH(i, 2 * H * H) gates[i] *= SIGMOID_SCALE;
    EACH(i, H * H) news[i] *= 2.0f * SIGMOID_SCALE;
}

static float *pack(Scan *scan) {
    Sizes n = scan->to;
    Matrices *w = &scan->w, *t = &scan->t;
    Entry found[ENTRIES];
    long size = lay_matrices(w, scan, NULL);
    float *memory = allocate(2 * size);
    if (!memory) return NULL;
    lay_matrices(w, scan, memory);
    lay_matrices(t, scan, memory + size);
    long count = entries(scan, w, found);
    EACH(e, count) move(found + e, scan->pass->weights[found[e].which], NULL);
    transpose(w->gates, n.H, 2 * n.H, t->gates);
    transpose(w->news, n.H, n.H, t->news);
    transpose(w->hidden, n.H, n.Q, t->hidden);
    transpose(w->out, n.Q, 4 * n.D, t->out);
    transpose(w->features + n.D * n.F, 3 * n.D, n.F, t->features);  /* x has no gradient */
    transpose(w->cell, n.F + n.H, 4 * n.H, t->cell);
    scale_for_sigmoid(w->gates, w->news, n.H);
    if (!scan->pass->attention) return memory;
    transpose(w->g_gates, n.H, 2 * n.H, t->g_gates);
    transpose(w->g_new, n.H, n.H, t->g_new);
    transpose(w->g_gates_in, n.H, 2 * n.H, t->g_gates_in);
    transpose(w->g_new_in, n.H, n.H, t->g_new_in);
    scale_for_sigmoid(w->g_gates, w->g_new, n.H);
    scale_for_sigmoid(w->g_gates_in, w->g_new_in, n.H);
    return memory;
}

/* sum the gradients of all chunks in order, and copy each matrix to its output */
static void unpack_gradients(const Scan *scan, float *shares, long count, long size) {
    Entry found[ENTRIES];
    Matrices g;
    for (long c = 1; c < count; c++) EACH(i, size) shares[i] += shares[c * size + i];
    lay_matrices(&g, scan, shares);
    long n = entries(scan, &g, found);
    EACH(e, n) if (scan->pass->d_weights[found[e].which]) move(found + e, NULL, scan->pass->d_weights[found[e].which]);
}
