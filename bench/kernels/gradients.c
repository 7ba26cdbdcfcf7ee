// Calls forward and back: the result, and its gradients by what it was made from.
#include "bench/kernels/calls.h"

#define ROWS           \
    1, (const int[]) { \
        1              \
    }
#define COLUMNS        \
    1, (const int[]) { \
        0              \
    }

static nd_tensor *transposed(const nd_tensor *x) {
    nd_auto nd_tensor *view = nd_transpose(x, 0, 1);
    return nd_contiguous(view);
}

#define CALLS(CALL)                                                                                \
    CALL(mul, nd_mul(in->leaf, in->leaf2), in->leaf, in->leaf2)                                    \
    CALL(div, nd_div(in->leaf, in->above), in->leaf)                                               \
    CALL(exp, nd_exp(in->leaf), in->leaf)                                                          \
    CALL(tanh, nd_tanh(in->leaf), in->leaf)                                                        \
    CALL(sigmoid, nd_sigmoid(in->leaf), in->leaf)                                                  \
    CALL(relu, nd_relu(in->leaf), in->leaf)                                                        \
    CALL(gelu, nd_gelu(in->leaf), in->leaf)                                                        \
    CALL(gelu_tanh, nd_gelu_tanh(in->leaf), in->leaf)                                              \
    CALL(silu, nd_silu(in->leaf), in->leaf)                                                        \
    CALL(softplus, nd_softplus(in->leaf), in->leaf)                                                \
    CALL(add_row, nd_add(in->leaf, in->bias), in->leaf, in->bias)                                  \
    CALL(sum_axis1, nd_sum(in->leaf, ROWS, false), in->leaf)                                       \
    CALL(max_axis1, nd_max(in->leaf, ROWS, false), in->leaf)                                       \
    CALL(softmax, nd_softmax(in->leaf, 1), in->leaf)                                               \
    CALL(log_softmax, nd_log_softmax(in->leaf, 1), in->leaf)                                       \
    CALL(layer_norm, nd_layer_norm(in->leaf, in->weight, in->bias, 1e-5, 1), in->leaf, in->weight, \
         in->bias)                                                                                 \
    CALL(rms_norm, nd_rms_norm(in->leaf, in->weight, 1e-5, 1), in->leaf, in->weight)               \
    CALL(cross_entropy, nd_cross_entropy(in->leaf, in->rows), in->leaf)                            \
    CALL(mse_loss, nd_mse_loss(in->leaf, in->y), in->leaf)                                         \
    CALL(bce_with_logits, nd_bce_with_logits(in->leaf, in->above, NULL, NULL, ND_REDUCTION_MEAN),  \
         in->leaf)                                                                                 \
    CALL(smooth_l1, nd_smooth_l1_loss(in->leaf, in->y, 1, ND_REDUCTION_MEAN), in->leaf)            \
    CALL(huber, nd_huber_loss(in->leaf, in->y, 1, ND_REDUCTION_MEAN), in->leaf)                    \
    CALL(l1_loss, nd_l1_loss(in->leaf, in->y, ND_REDUCTION_MEAN), in->leaf)                        \
    CALL(kl_div, nd_kl_div(in->leaf, in->positive, false, ND_REDUCTION_MEAN), in->leaf)            \
    CALL(nll_loss, nd_nll_loss(in->leaf, in->rows, NULL, -100, ND_REDUCTION_MEAN), in->leaf)       \
    CALL(where, nd_where(in->mask, in->leaf, in->leaf2), in->leaf, in->leaf2)                      \
    CALL(take_axis0, nd_take(in->leaf, in->rows, 0), in->leaf)                                     \
    CALL(gather_axis1, nd_gather(in->leaf, in->index, 1), in->leaf)                                \
    CALL(add, nd_add(in->leaf, in->leaf2), in->leaf, in->leaf2)                                    \
    CALL(maximum, nd_maximum(in->leaf, in->leaf2), in->leaf, in->leaf2)                            \
    CALL(mul_row, nd_mul(in->leaf, in->weight), in->leaf, in->weight)                              \
    CALL(abs, nd_abs(in->leaf), in->leaf)                                                          \
    CALL(log, nd_log(in->high), in->high)                                                          \
    CALL(sqrt, nd_sqrt(in->high), in->high)                                                        \
    CALL(sin, nd_sin(in->leaf), in->leaf)                                                          \
    CALL(cos, nd_cos(in->leaf), in->leaf)                                                          \
    CALL(erf, nd_erf(in->leaf), in->leaf)                                                          \
    CALL(pow_3, nd_pow_scalar(in->leaf, 3.0), in->leaf)                                            \
    CALL(pow, nd_pow(in->high, in->leaf), in->high, in->leaf)                                      \
    CALL(hardtanh, nd_hardtanh(in->leaf, -0.5, 0.5), in->leaf)                                     \
    CALL(clip, nd_clip(in->leaf, -0.5, 0.5), in->leaf)                                             \
    CALL(masked_fill, nd_masked_fill(in->leaf, in->mask, 0.0), in->leaf)                           \
    CALL(mean, nd_mean(in->leaf, 0, NULL, false), in->leaf)                                        \
    CALL(sum_axis0, nd_sum(in->leaf, COLUMNS, false), in->leaf)                                    \
    CALL(max_axis0, nd_max(in->leaf, COLUMNS, false), in->leaf)                                    \
    CALL(var_axis0, nd_var(in->leaf, COLUMNS, 1, false), in->leaf)                                 \
    CALL(var_axis1, nd_var(in->leaf, ROWS, 1, false), in->leaf)                                    \
    CALL(norm, nd_norm(in->leaf, 2, 0, NULL, false), in->leaf)                                     \
    CALL(logsumexp, nd_logsumexp(in->leaf, ROWS, false), in->leaf)                                 \
    CALL(cumsum_axis0, nd_cumsum(in->leaf, 0), in->leaf)                                           \
    CALL(cumsum_axis1, nd_cumsum(in->leaf, 1), in->leaf)                                           \
    CALL(softmax_axis0, nd_softmax(in->leaf, 0), in->leaf)                                         \
    CALL(transpose, transposed(in->leaf), in->leaf)                                                \
    CALL(concat, nd_concat(2, (const nd_tensor *const[]){in->leaf, in->leaf2}, 1), in->leaf,       \
         in->leaf2)                                                                                \
    CALL(stack, nd_stack(2, (const nd_tensor *const[]){in->leaf, in->leaf2}, 0), in->leaf,         \
         in->leaf2)                                                                                \
    CALL(flip, nd_flip(in->leaf, 1, (const int[]){1}), in->leaf)                                   \
    CALL(roll, nd_roll(in->leaf, 3, 1), in->leaf)                                                  \
    CALL(tril, nd_tril(in->leaf, 0), in->leaf)                                                     \
    CALL(take_axis1, nd_take(in->leaf, in->rows, 1), in->leaf)                                     \
    CALL(gather_axis0, nd_gather(in->leaf, in->index, 0), in->leaf)                                \
    CALL(scatter_add_axis1, nd_scatter_add(in->leaf, in->index, in->leaf2, 1), in->leaf,           \
         in->leaf2)                                                                                \
    CALL(sort, nd_sort(in->leaf, 1, false), in->leaf)                                              \
    CALL(dropout, nd_dropout(in->leaf, nd_key_new(3), 0.5, true), in->leaf)

CALLS(BACKWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_BACKWARD)};
const kernel_calls gradient_calls = KERNEL_CALLS(rows);
