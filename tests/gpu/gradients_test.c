// Gradients on ND_CUDA beside the same on ND_CPU, of what a device has kernels of its own for: norms, softmax
// and cross entropy of 16-bit floats, attention, recurrent nets, convolutions, dropout; of first and of second
// order.
//
// A case is a function of a few leaves. Its result times fixed numbers, added up, is what is
// differentiated; the result and each leaf's gradient must agree within rounding.
#include "tests/elements.h"
#include "tests/gpu/gpu.h"
#include "tests/windows.h"
#include <math.h>

#define MOST_LEAVES 3

typedef struct gradient_case {
    const char *name;
    nd_tensor *(*run)(nd_tensor *const *x); ///< the leaves, and after them the extra tensor
    int leaves;
    struct {
        int ndim;
        int64_t shape[4];
    } of[MOST_LEAVES];
    nd_tensor *(*extra)(void); ///< a constant, made on the CPU, or NULL
    bool wide_parameters;      ///< leaves but the first are f32 beside halves
    double tolerance;          ///< in units of that of the dtype
    bool once;                 ///< no second order
} gradient_case;

// ------------------------------------------------------------------------------------------------
// cases

static nd_tensor *run_layer_norm(nd_tensor *const *x) {
    return nd_layer_norm(x[0], x[1], x[2], 1e-5, 1);
}
static nd_tensor *run_layer_norm_of_turned(nd_tensor *const *x) {
    nd_auto nd_tensor *turned = nd_transpose(x[0], 0, 1);
    return nd_layer_norm(turned, NULL, NULL, 1e-5, 1);
}
static nd_tensor *run_rms_norm(nd_tensor *const *x) {
    return nd_rms_norm(x[0], x[1], 1e-5, 1);
}
static nd_tensor *run_group_norm(nd_tensor *const *x) {
    return nd_group_norm(x[0], x[1], x[2], 2, 1e-5);
}
static nd_tensor *run_batch_norm(nd_tensor *const *x) {
    return nd_batch_norm(x[0], x[1], x[2], NULL, NULL, NULL);
}
/// Of statistics that are given.
static nd_tensor *statistics(void) {
    nd_auto nd_tensor *numbers = nd_rand(nd_key_new(35), ND_SHAPE(2, 6), ND_F32);
    return nd_add_scalar(numbers, 0.25);
}
static nd_tensor *run_batch_norm_of_given(nd_tensor *const *x) {
    nd_auto nd_tensor *mean = nd_select(x[3], 0, 0), *var = nd_select(x[3], 1, 0);
    nd_auto nd_tensor *like = nd_detach(x[1]);
    nd_auto nd_tensor *own_mean = nd_cast(mean, nd_get_dtype(like));
    nd_auto nd_tensor *own_var = nd_cast(var, nd_get_dtype(like));
    return nd_batch_norm(x[0], x[1], x[2], own_mean, own_var, NULL);
}
static nd_tensor *run_instance_norm(nd_tensor *const *x) {
    return nd_instance_norm(x[0], x[1], x[2], NULL, NULL, NULL);
}
/// Windows that overlap, reach beyond the end, and step over elements; and windows of several sizes.
static nd_tensor *run_max_pool(nd_tensor *const *x) {
    return nd_max_pool2d(x[0], POOL_WITH(3, 3, 2, 1, 1, 0, 1, 2));
}
static nd_tensor *run_adaptive_max_pool(nd_tensor *const *x) {
    return nd_adaptive_max_pool2d(x[0], 3, 4);
}
/// Under autocast halves give f32.
#define AUTOCAST(name)                                             \
    static nd_tensor *run_##name##_autocast(nd_tensor *const *x) { \
        nd_tensor *y = NULL;                                       \
        nd_autocast(ND_BF16) y = run_##name(x);                    \
        return y;                                                  \
    }
AUTOCAST(layer_norm)
AUTOCAST(layer_norm_of_turned)
AUTOCAST(rms_norm)
AUTOCAST(group_norm)
AUTOCAST(batch_norm)
AUTOCAST(batch_norm_of_given)
AUTOCAST(instance_norm)
/// x itself wants no gradient.
static nd_tensor *run_norm_of_constant(nd_tensor *const *x) {
    nd_auto nd_tensor *constant = nd_detach(x[0]);
    nd_auto nd_tensor *y = nd_layer_norm(constant, x[1], x[2], 1e-5, 1);
    return nd_mul(y, x[0]);
}

static nd_tensor *labels(void) {
    return nd_randint(nd_key_new(31), 0, 80, ND_SHAPE(12), ND_I64);
}
static nd_tensor *run_cross_entropy(nd_tensor *const *x) {
    return nd_cross_entropy(x[0], x[1]);
}
static nd_tensor *run_cross_entropy_of_slice(nd_tensor *const *x) {
    nd_auto nd_tensor *part = nd_slice(x[0], 0, 160, 2, 1);
    return nd_cross_entropy(part, x[1]);
}

static nd_tensor *attend(nd_tensor *const *x, const nd_tensor *mask, bool causal, double dropout) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    options.dropout = dropout;
    options.key = nd_key_new(8);
    return nd_attention(x[0], x[1], x[2], mask, &options);
}
static nd_tensor *run_attention(nd_tensor *const *x) {
    return attend(x, NULL, false, 0);
}
static nd_tensor *run_attention_causal(nd_tensor *const *x) {
    return attend(x, NULL, true, 0);
}
static nd_tensor *run_attention_dropped(nd_tensor *const *x) {
    return attend(x, NULL, true, 0.25);
}
static nd_tensor *run_attention_masked(nd_tensor *const *x) {
    return attend(x, x[3], false, 0);
}
/// Heads before rows, as they come from one product.
static nd_tensor *run_attention_of_turned(nd_tensor *const *x) {
    nd_tensor *turned[MOST_LEAVES];
    for (int i = 0; i < MOST_LEAVES; i++)
        turned[i] = nd_transpose(x[i], 1, 2);
    nd_tensor *y = attend(turned, NULL, true, 0);
    for (int i = 0; i < MOST_LEAVES; i++)
        nd_release(turned[i]);
    return y;
}
/// Of columns that lie apart.
static nd_tensor *run_attention_of_columns(nd_tensor *const *x) {
    nd_tensor *turned[MOST_LEAVES];
    for (int i = 0; i < MOST_LEAVES; i++)
        turned[i] = nd_transpose(x[i], 0, 1);
    nd_tensor *y = attend(turned, NULL, false, 0);
    for (int i = 0; i < MOST_LEAVES; i++)
        nd_release(turned[i]);
    return y;
}
/// Keys without a gradient.
static nd_tensor *run_attention_of_query(nd_tensor *const *x) {
    nd_auto nd_tensor *key = nd_detach(x[1]);
    return attend((nd_tensor *const[]){x[0], key, x[2]}, NULL, false, 0);
}
/// Every second query of a head sees nothing.
static nd_tensor *bool_mask(void) {
    nd_auto nd_tensor *numbers = nd_rand(nd_key_new(32), ND_SHAPE(2, 2, 20, 37), ND_F32);
    nd_auto nd_tensor *rows = nd_arange(0, 20, 1, ND_F32);
    nd_auto nd_tensor *odd = nd_remainder(rows, nd_tmp(nd_scalar(2, ND_F32)));
    nd_auto nd_tensor *column = nd_reshape(odd, ND_SHAPE(20, 1));
    nd_auto nd_tensor *seen = nd_mul(numbers, column);
    return nd_greater(seen, nd_tmp(nd_scalar(0.3, ND_F32)));
}
static nd_tensor *added_mask(void) {
    return nd_randn(nd_key_new(33), ND_SHAPE(20, 37), ND_F32);
}

static nd_tensor *run_softmax(nd_tensor *const *x) {
    return nd_softmax(x[0], 1);
}
static nd_tensor *run_softmax_of_columns(nd_tensor *const *x) {
    return nd_softmax(x[0], 0);
}
/// Of the first 80 columns, of which every third row keeps nothing.
static nd_tensor *kept(void) {
    nd_auto nd_tensor *numbers = nd_rand(nd_key_new(34), ND_SHAPE(12, 80), ND_F32);
    nd_auto nd_tensor *rows = nd_arange(0, 12, 1, ND_F32);
    nd_auto nd_tensor *left = nd_remainder(rows, nd_tmp(nd_scalar(3, ND_F32)));
    nd_auto nd_tensor *seen = nd_mul(numbers, nd_tmp(nd_reshape(left, ND_SHAPE(12, 1))));
    return nd_greater(seen, nd_tmp(nd_scalar(0.3, ND_F32)));
}
static nd_tensor *run_masked_softmax(nd_tensor *const *x) {
    return nd_masked_softmax(x[0], x[1], 1);
}
/// Along columns, with a mask that is the same in all of them.
static nd_tensor *run_masked_softmax_of_columns(nd_tensor *const *x) {
    nd_auto nd_tensor *mask = nd_slice(x[1], 5, 6, 1, 1);
    return nd_masked_softmax(x[0], mask, 0);
}

static nd_tensor *run_conv2d(nd_tensor *const *x) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.padding[0] = options.padding[1] = 1;
    options.stride[1] = 2;
    return nd_conv2d(x[0], x[1], x[2], &options);
}
static nd_tensor *run_conv1d_in_groups(nd_tensor *const *x) {
    nd_conv1d_options options = ND_CONV1D_OPTIONS_INIT;
    options.groups = 2;
    options.dilation = 2;
    return nd_conv1d(x[0], x[1], NULL, &options);
}
static nd_tensor *run_conv_transpose2d(nd_tensor *const *x) {
    return nd_conv_transpose2d(x[0], x[1], x[2], NULL);
}

static nd_tensor *run_dropout(nd_tensor *const *x) {
    return nd_dropout(x[0], nd_key_new(5), 0.3, true);
}
static nd_tensor *run_dropout_of_turned(nd_tensor *const *x) {
    nd_auto nd_tensor *turned = nd_transpose(x[0], 0, 1);
    nd_auto nd_tensor *y = nd_dropout(turned, nd_key_new(5), 0.6, true);
    return nd_mul(y, turned);
}

/// Everything that a net gives, in a row; the last of them may be NULL.
static nd_tensor *in_a_row(nd_status status, nd_tensor *output, nd_tensor *hidden,
                           nd_tensor *cell) {
    nd_tensor *parts[] = {output, hidden, cell};
    nd_tensor *flat[3] = {0};
    size_t count = cell ? 3 : 2;
    assert_ok(status);
    for (size_t i = 0; i < count; i++)
        flat[i] = nd_flatten(parts[i], 0);
    nd_tensor *row = nd_concat(count, (const nd_tensor *const *)flat, 0);
    for (size_t i = 0; i < count; i++) {
        nd_release(flat[i]);
        nd_release(parts[i]);
    }
    return row;
}
static nd_tensor *run_rnn(nd_tensor *const *x) {
    nd_tensor *output = NULL, *hidden = NULL;
    nd_status status =
        nd_rnn(x[0], NULL, 2, (const nd_tensor *const *)x + 1, NULL, &output, &hidden);
    return in_a_row(status, output, hidden, NULL);
}
static nd_tensor *run_lstm(nd_tensor *const *x) {
    nd_tensor *output = NULL, *hidden = NULL, *cell = NULL;
    nd_status status = nd_lstm(x[0], NULL, NULL, 2, (const nd_tensor *const *)x + 1, NULL, &output,
                               &hidden, &cell);
    return in_a_row(status, output, hidden, cell);
}
/// There and back with the same weights, from a first state.
static nd_tensor *run_gru_both_ways(nd_tensor *const *x) {
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.bidirectional = options.batch_first = true;
    const nd_tensor *const weights[] = {x[1], x[2], x[1], x[2]};
    nd_auto nd_tensor *rows = nd_slice(x[2], 0, 6, 1, 0);
    nd_auto nd_tensor *first = nd_reshape(rows, ND_SHAPE(2, 3, 8));
    nd_tensor *output = NULL, *hidden = NULL;
    nd_status status = nd_gru(x[0], first, 4, weights, &options, &output, &hidden);
    return in_a_row(status, output, hidden, NULL);
}

#define HEADS                                       \
    {                                               \
        {4, {2, 4, 20, 24}}, {4, {2, 2, 37, 24}}, { \
            4, {                                    \
                2, 2, 37, 16                        \
            }                                       \
        }                                           \
    }
#define PLAIN                                       \
    {                                               \
        {4, {2, 2, 20, 24}}, {4, {2, 2, 37, 24}}, { \
            4, {                                    \
                2, 2, 37, 16                        \
            }                                       \
        }                                           \
    }

// clang-format off
static const gradient_case cases[] = {
    {"layer_norm", run_layer_norm, 3, {{2, {5, 72}}, {1, {72}}, {1, {72}}}, NULL, false, 8, false},
    {"layer_norm, parameters of f32", run_layer_norm, 3, {{2, {5, 72}}, {1, {72}}, {1, {72}}}, NULL, true, 8, false},
    {"layer_norm of short rows", run_layer_norm, 3, {{2, {5, 9}}, {1, {9}}, {1, {9}}}, NULL, false, 8, false},
    {"layer_norm of a transpose", run_layer_norm_of_turned, 1, {{2, {70, 3}}}, NULL, false, 8, false},
    {"layer_norm of a constant", run_norm_of_constant, 3, {{2, {5, 72}}, {1, {72}}, {1, {72}}}, NULL, false, 8, true},
    {"rms_norm", run_rms_norm, 2, {{2, {5, 264}}, {1, {264}}}, NULL, false, 8, false},
    {"group_norm", run_group_norm, 3, {{3, {3, 6, 40}}, {1, {6}}, {1, {6}}}, NULL, false, 8, false},
    {"batch_norm", run_batch_norm, 3, {{4, {3, 6, 5, 8}}, {1, {6}}, {1, {6}}}, NULL, false, 8, false},
    {"batch_norm, parameters of f32", run_batch_norm, 3, {{4, {3, 6, 5, 8}}, {1, {6}}, {1, {6}}}, NULL, true, 8, false},
    {"batch_norm in parts", run_batch_norm, 3, {{4, {2, 2, 32, 64}}, {1, {2}}, {1, {2}}}, NULL, false, 16, true},
    {"batch_norm of rows", run_batch_norm, 3, {{2, {50, 6}}, {1, {6}}, {1, {6}}}, NULL, true, 8, false},
    {"batch_norm of given statistics", run_batch_norm_of_given, 3, {{3, {4, 6, 9}}, {1, {6}}, {1, {6}}}, statistics, false, 16, false},
    {"instance_norm", run_instance_norm, 3, {{3, {3, 6, 72}}, {1, {6}}, {1, {6}}}, NULL, false, 8, false},
    {"layer_norm, autocast", run_layer_norm_autocast, 3, {{2, {5, 72}}, {1, {72}}, {1, {72}}}, NULL, true, 8, false},
    {"layer_norm, autocast, all halves", run_layer_norm_autocast, 3, {{2, {5, 72}}, {1, {72}}, {1, {72}}}, NULL, false, 8, false},
    {"layer_norm of odd rows, autocast", run_layer_norm_autocast, 3, {{2, {5, 301}}, {1, {301}}, {1, {301}}}, NULL, true, 8, false},
    {"layer_norm of long rows, autocast", run_layer_norm_autocast, 3, {{2, {2, 40000}}, {1, {40000}}, {1, {40000}}}, NULL, true, 32, true},
    {"layer_norm of a transpose, autocast", run_layer_norm_of_turned_autocast, 1, {{2, {70, 3}}}, NULL, false, 8, false},
    {"rms_norm, autocast", run_rms_norm_autocast, 2, {{2, {5, 264}}, {1, {264}}}, NULL, true, 8, false},
    {"group_norm, autocast", run_group_norm_autocast, 3, {{3, {3, 6, 40}}, {1, {6}}, {1, {6}}}, NULL, true, 8, false},
    {"batch_norm, autocast", run_batch_norm_autocast, 3, {{4, {3, 6, 5, 8}}, {1, {6}}, {1, {6}}}, NULL, true, 8, false},
    {"batch_norm of given statistics, autocast", run_batch_norm_of_given_autocast, 3, {{3, {4, 6, 9}}, {1, {6}}, {1, {6}}}, statistics, true, 16, false},
    {"instance_norm, autocast", run_instance_norm_autocast, 3, {{3, {3, 6, 72}}, {1, {6}}, {1, {6}}}, NULL, true, 8, false},
    {"max_pool2d", run_max_pool, 1, {{4, {2, 3, 9, 11}}}, NULL, false, 8, true},
    {"adaptive_max_pool2d", run_adaptive_max_pool, 1, {{4, {2, 3, 7, 5}}}, NULL, false, 8, true},
    {"cross_entropy", run_cross_entropy, 1, {{2, {12, 80}}}, labels, false, 8, false},
    {"cross_entropy of a slice", run_cross_entropy_of_slice, 1, {{2, {12, 160}}}, labels, false, 8, false},
    {"attention", run_attention, 3, HEADS, NULL, false, 16, false},
    {"attention, causal", run_attention_causal, 3, PLAIN, NULL, false, 16, false},
    {"attention, causal, heads share", run_attention_causal, 3, HEADS, NULL, false, 16, false},
    {"attention, dropped", run_attention_dropped, 3, HEADS, NULL, false, 16, false},
    {"attention, masked", run_attention_masked, 3, PLAIN, bool_mask, false, 16, false},
    {"attention, mask added", run_attention_masked, 3, HEADS, added_mask, false, 16, false},
    {"attention without heads", run_attention, 3, {{2, {33, 40}}, {2, {17, 40}}, {2, {17, 128}}}, NULL, false, 16, false},
    {"attention of long rows", run_attention, 3, {{2, {9, 200}}, {2, {17, 200}}, {2, {17, 8}}}, NULL, false, 16, false},
    {"attention of transposes", run_attention_of_turned, 3, {{4, {1, 20, 2, 16}}, {4, {1, 20, 2, 16}}, {4, {1, 20, 2, 16}}}, NULL, false, 16, false},
    {"attention of columns", run_attention_of_columns, 3, {{2, {8, 20}}, {2, {8, 11}}, {2, {8, 11}}}, NULL, false, 16, false},
    {"attention of many queries", run_attention, 3, {{4, {2, 4, 70, 16}}, {4, {2, 2, 33, 16}}, {4, {2, 2, 33, 24}}}, NULL, false, 16, false},
    {"attention of many queries, causal", run_attention_causal, 3, {{3, {3, 65, 64}}, {3, {3, 90, 64}}, {3, {3, 90, 40}}}, NULL, false, 16, false},
    {"attention of many transposes", run_attention_of_turned, 3, {{4, {2, 80, 2, 16}}, {4, {2, 80, 2, 16}}, {4, {2, 80, 2, 16}}}, NULL, false, 16, false},
    {"attention, query alone", run_attention_of_query, 3, PLAIN, NULL, false, 16, true},
    {"softmax", run_softmax, 1, {{2, {12, 80}}}, NULL, false, 8, false},
    {"softmax of odd rows", run_softmax, 1, {{2, {7, 301}}}, NULL, false, 8, false},
    {"softmax of long rows", run_softmax, 1, {{2, {2, 40000}}}, NULL, false, 8, true},
    {"softmax of columns", run_softmax_of_columns, 1, {{2, {40, 9}}}, NULL, false, 8, false},
    {"masked_softmax", run_masked_softmax, 1, {{2, {12, 80}}}, kept, false, 8, false},
    {"masked_softmax of columns", run_masked_softmax_of_columns, 1, {{2, {12, 80}}}, kept, false, 8, false},
    {"rnn", run_rnn, 3, {{3, {4, 3, 6}}, {2, {8, 6}}, {2, {8, 8}}}, NULL, false, 64, false},
    {"lstm", run_lstm, 3, {{3, {4, 3, 6}}, {2, {32, 6}}, {2, {32, 8}}}, NULL, false, 64, false},
    {"gru there and back", run_gru_both_ways, 3, {{3, {3, 4, 6}}, {2, {24, 6}}, {2, {24, 8}}}, NULL, false, 64, false},
    {"conv2d", run_conv2d, 3, {{4, {2, 8, 7, 6}}, {4, {10, 8, 3, 3}}, {1, {10}}}, NULL, false, 32, false},
    {"conv1d in groups", run_conv1d_in_groups, 2, {{3, {3, 16, 21}}, {3, {18, 8, 4}}}, NULL, false, 32, false},
    {"conv2d of one channel", run_conv2d, 3, {{4, {2, 1, 7, 6}}, {4, {3, 1, 3, 3}}, {1, {3}}}, NULL, false, 32, false},
    {"conv_transpose2d", run_conv_transpose2d, 3, {{4, {2, 9, 4, 5}}, {4, {9, 8, 2, 3}}, {1, {8}}}, NULL, false, 32, false},
    {"dropout", run_dropout, 1, {{2, {37, 53}}}, NULL, false, 1, true},
    {"dropout of a transpose", run_dropout_of_turned, 1, {{2, {37, 53}}}, NULL, false, 4, false},
};
// clang-format on

// ------------------------------------------------------------------------------------------------
// comparing

/// Results of 16 bits are rounded once, perhaps on either side of a tie. (The CPU may round the products
/// of recurrent nets of bf16, too.)
static double tolerance_of(nd_dtype dtype) {
    return dtype == ND_F32 ? 4e-6 : dtype == ND_F64 ? 1e-13 : dtype == ND_F16 ? 0x1p-13 : 0x1p-10;
}

static void assert_same(const char *name, const char *what, const nd_tensor *cpu,
                        const nd_tensor *cuda, double units) {
    assert_handle(cpu);
    assert_handle(cuda);
    assert_int_equal(nd_get_device(cuda).kind, ND_CUDA);
    assert_int_equal(nd_get_dtype(cpu), nd_get_dtype(cuda));
    assert_int_equal(nd_get_numel(cpu), nd_get_numel(cuda));
    size_t count = (size_t)nd_get_numel(cpu);
    nd_auto nd_tensor *expected = nd_cast(cpu, ND_F64);
    nd_auto nd_tensor *wide = nd_cast(cuda, ND_F64);
    double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    assert_ok(nd_copy_to_host(expected, a, count * sizeof *a));
    assert_ok(nd_copy_to_host(wide, b, count * sizeof *b));
    double tolerance = units * tolerance_of(nd_get_dtype(cpu));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * fmax(1, fabs(a[i]))))
            fail_msg("%s, %s, %s: element %zu is %.17g on the CPU, %.17g on CUDA", name,
                     nd_dtype_get_name(nd_get_dtype(cpu)), what, i, a[i], b[i]);
    free(a);
    free(b);
}

/// One device's leaves, the result, and their gradients of first and of second order.
typedef struct pass {
    nd_tensor *x[MOST_LEAVES + 1];
    nd_tensor *y;
    nd_tensor *first[MOST_LEAVES], *second[MOST_LEAVES];
} pass;

static void release_pass(pass *p) {
    for (int i = 0; i <= MOST_LEAVES; i++)
        nd_release(p->x[i]);
    nd_release(p->y);
    for (int i = 0; i < MOST_LEAVES; i++) {
        nd_release(p->first[i]);
        nd_release(p->second[i]);
    }
}

static void make_leaves(const gradient_case *c, nd_dtype dtype, nd_device device, pass *p) {
    for (int i = 0; i < c->leaves; i++) {
        nd_auto nd_tensor *numbers =
            nd_randn((nd_key){11, (uint64_t)i}, c->of[i].ndim, c->of[i].shape, ND_F64);
        nd_auto nd_tensor *cast =
            nd_cast(numbers, c->wide_parameters && i > 0 && dtype != ND_F64 ? ND_F32 : dtype);
        p->x[i] = nd_to(cast, device);
        assert_ok(nd_set_requires_grad(p->x[i], true));
    }
    if (c->extra)
        ND_SCOPE {
            nd_auto nd_tensor *made = c->extra();
            assert_handle(made);
            p->x[c->leaves] = nd_to(made, device);
        }
}

/// The sum of a tensor's elements, each times a number of its own.
static nd_tensor *weighted_sum(const nd_tensor *x, uint64_t stream) {
    nd_auto nd_tensor *numbers =
        nd_randn((nd_key){12, stream}, nd_get_ndim(x), nd_get_shape(x), ND_F64);
    nd_auto nd_tensor *cast = nd_cast(numbers, nd_get_dtype(x));
    nd_auto nd_tensor *there = nd_to(cast, nd_get_device(x));
    nd_auto nd_tensor *product = nd_mul(x, there);
    return nd_sum(product, 0, NULL, false);
}

static void differentiate(const gradient_case *c, pass *p) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    const nd_tensor *const *leaves = (const nd_tensor *const *)p->x;
    p->y = c->run(p->x);
    assert_handle(p->y);
    nd_auto nd_tensor *loss = weighted_sum(p->y, 1);
    options.allow_unused = true;
    assert_ok(nd_grad(loss, (size_t)c->leaves, leaves, &options, p->first));
    if (c->once)
        return;
    // The first gradients once more, now recorded, and the gradient of their sum.
    nd_tensor *recorded[MOST_LEAVES] = {0};
    options.create_graph = true;
    assert_ok(nd_grad(loss, (size_t)c->leaves, leaves, &options, recorded));
    nd_tensor *total = NULL;
    for (int i = 0; i < c->leaves; i++) {
        nd_auto nd_tensor *sum = weighted_sum(recorded[i], 2 + (uint64_t)i);
        nd_auto nd_tensor *wide = nd_cast(sum, ND_F64);
        nd_tensor *next = total ? nd_add(total, wide) : nd_retain(wide);
        nd_release(total);
        total = next;
    }
    options.create_graph = false;
    assert_ok(nd_grad(total, (size_t)c->leaves, leaves, &options, p->second));
    nd_release(total);
    for (int i = 0; i < c->leaves; i++)
        nd_release(recorded[i]);
}

static void compare(const gradient_case *c, nd_dtype dtype) {
    pass cpu = {0}, cuda = {0};
    make_leaves(c, dtype, (nd_device){ND_CPU, 0}, &cpu);
    make_leaves(c, dtype, CUDA_DEVICE, &cuda);
    differentiate(c, &cpu);
    differentiate(c, &cuda);
    assert_same(c->name, "the result", cpu.y, cuda.y, c->tolerance);
    for (int i = 0; i < c->leaves; i++) {
        char what[32];
        snprintf(what, sizeof what, "gradient %d", i);
        assert_true(!cpu.first[i] == !cuda.first[i]);
        if (cpu.first[i])
            assert_same(c->name, what, cpu.first[i], cuda.first[i], c->tolerance);
        snprintf(what, sizeof what, "second gradient %d", i);
        assert_true(!cpu.second[i] == !cuda.second[i]);
        // Of second order numbers are as large as they like, and rounded in between.
        if (cpu.second[i])
            assert_same(c->name, what, cpu.second[i], cuda.second[i],
                        (dtype == ND_F32 || dtype == ND_F64 ? 32 : 8) * c->tolerance);
    }
    release_pass(&cpu);
    release_pass(&cuda);
}

static void compare_all(nd_dtype dtype) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(&cases[i], dtype);
}

static void test_gradients_of_f32(void **state) {
    (void)state;
    compare_all(ND_F32);
}
static void test_gradients_of_f64(void **state) {
    (void)state;
    compare_all(ND_F64);
}
static void test_gradients_of_f16(void **state) {
    (void)state;
    compare_all(ND_F16);
}
static void test_gradients_of_bf16(void **state) {
    (void)state;
    compare_all(ND_BF16);
}

/// The mask of attention, which is learned, has a gradient, too.
static void test_gradient_of_a_mask(void **state) {
    (void)state;
    nd_auto nd_tensor *q = nd_randn(nd_key_new(1), ND_SHAPE(2, 9, 8), ND_F32);
    nd_auto nd_tensor *mask = nd_randn(nd_key_new(2), ND_SHAPE(9, 9), ND_F32);
    nd_tensor *grads[2];
    for (int which = 0; which < 2; which++) {
        nd_device device = which ? CUDA_DEVICE : (nd_device){ND_CPU, 0};
        nd_auto nd_tensor *x = nd_to(q, device);
        nd_auto nd_tensor *own = nd_detach(mask);
        nd_auto nd_tensor *added = nd_to(own, device);
        assert_ok(nd_set_requires_grad(added, true));
        nd_auto nd_tensor *y = nd_attention(x, x, x, added, NULL);
        nd_auto nd_tensor *loss = weighted_sum(y, 3);
        assert_ok(nd_grad(loss, 1, (const nd_tensor *const[]){added}, NULL, &grads[which]));
    }
    assert_same("attention", "the mask's gradient", grads[0], grads[1], 16);
    nd_release(grads[0]);
    nd_release(grads[1]);
}

static void assert_node(const nd_tensor *y, const char *name) {
    assert_handle(y);
    assert_string_equal(nd_node_get_name(nd_get_node(y)), name);
}

/// That they are what is compared here, and not what they take the place of.
static void test_kernels_of_16_bits_are_taken(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_F16, ND_BF16};
    for (int i = 0; i < 2; i++) {
        nd_auto nd_tensor *numbers = nd_ones(ND_SHAPE(4, 4, 4), dtypes[i]);
        nd_auto nd_tensor *x = nd_to(numbers, CUDA_DEVICE);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *normal = nd_layer_norm(x, NULL, NULL, 1e-5, 1);
        assert_node(normal, "layer_norm");
        nd_auto nd_tensor *scaled = nd_rms_norm(x, NULL, 1e-5, 2);
        assert_node(scaled, "layer_norm");
        nd_auto nd_tensor *grouped = nd_group_norm(x, NULL, NULL, 2, 1e-5);
        assert_node(grouped, "layer_norm");
        nd_auto nd_tensor *batch = nd_batch_norm(x, NULL, NULL, NULL, NULL, NULL);
        assert_node(batch, "layer_norm");
        nd_auto nd_tensor *dropped = nd_dropout(x, nd_key_new(1), 0.5, true);
        assert_node(dropped, "dropout");
    }
}

/// Running statistics become what the CPU makes of them.
static void check_running_statistics(nd_dtype dtype, nd_dtype of_statistics) {
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = true;
    nd_auto nd_tensor *numbers = nd_randn(nd_key_new(3), ND_SHAPE(7, 6, 5), dtype);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(6), of_statistics), *ones = nd_ones_like(zeros);
    nd_tensor *mean[2], *var[2];
    for (int which = 0; which < 2; which++) {
        nd_device device = which ? CUDA_DEVICE : (nd_device){ND_CPU, 0};
        nd_auto nd_tensor *x = nd_to(numbers, device);
        mean[which] = which ? nd_to(zeros, device) : nd_clone(zeros);
        var[which] = which ? nd_to(ones, device) : nd_clone(ones);
        for (int step = 0; step < 2; step++)
            nd_release(nd_batch_norm(x, NULL, NULL, mean[which], var[which], &options));
        if (dtype == ND_F16)
            nd_autocast(ND_F16)
                nd_release(nd_instance_norm(x, NULL, NULL, mean[which], var[which], &options));
    }
    assert_same("batch_norm", "running_mean", mean[0], mean[1], 8);
    assert_same("batch_norm", "running_var", var[0], var[1], 8);
    for (int which = 0; which < 2; which++) {
        nd_release(mean[which]);
        nd_release(var[which]);
    }
}

/// Of x's dtype, where a device updates them in place, and of f32 beside 16 bits.
static void test_running_statistics(void **state) {
    (void)state;
    check_running_statistics(ND_F32, ND_F32);
    check_running_statistics(ND_F64, ND_F64);
    check_running_statistics(ND_F16, ND_F32);
    check_running_statistics(ND_BF16, ND_F32);
}

/// Nothing of x's size is made but the result: x is read, and kept for the gradient, as it lies.
static void test_autocast_converts_no_whole_tensor(void **state) {
    (void)state;
    enum { COUNT = 16 * 6 * 512 };
    nd_auto nd_tensor *numbers = nd_randn(nd_key_new(6), ND_SHAPE(16, 6, 512), ND_F32);
    nd_auto nd_tensor *narrow = nd_cast(numbers, ND_BF16);
    nd_auto nd_tensor *x = nd_to(narrow, CUDA_DEVICE);
    assert_ok(nd_set_requires_grad(x, true));
    for (int which = 0; which < 5; which++) {
        nd_manager *manager = nd_manager_new(NULL, "norms");
        nd_tensor *y = NULL;
        nd_with_manager(manager) nd_autocast(ND_BF16) {
            y = which == 0   ? nd_layer_norm(x, NULL, NULL, 1e-5, 1)
                : which == 1 ? nd_rms_norm(x, NULL, 1e-5, 1)
                : which == 2 ? nd_group_norm(x, NULL, NULL, 2, 1e-5)
                : which == 3 ? nd_batch_norm(x, NULL, NULL, NULL, NULL, NULL)
                             : nd_instance_norm(x, NULL, NULL, NULL, NULL, NULL);
        }
        assert_handle(y);
        assert_int_equal(nd_get_dtype(y), ND_F32);
        assert_int_equal(nd_manager_get_total_bytes(manager), COUNT * sizeof(float));
        nd_release(y);
        assert_ok(nd_manager_close(manager, NULL));
        nd_release(manager);
    }
}

/// What a convolution of 16 bits takes beside its operands is its result.
static void test_convolutions_convert_no_whole_tensor(void **state) {
    (void)state;
    nd_auto nd_tensor *numbers = nd_randn(nd_key_new(7), ND_SHAPE(4, 8, 64, 64), ND_BF16);
    nd_auto nd_tensor *filters = nd_randn(nd_key_new(8), ND_SHAPE(8, 8, 1, 1), ND_BF16);
    nd_auto nd_tensor *shift = nd_randn(nd_key_new(9), ND_SHAPE(8), ND_BF16);
    nd_auto nd_tensor *x = nd_to(numbers, CUDA_DEVICE);
    nd_auto nd_tensor *weight = nd_to(filters, CUDA_DEVICE);
    nd_auto nd_tensor *bias = nd_to(shift, CUDA_DEVICE);
    nd_manager *manager = nd_manager_new(NULL, "convolutions");
    nd_tensor *y = NULL;
    nd_with_manager(manager) y = nd_conv2d(x, weight, bias, NULL);
    assert_handle(y);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    assert_int_equal(stats.peak_bytes[ND_CUDA], 4 * 8 * 64 * 64 * 2);
    nd_release(y);
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
}

int main(void) {
    int skipped;
    if (!gpu_present(&skipped))
        return skipped;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_gradients_of_f32),
        ND_TEST(test_gradients_of_f64),
        ND_TEST(test_gradients_of_f16),
        ND_TEST(test_gradients_of_bf16),
        ND_TEST(test_gradient_of_a_mask),
        ND_TEST(test_kernels_of_16_bits_are_taken),
        ND_TEST(test_running_statistics),
        ND_TEST(test_autocast_converts_no_whole_tensor),
        ND_TEST(test_convolutions_convert_no_whole_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
