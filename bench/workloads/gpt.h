// GPT-2's architecture (Radford et al. 2019) of any size: token and place embeddings, blocks of
// layer norm, causal attention, layer norm and an MLP four times as wide with tanh-GELU, a last
// norm, and a head that is the table of tokens.
#ifndef ND_BENCH_GPT_H
#define ND_BENCH_GPT_H
#include <nd/nd.h>

typedef struct gpt_sizes {
    int64_t vocabulary, context, width, layers, heads;
} gpt_sizes;

/// The size that is called 124 M, its number of parameters.
#define GPT_124M \
    { 50257, 1024, 768, 12, 12 }

/// Weights are normal with a deviation of 0.02 at a width of 768 and more at a smaller one, by its
/// root; those that end a branch by the root of twice the layers less; biases are 0. Its forward
/// function is gpt_logits() of all that is kept. Any number of layers, none too. Error: the heads do
/// not share the width evenly.
nd_module *gpt_new(const gpt_sizes *sizes, nd_key key) ND_OWNED;

/// ids: [n, t] -> [n, t, vocabulary]. Checkpointed: of a block only what goes in is kept for the
/// backward pass, which computes the rest again; the gradients are the same to the bit. Error: t is
/// more than the context.
nd_tensor *gpt_logits(const nd_module *model, const nd_tensor *ids, bool checkpointed) ND_OWNED;
/// Mean cross entropy of the tokens that come next; targets: [n, t]. Checkpointed: logits are there
/// for 256 tokens at a time; the value and gradients of more are the same but for rounding.
nd_tensor *gpt_loss(const nd_module *model, const nd_tensor *ids, const nd_tensor *targets,
                    bool checkpointed) ND_OWNED;

/// Keys and values of what a model has read, so that it reads on without reading it again. Several
/// of them, on several threads, may read with one model.
typedef struct gpt_cache {
    int64_t length; ///< tokens that were read
    nd_tensor *keys;
    nd_tensor *values; ///< [layers, n, heads, context, width / heads] each
} gpt_cache;

/// Room for n sequences, in the current manager.
nd_status gpt_cache_open(gpt_cache *cache, const nd_module *model, int64_t n);
void gpt_cache_close(gpt_cache *cache);
/// Reads on, unrecorded: ids: [n, t], or [1, t] for all sequences. Returns the logits of the token
/// that comes next: [n, vocabulary], those of gpt_logits() but for rounding. Errors: nothing is
/// given to read, or more than is left of the context; then nothing has been read.
nd_tensor *gpt_read(const nd_module *model, gpt_cache *cache, const nd_tensor *ids) ND_OWNED;

/// Writes `count` tokens behind a prompt, each drawn by the softmax of the logits over `temperature`
/// (0: the likeliest), to `ret_ids`, to which nothing is written on error.
nd_status gpt_write(const nd_module *model, const int64_t *prompt, int64_t prompt_length,
                    int64_t count, double temperature, nd_key key, int64_t *ret_ids);

#endif
