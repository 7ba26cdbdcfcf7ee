// Calls that look at whole rows or columns.
#include "bench/kernels/calls.h"

#define ALL 0, NULL
#define MEAN ND_REDUCTION_MEAN
#define COLUMNS        \
    1, (const int[]) { \
        0              \
    }
#define ROWS           \
    1, (const int[]) { \
        1              \
    }

#define CALLS(CALL)                                                               \
    CALL(sum, nd_sum(in->x, ALL, false))                                          \
    CALL(sum_axis0, nd_sum(in->x, COLUMNS, false))                                \
    CALL(sum_axis1, nd_sum(in->x, ROWS, false))                                   \
    CALL(mean, nd_mean(in->x, ALL, false))                                        \
    CALL(max, nd_max(in->x, ALL, false))                                          \
    CALL(max_axis0, nd_max(in->x, COLUMNS, false))                                \
    CALL(max_axis1, nd_max(in->x, ROWS, false))                                   \
    CALL(argmax_axis0, nd_argmax(in->x, 0, false))                                \
    CALL(argmax_axis1, nd_argmax(in->x, 1, false))                                \
    CALL(var_axis0, nd_var(in->x, COLUMNS, 1, false))                             \
    CALL(var_axis1, nd_var(in->x, ROWS, 1, false))                                \
    CALL(norm, nd_norm(in->x, 2, ALL, false))                                     \
    CALL(logsumexp, nd_logsumexp(in->x, ROWS, false))                             \
    CALL(cumsum_axis0, nd_cumsum(in->x, 0))                                       \
    CALL(cumsum_axis1, nd_cumsum(in->x, 1))                                       \
    CALL(any_axis1, nd_any(in->mask, ROWS, false))                                \
    CALL(sum_i64, nd_sum(in->i, ALL, false))                                      \
    CALL(sum_bf16, nd_sum(in->xb, ALL, false))                                    \
    CALL(softmax, nd_softmax(in->x, 1))                                           \
    CALL(softmax_axis0, nd_softmax(in->x, 0))                                     \
    CALL(softmax_16, nd_softmax(in->short_rows, 1))                               \
    CALL(log_softmax, nd_log_softmax(in->x, 1))                                   \
    CALL(layer_norm, nd_layer_norm(in->x, in->row, in->row, 1e-5, 1))             \
    CALL(rms_norm, nd_rms_norm(in->x, in->row, 1e-5, 1))                          \
    CALL(cross_entropy, nd_cross_entropy(in->x, in->rows))                        \
    CALL(nll_loss, nd_nll_loss(in->x, in->rows, NULL, -100, MEAN))                \
    CALL(mse_loss, nd_mse_loss(in->x, in->y))                                     \
    CALL(l1_loss, nd_l1_loss(in->x, in->y, MEAN))                                 \
    CALL(smooth_l1, nd_smooth_l1_loss(in->x, in->y, 1, MEAN))                     \
    CALL(huber, nd_huber_loss(in->x, in->y, 1, MEAN))                             \
    CALL(bce_with_logits, nd_bce_with_logits(in->x, in->above, NULL, NULL, MEAN)) \
    CALL(kl_div, nd_kl_div(in->x, in->positive, false, MEAN))

CALLS(FORWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_FORWARD)};
const kernel_calls reduction_calls = KERNEL_CALLS(rows);
