/// @file
/// Functions that neural networks are made of, beside those in <nd/ops.h>: normalisation,
/// embedding, dropout, attention, recurrent nets, losses. They keep nothing themselves; <nd/nn.h>
/// has modules that do.
///
/// As in <nd/ops.h>, all but recurrent nets return a new owned tensor on the operands' device,
/// placed at the operands' manager, or NULL with an error, and all are differentiable to any order.
/// Definitions and defaults are those of torch.nn.functional. x is of floats; f16 and bf16 are
/// computed in f32, and the result has x's dtype. Weights have x's dtype, or are f32 beside an x of
/// f16 or bf16.
#ifndef ND_NEURAL_H
#define ND_NEURAL_H
#include <nd/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------------------- normalisation
//
// Each takes away the mean of a group of elements and divides by the root of (variance + epsilon),
// the variance being that of the group itself (not divided by one less). Then it multiplies with
// weight and adds bias; NULL: with one, nothing. epsilon is not negative; 1e-5 is usual.

/// Over the last `naxes` axes (Ba, Kiros, Hinton 2016): x: [..., s...], weight and bias: [s...] or
/// NULL.
ND_API nd_tensor *nd_layer_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                                double epsilon, int naxes) ND_OWNED;
/// x over the root of (mean of x^2 + epsilon), without taking the mean away (Zhang, Sennrich 2019);
/// over the last `naxes` axes: x: [..., s...], weight: [s...] or NULL.
ND_API nd_tensor *nd_rms_norm(const nd_tensor *x, const nd_tensor *weight, double epsilon,
                              int naxes) ND_OWNED;
/// Over each of `groups` runs of channels and all places (Wu, He 2018): x: [n, c, ...], weight and
/// bias: [c] or NULL. groups divides c.
ND_API nd_tensor *nd_group_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                                int64_t groups, double epsilon) ND_OWNED;

/// Options of nd_batch_norm() and nd_instance_norm().
typedef struct nd_batch_norm_options {
    uint32_t size;    ///< sizeof(nd_batch_norm_options)
    uint32_t version; ///< 1
    double momentum;  ///< part of the new in the running statistics, 0 to 1
    double epsilon;   ///< added to the variance, not negative
    bool training;    ///< normalise by x's own statistics, and update the running ones
} nd_batch_norm_options;
/// What an nd_batch_norm_options must begin as: momentum 0.1, epsilon 1e-5, not training.
#define ND_BATCH_NORM_OPTIONS_INIT \
    { sizeof(nd_batch_norm_options), 1, 0.1, 1e-5, false }
/// Each channel over the batch and all places (Ioffe, Szegedy 2015): x: [n, c, ...], weight and
/// bias: [c] or NULL. running_mean and running_var: [c], both or neither. While training they
/// become (1 - momentum) of themselves + momentum of x's mean and variance (over one less than the
/// number of elements), unrecorded; when not training, they are what x is normalised by, and are
/// only read. Without them x's own statistics are used always. Options NULL: as
/// ND_BATCH_NORM_OPTIONS_INIT. Error: statistics of one element per channel.
ND_API nd_tensor *nd_batch_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                                nd_tensor *running_mean, nd_tensor *running_var,
                                const nd_batch_norm_options *options) ND_OWNED;
/// As nd_batch_norm(), each channel of each sample by itself (Ulyanov, Vedaldi, Lempitsky 2016): x:
/// [n, c, ...] with at least one axis of places. Running statistics get the mean over the samples,
/// and stay as they are where there is none.
ND_API nd_tensor *nd_instance_norm(const nd_tensor *x, const nd_tensor *weight,
                                   const nd_tensor *bias, nd_tensor *running_mean,
                                   nd_tensor *running_var,
                                   const nd_batch_norm_options *options) ND_OWNED;

// -------------------------------------------------------------------------- embedding and dropout

/// What nd_embedding() takes for "there is no padding".
#define ND_NO_PADDING INT64_MIN
/// Rows of a table: weight: [rows, size] of any dtype, indices: [...] i64 or i32 -> [..., size].
/// Row `padding` gets no gradient; negative counts from the end, ND_NO_PADDING: every row gets one.
/// Out of range is an error.
ND_API nd_tensor *nd_embedding(const nd_tensor *weight, const nd_tensor *indices,
                               int64_t padding) ND_OWNED;
/// x with each element multiplied by 0 with probability p and the others divided by 1 - p (Srivastava
/// et al. 2014), when training; NaN and infinities among the former may become NaN; x itself
/// (retained) otherwise, and when p is 0. The same key drops the same elements on every device; a step
/// of training wants a key of its own: nd_key_fold(). Error: p is outside 0 ... 1.
ND_API nd_tensor *nd_dropout(const nd_tensor *x, nd_key key, double p, bool training) ND_OWNED;

// --------------------------------------------------------------------------------------- attention

/// Options of nd_attention().
typedef struct nd_attention_options {
    uint32_t size;    ///< sizeof(nd_attention_options)
    uint32_t version; ///< 1
    double scale;     ///< of the scores; 0: one over the root of e
    double dropout;   ///< probability that a weight is dropped, as by nd_dropout()
    nd_key key;       ///< of the dropout
    bool causal;      ///< query i sees keys 0 ... i alone
} nd_attention_options;
/// What an nd_attention_options must begin as: the usual scale, no dropout, every key is seen.
#define ND_ATTENTION_OPTIONS_INIT \
    { sizeof(nd_attention_options), 1, 0.0, 0.0, {0, 0}, false }
/// softmax(query key^T scale + mask) value (Vaswani et al. 2017). query: [..., h, l, e], key: [...,
/// g, s, e], value: [..., g, s, v] -> [..., h, l, v]. The h heads of the queries share g heads of
/// keys, h / g neighbours each (Ainslie et al. 2023); without heads: [l, e], [s, e], [s, v]. mask
/// broadcasts to [..., h, l, s]: bool, true where a query sees a key, or floats to be added; or
/// NULL. A query that sees nothing gives 0. What is hidden takes part with weight 0, as in the
/// formula, or is left out, which depends on sizes, dtype and device: NaN and infinities of hidden
/// values, and of keys in gradients and below a mask of floats, may become NaN. Options NULL: as
/// ND_ATTENTION_OPTIONS_INIT.
///
/// Memory grows with l + s, not with their product, forward and backward, which computes the scores
/// again; but a backward pass with create_graph keeps them.
ND_API nd_tensor *nd_attention(const nd_tensor *query, const nd_tensor *key, const nd_tensor *value,
                               const nd_tensor *mask, const nd_attention_options *options) ND_OWNED;

// ---------------------------------------------------------------------------------- recurrent nets

/// Options of nd_rnn(), nd_lstm() and nd_gru().
typedef struct nd_recurrent_options {
    uint32_t size;      ///< sizeof(nd_recurrent_options)
    uint32_t version;   ///< 1
    int64_t layers;     ///< one on the output of the other, at least 1
    double dropout;     ///< probability, of what a layer hands to the next while training
    nd_key key;         ///< of the dropout
    bool bidirectional; ///< each layer also from the last step to the first
    bool batch_first;   ///< x and the output are [n, t, ...], not [t, n, ...]
    bool training;      ///< whether dropout drops
    bool relu;          ///< nd_rnn(): relu in place of tanh
} nd_recurrent_options;
/// What an nd_recurrent_options must begin as: one layer, forward, steps first, no dropout, tanh.
#define ND_RECURRENT_OPTIONS_INIT \
    { sizeof(nd_recurrent_options), 1, 1, 0.0, {0, 0}, false, false, false, false }

// A state h of `size` numbers that each step of a sequence changes. x: [t, n, in], [n, t, in] with
// batch_first, or [t, in] without a batch. hidden (and cell): [layers directions, n, size], without
// the n where x has none, or NULL for zeros. weights, for each layer, for each direction: input
// weight [gates size, in], state weight [gates size, size], and input bias and state bias [gates
// size], which all have or none; in of a layer above the first is directions size. This is how
// PyTorch has them. Weights of f16 or bf16 that have x's dtype are multiplied as they are where the
// device does that faster, which are bf16 on processors that multiply its pairs: x and the state
// are rounded to it for the product, and so is that; the states are kept in f32. Written: the
// output of the last layer at every step, x's shape with directions size at its end, and the states
// after the last step, in the shape of hidden; ret_hidden and ret_cell may be NULL. On error
// nothing is written.

/// h = tanh(input + state) (Elman 1990).
ND_API nd_status nd_rnn(const nd_tensor *x, const nd_tensor *hidden, size_t count,
                        const nd_tensor *const *weights, const nd_recurrent_options *options,
                        nd_tensor **ret_output, nd_tensor **ret_hidden);
/// Gates i, f, g, o: c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c) (Hochreiter,
/// Schmidhuber 1997; Gers et al. 2000).
ND_API nd_status nd_lstm(const nd_tensor *x, const nd_tensor *hidden, const nd_tensor *cell,
                         size_t count, const nd_tensor *const *weights,
                         const nd_recurrent_options *options, nd_tensor **ret_output,
                         nd_tensor **ret_hidden, nd_tensor **ret_cell);
/// Gates r, z, n: n' = tanh(n of the input + sigmoid(r) n of the state), h = (1 - sigmoid(z)) n' +
/// sigmoid(z) h (Cho et al. 2014).
ND_API nd_status nd_gru(const nd_tensor *x, const nd_tensor *hidden, size_t count,
                        const nd_tensor *const *weights, const nd_recurrent_options *options,
                        nd_tensor **ret_output, nd_tensor **ret_hidden);

// ------------------------------------------------------------------------------------------ losses
//
// Operands broadcast. nd_mse_loss() and nd_cross_entropy() are in <nd/ops.h>.

/// |a - b|.
ND_API nd_tensor *nd_l1_loss(const nd_tensor *a, const nd_tensor *b,
                             nd_reduction reduction) ND_OWNED;
/// With d = |a - b|: d^2 / (2 beta) below beta, d - beta / 2 from there on (Girshick 2015). beta 0:
/// nd_l1_loss().
ND_API nd_tensor *nd_smooth_l1_loss(const nd_tensor *a, const nd_tensor *b, double beta,
                                    nd_reduction reduction) ND_OWNED;
/// With d = |a - b|: d^2 / 2 below delta, delta (d - delta / 2) from there on (Huber 1964). delta
/// is above 0.
ND_API nd_tensor *nd_huber_loss(const nd_tensor *a, const nd_tensor *b, double delta,
                                nd_reduction reduction) ND_OWNED;
/// targets (log targets - log_probabilities), 0 where a target is 0: the divergence of Kullback and
/// Leibler. With log_targets these are logarithms too. What is called so divides by the batch:
/// ND_REDUCTION_BATCH_MEAN.
ND_API nd_tensor *nd_kl_div(const nd_tensor *log_probabilities, const nd_tensor *targets,
                            bool log_targets, nd_reduction reduction) ND_OWNED;
/// weight (targets positive_weight log(1 + e^-x) + (1 - targets) log(1 + e^x)) of logits x, without
/// overflow. targets: 0 to 1. weight and positive_weight: of floats, or NULL for 1.
ND_API nd_tensor *nd_bce_with_logits(const nd_tensor *logits, const nd_tensor *targets,
                                     const nd_tensor *weight, const nd_tensor *positive_weight,
                                     nd_reduction reduction) ND_OWNED;
/// -weight[target] log_probabilities[target], and 0 where a target is `ignored` (-100 is usual).
/// log_probabilities: [n, classes, ...] or [classes], targets: [n, ...] or [], of integers, weight:
/// [classes] or NULL. The mean is the sum over the sum of the weights that counted. Error: another
/// target outside 0 ... classes - 1.
ND_API nd_tensor *nd_nll_loss(const nd_tensor *log_probabilities, const nd_tensor *targets,
                              const nd_tensor *weight, int64_t ignored,
                              nd_reduction reduction) ND_OWNED;
/// Options of nd_cross_entropy_with().
typedef struct nd_cross_entropy_options {
    uint32_t size;          ///< sizeof(nd_cross_entropy_options)
    uint32_t version;       ///< 1
    nd_reduction reduction; ///< mean, sum or none
    double label_smoothing; ///< part of each label that is spread over all classes, 0 to 1
    int64_t ignored;        ///< a target that counts nothing
} nd_cross_entropy_options;
/// What an nd_cross_entropy_options must begin as: the mean, no smoothing, -100 ignored.
#define ND_CROSS_ENTROPY_OPTIONS_INIT \
    { sizeof(nd_cross_entropy_options), 1, ND_REDUCTION_MEAN, 0.0, -100 }
/// -weight[target] log softmax(logits)[target], with a part of each label spread over all classes
/// (Szegedy et al. 2016). logits: [n, classes, ...] or [classes], targets: [n, ...] or [], of any
/// integer dtype, weight: [classes] or NULL for 1. The mean is the sum over the sum of the weights
/// that counted. Computed in f32 for f16 and bf16; the result has the logits' dtype. Options NULL:
/// as ND_CROSS_ENTROPY_OPTIONS_INIT. Error: a target that is not ignored is outside 0 ... classes -
/// 1.
ND_API nd_tensor *nd_cross_entropy_with(const nd_tensor *logits, const nd_tensor *targets,
                                        const nd_tensor *weight,
                                        const nd_cross_entropy_options *options) ND_OWNED;
/// a b / (|a| |b|) along an axis, with no length below epsilon (1e-8 is usual): the broadcast shape
/// without the axis.
ND_API nd_tensor *nd_cosine_similarity(const nd_tensor *a, const nd_tensor *b, double epsilon,
                                       int axis) ND_OWNED;
/// With c the cosine of two rows: 1 - c where the target is 1, c - margin if above 0 where it is
/// -1. a, b: [n, size] or [size], targets: [n] or [].
ND_API nd_tensor *nd_cosine_embedding_loss(const nd_tensor *a, const nd_tensor *b,
                                           const nd_tensor *targets, double margin,
                                           nd_reduction reduction) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
