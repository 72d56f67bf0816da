/* A convolutional field of the image models and its gradient, for one sample.
 *
 * A map is (P, C): pixels by channels, and channels are a whole number of vectors. A field is, layer by layer,
 * x -> conv(relu(norm(x))) + bias + t share, and a norm at the end.
 */

#include "vectors.h"

#define MAX_CONVS 4

typedef struct {
    int64_t convs, trains;
    int64_t width[MAX_CONVS + 1], groups[MAX_CONVS + 1];  /* of the norms */
    double eps[MAX_CONVS + 1];
} Field;

typedef struct {
    const float *scale, *shift;
    const float *forward;   /* (9 inputs, outputs) */
    const float *backward;  /* (9 outputs, inputs), the taps in reverse order */
    const float *bias, *share;  /* (outputs), (P, outputs) */
} Layer;

typedef struct {
    float *scale, *shift, *forward;
    float *map, *timed;  /* (P, outputs): the sums of dy and of t dy */
} LayerGradient;

typedef struct {
    float *y;      /* (P, outputs), the output of the convolution */
    float *stats;  /* (2, inputs), mean and 1 / standard deviation of the norm, for each channel */
} Kept;

typedef struct {
    long height, side, P;
    float *columns, *u, *d, *e, *sums;
} Scratch;

/* assign the parameters of a field from `p` on; return the first float after them */
static const float *walk_parameters(const Field *field, long P, const float *p, Layer *layers) {
    EACH(l, field->convs + 1) {
        long in = field->width[l];
        layers[l] = (Layer){.scale = p, .shift = p + in};
        p += 2 * in;
        if (l == field->convs) break;
        long out = field->width[l + 1];
        layers[l].forward = p;
        layers[l].backward = p + 9 * in * out;
        layers[l].bias = p + 18 * in * out;
        layers[l].share = layers[l].bias + out;
        p += 18 * in * out + out + P * out;
    }
    return p;
}

static float *walk_gradients(const Field *field, long P, float *p, LayerGradient *layers) {
    EACH(l, field->convs + 1) {
        long in = field->width[l];
        layers[l] = (LayerGradient){.scale = p, .shift = p + in};
        p += 2 * in;
        if (l == field->convs) break;
        long out = field->width[l + 1];
        layers[l].forward = p;
        layers[l].map = p + 9 * in * out;
        layers[l].timed = layers[l].map + P * out;
        p += 9 * in * out + 2 * P * out;
    }
    return p;
}

static float *walk_kept(const Field *field, long P, float *p, Kept *layers) {
    EACH(l, field->convs + 1) {
        layers[l] = (Kept){.stats = p};
        p += 2 * field->width[l];
        if (l == field->convs) break;
        layers[l].y = p;
        p += P * field->width[l + 1];
    }
    return p;
}

/* replace the sums over a channel by the mean over its group */
static void group_means(long C, long groups, long P, float *sums) {
    long size = C / groups;
    EACH(g, groups) {
        float total = 0;
        EACH(c, size) total += sums[g * size + c];
        EACH(c, size) sums[g * size + c] = total / (float)(size * P);
    }
}

static void norm_statistics(long P, long C, long groups, double eps, const float *x, float *stats) {
    float *mean = stats, *rate = stats + C;
    clear(stats, 2 * C);
    EACH(p, P) VECTORS(c, C) store(mean + c, load(mean + c) + load(x + p * C + c));
    group_means(C, groups, P, mean);
    EACH(p, P) VECTORS(c, C) {
        vec d = load(x + p * C + c) - load(mean + c);
        store(rate + c, load(rate + c) + d * d);
    }
    group_means(C, groups, P, rate);
    EACH(c, C) rate[c] = 1.0f / __builtin_sqrtf(rate[c] + (float)eps);
}

INLINE vec normalised(const float *stats, long C, long c, vec x) { return (x - load(stats + c)) * load(stats + C + c); }

static void norm_output(long P, long C, const Layer *layer, const float *stats, const float *x, float *out, int relu) {
    EACH(p, P) VECTORS(c, C) {
        vec y = normalised(stats, C, c, load(x + p * C + c)) * load(layer->scale + c) + load(layer->shift + c);
        store(out + p * C + c, relu ? choose(y <= all(0.0f), all(0.0f), y) : y);
    }
}

/* d -> the gradient of x, in place; the gradients of scale and shift are added to `to` */
static void norm_backward(long P, long C, long groups, const Layer *layer, const float *stats, const float *x, float *d,
                          float *sums, LayerGradient *to) {
    float *first = sums, *second = sums + C;
    clear(sums, 2 * C);
    EACH(p, P) VECTORS(c, C) {
        vec dy = load(d + p * C + c);
        store(first + c, load(first + c) + dy);
        store(second + c, load(second + c) + dy * normalised(stats, C, c, load(x + p * C + c)));
    }
    if (to) VECTORS(c, C) {
        store(to->shift + c, load(to->shift + c) + load(first + c));
        store(to->scale + c, load(to->scale + c) + load(second + c));
    }
    VECTORS(c, C) {
        store(first + c, load(first + c) * load(layer->scale + c));
        store(second + c, load(second + c) * load(layer->scale + c));
    }
    group_means(C, groups, P, first);
    group_means(C, groups, P, second);
    EACH(p, P) VECTORS(c, C) {
        vec xhat = normalised(stats, C, c, load(x + p * C + c));
        vec dx = load(d + p * C + c) * load(layer->scale + c) - load(first + c) - xhat * load(second + c);
        store(d + p * C + c, dx * load(stats + C + c));
    }
}

/* row p of `columns` (P, 9 C): the channels of the nine neighbours of pixel p, zeros outside the image */
static void neighbours(const Scratch *s, long C, const float *x) {
    float *to = s->columns;
    EACH(row, s->height) EACH(column, s->side)
        for (long i = -1; i <= 1; i++) for (long j = -1; j <= 1; j++, to += C) {
            long y = row + i, z = column + j;
            if (y < 0 || y >= s->height || z < 0 || z >= s->side) VECTORS(c, C) store(to + c, (vec){0});
            else VECTORS(c, C) store(to + c, load(x + (y * s->side + z) * C + c));
        }
}

static void field_forward(const Field *field, const Layer *layers, Kept *kept, Scratch *s, float t, const float *x,
                          float *out) {
    long P = s->P;
    EACH(l, field->convs + 1) {
        long C = field->width[l];
        norm_statistics(P, C, field->groups[l], field->eps[l], x, kept[l].stats);
        if (l == field->convs) {
            norm_output(P, C, &layers[l], kept[l].stats, x, out, 0);
            return;
        }
        long O = field->width[l + 1];
        float *y = kept[l].y;
        norm_output(P, C, &layers[l], kept[l].stats, x, s->u, 1);
        neighbours(s, C, s->u);
        EACH(p, P) VECTORS(o, O) store(y + p * O + o, load(layers[l].bias + o) + t * load(layers[l].share + p * O + o));
        product(P, 9 * C, O, s->columns, 9 * C, layers[l].forward, y, O, y, O);
        x = y;
    }
}

/* d (P, C): the gradient of the field's output, then of its input x; gradients of the parameters are added to `to` */
static void field_backward(const Field *field, const Layer *layers, const Kept *kept, Scratch *s, float t,
                           const float *x, float *d, LayerGradient *to) {
    long P = s->P;
    for (long l = field->convs; l >= 0; l--) {
        long C = field->width[l];
        const float *input = l ? kept[l - 1].y : x;
        if (l < field->convs) {
            long O = field->width[l + 1];
            norm_output(P, C, &layers[l], kept[l].stats, input, s->u, 1);
            if (to) {
                neighbours(s, C, s->u);
                outer(P, 9 * C, O, s->columns, 9 * C, d, O, to[l].forward);
                VECTORS(i, P * O) {
                    vec dy = load(d + i);
                    store(to[l].map + i, load(to[l].map + i) + dy);
                    store(to[l].timed + i, load(to[l].timed + i) + t * dy);
                }
            }
            neighbours(s, O, d);
            product(P, 9 * O, C, s->columns, 9 * O, layers[l].backward, NULL, 0, d, C);
            VECTORS(i, P * C) store(d + i, where_positive(load(s->u + i), load(d + i)));
        }
        norm_backward(P, C, field->groups[l], &layers[l], kept[l].stats, input, d, s->sums, to ? &to[l] : NULL);
    }
}
