// Calls forward and back: the result, and its gradients by what it was made from.
#include "bench/kernels/calls.h"

#define ROWS           \
    1, (const int[]) { \
        1              \
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
    CALL(gather_axis1, nd_gather(in->leaf, in->index, 1), in->leaf)

CALLS(BACKWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_BACKWARD)};
const kernel_calls gradient_calls = KERNEL_CALLS(rows);
