// Invariant: what can be computed once is. The sum of places and token type is one table, queries,
// keys and values of a layer come out of one product, and weights lie as products read them
// fastest: [in, out], seen as [out, in].
#include "encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// The parameters of a layer, in the order in which they are used.
enum {
    PROJECT, ///< to queries, keys and values: [3 width, width]
    PROJECT_BIAS,
    MIX, ///< what the heads have seen: [width, width]
    MIX_BIAS,
    MIX_NORM,
    MIX_NORM_BIAS,
    WIDEN, ///< [inner, width]
    WIDEN_BIAS,
    NARROW, ///< [width, inner]
    NARROW_BIAS,
    NARROW_NORM,
    NARROW_NORM_BIAS,
    PARTS
};
enum { ALL_PARTS = ENCODER_LAYERS * PARTS };

typedef struct encoder {
    encoder_sizes sizes;
    nd_device device;  ///< where all of it is
    nd_tensor *words;  ///< [vocabulary, width], mapped where that is the CPU
    nd_tensor *places; ///< with the token type that all tokens have: [places, width]
    nd_tensor *norm, *norm_bias;
    nd_tensor *parts[ALL_PARTS];
} encoder;

#define ENCODER_EDGES(ONE, MANY) \
    ONE(words) ONE(places) ONE(norm) ONE(norm_bias) MANY(parts, ALL_PARTS)
ND_TYPE_EDGES(encoder, ENCODER_EDGES)

static const nd_type encoder_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "encoder",
    .traverse = encoder_traverse,
    .clear = encoder_clear,
};

static const double EPSILON = 1e-12; // of normalisations, as it was trained

// ------------------------------------------------------------------------------------------- files

/// A file that is being read. NULL goes through all that is done with its tensors.
typedef struct reader {
    const char *path;
    nd_list *tensors;
    const encoder_sizes *sizes;
    nd_device device; ///< where they shall be
    char *problem;
    size_t problem_size;
} reader;

/// Says what is wrong first; format is of the path and a name. NULL, for callers to return.
static const nd_tensor *complain(reader *from, const char *format, const char *name) {
    if (!from->problem[0])
        snprintf(from->problem, from->problem_size, format, from->path, name);
    return NULL;
}

/// The tensor of this name, borrowed.
static const nd_tensor *find(reader *from, const char *name, int ndim, const int64_t *shape) {
    char other[128];
    for (size_t i = 0; i < nd_list_get_size(from->tensors); i++) {
        const nd_tensor *x = (const nd_tensor *)nd_list_get(from->tensors, i);
        if (strcmp(nd_get_name(x, other, sizeof other), name) != 0)
            continue;
        bool fits = nd_get_ndim(x) == ndim && nd_get_dtype(x) == ND_F32;
        for (int axis = 0; fits && axis < ndim; axis++)
            fits = nd_get_size(x, axis) == shape[axis];
        if (fits)
            return x;
        return complain(from, "%s: %s has another shape or dtype", name);
    }
    return complain(from, "%s: has no %s", name);
}

/// A tensor of a layer; format says its name, of the layer's number.
static const nd_tensor *find_in_layer(reader *from, size_t layer, const char *name, int ndim,
                                      const int64_t *shape) {
    char whole[128];
    snprintf(whole, sizeof whole, "encoder.layer.%zu.%s", layer, name);
    return find(from, whole, ndim, shape);
}

/// The same numbers, with the last axis but one dense. Consumes x.
static nd_tensor *turned(nd_tensor *x) {
    nd_auto nd_tensor *given = x;
    nd_auto nd_tensor *columns = nd_transpose(given, 0, 1);
    nd_auto nd_tensor *dense = nd_contiguous(columns);
    return nd_transpose(dense, 0, 1);
}

static nd_tensor *read_weight(reader *from, size_t layer, const char *name, int64_t out,
                              int64_t in) {
    const nd_tensor *read = find_in_layer(from, layer, name, 2, (int64_t[]){out, in});
    return turned(nd_to(read, from->device));
}

static nd_tensor *read_vector(reader *from, size_t layer, const char *name, int64_t size) {
    return nd_to(find_in_layer(from, layer, name, 1, &size), from->device);
}

/// Three tensors of the attention in one, along their first axis; what makes the queries is scaled
/// as their products with keys shall be.
static nd_tensor *read_three(reader *from, size_t layer, const char *kind, int ndim) {
    static const char *const names[] = {"query", "key", "value"};
    const nd_tensor *parts[3];
    const int64_t width = from->sizes->width, shape[] = {width, width};
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "attention.self.%s.%s", names[i], kind);
        parts[i] = find_in_layer(from, layer, name, ndim, shape);
    }
    if (!parts[0] || !parts[1] || !parts[2])
        return NULL;
    const double scale = 1.0 / sqrt((double)width / (double)from->sizes->heads);
    nd_auto nd_tensor *queries = nd_mul_scalar(parts[0], scale);
    parts[0] = queries;
    nd_auto nd_tensor *three = nd_concat(3, parts, 0);
    return nd_to(three, from->device);
}

static void read_layer(reader *from, size_t i, nd_tensor **parts) {
    const int64_t width = from->sizes->width, inner = from->sizes->inner;
    parts[PROJECT] = turned(read_three(from, i, "weight", 2));
    parts[PROJECT_BIAS] = read_three(from, i, "bias", 1);
    parts[MIX] = read_weight(from, i, "attention.output.dense.weight", width, width);
    parts[MIX_BIAS] = read_vector(from, i, "attention.output.dense.bias", width);
    parts[MIX_NORM] = read_vector(from, i, "attention.output.LayerNorm.weight", width);
    parts[MIX_NORM_BIAS] = read_vector(from, i, "attention.output.LayerNorm.bias", width);
    parts[WIDEN] = read_weight(from, i, "intermediate.dense.weight", inner, width);
    parts[WIDEN_BIAS] = read_vector(from, i, "intermediate.dense.bias", inner);
    parts[NARROW] = read_weight(from, i, "output.dense.weight", width, inner);
    parts[NARROW_BIAS] = read_vector(from, i, "output.dense.bias", width);
    parts[NARROW_NORM] = read_vector(from, i, "output.LayerNorm.weight", width);
    parts[NARROW_NORM_BIAS] = read_vector(from, i, "output.LayerNorm.bias", width);
}

static void read_embeddings(reader *from, encoder *e) {
    const encoder_sizes *s = from->sizes;
    const nd_tensor *places =
        find(from, "embeddings.position_embeddings.weight", ND_SHAPE(s->places, s->width));
    const nd_tensor *types =
        find(from, "embeddings.token_type_embeddings.weight", ND_SHAPE(2, s->width));
    nd_auto nd_tensor *type = types ? nd_select(types, 0, 0) : NULL;
    nd_auto nd_tensor *both = places && type ? nd_add(places, type) : NULL;
    e->places = nd_to(both, from->device);
    const nd_tensor *words =
        find(from, "embeddings.word_embeddings.weight", ND_SHAPE(s->vocabulary, s->width));
    e->words = nd_to(words, from->device);
    e->norm = nd_to(find(from, "embeddings.LayerNorm.weight", ND_SHAPE(s->width)), from->device);
    e->norm_bias = nd_to(find(from, "embeddings.LayerNorm.bias", ND_SHAPE(s->width)), from->device);
}

static nd_status encoder_init(nd_object *self, void *data) {
    reader *from = data;
    encoder *e = nd_object_get_data(self);
    e->sizes = *from->sizes;
    e->device = from->device;
    read_embeddings(from, e);
    bool whole = e->words && e->places && e->norm && e->norm_bias;
    const size_t count = (size_t)e->sizes.layers * PARTS;
    for (size_t i = 0; whole && i < count; i++) {
        if (i % PARTS == 0)
            read_layer(from, i / PARTS, &e->parts[i]);
        whole = e->parts[i] != NULL;
    }
    if (whole)
        return ND_OK;
    return nd_error_get_status() != ND_OK ? nd_error_get_status() : ND_ERROR_FORMAT;
}

nd_object *encoder_open(const char *path, const encoder_sizes *sizes, char *problem,
                        size_t problem_size) {
    nd_load_options mapped = ND_LOAD_OPTIONS_INIT;
    mapped.mapped = true;
    nd_auto nd_list *tensors = nd_load_safetensors_with(path, &mapped);
    reader from = {path, tensors, sizes, nd_get_default_device(), problem, problem_size};
    return tensors ? nd_object_new_with(&encoder_type, sizeof(encoder), encoder_init, &from) : NULL;
}

// --------------------------------------------------------------------------------------- encoding

/// What is computed together.
typedef struct batch {
    const encoder *encoder;
    int64_t count, longest;
    nd_tensor *seen; ///< tokens that count: [count, 1, 1, longest]; NULL: all of them
} batch;

/// x where the encoder is. Consumes x.
static nd_tensor *there(const batch *b, nd_tensor *x) {
    nd_auto nd_tensor *given = x;
    return nd_to(given, b->encoder->device);
}

static nd_tensor *linear(nd_tensor *const *parts, int which, const nd_tensor *x) {
    return nd_linear(x, parts[which], parts[which + 1]);
}

/// x + y in the memory of y, normalised. Consumes y.
static nd_tensor *add_and_norm(const nd_tensor *norm, const nd_tensor *bias, const nd_tensor *x,
                               nd_tensor *y) {
    nd_auto nd_tensor *sum = y;
    return sum && nd_add_(sum, x) == ND_OK ? nd_layer_norm(sum, norm, bias, EPSILON, 1) : NULL;
}

/// What the heads see of each other's tokens, mixed.
static nd_tensor *attend(const batch *b, nd_tensor *const *parts, const nd_tensor *x) {
    const int64_t width = b->encoder->sizes.width, heads = b->encoder->sizes.heads;
    nd_auto nd_tensor *projected = linear(parts, PROJECT, x);
    nd_auto nd_tensor *split =
        nd_reshape(projected, ND_SHAPE(b->count, b->longest, 3, heads, width / heads));
    nd_auto nd_tensor *three = nd_permute(split, 5, (int[]){2, 0, 3, 1, 4});
    nd_auto nd_tensor *queries = nd_select(three, 0, 0); // [count, heads, longest, width / heads]
    nd_auto nd_tensor *keys = nd_select(three, 1, 0);
    nd_auto nd_tensor *values = nd_select(three, 2, 0);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.scale = 1.0; // read_three() has scaled
    nd_auto nd_tensor *seen = nd_attention(queries, keys, values, b->seen, &options);
    nd_auto nd_tensor *tokens_first = nd_transpose(seen, 1, 2);
    nd_auto nd_tensor *joined = nd_reshape(tokens_first, ND_SHAPE(b->count * b->longest, width));
    return linear(parts, MIX, joined);
}

/// x: [count longest, width], consumed.
static nd_tensor *apply_layer(const batch *b, size_t i, nd_tensor *x) {
    nd_tensor *const *parts = &b->encoder->parts[i * PARTS];
    nd_auto nd_tensor *before = x;
    nd_auto nd_tensor *attended =
        add_and_norm(parts[MIX_NORM], parts[MIX_NORM_BIAS], before, attend(b, parts, before));
    nd_auto nd_tensor *wide = linear(parts, WIDEN, attended);
    if (!wide || nd_gelu_out(wide, wide) != ND_OK)
        return NULL;
    return add_and_norm(parts[NARROW_NORM], parts[NARROW_NORM_BIAS], attended,
                        linear(parts, NARROW, wide));
}

/// What tokens are before they have seen each other: [count longest, width].
static nd_tensor *embed(const batch *b, const int32_t *ids) {
    const encoder *e = b->encoder;
    nd_auto nd_tensor *tokens = there(b, nd_from_data(ids, ND_SHAPE(b->count, b->longest), ND_I32));
    nd_auto nd_tensor *words = nd_embedding(e->words, tokens, ND_NO_PADDING);
    nd_auto nd_tensor *places = nd_slice(e->places, 0, b->longest, 1, 0);
    nd_auto nd_tensor *x = add_and_norm(e->norm, e->norm_bias, places, nd_steal(&words));
    return nd_reshape(x, ND_SHAPE(b->count * b->longest, e->sizes.width));
}

/// Which tokens count, where not all do, and what each weighs in the mean: [count, 1, longest].
static nd_tensor *weigh(batch *b, const int64_t *lengths) {
    const size_t longest = (size_t)b->longest, total = (size_t)b->count * longest;
    float *weights = malloc(total * sizeof *weights);
    bool *seen = malloc(total);
    bool all = true;
    for (size_t i = 0; weights && seen && i < total; i++) {
        int64_t length = lengths[i / longest];
        seen[i] = (int64_t)(i % longest) < length;
        weights[i] = seen[i] ? 1.0F / (float)length : 0.0F;
        all = all && seen[i];
    }
    nd_auto nd_tensor *result = NULL;
    if (weights && seen) {
        result = there(b, nd_from_data(weights, ND_SHAPE(b->count, 1, b->longest), ND_F32));
        if (!all)
            b->seen = there(b, nd_from_data(seen, ND_SHAPE(b->count, 1, 1, b->longest), ND_BOOL));
    }
    free(weights);
    free(seen);
    return all || b->seen ? nd_steal(&result) : NULL;
}

/// The weighted mean over the tokens, at length 1: [count, width].
static nd_tensor *pool(const batch *b, const nd_tensor *x, const nd_tensor *weights) {
    const int last = -1;
    const int64_t width = b->encoder->sizes.width;
    nd_auto nd_tensor *tokens = nd_reshape(x, ND_SHAPE(b->count, b->longest, width));
    nd_auto nd_tensor *means = nd_matmul(weights, tokens);
    nd_auto nd_tensor *rows = nd_squeeze(means, 1);
    nd_auto nd_tensor *lengths = nd_norm(rows, 2, 1, &last, true);
    nd_auto nd_tensor *above_zero = nd_clip(lengths, 1e-12, INFINITY);
    return nd_div(rows, above_zero);
}

nd_tensor *encoder_run(const nd_object *self, size_t count, int64_t longest, const int32_t *ids,
                       const int64_t *lengths) {
    const encoder *e = nd_object_get_data(self);
    batch b = {e, (int64_t)count, longest, NULL};
    nd_tensor *embeddings = NULL;
    if (!e)
        return NULL;
    nd_no_grad {
        nd_auto nd_tensor *weights = weigh(&b, lengths);
        nd_auto nd_tensor *x = weights ? embed(&b, ids) : NULL;
        for (size_t i = 0; x && i < (size_t)e->sizes.layers; i++)
            x = apply_layer(&b, i, nd_steal(&x));
        embeddings = pool(&b, x, weights);
    }
    nd_release(b.seen);
    return embeddings;
}
