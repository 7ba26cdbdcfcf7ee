// The functions of rule_cases.h, for rows of one element each and for reductions.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_ELEMENTWISE_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_ELEMENTWISE_H
#include "lib/ops/elementwise.h"
#include "lib/ops/scan.h"
#include "tests/elementwise.h"
#include "tests/unit/autograd/rule_case.h"

#include <math.h>

// -------------------------------------------------------------------------------------------------
// elementwise

// The public ones are those of the table: f_<name>, on its row's domain.
#define DEFINE_NONE(name)
#define DEFINE_X(name)          \
    F(f_##name) {               \
        UNUSED;                 \
        return nd_##name(x[0]); \
    }
#define DEFINE_XP(name)              \
    F(f_##name) {                    \
        UNUSED;                      \
        return nd_##name(x[0], 1.5); \
    }
#define DEFINE_XPQ(name)                    \
    F(f_##name) {                           \
        UNUSED;                             \
        return nd_##name(x[0], -0.5, 0.75); \
    }
#define DEFINE_AB(name)               \
    F(f_##name) {                     \
        UNUSED;                       \
        return nd_##name(x[0], x[1]); \
    }
#define DEFINE_YES(name, form) DEFINE_##form(name)
#define DEFINE_NO(name, form)
#define DEFINE_ZERO(name, form)
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    DEFINE_##differentiable(name, form)
#define ND_BINARY ND_UNARY
#include "kernels/ops.inc"
DEFINE_X(clone)
DEFINE_AB(matmul)

F(f_mul_same) {
    UNUSED;
    return nd_mul(x[0], x[0]);
}

F(f_pow_scalar_3) {
    UNUSED;
    return nd_pow_scalar(x[0], 3.0);
}

F(f_pow_scalar_half) {
    UNUSED;
    return nd_pow_scalar(x[0], 0.5);
}

F(f_pow_scalar_2) {
    UNUSED;
    return nd_pow_scalar(x[0], 2.0);
}

F(f_pow_scalar_0) {
    UNUSED;
    return nd_pow_scalar(x[0], 0.0);
}

F(f_clip_below) {
    UNUSED;
    return nd_clip(x[0], -0.5, INFINITY);
}

F(f_relu_grad) {
    UNUSED;
    return nd__elementwise_relu_grad(x[0], x[1]);
}

F(f_smooth_l1) {
    UNUSED;
    return nd__elementwise_with_limit(ND_OP_smooth_l1, x[0], 0.8);
}

F(f_huber) {
    UNUSED;
    return nd__elementwise_with_limit(ND_OP_huber, x[0], 0.8);
}

F(f_where) {
    UNUSED;
    nd_auto nd_tensor *condition = nd_greater(x[0], x[1]);
    nd_auto nd_tensor *square = nd_square(x[0]);
    return nd_where(condition, square, x[2]);
}

/// x0 as a fresh result, so that it may be written in place.
static nd_tensor *writable(const nd_tensor *x) {
    return nd_mul_scalar(x, 1.5);
}

F(f_add_scaled_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_add_scaled_(y, x[1], -0.5) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_add_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_add_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_sub_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_sub_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_mul_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_mul_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_div_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_div_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_mul_scalar_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_mul_scalar_(y, 3.0) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_copy_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_copy_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_masked_fill_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    nd_auto nd_tensor *mask = nd_greater(x[0], x[1]);
    return nd_masked_fill_(y, mask, 3.0) == ND_OK ? nd_steal(&y) : NULL;
}

// -------------------------------------------------------------------------------------------------
// reductions

#define REDUCTION(name, call)       \
    F(f_##name) {                   \
        UNUSED;                     \
        const int axes[] = {0, -1}; \
        (void)axes;                 \
        return call;                \
    }

REDUCTION(sum_all, nd_sum(x[0], 0, NULL, false))
REDUCTION(sum_keep, nd_sum(x[0], 1, axes, true))
REDUCTION(sum_two, nd_sum(x[0], 2, axes, false))
REDUCTION(sum_to, nd_sum_to(x[0], 2, (const int64_t[]){3, 1}))
REDUCTION(mean_all, nd_mean(x[0], 0, NULL, true))
REDUCTION(mean_two, nd_mean(x[0], 2, axes, false))
REDUCTION(max_all, nd_max(x[0], 0, NULL, false))
REDUCTION(max_two, nd_max(x[0], 2, axes, false))
REDUCTION(min_last, nd_min(x[0], 1, axes + 1, true))
REDUCTION(min_all, nd_min(x[0], 0, NULL, false))
REDUCTION(var_two, nd_var(x[0], 2, axes, 1.0, false))
REDUCTION(std_two, nd_std(x[0], 2, axes, 1.0, false))
REDUCTION(prod_two, nd_prod(x[0], 2, axes, false))
REDUCTION(prod_all, nd_prod(x[0], 0, NULL, false))
REDUCTION(norm_one, nd_norm(x[0], 1.0, 2, axes, true))
REDUCTION(norm_two, nd_norm(x[0], 2.0, 2, axes, false))
REDUCTION(norm_three, nd_norm(x[0], 3.0, 0, NULL, false))
REDUCTION(norm_half, nd_norm(x[0], 0.5, 1, axes, false))
REDUCTION(norm_largest, nd_norm(x[0], (double)INFINITY, 1, axes, false))
REDUCTION(logsumexp_two, nd_logsumexp(x[0], 2, axes, false))
REDUCTION(cumsum, nd_cumsum(x[0], axes[0]))
REDUCTION(cumprod, nd_cumprod(x[0], 1))
REDUCTION(cumprod_back, nd__scan(ND_OP_cumprod, x[0], 1, true))
REDUCTION(cummax, nd_cummax(x[0], 1))
REDUCTION(cummin, nd_cummin(x[0], 2))
F(f_recurrence) {
    UNUSED;
    return nd__scan_recurrence(x[0], x[1], 1, false);
}
F(f_recurrence_back) {
    UNUSED;
    return nd__scan_recurrence(x[0], x[1], 0, true);
}
REDUCTION(softmax, nd_softmax(x[0], 1))
REDUCTION(softmax_first, nd_softmax(x[0], 0))
REDUCTION(log_softmax, nd_log_softmax(x[0], -1))
REDUCTION(layer_norm, nd_layer_norm(x[0], x[1], x[2], 1e-2, 1))
REDUCTION(layer_norm_plain, nd_layer_norm(x[0], NULL, NULL, 1e-2, 2))
REDUCTION(rms_norm, nd_rms_norm(x[0], x[1], 1e-2, 1))
REDUCTION(group_norm, nd_group_norm(x[0], x[1], x[2], 2, 1e-2))
REDUCTION(group_norm_shifted, nd_group_norm(x[0], NULL, x[1], 2, 1e-2))
REDUCTION(instance_norm, nd_instance_norm(x[0], x[1], x[2], NULL, NULL, NULL))
REDUCTION(batch_norm, nd_batch_norm(x[0], x[1], x[2], NULL, NULL, NULL))

/// With statistics that are given.
F(f_channel_norm) {
    UNUSED;
    nd_auto nd_tensor *mean = nd_full(ND_SHAPE(2), 0.3, nd_get_dtype(x[0]));
    nd_auto nd_tensor *variance = nd_full(ND_SHAPE(2), 1.7, nd_get_dtype(x[0]));
    return nd_batch_norm(x[0], x[1], x[2], mean, variance, NULL);
}

/// With statistics that want gradients themselves.
F(f_channel_norm_learned) {
    UNUSED;
    nd_auto nd_tensor *mean = nd_mul_scalar(x[1], 0.5);
    nd_auto nd_tensor *variance = nd_square(x[2]);
    return nd_batch_norm(x[0], NULL, x[1], mean, variance, NULL);
}

/// With a weight, a bias and statistics, which want gradients; of each sample where there are places.
F(f_channel_norm_all) {
    UNUSED;
    nd_auto nd_tensor *mean = nd_mul_scalar(x[1], 0.5);
    nd_auto nd_tensor *variance = nd_square(x[2]);
    return nd_instance_norm(x[0], x[1], x[2], mean, variance, NULL);
}

F(f_cross_entropy) {
    UNUSED;
    const int64_t classes[] = {2, 0, 4};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(3), ND_I64);
    return nd_cross_entropy(x[0], targets);
}

F(f_nll_loss) {
    UNUSED;
    const int64_t classes[] = {2, 0, 4};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(3), ND_I64);
    return nd_nll_loss(x[0], targets, NULL, 0, ND_REDUCTION_MEAN);
}

/// Of places, each by itself, with weights that want no gradient.
F(f_nll_loss_each) {
    UNUSED;
    const int64_t classes[] = {2, 0, 1, 1, 2, 0};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(2, 3), ND_I64);
    nd_auto nd_tensor *weight = nd_arange(1, 4, 1, nd_get_dtype(x[0]));
    return nd_nll_loss(x[0], targets, weight, -1, ND_REDUCTION_NONE);
}

/// With weights that want one.
F(f_nll_loss_weights) {
    UNUSED;
    const int64_t classes[] = {2, 0, 4};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(3), ND_I64);
    return nd_nll_loss(x[0], targets, x[1], -1, ND_REDUCTION_MEAN);
}

REDUCTION(mse_loss, nd_mse_loss(x[0], x[1]))
REDUCTION(l1_loss, nd_l1_loss(x[0], x[1], ND_REDUCTION_SUM))
REDUCTION(smooth_l1_loss, nd_smooth_l1_loss(x[0], x[1], 0.8, ND_REDUCTION_NONE))
REDUCTION(huber_loss, nd_huber_loss(x[0], x[1], 0.8, ND_REDUCTION_MEAN))
REDUCTION(bce_with_logits, nd_bce_with_logits(x[0], x[1], NULL, NULL, ND_REDUCTION_MEAN))
REDUCTION(kl_div, nd_kl_div(x[0], x[1], false, ND_REDUCTION_BATCH_MEAN))
REDUCTION(kl_div_logarithms, nd_kl_div(x[0], x[1], true, ND_REDUCTION_NONE))
#endif
