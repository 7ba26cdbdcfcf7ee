// Invariant: what is recorded and what reads on from a cache run the same block; the cache only says
// where keys and values are put.
#include <nd/scoped.h>

#include "bench/workloads/gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum model_part { WORDS, PLACES, BLOCKS, LAST_NORM };
enum block_part { NORM_1, PROJECT, MIX, NORM_2, WIDEN, NARROW, BLOCK_PARTS };

static const double EPSILON = 1e-5;
/// Rows of logits that a loss with checkpoints has at a time.
enum { PIECE = 256 };

/// Where a block puts what it has read.
typedef struct place {
    const nd_tensor *keys, *values;
    int64_t length;
    const nd_tensor
        *seen; ///< which of all keys each of several queries sees; NULL: those before it
} place;

static const gpt_sizes *sizes_of(const nd_module *module) {
    return nd_module_get_data(module);
}

static const nd_tensor *part_forward(const nd_module *self, size_t part, const nd_tensor *x) {
    return nd_module_forward(nd_module_get_child(self, part), x);
}

// ------------------------------------------------------------------------------------------- block

/// [n, t, width] -> [n, heads, t, width / heads].
static const nd_tensor *heads_of(const gpt_sizes *sizes, const nd_tensor *x) {
    const nd_tensor *split = nd_reshape(x, ND_SHAPE(nd_get_size(x, 0), nd_get_size(x, 1),
                                                    sizes->heads, sizes->width / sizes->heads));
    return nd_transpose(split, 1, 2);
}

/// Puts x behind what is kept, and returns all of that.
static const nd_tensor *keep(const nd_tensor *kept, int64_t length, const nd_tensor *x) {
    const int64_t end = length + nd_get_size(x, 2);
    nd_auto nd_tensor *behind = nd_retain(nd_slice(kept, length, end, 1, 2));
    return nd_copy_(behind, x) == ND_OK ? nd_slice(kept, 0, end, 1, 2) : NULL;
}

static const nd_tensor *attend(const nd_module *self, const nd_tensor *x, const place *at) {
    const gpt_sizes *sizes = sizes_of(self);
    const int64_t each = sizes->width;
    nd_tensor *three[3];
    if (nd_split(part_forward(self, PROJECT, x), 3, (int64_t[]){each, each, each}, -1, three) !=
        ND_OK)
        return NULL;
    const nd_tensor *queries = heads_of(sizes, nd_tmp(three[0]));
    const nd_tensor *keys = heads_of(sizes, nd_tmp(three[1]));
    const nd_tensor *values = heads_of(sizes, nd_tmp(three[2]));
    if (at) {
        keys = keep(at->keys, at->length, keys);
        values = keep(at->values, at->length, values);
    }
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    const nd_tensor *seen = at ? at->seen : NULL;
    options.causal = !seen && nd_get_size(x, 1) > 1; // one token sees all that were before
    const nd_tensor *mixed = nd_attention(queries, keys, values, seen, &options);
    const nd_tensor *joined =
        nd_reshape(nd_transpose(mixed, 1, 2), nd_get_ndim(x), nd_get_shape(x));
    return part_forward(self, MIX, joined);
}

/// x: [n, t, width]. `at` NULL: nothing is kept.
static nd_tensor *block_apply(const nd_module *self, const nd_tensor *x, const place *at) {
    nd_auto_scope;
    const nd_tensor *half = nd_add(x, attend(self, part_forward(self, NORM_1, x), at));
    const nd_tensor *wide = part_forward(self, WIDEN, part_forward(self, NORM_2, half));
    return nd_retain(nd_add(half, part_forward(self, NARROW, nd_gelu_tanh(wide))));
}

static nd_tensor *block_forward(const nd_module *self, const nd_tensor *x) {
    return block_apply(self, x, NULL);
}

static const nd_module_type block_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "gpt_block", .forward = block_forward};

// ------------------------------------------------------------------------------------------- model

static nd_tensor *model_forward(const nd_module *self, const nd_tensor *ids) {
    return gpt_logits(self, ids, false);
}

static const nd_module_type model_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "gpt", .forward = model_forward};

/// Makes the weight normal, with this deviation, and the bias, where there is one, 0.
static nd_status draw(const nd_module *part, nd_key key, double deviation) {
    nd_auto_scope;
    const nd_tensor *old = nd_module_get_parameter(part, "weight");
    if (!old)
        return nd_error_get_status();
    nd_status status = ND_OK;
    nd_no_grad {
        const nd_tensor *normal = nd_randn(key, nd_get_ndim(old), nd_get_shape(old), ND_F32);
        nd_auto nd_tensor *weight = nd_retain(old);
        status = nd_copy_(weight, nd_mul_scalar(normal, deviation));
        if (status == ND_OK && nd_module_get_parameter_count(part) > 1) {
            nd_auto nd_tensor *bias = nd_retain(nd_module_get_parameter(part, "bias"));
            status = nd_fill_(bias, 0);
        }
    }
    return status;
}

static nd_status add_part(nd_module *to, const char *name, const nd_module *part, nd_key key,
                          double deviation) {
    nd_status status = nd_module_add_child(to, name, part);
    return status == ND_OK && deviation > 0 ? draw(part, key, deviation) : status;
}

/// 0.02 for the width of 768, as GPT-2 has it.
static double deviation_of(const gpt_sizes *sizes) {
    return 0.02 * sqrt(768.0 / (double)sizes->width);
}

static nd_module *new_block(const gpt_sizes *sizes, nd_key key) {
    static const char *const names[BLOCK_PARTS] = {"norm_1", "project", "mix",
                                                   "norm_2", "widen",   "narrow"};
    const int64_t width = sizes->width;
    nd_auto nd_module *block = nd_module_new(&block_type, sizes, sizeof *sizes);
    for (int i = 0; i < BLOCK_PARTS; i++) {
        const bool norm = i == NORM_1 || i == NORM_2, ends = i == MIX || i == NARROW;
        const int64_t in = i == NARROW ? 4 * width : width;
        const int64_t out = i == PROJECT ? 3 * width : i == WIDEN ? 4 * width : width;
        nd_key its = nd_key_fold(key, (uint64_t)i);
        nd_auto nd_module *part = norm ? nd_layer_norm_module(EPSILON, ND_SHAPE(width))
                                       : nd_linear_module(its, in, out, true);
        double deviation = deviation_of(sizes) / (ends ? sqrt(2.0 * (double)sizes->layers) : 1.0);
        if (add_part(block, names[i], part, its, norm ? 0 : deviation) != ND_OK)
            return NULL;
    }
    return nd_steal(&block);
}

static nd_module *new_blocks(const gpt_sizes *sizes, nd_key key) {
    nd_auto nd_module *stack = nd_sequential(0, NULL);
    for (int64_t i = 0; i < sizes->layers; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        nd_auto nd_module *block = new_block(sizes, nd_key_fold(key, 100 + (uint64_t)i));
        if (nd_module_add_child(stack, name, block) != ND_OK)
            return NULL;
    }
    return nd_steal(&stack);
}

/// False, with the error of splitting one row, where heads do not share the width evenly.
static bool heads_fit(const gpt_sizes *sizes) {
    nd_auto_scope;
    return nd_reshape(nd_zeros(ND_SHAPE(sizes->width), ND_F32), ND_SHAPE(sizes->heads, -1));
}

nd_module *gpt_new(const gpt_sizes *sizes, nd_key key) {
    if (!heads_fit(sizes))
        return NULL;
    nd_auto nd_module *stack = new_blocks(sizes, key);
    nd_auto nd_module *words =
        nd_embedding_module(key, sizes->vocabulary, sizes->width, ND_NO_PADDING);
    nd_auto nd_module *places =
        nd_embedding_module(key, sizes->context, sizes->width, ND_NO_PADDING);
    nd_auto nd_module *norm = nd_layer_norm_module(EPSILON, ND_SHAPE(sizes->width));
    nd_auto nd_module *model = nd_module_new(&model_type, sizes, sizeof *sizes);
    const double deviation = deviation_of(sizes);
    nd_status status = add_part(model, "words", words, nd_key_fold(key, WORDS), deviation);
    if (status == ND_OK)
        status = add_part(model, "places", places, nd_key_fold(key, PLACES), deviation);
    if (status == ND_OK)
        status = add_part(model, "blocks", stack, key, 0);
    if (status == ND_OK)
        status = add_part(model, "last_norm", norm, key, 0);
    return status == ND_OK ? nd_steal(&model) : NULL;
}

static const nd_tensor *weight_of(const nd_module *model, enum model_part part) {
    return nd_module_get_parameter(nd_module_get_child(model, part), "weight");
}

/// What tokens are, and where they stand, from a place on: [n, t, width]. NULL, with the error of
/// looking for the last place, where they do not fit the context, to which nd_slice() would cut them.
static const nd_tensor *embed(const nd_module *model, const nd_tensor *ids, int64_t from) {
    const nd_tensor *words = part_forward(model, WORDS, ids), *places = weight_of(model, PLACES);
    const int64_t end = from + nd_get_size(ids, 1);
    if (!words || !nd_select(places, end - 1, 0))
        return NULL;
    return nd_add(words, nd_slice(places, from, end, 1, 0));
}

/// The head: the table of tokens again.
static const nd_tensor *logits_of(const nd_module *model, const nd_tensor *x) {
    return nd_linear(part_forward(model, LAST_NORM, x), weight_of(model, WORDS), NULL);
}

/// What the blocks make of tokens: [n, t, width].
static const nd_tensor *read_through(const nd_module *model, const nd_tensor *ids,
                                     bool checkpointed) {
    const nd_module *blocks = nd_module_get_child(model, BLOCKS);
    const nd_tensor *x = embed(model, ids, 0);
    for (size_t i = 0; i < nd_module_get_child_count(blocks); i++) {
        const nd_module *block = nd_module_get_child(blocks, i);
        x = checkpointed ? nd_checkpoint_module(block, x) : nd_module_forward(block, x);
    }
    return x;
}

nd_tensor *gpt_logits(const nd_module *model, const nd_tensor *ids, bool checkpointed) {
    nd_auto_scope;
    return nd_retain(logits_of(model, read_through(model, ids, checkpointed)));
}

// -------------------------------------------------------------------------------------------- loss

/// The mean loss of some rows: x [rows, width], the table, targets [rows].
static nd_tensor *loss_of_rows(const nd_object *context, size_t count,
                               const nd_tensor *const *inputs) {
    nd_auto_scope;
    (void)context, (void)count;
    return nd_retain(nd_cross_entropy(nd_linear(inputs[0], inputs[1], NULL), inputs[2]));
}

/// The mean loss of all rows by pieces with a checkpoint each: logits, fifty times as wide as what
/// they are made of, are there for one piece at a time.
static const nd_tensor *loss_by_pieces(const nd_module *model, const nd_tensor *x,
                                       const nd_tensor *targets) {
    const int64_t rows = nd_get_size(x, 0);
    const nd_tensor *sum = NULL;
    int64_t begin = 0;
    do {
        const int64_t end = begin + PIECE < rows ? begin + PIECE : rows;
        const nd_tensor *inputs[] = {nd_slice(x, begin, end, 1, 0), weight_of(model, WORDS),
                                     nd_slice(targets, begin, end, 1, 0)};
        const nd_tensor *mean = nd_checkpoint(loss_of_rows, NULL, 3, inputs);
        const nd_tensor *part = nd_mul_scalar(mean, (double)(end - begin) / (double)rows);
        sum = sum ? nd_add(sum, part) : part;
        begin = end;
    } while (sum && begin < rows);
    return sum;
}

nd_tensor *gpt_loss(const nd_module *model, const nd_tensor *ids, const nd_tensor *targets,
                    bool checkpointed) {
    nd_auto_scope;
    const nd_tensor *x = part_forward(model, LAST_NORM, read_through(model, ids, checkpointed));
    const nd_tensor *rows = nd_reshape(x, ND_SHAPE(nd_get_numel(ids), sizes_of(model)->width));
    const nd_tensor *flat = nd_flatten(targets, 0);
    if (checkpointed)
        return nd_retain(loss_by_pieces(model, rows, flat));
    return loss_of_rows(NULL, 3, (const nd_tensor *[]){rows, weight_of(model, WORDS), flat});
}

// ------------------------------------------------------------------------------------------- cache

nd_status gpt_cache_open(gpt_cache *cache, const nd_module *model, int64_t n) {
    nd_auto_scope;
    const gpt_sizes *s = sizes_of(model);
    const nd_tensor *like = weight_of(model, WORDS);
    *cache = (gpt_cache){0};
    const nd_tensor *zeros =
        nd_to(nd_zeros(ND_SHAPE(s->layers, n, s->heads, s->context, s->width / s->heads),
                       nd_get_dtype(like)),
              nd_get_device(like));
    cache->keys = nd_retain(zeros);
    cache->values = nd_retain(nd_clone(zeros));
    if (cache->values)
        return ND_OK;
    gpt_cache_close(cache);
    return nd_error_get_status();
}

void gpt_cache_close(gpt_cache *cache) {
    nd_release(cache->keys);
    nd_release(cache->values);
    *cache = (gpt_cache){0};
}

/// Which of `all` keys the last `t` of them see as queries: [t, all].
static const nd_tensor *seen_by_last(int64_t t, int64_t all, nd_device device) {
    return nd_to(nd_tril(nd_ones(ND_SHAPE(t, all), ND_BOOL), all - t), device);
}

static const nd_tensor *read_on(const nd_module *model, const gpt_cache *cache,
                                const nd_tensor *ids) {
    const nd_module *blocks = nd_module_get_child(model, BLOCKS);
    const nd_tensor *wide = nd_expand(ids, ND_SHAPE(nd_get_size(cache->keys, 1), -1));
    const int64_t t = nd_get_size(ids, 1);
    if (!wide || t < 0)
        return NULL;
    const nd_tensor *x = embed(model, wide, cache->length);
    const nd_tensor *seen = NULL;
    if (t > 1 && cache->length > 0) {
        seen = seen_by_last(t, cache->length + t, nd_get_device(x));
        if (!seen)
            return NULL;
    }
    for (size_t i = 0; i < nd_module_get_child_count(blocks); i++) {
        const place at = {nd_select(cache->keys, (int64_t)i, 0),
                          nd_select(cache->values, (int64_t)i, 0), cache->length, seen};
        x = nd_tmp(block_apply(nd_module_get_child(blocks, i), x, &at));
    }
    return logits_of(model, nd_select(x, -1, 1));
}

nd_tensor *gpt_read(const nd_module *model, gpt_cache *cache, const nd_tensor *ids) {
    nd_auto_scope;
    const nd_tensor *logits = NULL;
    nd_no_grad logits = read_on(model, cache, ids);
    if (logits)
        cache->length += nd_get_size(ids, 1);
    return nd_retain(logits);
}

/// The likeliest of the logits [1, vocabulary], or one drawn by them; -1 on error.
static int64_t choose(const nd_tensor *logits, double temperature, nd_key key) {
    int64_t chosen = -1;
    const nd_tensor *scores = logits;
    if (temperature > 0) { // the largest of the logits and noise of Gumbel's (Gumbel 1954)
        const nd_tensor *uniform = nd_to(
            nd_rand(key, nd_get_ndim(logits), nd_get_shape(logits), ND_F32), nd_get_device(logits));
        const nd_tensor *noise = nd_neg(nd_log(nd_neg(nd_log(nd_add_scalar(uniform, 1e-20)))));
        scores = nd_add(nd_div_scalar(logits, temperature), noise);
    }
    return nd_get_item_i64(nd_argmax(scores, 1, false), &chosen) == ND_OK ? chosen : -1;
}

/// Writes behind a prompt, as gpt_write(), and leaves in `ids` what was written before an error.
static nd_status write_on(const nd_module *model, gpt_cache *cache, const nd_tensor *first,
                          int64_t count, double temperature, nd_key key, int64_t *ids) {
    const nd_device device = nd_get_device(weight_of(model, WORDS));
    for (int64_t i = 0; i < count; i++) {
        nd_auto_scope;
        const nd_tensor *next = i ? nd_from_data(&ids[i - 1], ND_SHAPE(1, 1), ND_I64) : first;
        const nd_tensor *logits = nd_tmp(gpt_read(model, cache, nd_to(next, device)));
        if (!logits)
            return nd_error_get_status();
        nd_no_grad ids[i] = choose(logits, temperature, nd_key_fold(key, (uint64_t)i));
        if (ids[i] < 0)
            return nd_error_get_status();
    }
    return ND_OK;
}

nd_status gpt_write(const nd_module *model, const int64_t *prompt, int64_t prompt_length,
                    int64_t count, double temperature, nd_key key, int64_t *ret_ids) {
    nd_auto_scope;
    if (count <= 0)
        return ND_OK;
    // All are read but the last. It is better to know at once that these do not fit.
    const nd_tensor *places = weight_of(model, PLACES);
    const nd_tensor *first = nd_from_data(prompt, ND_SHAPE(1, prompt_length), ND_I64);
    if (!first || !nd_select(places, prompt_length + count - 2, 0))
        return nd_error_get_status();
    const nd_tensor *written = nd_zeros(ND_SHAPE(count), ND_I64);
    gpt_cache cache;
    nd_status status = written ? gpt_cache_open(&cache, model, 1) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    int64_t *ids = nd_get_data(written);
    status = write_on(model, &cache, first, count, temperature, key, ids);
    gpt_cache_close(&cache);
    if (status == ND_OK)
        memcpy(ret_ids, ids, (size_t)count * sizeof *ids);
    return status;
}
