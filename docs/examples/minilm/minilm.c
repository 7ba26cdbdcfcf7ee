// A model's folder, and texts on their way through its tokenizer and its encoder.
//
// Invariant: texts are computed together with those of about their length, whatever order they come
// in; each is filled up to the longest of its batch alone.
#define _POSIX_C_SOURCE 200809L // strdup, under -std=c17 too
#include "minilm.h"
#include "encoder.h"
#include "wordpiece.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 32 }; // texts of a batch

typedef struct minilm {
    char *folder;
    nd_object *encoder;
    wordpiece *pieces;
    encoder_sizes sizes;
} minilm;

#define MINILM_EDGES(ONE, MANY) ONE(encoder)
ND_TYPE_EDGES(minilm, MINILM_EDGES)

static void minilm_destroy(nd_object *self) {
    minilm *model = nd_object_get_data(self);
    if (!model)
        return;
    wordpiece_close(model->pieces);
    free(model->folder);
}

static const nd_type minilm_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "minilm",
    .traverse = minilm_traverse,
    .clear = minilm_clear,
    .destroy = minilm_destroy,
};

static _Thread_local char problem[512];

/// Notes why; what ndarc has to say counts more. False, for callers to return.
__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (nd_error_get_status() != ND_OK)
        snprintf(problem, sizeof problem, "%s", nd_error_get_message());
    else
        vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return false;
}

const char *minilm_get_problem(void) {
    return problem;
}

// ------------------------------------------------------------------------------------------- files

/// FOLDER/NAME; false when it does not fit.
static bool join(char *path, size_t size, const char *folder, const char *name) {
    int length = snprintf(path, size, "%s/%s", folder, name);
    return (length > 0 && (size_t)length < size) || fail("%s: too long", folder);
}

static bool default_folder(char *path, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        return join(path, size, cache, "ndarc/all-MiniLM-L6-v2");
    return home ? join(path, size, home, ".cache/ndarc/all-MiniLM-L6-v2") : fail("no HOME is set");
}

/// What stands behind "name": in a text of JSON; NULL: nothing.
static const char *find_value(const char *text, const char *name) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *at = strstr(text, quoted);
    at = at ? strchr(at, ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " \t\r\n") : NULL;
}

static bool read_number(const char *text, const char *name, int64_t least, int64_t most,
                        int64_t *ret_number) {
    const char *at = find_value(text, name);
    char *end = NULL;
    long long number = at ? strtoll(at, &end, 10) : 0;
    bool whole = at && end != at && !strchr(".eE", *end); // a text does not end with a number
    *ret_number = number;
    return (whole && number >= least && number <= most) ||
           fail("config.json: no proper \"%s\"", name);
}

/// Whether the value, where there is one, is this, as it would be written: what the encoder has not
/// got would be computed as if it were, and nobody would see it.
static bool is_value(const char *text, const char *name, const char *value) {
    const char *at = find_value(text, name);
    size_t length = strlen(value);
    return !at || (strncmp(at, value, length) == 0 && strchr(", \t\r\n}", at[length])) ||
           fail("config.json: \"%s\" is not %s", name, value);
}

static bool read_config(const char *folder, encoder_sizes *s) {
    char path[4096], text[16384];
    if (!join(path, sizeof path, folder, "config.json"))
        return false;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fail("%s: %s (tools/get_minilm fetches the model)", path, strerror(errno));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return read_number(text, "vocab_size", 1, INT32_MAX, &s->vocabulary) &&
           read_number(text, "hidden_size", 1, 1 << 16, &s->width) &&
           read_number(text, "num_hidden_layers", 1, ENCODER_LAYERS, &s->layers) &&
           read_number(text, "num_attention_heads", 1, s->width, &s->heads) &&
           read_number(text, "intermediate_size", 1, 1 << 20, &s->inner) &&
           read_number(text, "max_position_embeddings", 2, 1 << 20, &s->places) &&
           is_value(text, "hidden_act", "\"gelu\"") && is_value(text, "layer_norm_eps", "1e-12") &&
           is_value(text, "position_embedding_type", "\"absolute\"") &&
           (s->width % s->heads == 0 || fail("%s: heads of several sizes", path));
}

static bool open_into(minilm *model, const char *folder) {
    char found[3072], path[4096];
    if (!folder && !default_folder(found, sizeof found))
        return false;
    folder = folder ? folder : found;
    model->folder = strdup(folder);
    if (!model->folder)
        return fail("no memory for a model");
    if (!read_config(folder, &model->sizes) || !join(path, sizeof path, folder, "vocab.txt"))
        return false;
    model->pieces = wordpiece_open(path);
    if (!model->pieces)
        return fail("%s: %s", path, errno == EINVAL ? "lacks a special token" : strerror(errno));
    if (wordpiece_get_size(model->pieces) > (size_t)model->sizes.vocabulary)
        return fail("%s: more tokens than the model has", path);
    if (!join(path, sizeof path, folder, "model.safetensors"))
        return false;
    problem[0] = 0;
    model->encoder = encoder_open(path, &model->sizes, problem, sizeof problem);
    return model->encoder || (!problem[0] && fail("no memory"));
}

static nd_status minilm_init(nd_object *self, void *folder) {
    if (open_into(nd_object_get_data(self), folder))
        return ND_OK;
    return nd_error_get_status() != ND_OK ? nd_error_get_status() : ND_ERROR_IO;
}

nd_object *minilm_open(const char *folder) {
    nd_error_clear();
    fail("no memory for a model");
    return nd_object_new_with(&minilm_type, sizeof(minilm), minilm_init, (void *)folder);
}

const char *minilm_get_folder(const nd_object *self) {
    const minilm *model = nd_object_get_data(self);
    return model ? model->folder : NULL;
}

// ------------------------------------------------------------------------------------------- texts

/// A text's tokens among those of all texts.
typedef struct span {
    size_t text, start, count;
} span;

typedef struct tokens {
    int32_t *ids;
    size_t count, room;
    span *spans;
} tokens;

static size_t longest_of(const minilm *model) {
    return model->sizes.places < MINILM_LONGEST ? (size_t)model->sizes.places : MINILM_LONGEST;
}

size_t minilm_encode(const nd_object *self, const char *text, int32_t *ret_ids) {
    const minilm *model = nd_object_get_data(self);
    size_t count =
        model ? wordpiece_encode(model->pieces, text, strlen(text), longest_of(model), ret_ids) : 0;
    if (count == 0)
        fail("no memory for the tokens of a text");
    return count;
}

static bool make_room(tokens *all) {
    size_t room = 2 * all->room + MINILM_LONGEST;
    int32_t *ids = realloc(all->ids, room * sizeof *ids);
    if (!ids)
        return fail("no memory for tokens");
    all->ids = ids;
    all->room = room;
    return true;
}

static bool encode_all(const nd_object *self, size_t count, const char *const *texts, tokens *all) {
    all->spans = malloc((count + 1) * sizeof *all->spans);
    if (!all->spans)
        return fail("no memory for tokens");
    for (size_t i = 0; i < count; i++) {
        if (all->room - all->count < MINILM_LONGEST && !make_room(all))
            return false;
        size_t length = minilm_encode(self, texts[i], all->ids + all->count);
        if (length == 0)
            return false;
        all->spans[i] = (span){i, all->count, length};
        all->count += length;
    }
    return true;
}

static int by_length(const void *a, const void *b) {
    const span *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? -1 : 1)
                                : (x->text < y->text ? -1 : x->text > y->text);
}

/// The embeddings of some texts together, the longest of which is the last.
static nd_tensor *embed_batch(const minilm *model, const tokens *all, const span *spans,
                              size_t count) {
    int64_t lengths[TOGETHER];
    int32_t ids[TOGETHER * MINILM_LONGEST];
    const size_t longest = spans[count - 1].count;
    for (size_t i = 0; i < count; i++) {
        lengths[i] = (int64_t)spans[i].count;
        memcpy(ids + i * longest, all->ids + spans[i].start, spans[i].count * sizeof *ids);
        for (size_t j = spans[i].count; j < longest; j++)
            ids[i * longest + j] = wordpiece_get_padding(model->pieces);
    }
    return encoder_run(model->encoder, count, (int64_t)longest, ids, lengths);
}

/// The embeddings in the order of `spans`: [count, width].
static nd_tensor *embed_sorted(const minilm *model, const tokens *all, size_t count) {
    nd_auto nd_tensor *rows = nd_empty(ND_SHAPE((int64_t)count, model->sizes.width), ND_F32);
    for (size_t first = 0; first < count; first += TOGETHER) {
        size_t last = first + TOGETHER < count ? first + TOGETHER : count;
        nd_auto nd_tensor *batch = embed_batch(model, all, all->spans + first, last - first);
        nd_auto nd_tensor *place = nd_slice(rows, (int64_t)first, (int64_t)last, 1, 0);
        if (nd_copy_(place, batch) != ND_OK)
            return NULL;
    }
    return nd_steal(&rows);
}

/// Rows that stand in the order of `spans`, in that of the texts.
static nd_tensor *in_order(const nd_tensor *rows, const span *spans, size_t count) {
    int64_t *places = malloc(count * sizeof *places);
    for (size_t i = 0; places && i < count; i++)
        places[spans[i].text] = (int64_t)i;
    nd_auto nd_tensor *order =
        places ? nd_from_data(places, ND_SHAPE((int64_t)count), ND_I64) : NULL;
    free(places);
    return rows && order ? nd_take(rows, order, 0) : NULL;
}

nd_tensor *minilm_embed(const nd_object *self, size_t count, const char *const *texts) {
    const minilm *model = nd_object_get_data(self);
    tokens all = {0};
    nd_tensor *embeddings = NULL;
    nd_error_clear();
    if (model && count == 0)
        return nd_empty(ND_SHAPE(0, model->sizes.width), ND_F32);
    if (model && encode_all(self, count, texts, &all)) {
        qsort(all.spans, count, sizeof *all.spans, by_length);
        nd_auto nd_tensor *sorted = embed_sorted(model, &all, count);
        embeddings = in_order(sorted, all.spans, count);
        if (!embeddings)
            fail("no memory for the embeddings of %zu texts", count);
    }
    free(all.ids);
    free(all.spans);
    return embeddings;
}

nd_tensor *minilm_forward(const nd_object *self, size_t count, int64_t longest, const int32_t *ids,
                          const int64_t *lengths) {
    const minilm *model = nd_object_get_data(self);
    nd_error_clear();
    nd_tensor *embeddings =
        model ? encoder_run(model->encoder, count, longest, ids, lengths) : NULL;
    if (!embeddings)
        fail("no memory for the embeddings of %zu texts", count);
    return embeddings;
}
