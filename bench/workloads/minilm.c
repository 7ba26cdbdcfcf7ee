// minilm: an encoder of sentences reads the lines of the repository's pages, batch after batch, and
// says how near each is to the one behind it. Inference alone: nothing cyclic, nothing learnt. The
// encoder is all-MiniLM-L6-v2 where tools/get_minilm has put it into the user's cache, else a random
// one of its shape, and much smaller, that the build makes. What it says of a batch is compared on
// the CPU.
#include <nd/scoped.h>

#include "bench/support/corpus.h"
#include "bench/support/paths.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"
#include "docs/examples/minilm/minilm.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 16, LEAST_LENGTH = 40, PROBLEM = 256 };

typedef struct reader {
    nd_object *model;
    char problem[PROBLEM]; ///< why it is not the real one; empty: it is
    char *text;            ///< the pages, cut into lines
    const char **lines;    ///< those that are prose
    size_t count;
    int64_t done; ///< sentences embedded
} reader;

// --------------------------------------------------------------------------------------------- text

/// Prose begins with a letter, unlike code, tables and titles.
static bool is_prose(const char *line) {
    return isalpha((unsigned char)*line) && strlen(line) >= LEAST_LENGTH;
}

/// Cuts `bytes` bytes behind which there is room for one more.
static bool cut_lines(reader *self, size_t bytes) {
    size_t ends = 0;
    self->text[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        ends += self->text[i] == '\n';
    self->lines = malloc((ends + 1) * sizeof *self->lines);
    char *rest = NULL;
    for (char *line = strtok_r(self->text, "\n", &rest); line && self->lines;
         line = strtok_r(NULL, "\n", &rest))
        if (is_prose(line))
            self->lines[self->count++] = line;
    return self->lines != NULL;
}

static nd_status read_lines(reader *self) {
    nd_auto nd_tensor *text = corpus_load();
    if (!text) {
        fprintf(stderr, "minilm: the pages in docs/ could not be read\n");
        return ND_ERROR_IO;
    }
    size_t bytes = (size_t)nd_get_numel(text);
    self->text = malloc(bytes + 1);
    if (!self->text)
        return ND_ERROR_OUT_OF_MEMORY;
    nd_status status = nd_copy_to_host(text, self->text, bytes);
    if (status == ND_OK && !cut_lines(self, bytes))
        status = ND_ERROR_OUT_OF_MEMORY;
    return status == ND_OK && self->count < BATCH ? ND_ERROR_IO : status;
}

// -------------------------------------------------------------------------------------------- model

/// What the example says where the library has nothing to say.
static nd_status complain(void) {
    fprintf(stderr, "minilm: %s\n", minilm_get_problem());
    return nd_error_get_status() != ND_OK ? nd_error_get_status() : ND_ERROR_IO;
}

static nd_status open_model(reader *self) {
    char tiny[4096];
    self->model = minilm_open(NULL);
    if (self->model)
        return ND_OK;
    snprintf(self->problem, sizeof self->problem, "%s", minilm_get_problem());
    if (bench_find_file("docs/examples/minilm/tiny", tiny, sizeof tiny))
        self->model = minilm_open(tiny);
    return self->model ? ND_OK : complain();
}

static nd_status reader_open(const workload_options *options, void **ret_state) {
    reader *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    nd_status status = read_lines(self);
    if (status == ND_OK)
        status = nd_set_default_device(options->device); // for the model
    if (status == ND_OK)
        status = open_model(self);
    nd_status back = nd_set_default_device((nd_device){ND_CPU, 0});
    return status == ND_OK ? back : status;
}

/// The line that is number `i` of a step's batch; behind the last comes the first.
static const char *line_of(const reader *self, int64_t step, size_t i) {
    return self->lines[((size_t)step * BATCH + i) % self->count];
}

static nd_status reader_step(void *state, int64_t step, double *ret_value) {
    reader *self = state;
    const char *sentences[BATCH];
    for (size_t i = 0; i < BATCH; i++)
        sentences[i] = line_of(self, step, i);
    nd_auto_scope;
    const nd_tensor *embeddings = nd_tmp(minilm_embed(self->model, BATCH, sentences));
    if (!embeddings)
        return complain();
    const nd_tensor *before = nd_slice(embeddings, 0, BATCH - 1, 1, 0);
    const nd_tensor *behind = nd_slice(embeddings, 1, BATCH, 1, 0);
    const nd_tensor *near = nd_sum(nd_mul(before, behind), 1, (const int[]){1}, false);
    const nd_tensor *mean = nd_mean(near, 0, NULL, false);
    *ret_value = nd_get_item(mean);
    self->done += BATCH;
    return mean ? ND_OK : nd_error_get_status();
}

// ------------------------------------------------------------------------------------ for PyTorch

/// Tokens of all lines, one behind the other, and how many are of each: tokens.safetensors; and where
/// the model is: a link named model. PyTorch's side has no tokenizer.
static nd_status reader_hand_over(void *state, const char *folder) {
    const reader *self = state;
    char path[4096], model[PATH_MAX];
    snprintf(path, sizeof path, "%s/model", folder);
    if (!realpath(minilm_get_folder(self->model), model) || symlink(model, path) != 0)
        return ND_ERROR_IO;
    nd_auto_scope;
    const nd_tensor *ids = nd_zeros(ND_SHAPE((int64_t)self->count, MINILM_LONGEST), ND_I32);
    const nd_tensor *lengths = nd_zeros(ND_SHAPE((int64_t)self->count), ND_I32);
    if (!ids || !lengths)
        return nd_error_get_status();
    int32_t *id = nd_get_data(ids), *length = nd_get_data(lengths);
    for (size_t i = 0; i < self->count; i++, id += MINILM_LONGEST)
        if ((length[i] = (int32_t)minilm_encode(self->model, self->lines[i], id)) == 0)
            return complain();
    static const char *const names[] = {"ids", "lengths"};
    const nd_tensor *tensors[] = {nd_cast(ids, ND_I64), nd_cast(lengths, ND_I64)};
    snprintf(path, sizeof path, "%s/tokens.safetensors", folder);
    return nd_save_safetensors(path, 2, names, tensors);
}

static nd_status reader_finish(void *state, workload_outcome *ret_outcome) {
    const reader *self = state;
    int length = snprintf(ret_outcome->text, sizeof ret_outcome->text,
                          "%lld sentences by the model in %.400s", (long long)self->done,
                          minilm_get_folder(self->model));
    if (*self->problem)
        snprintf(ret_outcome->text + length, sizeof ret_outcome->text - (size_t)length,
                 ",\na small random one, since the real one is not there: %s", self->problem);
    return ND_OK;
}

static void reader_close(void *state) {
    reader *self = state;
    if (!self)
        return;
    nd_release(self->model);
    free(self->lines);
    free(self->text);
    free(self);
}

const workload workload_minilm = {
    .name = "minilm",
    .summary = "a real encoder of sentences, all-MiniLM-L6-v2, embeds the lines of the docs",
    .steps = 60,
    .value = "nearness",
    .tolerance = 1e-3,
    .first_tolerance = 1e-5,
    .has_peer = true,
    .open = reader_open,
    .step = reader_step,
    .hand_over = reader_hand_over,
    .finish = reader_finish,
    .close = reader_close,
};
