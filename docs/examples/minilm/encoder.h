// The encoder of BERT (Devlin et al. 2018), and the mean of what it says of each token of a text.
#ifndef MINILM_ENCODER_H
#define MINILM_ENCODER_H
#include <nd/nd.h>

/// What config.json says.
typedef struct encoder_sizes {
    int64_t vocabulary, width, layers, heads, inner, places;
} encoder_sizes;

/// Most layers of an encoder.
enum { ENCODER_LAYERS = 64 };

/// Reads the tensors of a model.safetensors, which must have these sizes, onto this thread's default device. Owned. On error NULL, with
/// ndarc's error, or with a sentence in `problem`, which begins
/// empty, where ndarc has none.
nd_object *encoder_open(const char *path, const encoder_sizes *sizes, char *problem,
                        size_t problem_size) ND_OWNED;

/// The embeddings, of length 1, of `count` rows of tokens that lie one behind the other: [count,
/// width], on the encoder's device. Each row has `longest` tokens, of which the first lengths[i] count. Any number of threads
/// at once.
nd_tensor *encoder_run(const nd_object *self, size_t count, int64_t longest, const int32_t *ids,
                       const int64_t *lengths) ND_OWNED;

#endif
