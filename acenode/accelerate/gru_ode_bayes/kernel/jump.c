/* GRU-ODE-Bayes over a whole course, forward and back, with and without attention: the mathematics of jump_scan.py and
 * jump_back.py in single precision.
 *
 * Series do not see each other, so a block of them is taken through all rows while its state stays near the core. What
 * is kept for the way back is the state at marks, h around the jumps and, where there is room, the gates of
 * attention; the rest is computed again. Blocks sum their shares of the weights' gradients by themselves and the sums
 * are added in order, so that the result does not depend on the number of threads.
 */

#include "vectors.h"
#include "weights.h"
#include "walk.h"
#include "rows.h"
#include "attention.h"
#include "jumps.h"

#define CHUNKS 64  /* sums of gradients, at most */

/* the state of a block, or what is in its place, between the walk and a table of all series */
static void keep_state(const Walk *walk, float *h, float *a, const float *from_h, const float *from_a) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count;
    EACH(b, n) {
        long series = walk->lo + b;
        if (h) copy(h + series * job->H, from_h + b * H, job->H);
        if (a) EACH(i, job->H) copy(a + (series * job->H + i) * job->H, from_a + (b * job->H + i) * H, job->H);
    }
}

static void take_state(Walk *walk, const float *h, const float *a) {
    const Job *job = walk->scan->job;
    long H = walk->scan->to.H, n = walk->count;
    clear(walk->h, n * H);
    if (a) clear(walk->a, n * job->H * H);
    EACH(b, n) {
        long series = walk->lo + b;
        copy(walk->h + b * H, h + series * job->H, job->H);
        if (a) EACH(i, job->H) copy(walk->a + (b * job->H + i) * H, a + (series * job->H + i) * job->H, job->H);
    }
}

/* h after the jumps of a row, where it is known */
static long known(const Walk *walk, long row, long jump, float *h) {
    const Job *job = walk->scan->job;
    for (; jump < walk->jump && job->jumps.row[job->jumps.order[jump]] == row; jump++) {
        int64_t one = job->jumps.order[jump];
        copy(h + (job->jumps.series[one] - walk->lo) * walk->scan->to.H, job->after + one * job->H, job->H);
    }
    return jump;
}

/* the rows from a mark to before the next; those that are kept, from the jump that is their first */
static void go(Walk *walk, long first, long end, long jump) {
    const Job *job = walk->scan->job;
    long size = walk->count * walk->scan->to.H;
    walk->window = (first - 1) / job->every;
    for (long row = first, k = 0; row < end; row++, k++) {
        if (job->attention) {
            if (k % job->every == 0) open_window(walk, k / job->every);
            attend(walk, row, k);
        }
        step(walk, row, k);
        if (walk->keep) jump = known(walk, row, jump, walk->h + (k + 1) * size);
        else halt(walk, row, walk->h);
        int last = k % job->every == job->every - 1 && row + 1 < job->S;  /* after the course nobody reads a */
        if (job->attention && last) close_window(walk, k / job->every);
    }
}

static void forward_block(Walk *walk, long block) {
    const Job *job = walk->scan->job;
    long rows = job->every * job->span;
    begin(walk, block, 0);
    take_state(walk, job->h0, job->a0);
    halt(walk, 0, walk->h);
    for (long first = 1, mark = 0; first < job->S; first += rows, mark++) {
        keep_state(walk, job->marks + mark * job->B * job->H,
                   job->attention ? job->a_marks + mark * job->B * job->H * job->H : NULL, walk->h, walk->a);
        go(walk, first, first + rows < job->S ? first + rows : job->S, 0);
    }
}

static void go_back(Walk *walk, long first, long end, const Matrices *g) {
    const Job *job = walk->scan->job;
    for (long row = end - 1, rows = 0; row >= first; row--) {
        long k = row - first, w = k / job->every;
        if (job->attention && !rows) {
            if (walk->live) close_window_back(walk, w, g);
            else clear(walk->d_mean, walk->count * walk->scan->to.H);
        }
        halt_back(walk, row, g);
        step_back(walk, row, k);
        if (job->attention) attend_back(walk, k);
        rows++;
        if (k % job->every) continue;
        settle_rows(walk, k, rows, g);
        if (job->attention) open_window_back(walk, w, rows);
        rows = 0;
    }
}

static void backward_block(Walk *walk, long block, const Matrices *g) {
    const Job *job = walk->scan->job;
    long rows = job->every * job->span;
    begin(walk, block, 1);
    clear(walk->dh, walk->count * walk->scan->to.H);
    for (long mark = (job->S - 2) / rows, end = job->S; end > 1; mark--, end = mark * rows + rows + 1) {
        long first = mark * rows + 1, jump = walk->jump;
        while (jump > walk->jump_end && job->jumps.row[job->jumps.order[jump - 1]] >= first) jump--;
        take_state(walk, job->marks + mark * job->B * job->H,
                   job->attention ? job->a_marks + mark * job->B * job->H * job->H : NULL);
        go(walk, first, end, jump);
        go_back(walk, first, end, g);
    }
    halt_back(walk, 0, g);
    settle_jumps(walk->scan, &walk->table, g);
    keep_state(walk, job->d_h0, walk->live ? job->d_a0 : NULL, walk->dh, walk->da);
}

static void take_chunk(Walk *walk, long from, long to, const Matrices *g) {
    for (long block = from; block < to; block++) {
        if (g) backward_block(walk, block, g);
        else forward_block(walk, block);
    }
}

static int run(const Job *job, int back) {
    Scan scan = {.job = job, .to = {whole(job->H), whole(job->D), whole(job->p), whole(job->F)}};
    long blocks = (job->B + job->block - 1) / job->block, chunks = blocks < CHUNKS ? blocks : CHUNKS;
    long size = back ? lay_matrices(&scan.w, &scan, NULL) : 0;
    float *packed = pack(&scan), *shares = room(size * chunks);
    int failed = !packed || !shares;
    if (!failed) {
#pragma omp parallel num_threads((int)job->threads) reduction(| : failed)
        {
            Walk walk;
            float *memory = room(lay_walk(&walk, &scan, back, NULL));
            if (memory) lay_walk(&walk, &scan, back, memory);
            else failed = 1;
#pragma omp for schedule(dynamic)
            for (long c = 0; c < chunks; c++) {
                Matrices g;
                if (back) lay_matrices(&g, &scan, shares + c * size);
                if (memory) take_chunk(&walk, blocks * c / chunks, blocks * (c + 1) / chunks, back ? &g : NULL);
            }
            free(memory);
        }
        if (back && !failed) hand_out(&scan, shares, chunks, size);
    }
    free(packed);
    free(shares);
    return failed;
}

/* 0, or not where there is no memory */
int jump_forward(const Job *job) { return run(job, 0); }

int jump_backward(const Job *job) { return run(job, 1); }
