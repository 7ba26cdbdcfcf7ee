// One line per public function that makes objects: the macros behind ND_TRACK_SITES and
// <nd/scoped.h>.
//
// ND_TRACK_SITES: every object made inside the call, also deep inside the library, remembers the
// file and line of the call. Calls nested in the arguments have set and restored the site by the
// time the outer function runs, so each object belongs to the innermost call that made it.
// ND_SCOPED (set by <nd/scoped.h>): a new tensor is handed to the current scope and returned
// borrowed. Tensors only: modules, optimizers, data sets, lists, managers and weak references are
// changed after they are made, and stay owned.
//
// Invariant: every ND_OWNED function of the public headers appears here (tests/behaviour checks).
// Without either switch nothing here is seen and a call is a plain call. Arguments are expanded
// once, so nesting calls does not multiply the text. Never wrapped, because what they return was
// there before: nd_object_retain (nd_retain), nd_edge_take, nd_weak_get, nd_weak_get_tensor,
// nd_list_remove, nd_list_pop, nd_map_remove, nd_get_manager_retained.
#include <nd/nd.h>

#ifndef ND_DETAIL_CALLS_H
#define ND_DETAIL_CALLS_H

// How a call is made, seen from <nd/detail/calls.h> alone. The machinery comes first, then the
// list.
static inline const nd_site *nd__site_enter(const nd_site *site) {
    const nd_site *previous = nd__site;
    nd__site = site;
    return previous;
}
static inline void nd__site_leave(const nd_site *const *previous) {
    nd__site = *previous;
}

// ND__CALL_AT keeps the call the last expression of its block, where the compilers still see what
// happens to the result; the site is restored when the block is left. `n` makes the names unique.
#define ND__CALL_AT(n, function, ...)                                  \
    __extension__({                                                    \
        static const nd_site nd_site_##n = {__FILE__, __LINE__};       \
        const nd_site *nd_previous_site_##n                            \
            __attribute__((__cleanup__(nd__site_leave), __unused__)) = \
                nd__site_enter(&nd_site_##n);                          \
        (function)(__VA_ARGS__);                                       \
    })
#define ND__CALL_NUMBERED(n, function, ...) ND__CALL_AT(n, function, __VA_ARGS__)

// GCC forgets warn_unused_result behind a block; clang remembers it.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((__always_inline__, __warn_unused_result__)) static inline void *
nd__owned(void *object) {
    return object;
}
#define ND__OWNED_CALL(type, call) ND__CAST(type, nd__owned(call))
#else
#define ND__OWNED_CALL(type, call) (call)
#endif

#endif // ND_DETAIL_CALLS_H

// From here on the text may be read twice: <nd/scoped.h> after an <nd/nd.h> with ND_TRACK_SITES.
#undef ND__CALL
#undef ND__NEW_OBJECT
#undef ND__NEW_TENSOR

#ifdef ND_TRACK_SITES
#define ND__CALL(function, ...) ND__CALL_NUMBERED(__COUNTER__, function, __VA_ARGS__)
#define ND__NEW_OBJECT(type, function, ...) \
    ND__OWNED_CALL(type, ND__CALL_NUMBERED(__COUNTER__, function, __VA_ARGS__))
#else
#define ND__CALL(function, ...) (function)(__VA_ARGS__)
#define ND__NEW_OBJECT(type, function, ...) (function)(__VA_ARGS__)
#endif

#ifdef ND_SCOPED
#define ND__NEW_TENSOR(function, ...) \
    ND__CAST(const nd_tensor *, nd_object_tmp(ND__CALL(function, __VA_ARGS__)))
#else
#define ND__NEW_TENSOR(function, ...) ND__NEW_OBJECT(nd_tensor *, function, __VA_ARGS__)
#endif

#ifndef ND__CALLS_LISTED
#define ND__CALLS_LISTED

// What <nd/tensor.h> and <nd/ops.h> define for C, and this list anew.
#undef nd_full
#undef nd_full_like
#undef nd_scalar
#undef nd_arange
#undef nd_add_scalar
#undef nd_mul_scalar
#undef nd_pow_scalar
#undef nd_pad
#undef nd_sub_scalar
#undef nd_div_scalar
#undef nd_leaky_relu
#undef nd_elu
#undef nd_hardtanh
#undef nd_clip
#undef nd_masked_fill
#undef nd_add_scaled_
#undef nd_mul_scalar_
#undef nd_fill_
#undef nd_masked_fill_

// <nd/object.h>
#define nd_object_new(...) ND__NEW_OBJECT(nd_object *, nd_object_new, __VA_ARGS__)
#define nd_object_new_with(...) ND__NEW_OBJECT(nd_object *, nd_object_new_with, __VA_ARGS__)
#define nd_weak_new(...) ND__NEW_OBJECT(nd_weak *, nd_weak_new, __VA_ARGS__)
#define nd_list_new(...) ND__NEW_OBJECT(nd_list *, nd_list_new, __VA_ARGS__)
#define nd_resource_new(...) ND__NEW_OBJECT(nd_resource *, nd_resource_new, __VA_ARGS__)

// <nd/map.h>
#define nd_map_new(...) ND__NEW_OBJECT(nd_map *, nd_map_new, __VA_ARGS__)

// <nd/manager.h>
#define nd_manager_new(...) ND__NEW_OBJECT(nd_manager *, nd_manager_new, __VA_ARGS__)

// <nd/tensor.h>
#define nd_empty(...) ND__NEW_TENSOR(nd_empty, __VA_ARGS__)
#define nd_zeros(...) ND__NEW_TENSOR(nd_zeros, __VA_ARGS__)
#define nd_ones(...) ND__NEW_TENSOR(nd_ones, __VA_ARGS__)
#define nd_full(...) ND__NEW_TENSOR(nd_full, ND__NUMBER_BEFORE_LAST(__VA_ARGS__))
#define nd_scalar(...) ND__NEW_TENSOR(nd_scalar, ND__NUMBER_FIRST(__VA_ARGS__))
#define nd_arange(...) ND__NEW_TENSOR(nd_arange, ND__NUMBERS_BEFORE_LAST(__VA_ARGS__))
#define nd_linspace(...) ND__NEW_TENSOR(nd_linspace, __VA_ARGS__)
#define nd_eye(...) ND__NEW_TENSOR(nd_eye, __VA_ARGS__)
#define nd_from_data(...) ND__NEW_TENSOR(nd_from_data, __VA_ARGS__)
#define nd_wrap(...) ND__NEW_TENSOR(nd_wrap, __VA_ARGS__)
#define nd_empty_like(...) ND__NEW_TENSOR(nd_empty_like, __VA_ARGS__)
#define nd_zeros_like(...) ND__NEW_TENSOR(nd_zeros_like, __VA_ARGS__)
#define nd_ones_like(...) ND__NEW_TENSOR(nd_ones_like, __VA_ARGS__)
#define nd_full_like(...) ND__NEW_TENSOR(nd_full_like, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_rand(...) ND__NEW_TENSOR(nd_rand, __VA_ARGS__)
#define nd_randn(...) ND__NEW_TENSOR(nd_randn, __VA_ARGS__)
#define nd_randint(...) ND__NEW_TENSOR(nd_randint, __VA_ARGS__)
#define nd_randperm(...) ND__NEW_TENSOR(nd_randperm, __VA_ARGS__)
#define nd_reshape(...) ND__NEW_TENSOR(nd_reshape, __VA_ARGS__)
#define nd_permute(...) ND__NEW_TENSOR(nd_permute, __VA_ARGS__)
#define nd_transpose(...) ND__NEW_TENSOR(nd_transpose, __VA_ARGS__)
#define nd_expand(...) ND__NEW_TENSOR(nd_expand, __VA_ARGS__)
#define nd_slice(...) ND__NEW_TENSOR(nd_slice, __VA_ARGS__)
#define nd_select(...) ND__NEW_TENSOR(nd_select, __VA_ARGS__)
#define nd_squeeze(...) ND__NEW_TENSOR(nd_squeeze, __VA_ARGS__)
#define nd_unsqueeze(...) ND__NEW_TENSOR(nd_unsqueeze, __VA_ARGS__)
#define nd_flatten(...) ND__NEW_TENSOR(nd_flatten, __VA_ARGS__)
#define nd_as_strided(...) ND__NEW_TENSOR(nd_as_strided, __VA_ARGS__)
#define nd_detach(...) ND__NEW_TENSOR(nd_detach, __VA_ARGS__)
#define nd_contiguous(...) ND__NEW_TENSOR(nd_contiguous, __VA_ARGS__)
#define nd_clone(...) ND__NEW_TENSOR(nd_clone, __VA_ARGS__)
#define nd_cast(...) ND__NEW_TENSOR(nd_cast, __VA_ARGS__)
#define nd_to(...) ND__NEW_TENSOR(nd_to, __VA_ARGS__)
#define nd_concat(...) ND__NEW_TENSOR(nd_concat, __VA_ARGS__)
#define nd_stack(...) ND__NEW_TENSOR(nd_stack, __VA_ARGS__)

// <nd/ops.h>
#define nd_add(...) ND__NEW_TENSOR(nd_add, __VA_ARGS__)
#define nd_sub(...) ND__NEW_TENSOR(nd_sub, __VA_ARGS__)
#define nd_mul(...) ND__NEW_TENSOR(nd_mul, __VA_ARGS__)
#define nd_div(...) ND__NEW_TENSOR(nd_div, __VA_ARGS__)
#define nd_floor_divide(...) ND__NEW_TENSOR(nd_floor_divide, __VA_ARGS__)
#define nd_remainder(...) ND__NEW_TENSOR(nd_remainder, __VA_ARGS__)
#define nd_pow(...) ND__NEW_TENSOR(nd_pow, __VA_ARGS__)
#define nd_maximum(...) ND__NEW_TENSOR(nd_maximum, __VA_ARGS__)
#define nd_minimum(...) ND__NEW_TENSOR(nd_minimum, __VA_ARGS__)
#define nd_atan2(...) ND__NEW_TENSOR(nd_atan2, __VA_ARGS__)
#define nd_hypot(...) ND__NEW_TENSOR(nd_hypot, __VA_ARGS__)
#define nd_logaddexp(...) ND__NEW_TENSOR(nd_logaddexp, __VA_ARGS__)
#define nd_copysign(...) ND__NEW_TENSOR(nd_copysign, __VA_ARGS__)
#define nd_nextafter(...) ND__NEW_TENSOR(nd_nextafter, __VA_ARGS__)
#define nd_bitwise_and(...) ND__NEW_TENSOR(nd_bitwise_and, __VA_ARGS__)
#define nd_bitwise_or(...) ND__NEW_TENSOR(nd_bitwise_or, __VA_ARGS__)
#define nd_bitwise_xor(...) ND__NEW_TENSOR(nd_bitwise_xor, __VA_ARGS__)
#define nd_bitwise_left_shift(...) ND__NEW_TENSOR(nd_bitwise_left_shift, __VA_ARGS__)
#define nd_bitwise_right_shift(...) ND__NEW_TENSOR(nd_bitwise_right_shift, __VA_ARGS__)
#define nd_equal(...) ND__NEW_TENSOR(nd_equal, __VA_ARGS__)
#define nd_not_equal(...) ND__NEW_TENSOR(nd_not_equal, __VA_ARGS__)
#define nd_less(...) ND__NEW_TENSOR(nd_less, __VA_ARGS__)
#define nd_less_equal(...) ND__NEW_TENSOR(nd_less_equal, __VA_ARGS__)
#define nd_greater(...) ND__NEW_TENSOR(nd_greater, __VA_ARGS__)
#define nd_greater_equal(...) ND__NEW_TENSOR(nd_greater_equal, __VA_ARGS__)
#define nd_logical_and(...) ND__NEW_TENSOR(nd_logical_and, __VA_ARGS__)
#define nd_logical_or(...) ND__NEW_TENSOR(nd_logical_or, __VA_ARGS__)
#define nd_logical_xor(...) ND__NEW_TENSOR(nd_logical_xor, __VA_ARGS__)
#define nd_logical_not(...) ND__NEW_TENSOR(nd_logical_not, __VA_ARGS__)
#define nd_where(...) ND__NEW_TENSOR(nd_where, __VA_ARGS__)
#define nd_add_scalar(...) ND__NEW_TENSOR(nd_add_scalar, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_sub_scalar(...) ND__NEW_TENSOR(nd_sub_scalar, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_mul_scalar(...) ND__NEW_TENSOR(nd_mul_scalar, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_div_scalar(...) ND__NEW_TENSOR(nd_div_scalar, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_pow_scalar(...) ND__NEW_TENSOR(nd_pow_scalar, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_neg(...) ND__NEW_TENSOR(nd_neg, __VA_ARGS__)
#define nd_abs(...) ND__NEW_TENSOR(nd_abs, __VA_ARGS__)
#define nd_sign(...) ND__NEW_TENSOR(nd_sign, __VA_ARGS__)
#define nd_square(...) ND__NEW_TENSOR(nd_square, __VA_ARGS__)
#define nd_exp(...) ND__NEW_TENSOR(nd_exp, __VA_ARGS__)
#define nd_expm1(...) ND__NEW_TENSOR(nd_expm1, __VA_ARGS__)
#define nd_log(...) ND__NEW_TENSOR(nd_log, __VA_ARGS__)
#define nd_log1p(...) ND__NEW_TENSOR(nd_log1p, __VA_ARGS__)
#define nd_log2(...) ND__NEW_TENSOR(nd_log2, __VA_ARGS__)
#define nd_log10(...) ND__NEW_TENSOR(nd_log10, __VA_ARGS__)
#define nd_sqrt(...) ND__NEW_TENSOR(nd_sqrt, __VA_ARGS__)
#define nd_rsqrt(...) ND__NEW_TENSOR(nd_rsqrt, __VA_ARGS__)
#define nd_sin(...) ND__NEW_TENSOR(nd_sin, __VA_ARGS__)
#define nd_cos(...) ND__NEW_TENSOR(nd_cos, __VA_ARGS__)
#define nd_tan(...) ND__NEW_TENSOR(nd_tan, __VA_ARGS__)
#define nd_asin(...) ND__NEW_TENSOR(nd_asin, __VA_ARGS__)
#define nd_acos(...) ND__NEW_TENSOR(nd_acos, __VA_ARGS__)
#define nd_atan(...) ND__NEW_TENSOR(nd_atan, __VA_ARGS__)
#define nd_sinh(...) ND__NEW_TENSOR(nd_sinh, __VA_ARGS__)
#define nd_cosh(...) ND__NEW_TENSOR(nd_cosh, __VA_ARGS__)
#define nd_asinh(...) ND__NEW_TENSOR(nd_asinh, __VA_ARGS__)
#define nd_acosh(...) ND__NEW_TENSOR(nd_acosh, __VA_ARGS__)
#define nd_atanh(...) ND__NEW_TENSOR(nd_atanh, __VA_ARGS__)
#define nd_tanh(...) ND__NEW_TENSOR(nd_tanh, __VA_ARGS__)
#define nd_sigmoid(...) ND__NEW_TENSOR(nd_sigmoid, __VA_ARGS__)
#define nd_relu(...) ND__NEW_TENSOR(nd_relu, __VA_ARGS__)
#define nd_gelu(...) ND__NEW_TENSOR(nd_gelu, __VA_ARGS__)
#define nd_gelu_tanh(...) ND__NEW_TENSOR(nd_gelu_tanh, __VA_ARGS__)
#define nd_silu(...) ND__NEW_TENSOR(nd_silu, __VA_ARGS__)
#define nd_mish(...) ND__NEW_TENSOR(nd_mish, __VA_ARGS__)
#define nd_softplus(...) ND__NEW_TENSOR(nd_softplus, __VA_ARGS__)
#define nd_logsigmoid(...) ND__NEW_TENSOR(nd_logsigmoid, __VA_ARGS__)
#define nd_softsign(...) ND__NEW_TENSOR(nd_softsign, __VA_ARGS__)
#define nd_relu6(...) ND__NEW_TENSOR(nd_relu6, __VA_ARGS__)
#define nd_hardsigmoid(...) ND__NEW_TENSOR(nd_hardsigmoid, __VA_ARGS__)
#define nd_hardswish(...) ND__NEW_TENSOR(nd_hardswish, __VA_ARGS__)
#define nd_hardtanh(...) ND__NEW_TENSOR(nd_hardtanh, ND__NUMBER_SECOND_AND_THIRD(__VA_ARGS__))
#define nd_leaky_relu(...) ND__NEW_TENSOR(nd_leaky_relu, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_elu(...) ND__NEW_TENSOR(nd_elu, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_selu(...) ND__NEW_TENSOR(nd_selu, __VA_ARGS__)
#define nd_erf(...) ND__NEW_TENSOR(nd_erf, __VA_ARGS__)
#define nd_floor(...) ND__NEW_TENSOR(nd_floor, __VA_ARGS__)
#define nd_ceil(...) ND__NEW_TENSOR(nd_ceil, __VA_ARGS__)
#define nd_round(...) ND__NEW_TENSOR(nd_round, __VA_ARGS__)
#define nd_trunc(...) ND__NEW_TENSOR(nd_trunc, __VA_ARGS__)
#define nd_bitwise_invert(...) ND__NEW_TENSOR(nd_bitwise_invert, __VA_ARGS__)
#define nd_isnan(...) ND__NEW_TENSOR(nd_isnan, __VA_ARGS__)
#define nd_isinf(...) ND__NEW_TENSOR(nd_isinf, __VA_ARGS__)
#define nd_isfinite(...) ND__NEW_TENSOR(nd_isfinite, __VA_ARGS__)
#define nd_signbit(...) ND__NEW_TENSOR(nd_signbit, __VA_ARGS__)
#define nd_reciprocal(...) ND__NEW_TENSOR(nd_reciprocal, __VA_ARGS__)
#define nd_clip(...) ND__NEW_TENSOR(nd_clip, ND__NUMBER_SECOND_AND_THIRD(__VA_ARGS__))
#define nd_sum(...) ND__NEW_TENSOR(nd_sum, __VA_ARGS__)
#define nd_mean(...) ND__NEW_TENSOR(nd_mean, __VA_ARGS__)
#define nd_max(...) ND__NEW_TENSOR(nd_max, __VA_ARGS__)
#define nd_min(...) ND__NEW_TENSOR(nd_min, __VA_ARGS__)
#define nd_var(...) ND__NEW_TENSOR(nd_var, __VA_ARGS__)
#define nd_std(...) ND__NEW_TENSOR(nd_std, __VA_ARGS__)
#define nd_prod(...) ND__NEW_TENSOR(nd_prod, __VA_ARGS__)
#define nd_any(...) ND__NEW_TENSOR(nd_any, __VA_ARGS__)
#define nd_all(...) ND__NEW_TENSOR(nd_all, __VA_ARGS__)
#define nd_count_nonzero(...) ND__NEW_TENSOR(nd_count_nonzero, __VA_ARGS__)
#define nd_logsumexp(...) ND__NEW_TENSOR(nd_logsumexp, __VA_ARGS__)
#define nd_norm(...) ND__NEW_TENSOR(nd_norm, __VA_ARGS__)
#define nd_argmax(...) ND__NEW_TENSOR(nd_argmax, __VA_ARGS__)
#define nd_argmin(...) ND__NEW_TENSOR(nd_argmin, __VA_ARGS__)
#define nd_cumsum(...) ND__NEW_TENSOR(nd_cumsum, __VA_ARGS__)
#define nd_cumprod(...) ND__NEW_TENSOR(nd_cumprod, __VA_ARGS__)
#define nd_cummax(...) ND__NEW_TENSOR(nd_cummax, __VA_ARGS__)
#define nd_cummin(...) ND__NEW_TENSOR(nd_cummin, __VA_ARGS__)
#define nd_sum_to(...) ND__NEW_TENSOR(nd_sum_to, __VA_ARGS__)
#define nd_matmul(...) ND__NEW_TENSOR(nd_matmul, __VA_ARGS__)
#define nd_linear(...) ND__NEW_TENSOR(nd_linear, __VA_ARGS__)
#define nd_linear_activation(...) ND__NEW_TENSOR(nd_linear_activation, __VA_ARGS__)
#define nd_softmax(...) ND__NEW_TENSOR(nd_softmax, __VA_ARGS__)
#define nd_log_softmax(...) ND__NEW_TENSOR(nd_log_softmax, __VA_ARGS__)
#define nd_masked_softmax(...) ND__NEW_TENSOR(nd_masked_softmax, __VA_ARGS__)
#define nd_cross_entropy(...) ND__NEW_TENSOR(nd_cross_entropy, __VA_ARGS__)
#define nd_mse_loss(...) ND__NEW_TENSOR(nd_mse_loss, __VA_ARGS__)
#define nd_take(...) ND__NEW_TENSOR(nd_take, __VA_ARGS__)
#define nd_gather(...) ND__NEW_TENSOR(nd_gather, __VA_ARGS__)
#define nd_scatter_add(...) ND__NEW_TENSOR(nd_scatter_add, __VA_ARGS__)
#define nd_one_hot(...) ND__NEW_TENSOR(nd_one_hot, __VA_ARGS__)
#define nd_masked_select(...) ND__NEW_TENSOR(nd_masked_select, __VA_ARGS__)
#define nd_masked_fill(...) ND__NEW_TENSOR(nd_masked_fill, ND__NUMBER_THIRD(__VA_ARGS__))
#define nd_add_(...) ND__CALL(nd_add_, __VA_ARGS__)
#define nd_sub_(...) ND__CALL(nd_sub_, __VA_ARGS__)
#define nd_mul_(...) ND__CALL(nd_mul_, __VA_ARGS__)
#define nd_div_(...) ND__CALL(nd_div_, __VA_ARGS__)
#define nd_add_scaled_(...) ND__CALL(nd_add_scaled_, ND__NUMBER_THIRD(__VA_ARGS__))
#define nd_mul_scalar_(...) ND__CALL(nd_mul_scalar_, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_fill_(...) ND__CALL(nd_fill_, ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_copy_(...) ND__CALL(nd_copy_, __VA_ARGS__)
#define nd_masked_fill_(...) ND__CALL(nd_masked_fill_, ND__NUMBER_THIRD(__VA_ARGS__))

// <nd/out.h>
#include <nd/detail/calls_out.h>

// <nd/manipulation.h>
#define nd_pad(...) ND__NEW_TENSOR(nd_pad, ND__NUMBER_BEFORE_LAST(__VA_ARGS__))
#define nd_flip(...) ND__NEW_TENSOR(nd_flip, __VA_ARGS__)
#define nd_roll(...) ND__NEW_TENSOR(nd_roll, __VA_ARGS__)
#define nd_tril(...) ND__NEW_TENSOR(nd_tril, __VA_ARGS__)
#define nd_triu(...) ND__NEW_TENSOR(nd_triu, __VA_ARGS__)
#define nd_repeat(...) ND__NEW_TENSOR(nd_repeat, __VA_ARGS__)
#define nd_tile(...) ND__NEW_TENSOR(nd_tile, __VA_ARGS__)
#define nd_moveaxis(...) ND__NEW_TENSOR(nd_moveaxis, __VA_ARGS__)
#define nd_split(...) ND__CALL(nd_split, __VA_ARGS__)
#define nd_unstack(...) ND__CALL(nd_unstack, __VA_ARGS__)
#define nd_sliding_window(...) ND__NEW_TENSOR(nd_sliding_window, __VA_ARGS__)
#define nd_diff(...) ND__NEW_TENSOR(nd_diff, __VA_ARGS__)
#define nd_diagonal(...) ND__NEW_TENSOR(nd_diagonal, __VA_ARGS__)
#define nd_trace(...) ND__NEW_TENSOR(nd_trace, __VA_ARGS__)
#define nd_broadcast_arrays(...) ND__CALL(nd_broadcast_arrays, __VA_ARGS__)
#define nd_meshgrid(...) ND__CALL(nd_meshgrid, __VA_ARGS__)

// <nd/indexing.h>
#define nd_index(...) ND__NEW_TENSOR(nd_index, __VA_ARGS__)
#define nd_index_put(...) ND__NEW_TENSOR(nd_index_put, __VA_ARGS__)
#define nd_index_add(...) ND__NEW_TENSOR(nd_index_add, __VA_ARGS__)
#define nd_scatter(...) ND__NEW_TENSOR(nd_scatter, __VA_ARGS__)

// <nd/contraction.h>
#define nd_outer(...) ND__NEW_TENSOR(nd_outer, __VA_ARGS__)
#define nd_tensordot(...) ND__NEW_TENSOR(nd_tensordot, __VA_ARGS__)
#define nd_kron(...) ND__NEW_TENSOR(nd_kron, __VA_ARGS__)
#define nd_vecdot(...) ND__NEW_TENSOR(nd_vecdot, __VA_ARGS__)
#define nd_cross(...) ND__NEW_TENSOR(nd_cross, __VA_ARGS__)
#define nd_einsum(...) ND__NEW_TENSOR(nd_einsum, __VA_ARGS__)

// <nd/sorting.h>
#define nd_sort(...) ND__NEW_TENSOR(nd_sort, __VA_ARGS__)
#define nd_argsort(...) ND__NEW_TENSOR(nd_argsort, __VA_ARGS__)
#define nd_topk(...) ND__CALL(nd_topk, __VA_ARGS__)
#define nd_searchsorted(...) ND__NEW_TENSOR(nd_searchsorted, __VA_ARGS__)
#define nd_nonzero(...) ND__NEW_TENSOR(nd_nonzero, __VA_ARGS__)
#define nd_unique(...) ND__CALL(nd_unique, __VA_ARGS__)
#define nd_quantile(...) ND__NEW_TENSOR(nd_quantile, __VA_ARGS__)
#define nd_median(...) ND__NEW_TENSOR(nd_median, __VA_ARGS__)
#define nd_histogram(...) ND__NEW_TENSOR(nd_histogram, __VA_ARGS__)
#define nd_bincount(...) ND__NEW_TENSOR(nd_bincount, __VA_ARGS__)

// <nd/neural.h>
#define nd_layer_norm(...) ND__NEW_TENSOR(nd_layer_norm, __VA_ARGS__)
#define nd_rms_norm(...) ND__NEW_TENSOR(nd_rms_norm, __VA_ARGS__)
#define nd_group_norm(...) ND__NEW_TENSOR(nd_group_norm, __VA_ARGS__)
#define nd_batch_norm(...) ND__NEW_TENSOR(nd_batch_norm, __VA_ARGS__)
#define nd_instance_norm(...) ND__NEW_TENSOR(nd_instance_norm, __VA_ARGS__)
#define nd_embedding(...) ND__NEW_TENSOR(nd_embedding, __VA_ARGS__)
#define nd_dropout(...) ND__NEW_TENSOR(nd_dropout, __VA_ARGS__)
#define nd_attention(...) ND__NEW_TENSOR(nd_attention, __VA_ARGS__)
#define nd_rnn(...) ND__CALL(nd_rnn, __VA_ARGS__)
#define nd_lstm(...) ND__CALL(nd_lstm, __VA_ARGS__)
#define nd_gru(...) ND__CALL(nd_gru, __VA_ARGS__)
#define nd_l1_loss(...) ND__NEW_TENSOR(nd_l1_loss, __VA_ARGS__)
#define nd_smooth_l1_loss(...) ND__NEW_TENSOR(nd_smooth_l1_loss, __VA_ARGS__)
#define nd_huber_loss(...) ND__NEW_TENSOR(nd_huber_loss, __VA_ARGS__)
#define nd_kl_div(...) ND__NEW_TENSOR(nd_kl_div, __VA_ARGS__)
#define nd_bce_with_logits(...) ND__NEW_TENSOR(nd_bce_with_logits, __VA_ARGS__)
#define nd_nll_loss(...) ND__NEW_TENSOR(nd_nll_loss, __VA_ARGS__)
#define nd_cross_entropy_with(...) ND__NEW_TENSOR(nd_cross_entropy_with, __VA_ARGS__)
#define nd_cosine_similarity(...) ND__NEW_TENSOR(nd_cosine_similarity, __VA_ARGS__)
#define nd_cosine_embedding_loss(...) ND__NEW_TENSOR(nd_cosine_embedding_loss, __VA_ARGS__)

// <nd/convolution.h>
#define nd_conv1d(...) ND__NEW_TENSOR(nd_conv1d, __VA_ARGS__)
#define nd_conv2d(...) ND__NEW_TENSOR(nd_conv2d, __VA_ARGS__)
#define nd_conv3d(...) ND__NEW_TENSOR(nd_conv3d, __VA_ARGS__)
#define nd_conv_transpose1d(...) ND__NEW_TENSOR(nd_conv_transpose1d, __VA_ARGS__)
#define nd_conv_transpose2d(...) ND__NEW_TENSOR(nd_conv_transpose2d, __VA_ARGS__)
#define nd_conv_transpose3d(...) ND__NEW_TENSOR(nd_conv_transpose3d, __VA_ARGS__)

// <nd/pooling.h>
#define nd_max_pool1d(...) ND__NEW_TENSOR(nd_max_pool1d, __VA_ARGS__)
#define nd_max_pool2d(...) ND__NEW_TENSOR(nd_max_pool2d, __VA_ARGS__)
#define nd_max_pool3d(...) ND__NEW_TENSOR(nd_max_pool3d, __VA_ARGS__)
#define nd_max_pool1d_with_indices(...) ND__CALL(nd_max_pool1d_with_indices, __VA_ARGS__)
#define nd_max_pool2d_with_indices(...) ND__CALL(nd_max_pool2d_with_indices, __VA_ARGS__)
#define nd_max_pool3d_with_indices(...) ND__CALL(nd_max_pool3d_with_indices, __VA_ARGS__)
#define nd_avg_pool1d(...) ND__NEW_TENSOR(nd_avg_pool1d, __VA_ARGS__)
#define nd_avg_pool2d(...) ND__NEW_TENSOR(nd_avg_pool2d, __VA_ARGS__)
#define nd_avg_pool3d(...) ND__NEW_TENSOR(nd_avg_pool3d, __VA_ARGS__)
#define nd_adaptive_avg_pool1d(...) ND__NEW_TENSOR(nd_adaptive_avg_pool1d, __VA_ARGS__)
#define nd_adaptive_avg_pool2d(...) ND__NEW_TENSOR(nd_adaptive_avg_pool2d, __VA_ARGS__)
#define nd_adaptive_avg_pool3d(...) ND__NEW_TENSOR(nd_adaptive_avg_pool3d, __VA_ARGS__)
#define nd_adaptive_max_pool1d(...) ND__NEW_TENSOR(nd_adaptive_max_pool1d, __VA_ARGS__)
#define nd_adaptive_max_pool2d(...) ND__NEW_TENSOR(nd_adaptive_max_pool2d, __VA_ARGS__)
#define nd_adaptive_max_pool3d(...) ND__NEW_TENSOR(nd_adaptive_max_pool3d, __VA_ARGS__)
#define nd_global_avg_pool(...) ND__NEW_TENSOR(nd_global_avg_pool, __VA_ARGS__)
#define nd_global_max_pool(...) ND__NEW_TENSOR(nd_global_max_pool, __VA_ARGS__)

// <nd/quantization.h>
#define nd_quantize(...) ND__CALL(nd_quantize, __VA_ARGS__)
#define nd_dequantize(...) ND__NEW_TENSOR(nd_dequantize, __VA_ARGS__)
#define nd_pack_int4(...) ND__NEW_TENSOR(nd_pack_int4, __VA_ARGS__)
#define nd_unpack_int4(...) ND__NEW_TENSOR(nd_unpack_int4, __VA_ARGS__)
#define nd_quantized_linear(...) ND__NEW_TENSOR(nd_quantized_linear, __VA_ARGS__)
#define nd_matmul_integer(...) ND__NEW_TENSOR(nd_matmul_integer, __VA_ARGS__)
// <nd/linalg.h>
#define nd_solve(...) ND__NEW_TENSOR(nd_solve, __VA_ARGS__)
#define nd_solve_triangular(...) ND__NEW_TENSOR(nd_solve_triangular, __VA_ARGS__)
#define nd_inv(...) ND__NEW_TENSOR(nd_inv, __VA_ARGS__)
#define nd_matrix_power(...) ND__NEW_TENSOR(nd_matrix_power, __VA_ARGS__)
#define nd_lstsq(...) ND__NEW_TENSOR(nd_lstsq, __VA_ARGS__)
#define nd_pinv(...) ND__NEW_TENSOR(nd_pinv, __VA_ARGS__)
#define nd_cholesky(...) ND__NEW_TENSOR(nd_cholesky, __VA_ARGS__)
#define nd_qr(...) ND__CALL(nd_qr, __VA_ARGS__)
#define nd_svd(...) ND__CALL(nd_svd, __VA_ARGS__)
#define nd_svdvals(...) ND__NEW_TENSOR(nd_svdvals, __VA_ARGS__)
#define nd_eigh(...) ND__CALL(nd_eigh, __VA_ARGS__)
#define nd_eigvalsh(...) ND__NEW_TENSOR(nd_eigvalsh, __VA_ARGS__)
#define nd_det(...) ND__NEW_TENSOR(nd_det, __VA_ARGS__)
#define nd_slogdet(...) ND__CALL(nd_slogdet, __VA_ARGS__)
#define nd_matrix_rank(...) ND__NEW_TENSOR(nd_matrix_rank, __VA_ARGS__)
#define nd_matrix_norm(...) ND__NEW_TENSOR(nd_matrix_norm, __VA_ARGS__)

// <nd/dlpack.h>
#define nd_from_dlpack(...) ND__NEW_TENSOR(nd_from_dlpack, __VA_ARGS__)
#define nd_from_dlpack_unversioned(...) ND__NEW_TENSOR(nd_from_dlpack_unversioned, __VA_ARGS__)

// <nd/fft.h>
#define nd_fft(...) ND__NEW_TENSOR(nd_fft, __VA_ARGS__)
#define nd_ifft(...) ND__NEW_TENSOR(nd_ifft, __VA_ARGS__)
#define nd_fftn(...) ND__NEW_TENSOR(nd_fftn, __VA_ARGS__)
#define nd_ifftn(...) ND__NEW_TENSOR(nd_ifftn, __VA_ARGS__)
#define nd_rfft(...) ND__NEW_TENSOR(nd_rfft, __VA_ARGS__)
#define nd_irfft(...) ND__NEW_TENSOR(nd_irfft, __VA_ARGS__)
#define nd_rfftn(...) ND__NEW_TENSOR(nd_rfftn, __VA_ARGS__)
#define nd_irfftn(...) ND__NEW_TENSOR(nd_irfftn, __VA_ARGS__)
#define nd_hfft(...) ND__NEW_TENSOR(nd_hfft, __VA_ARGS__)
#define nd_ihfft(...) ND__NEW_TENSOR(nd_ihfft, __VA_ARGS__)
#define nd_fftfreq(...) ND__NEW_TENSOR(nd_fftfreq, __VA_ARGS__)
#define nd_rfftfreq(...) ND__NEW_TENSOR(nd_rfftfreq, __VA_ARGS__)
#define nd_fftshift(...) ND__NEW_TENSOR(nd_fftshift, __VA_ARGS__)
#define nd_ifftshift(...) ND__NEW_TENSOR(nd_ifftshift, __VA_ARGS__)

// <nd/interpolation.h>
#define nd_interpolate(...) ND__NEW_TENSOR(nd_interpolate, __VA_ARGS__)
#define nd_pixel_shuffle(...) ND__NEW_TENSOR(nd_pixel_shuffle, __VA_ARGS__)
#define nd_pixel_unshuffle(...) ND__NEW_TENSOR(nd_pixel_unshuffle, __VA_ARGS__)
#define nd_unfold(...) ND__NEW_TENSOR(nd_unfold, __VA_ARGS__)
#define nd_fold(...) ND__NEW_TENSOR(nd_fold, __VA_ARGS__)

// <nd/autograd.h>
#define nd_set_grad(...) ND__CALL(nd_set_grad, __VA_ARGS__)
#define nd_backward(...) ND__CALL(nd_backward, __VA_ARGS__)
#define nd_grad(...) ND__CALL(nd_grad, __VA_ARGS__)
#define nd_register_hook(...) ND__CALL(nd_register_hook, __VA_ARGS__)
#define nd_add_hook(...) ND__CALL(nd_add_hook, __VA_ARGS__)
#define nd_function_apply(...) ND__CALL(nd_function_apply, __VA_ARGS__)
#define nd_gradcheck(...) ND__CALL(nd_gradcheck, __VA_ARGS__)

// <nd/nn.h>
#define nd_module_new(...) ND__NEW_OBJECT(nd_module *, nd_module_new, __VA_ARGS__)
#define nd_module_forward(...) ND__NEW_TENSOR(nd_module_forward, __VA_ARGS__)
#define nd_linear_module(...) ND__NEW_OBJECT(nd_module *, nd_linear_module, __VA_ARGS__)
#define nd_conv1d_module(...) ND__NEW_OBJECT(nd_module *, nd_conv1d_module, __VA_ARGS__)
#define nd_conv2d_module(...) ND__NEW_OBJECT(nd_module *, nd_conv2d_module, __VA_ARGS__)
#define nd_conv3d_module(...) ND__NEW_OBJECT(nd_module *, nd_conv3d_module, __VA_ARGS__)
#define nd_conv_transpose1d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_conv_transpose1d_module, __VA_ARGS__)
#define nd_conv_transpose2d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_conv_transpose2d_module, __VA_ARGS__)
#define nd_conv_transpose3d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_conv_transpose3d_module, __VA_ARGS__)
#define nd_max_pool1d_module(...) ND__NEW_OBJECT(nd_module *, nd_max_pool1d_module, __VA_ARGS__)
#define nd_max_pool2d_module(...) ND__NEW_OBJECT(nd_module *, nd_max_pool2d_module, __VA_ARGS__)
#define nd_max_pool3d_module(...) ND__NEW_OBJECT(nd_module *, nd_max_pool3d_module, __VA_ARGS__)
#define nd_avg_pool1d_module(...) ND__NEW_OBJECT(nd_module *, nd_avg_pool1d_module, __VA_ARGS__)
#define nd_avg_pool2d_module(...) ND__NEW_OBJECT(nd_module *, nd_avg_pool2d_module, __VA_ARGS__)
#define nd_avg_pool3d_module(...) ND__NEW_OBJECT(nd_module *, nd_avg_pool3d_module, __VA_ARGS__)
#define nd_adaptive_avg_pool1d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_avg_pool1d_module, __VA_ARGS__)
#define nd_adaptive_avg_pool2d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_avg_pool2d_module, __VA_ARGS__)
#define nd_adaptive_avg_pool3d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_avg_pool3d_module, __VA_ARGS__)
#define nd_adaptive_max_pool1d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_max_pool1d_module, __VA_ARGS__)
#define nd_adaptive_max_pool2d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_max_pool2d_module, __VA_ARGS__)
#define nd_adaptive_max_pool3d_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_adaptive_max_pool3d_module, __VA_ARGS__)
#define nd_upsample_module(...) ND__NEW_OBJECT(nd_module *, nd_upsample_module, __VA_ARGS__)
#define nd_pixel_shuffle_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_pixel_shuffle_module, __VA_ARGS__)
#define nd_relu_module(...) ND__NEW_OBJECT(nd_module *, nd_relu_module, __VA_ARGS__)
#define nd_tanh_module(...) ND__NEW_OBJECT(nd_module *, nd_tanh_module, __VA_ARGS__)
#define nd_gelu_module(...) ND__NEW_OBJECT(nd_module *, nd_gelu_module, __VA_ARGS__)
#define nd_function_module(...) ND__NEW_OBJECT(nd_module *, nd_function_module, __VA_ARGS__)
#define nd_flatten_module(...) ND__NEW_OBJECT(nd_module *, nd_flatten_module, __VA_ARGS__)
#define nd_sequential(...) ND__NEW_OBJECT(nd_module *, nd_sequential, __VA_ARGS__)
#define nd_sgd(...) ND__NEW_OBJECT(nd_optimizer *, nd_sgd, __VA_ARGS__)
#define nd_adam(...) ND__NEW_OBJECT(nd_optimizer *, nd_adam, __VA_ARGS__)
#define nd_adamw(...) ND__NEW_OBJECT(nd_optimizer *, nd_adamw, __VA_ARGS__)
#define nd_rmsprop(...) ND__NEW_OBJECT(nd_optimizer *, nd_rmsprop, __VA_ARGS__)
#define nd_adagrad(...) ND__NEW_OBJECT(nd_optimizer *, nd_adagrad, __VA_ARGS__)
#define nd_lion(...) ND__NEW_OBJECT(nd_optimizer *, nd_lion, __VA_ARGS__)
#define nd_step_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_step_schedule, __VA_ARGS__)
#define nd_multi_step_schedule(...) \
    ND__NEW_OBJECT(nd_schedule *, nd_multi_step_schedule, __VA_ARGS__)
#define nd_exponential_schedule(...) \
    ND__NEW_OBJECT(nd_schedule *, nd_exponential_schedule, __VA_ARGS__)
#define nd_cosine_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_cosine_schedule, __VA_ARGS__)
#define nd_linear_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_linear_schedule, __VA_ARGS__)
#define nd_one_cycle_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_one_cycle_schedule, __VA_ARGS__)
#define nd_plateau_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_plateau_schedule, __VA_ARGS__)
#define nd_product_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_product_schedule, __VA_ARGS__)
#define nd_sequence_schedule(...) ND__NEW_OBJECT(nd_schedule *, nd_sequence_schedule, __VA_ARGS__)
#define nd_dropout_module(...) ND__NEW_OBJECT(nd_module *, nd_dropout_module, __VA_ARGS__)
#define nd_batch_norm_module(...) ND__NEW_OBJECT(nd_module *, nd_batch_norm_module, __VA_ARGS__)
#define nd_instance_norm_module(...) \
    ND__NEW_OBJECT(nd_module *, nd_instance_norm_module, __VA_ARGS__)
#define nd_group_norm_module(...) ND__NEW_OBJECT(nd_module *, nd_group_norm_module, __VA_ARGS__)
#define nd_layer_norm_module(...) ND__NEW_OBJECT(nd_module *, nd_layer_norm_module, __VA_ARGS__)
#define nd_rms_norm_module(...) ND__NEW_OBJECT(nd_module *, nd_rms_norm_module, __VA_ARGS__)
#define nd_embedding_module(...) ND__NEW_OBJECT(nd_module *, nd_embedding_module, __VA_ARGS__)
#define nd_attention_module(...) ND__NEW_OBJECT(nd_module *, nd_attention_module, __VA_ARGS__)
#define nd_attention_module_run(...) ND__NEW_TENSOR(nd_attention_module_run, __VA_ARGS__)
#define nd_rnn_module(...) ND__NEW_OBJECT(nd_module *, nd_rnn_module, __VA_ARGS__)
#define nd_lstm_module(...) ND__NEW_OBJECT(nd_module *, nd_lstm_module, __VA_ARGS__)
#define nd_gru_module(...) ND__NEW_OBJECT(nd_module *, nd_gru_module, __VA_ARGS__)
#define nd_recurrent_module_run(...) ND__CALL(nd_recurrent_module_run, __VA_ARGS__)
#define nd_checkpoint(...) ND__NEW_TENSOR(nd_checkpoint, __VA_ARGS__)
#define nd_checkpoint_module(...) ND__NEW_TENSOR(nd_checkpoint_module, __VA_ARGS__)
#define nd_ema_new(...) ND__NEW_OBJECT(nd_ema *, nd_ema_new, __VA_ARGS__)
#define nd_loss_scaler_new(...) ND__NEW_OBJECT(nd_loss_scaler *, nd_loss_scaler_new, __VA_ARGS__)
#define nd_loss_scaler_scale(...) ND__NEW_TENSOR(nd_loss_scaler_scale, __VA_ARGS__)
#define nd_loss_scaler_step(...) ND__CALL(nd_loss_scaler_step, __VA_ARGS__)
#define nd_clip_grad_norm(...) ND__CALL(nd_clip_grad_norm, __VA_ARGS__)
#define nd_clip_grad_value(...) ND__CALL(nd_clip_grad_value, __VA_ARGS__)
#define nd_ema_update(...) ND__CALL(nd_ema_update, __VA_ARGS__)
#define nd_ema_apply(...) ND__CALL(nd_ema_apply, __VA_ARGS__)
#define nd_module_to(...) ND__CALL(nd_module_to, __VA_ARGS__)
#define nd_module_cast(...) ND__CALL(nd_module_cast, __VA_ARGS__)
#define nd_optimizer_step(...) ND__CALL(nd_optimizer_step, __VA_ARGS__)

// <nd/state.h>
#define nd_state_new(...) ND__NEW_OBJECT(nd_state *, nd_state_new, __VA_ARGS__)
#define nd_load_state(...) ND__CALL(nd_load_state, __VA_ARGS__)

// <nd/graph.h>
#define nd_capture_end(...) ND__NEW_OBJECT(nd_graph *, nd_capture_end, __VA_ARGS__)

// <nd/stream.h>
#define nd_stream_new(...) ND__NEW_OBJECT(nd_stream *, nd_stream_new, __VA_ARGS__)
#define nd_event_new(...) ND__NEW_OBJECT(nd_event *, nd_event_new, __VA_ARGS__)

// <nd/gguf.h>
#define nd_gguf_open(...) ND__NEW_OBJECT(nd_gguf *, nd_gguf_open, __VA_ARGS__)
#define nd_gguf_load_array(...) ND__NEW_TENSOR(nd_gguf_load_array, __VA_ARGS__)
#define nd_gguf_load_tensor(...) ND__NEW_TENSOR(nd_gguf_load_tensor, __VA_ARGS__)
#define nd_gguf_load_quantized(...) ND__CALL(nd_gguf_load_quantized, __VA_ARGS__)

// <nd/image.h>
#define nd_load_image(...) ND__NEW_TENSOR(nd_load_image, __VA_ARGS__)
#define nd_decode_image(...) ND__NEW_TENSOR(nd_decode_image, __VA_ARGS__)
#define nd_encode_png(...) ND__NEW_TENSOR(nd_encode_png, __VA_ARGS__)
#define nd_encode_jpeg(...) ND__NEW_TENSOR(nd_encode_jpeg, __VA_ARGS__)

// <nd/io.h>
#define nd_load_idx(...) ND__NEW_TENSOR(nd_load_idx, __VA_ARGS__)
#define nd_load_csv(...) ND__NEW_TENSOR(nd_load_csv, __VA_ARGS__)
#define nd_load_npy(...) ND__NEW_TENSOR(nd_load_npy, __VA_ARGS__)
#define nd_load_npz(...) ND__NEW_OBJECT(nd_map *, nd_load_npz, __VA_ARGS__)
#define nd_load_safetensors(...) ND__NEW_OBJECT(nd_list *, nd_load_safetensors, __VA_ARGS__)
#define nd_load_safetensors_with(...) \
    ND__NEW_OBJECT(nd_list *, nd_load_safetensors_with, __VA_ARGS__)
#define nd_load_safetensors_index(...) \
    ND__NEW_OBJECT(nd_list *, nd_load_safetensors_index, __VA_ARGS__)
#define nd_dataset_new(...) ND__NEW_OBJECT(nd_dataset *, nd_dataset_new, __VA_ARGS__)
#define nd_dataset_open_idx(...) ND__NEW_OBJECT(nd_dataset *, nd_dataset_open_idx, __VA_ARGS__)
#define nd_load_parameters(...) ND__CALL(nd_load_parameters, __VA_ARGS__)
#define nd_dataset_start(...) ND__CALL(nd_dataset_start, __VA_ARGS__)
#define nd_dataset_next_batch(...) ND__CALL(nd_dataset_next_batch, __VA_ARGS__)

#endif // ND__CALLS_LISTED

#ifdef ND_DISTRIBUTED_H
#include <nd/detail/calls_distributed.h>
#endif
