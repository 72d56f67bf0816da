/* GRU-ODE-Bayes and ACE over a whole schedule, forward and backward: the equations of torch_forward.py and
 * torch_backward.py in single precision.
 *
 * Series are independent, so a block of them runs through all rows while its state stays in the cache. The forward pass
 * saves the state at intervals, h around the jumps and, if they fit, the gates of attention; the backward pass recomputes
 * the rest. Blocks sum the gradients of the weights separately and the sums are added in a fixed order, so the result
 * does not depend on the number of threads.
 */

#include "vectors.h"
#include "weights.h"
#include "block_state.h"
#include "rows.h"
#include "attention.h"
#include "jumps.h"

#define CHUNKS 64  /* separate sums of gradients, at most */

/* copy the state of a block, or its gradient, to arrays of all series */
static void store_state(const BlockState *state, float *h, float *a, const float *from_h, const float *from_a) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count;
    EACH(b, n) {
        long series = state->lo + b;
        if (h) copy(h + series * pass->H, from_h + b * H, pass->H);
        if (a) EACH(i, pass->H) copy(a + (series * pass->H + i) * pass->H, from_a + (b * pass->H + i) * H, pass->H);
    }
}

static void load_state(BlockState *state, const float *h, const float *a) {
    const Pass *pass = state->scan->pass;
    long H = state->scan->to.H, n = state->count;
    clear(state->h, n * H);
    if (a) clear(state->a, n * pass->H * H);
    EACH(b, n) {
        long series = state->lo + b;
        copy(state->h + b * H, h + series * pass->H, pass->H);
        if (a) EACH(i, pass->H) copy(state->a + (b * pass->H + i) * H, a + (series * pass->H + i) * pass->H, pass->H);
    }
}

/* copy h after the observations of a row, computed by the forward pass */
static long copy_updates(const BlockState *state, long row, long jump, float *h) {
    const Pass *pass = state->scan->pass;
    for (; jump < state->next_observation && pass->observations.row[pass->observations.order[jump]] == row; jump++) {
        int64_t one = pass->observations.order[jump];
        copy(h + (pass->observations.series[one] - state->lo) * state->scan->to.H, pass->after + one * pass->H, pass->H);
    }
    return jump;
}

/* run the rows between two saved states; `jump` is their first observation, if values are saved */
static void run_rows(BlockState *state, long first, long end, long jump) {
    const Pass *pass = state->scan->pass;
    long size = state->count * state->scan->to.H;
    state->window = (first - 1) / pass->every;
    for (long row = first, k = 0; row < end; row++, k++) {
        if (pass->attention) {
            if (k % pass->every == 0) open_window(state, k / pass->every);
            attend(state, row, k);
        }
        step(state, row, k);
        if (state->save) jump = copy_updates(state, row, jump, state->h + (k + 1) * size);
        else read_and_observe(state, row, state->h);
        int last = k % pass->every == pass->every - 1 && row + 1 < pass->S;  /* a is not read after the last row */
        if (pass->attention && last) close_window(state, k / pass->every);
    }
}

static void forward_block(BlockState *state, long block) {
    const Pass *pass = state->scan->pass;
    long rows = pass->every * pass->span;
    start_block(state, block, 0);
    load_state(state, pass->h0, pass->a0);
    read_and_observe(state, 0, state->h);
    for (long first = 1, saved = 0; first < pass->S; first += rows, saved++) {
        store_state(state, pass->h_saved + saved * pass->B * pass->H,
                   pass->attention ? pass->a_saved + saved * pass->B * pass->H * pass->H : NULL, state->h, state->a);
        run_rows(state, first, first + rows < pass->S ? first + rows : pass->S, 0);
    }
}

static void run_rows_back(BlockState *state, long first, long end, const Matrices *g) {
    const Pass *pass = state->scan->pass;
    for (long row = end - 1, rows = 0; row >= first; row--) {
        long k = row - first, w = k / pass->every;
        if (pass->attention && !rows) {
            if (state->live) close_window_back(state, w, g);
            else clear(state->d_mean, state->count * state->scan->to.H);
        }
        read_and_observe_back(state, row, g);
        step_back(state, row, k);
        if (pass->attention) attend_back(state, k);
        rows++;
        if (k % pass->every) continue;
        add_row_gradients(state, k, rows, g);
        if (pass->attention) open_window_back(state, w, rows);
        rows = 0;
    }
}

static void backward_block(BlockState *state, long block, const Matrices *g) {
    const Pass *pass = state->scan->pass;
    long rows = pass->every * pass->span;
    start_block(state, block, 1);
    clear(state->dh, state->count * state->scan->to.H);
    for (long saved = (pass->S - 2) / rows, end = pass->S; end > 1; saved--, end = saved * rows + rows + 1) {
        long first = saved * rows + 1, jump = state->next_observation;
        const Points *points = &pass->observations;
        while (jump > state->observation_end && points->row[points->order[jump - 1]] >= first) jump--;
        load_state(state, pass->h_saved + saved * pass->B * pass->H,
                   pass->attention ? pass->a_saved + saved * pass->B * pass->H * pass->H : NULL);
        run_rows(state, first, end, jump);
        run_rows_back(state, first, end, g);
    }
    read_and_observe_back(state, 0, g);
    add_jump_gradients(state->scan, &state->table, g);
    store_state(state, pass->d_h0, state->live ? pass->d_a0 : NULL, state->dh, state->da);
}

static void run_chunk(BlockState *state, long from, long to, const Matrices *g) {
    for (long block = from; block < to; block++) {
        if (g) backward_block(state, block, g);
        else forward_block(state, block);
    }
}

static int run(const Pass *pass, int back) {
    Scan scan = {.pass = pass, .to = {round_up(pass->H), round_up(pass->D), round_up(pass->Q), round_up(pass->F)}};
    long blocks = (pass->B + pass->block - 1) / pass->block, chunks = blocks < CHUNKS ? blocks : CHUNKS;
    long size = back ? lay_matrices(&scan.w, &scan, NULL) : 0;
    float *packed = pack(&scan), *shares = allocate(size * chunks);
    int failed = !packed || !shares;
    if (!failed) {
#pragma omp parallel num_threads((int)pass->threads) reduction(| : failed)
        {
            BlockState state;
            float *memory = allocate(lay_block_state(&state, &scan, back, NULL));
            if (memory) lay_block_state(&state, &scan, back, memory);
            else failed = 1;
#pragma omp for schedule(dynamic)
            for (long c = 0; c < chunks; c++) {
                Matrices g;
                if (back) lay_matrices(&g, &scan, shares + c * size);
                if (memory) run_chunk(&state, blocks * c / chunks, blocks * (c + 1) / chunks, back ? &g : NULL);
            }
            free(memory);
        }
        if (back && !failed) unpack_gradients(&scan, shares, chunks, size);
    }
    free(packed);
    free(shares);
    return failed;
}

/* returns 0, or 1 if there is no memory */
int pass_forward(const Pass *pass) { return run(pass, 0); }

int pass_backward(const Pass *pass) { return run(pass, 1); }
