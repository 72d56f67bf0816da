/* The values of a block of series during a pass, and their memory. */

#define MAX_JUMPS 128  /* gradients of so many jumps are collected before they are summed */

typedef struct {  /* one row per jump; the backward pass overwrites the cell with its gradients */
    float *hidden, *feature_inputs, *inverse, *seen, *cell, *d_hidden, *d_out, *d_features, *d_seen;
    long used;
} Table;

typedef struct {
    const Scan *scan;
    int save;         /* rows between saved states have memory of their own; otherwise they share it */
    long lo, count;   /* first series of the block, and how many */
    long window;      /* index of the first window since the last saved state */
    long next_observation, observation_end, next_read, read_end;
    float *h, *s, *gates, *read, *u;  /* by row; gates r, o; read = r ⊙ s; s is h without attention */
    float *dh, *d_s, *d_read;                            /* d_s by row of a window */
    float *a, *soft, *soft_t, *a_gates, *a_u, *mean, *tau;  /* by window; soft = σ(a), soft_t = σ(a)ᵀ */
    float *a_read, *share, *da, *d_soft, *d_gates_in, *d_new_in, *d_mean;
    int live;  /* 1 once ∂a is nonzero */
    Table table;
} BlockState;

static long lay_block_state(BlockState *state, const Scan *scan, int save, float *base) {
    const Pass *pass = scan->pass;
    Sizes n = scan->to;
    Table *t = &state->table;
    int with = pass->attention != 0;
    long windows = save ? pass->span : 1, rows = save ? windows * pass->every : 1, H = pass->block * n.H;
    long square = with * pass->H * n.H, all = pass->block * square, some = with * H;
    state->scan = scan, state->save = save;
    Place places[] = {
        {&state->h, (rows + 1) * H}, {&state->s, rows * some}, {&state->gates, rows * 2 * H}, {&state->read, rows * H},
        {&state->u, rows * H}, {&state->dh, H}, {&state->d_s, pass->every * some}, {&state->d_read, H},
        {&state->a, (windows + 1) * all}, {&state->soft, windows * all}, {&state->soft_t, pass->block * with * n.H * n.H},
        {&state->a_gates, 2 * (save ? windows * all : square)}, {&state->a_u, save ? windows * all : square},
        {&state->mean, windows * some}, {&state->tau, windows * pass->block}, {&state->a_read, square},
        {&state->share, 3 * some}, {&state->da, all}, {&state->d_soft, with * n.H * n.H}, {&state->d_gates_in, 2 * some},
        {&state->d_new_in, some}, {&state->d_mean, some},
        {&t->hidden, MAX_JUMPS * n.Q}, {&t->feature_inputs, MAX_JUMPS * 4 * n.D}, {&t->inverse, MAX_JUMPS * n.D},
        {&t->seen, MAX_JUMPS * (n.F + n.H)}, {&t->cell, MAX_JUMPS * 4 * n.H}, {&t->d_hidden, MAX_JUMPS * n.Q},
        {&t->d_out, MAX_JUMPS * 4 * n.D}, {&t->d_features, MAX_JUMPS * n.F}, {&t->d_seen, MAX_JUMPS * (n.F + n.H)}};
    t->used = 0;
    return lay(places, sizeof places / sizeof *places, base);
}

static void start_block(BlockState *state, long block, int at_end) {
    const Pass *pass = state->scan->pass;
    state->lo = block * pass->block;
    state->count = pass->B - state->lo < pass->block ? pass->B - state->lo : pass->block;
    state->next_observation = pass->observations.first[block + at_end];
    state->observation_end = pass->observations.first[block + !at_end];
    state->next_read = pass->reads.first[block + at_end], state->read_end = pass->reads.first[block + !at_end];
    state->live = 0;
}

/* memory of the k-th row, or window */
INLINE float *place(const BlockState *state, float *base, long k, long size) {
    return state->save ? base + k * size : base;
}

/* find g's gates and u of series b at the end of window w */
INLINE void find_g_gates(const BlockState *state, long w, long b, float **gates, float **u) {
    const Pass *pass = state->scan->pass;
    long square = pass->H * state->scan->to.H, at = state->save ? w * state->count + b : 0;
    long windows = (pass->S - 2) / pass->every, before = state->lo * windows + (state->window + w) * state->count + b;
    *gates = pass->g_gates ? pass->g_gates + before * 3 * square : state->a_gates + at * 2 * square;
    *u = pass->g_gates ? *gates + 2 * square : state->a_u + at * square;
}
