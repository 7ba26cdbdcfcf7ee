// Normalisation against PyTorch and against differences; running statistics; what is refused.
#include "tests/unit/ops/torch_case.h"

TORCH_FUNCTION(layer_norm) {
    (void)count, (void)data;
    return nd_layer_norm(x[0], x[1], x[2], 1e-3, 2);
}
TORCH_FUNCTION(layer_norm_plain) {
    (void)count, (void)data;
    return nd_layer_norm(x[0], NULL, NULL, 1e-5, 1);
}
TORCH_FUNCTION(rms_norm) {
    (void)count, (void)data;
    return nd_rms_norm(x[0], x[1], 1e-3, 1);
}
TORCH_FUNCTION(group_norm) {
    (void)count, (void)data;
    return nd_group_norm(x[0], x[1], x[2], 2, 1e-3);
}

/// Momentum, epsilon, training.
static const nd_batch_norm_options *options_of(double momentum, double epsilon, bool training) {
    static nd_batch_norm_options options;
    options = (nd_batch_norm_options)ND_BATCH_NORM_OPTIONS_INIT;
    options.momentum = momentum;
    options.epsilon = epsilon;
    options.training = training;
    return &options;
}

/// wave(6)^2 + 0.5: [2]
static nd_tensor *running_variance(void) {
    nd_auto nd_tensor *root = wave(6, ND_SHAPE(2));
    nd_auto nd_tensor *square = nd_square(root);
    return nd_add_scalar(square, 0.5);
}

TORCH_FUNCTION(batch_norm_training) {
    (void)count, (void)data;
    return nd_batch_norm(x[0], x[1], x[2], NULL, NULL, options_of(0.1, 1e-3, true));
}
TORCH_FUNCTION(batch_norm_eval) {
    (void)count, (void)data;
    nd_auto nd_tensor *mean = wave(5, ND_SHAPE(2));
    nd_auto nd_tensor *variance = running_variance();
    return nd_batch_norm(x[0], x[1], x[2], mean, variance, options_of(0.1, 1e-3, false));
}
TORCH_FUNCTION(instance_norm) {
    (void)count, (void)data;
    return nd_instance_norm(x[0], x[1], x[2], NULL, NULL, options_of(0.1, 1e-3, true));
}

typedef nd_tensor *norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                        nd_tensor *running_mean, nd_tensor *running_var,
                        const nd_batch_norm_options *options);

/// [mean, variance] after one batch.
static nd_tensor *after_batch(norm *function, const nd_tensor *x) {
    nd_auto nd_tensor *mean = wave(5, ND_SHAPE(2));
    nd_auto nd_tensor *variance = running_variance();
    nd_auto nd_tensor *y = function(x, NULL, NULL, mean, variance, options_of(0.3, 1e-5, true));
    assert_handle(y);
    assert_false(nd_requires_grad(mean));
    const nd_tensor *both[] = {mean, variance};
    return nd_concat(2, both, 0);
}
TORCH_FUNCTION(batch_norm_running) {
    (void)count, (void)data;
    return after_batch(nd_batch_norm, x[0]);
}
TORCH_FUNCTION(instance_norm_running) {
    (void)count, (void)data;
    return after_batch(nd_instance_norm, x[0]);
}

static void test_norms_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(layer_norm, 3, {3, {3, 2, 4}}, {2, {2, 4}}, {2, {2, 4}}),
        TORCH_CASE(layer_norm_plain, 1, {2, {2, 5}}),
        TORCH_CASE(rms_norm, 2, {2, {3, 4}}, {1, {4}}),
        TORCH_CASE(group_norm, 3, {3, {2, 4, 3}}, {1, {4}}, {1, {4}}),
        TORCH_CASE(batch_norm_training, 3, {4, {3, 2, 2, 2}}, {1, {2}}, {1, {2}}),
        TORCH_CASE(batch_norm_eval, 3, {3, {3, 2, 2}}, {1, {2}}, {1, {2}}),
        TORCH_CASE(instance_norm, 3, {3, {2, 3, 4}}, {1, {3}}, {1, {3}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static void test_running_statistics_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(batch_norm_running, 1, {3, {4, 2, 3}}),
        TORCH_CASE(instance_norm_running, 1, {3, {3, 2, 4}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], true);
}

/// Outside training running statistics are read only, and x's own are used where there are none.
static void test_batch_norm_modes(void **state) {
    (void)state;
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(4, 2, 3));
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(2), ND_F64);
    nd_auto nd_tensor *variance = nd_ones(ND_SHAPE(2), ND_F64);
    nd_auto nd_tensor *same = nd_batch_norm(x, NULL, NULL, mean, variance, options_of(0.5, 0, 0));
    assert_handle(same);
    for (int64_t i = 0; i < 24; i++)
        assert_true(at_flat(same, i) == at_flat(x, i));
    assert_true(nd_get_version(mean) == 0 && nd_get_version(variance) == 0);
    nd_auto nd_tensor *own = nd_batch_norm(x, NULL, NULL, NULL, NULL, NULL);
    nd_auto nd_tensor *trained = nd_batch_norm(x, NULL, NULL, NULL, NULL, options_of(1, 1e-5, 1));
    for (int64_t i = 0; i < 24; i++)
        assert_true(at_flat(own, i) == at_flat(trained, i));
    // Momentum 1 forgets; momentum 0 learns nothing.
    nd_auto nd_tensor *learned = nd_batch_norm(x, NULL, NULL, mean, variance, options_of(0, 0, 1));
    assert_handle(learned);
    assert_true(at_flat(mean, 1) == 0 && at_flat(variance, 1) == 1);
    nd_auto nd_tensor *next = nd_batch_norm(x, NULL, NULL, mean, variance, options_of(1, 0, 1));
    nd_auto nd_tensor *true_mean = nd_mean(x, 2, (const int[]){0, 2}, false);
    nd_auto nd_tensor *true_var = nd_var(x, 2, (const int[]){0, 2}, 1.0, false);
    assert_handle(next);
    for (int64_t i = 0; i < 2; i++) {
        assert_close("mean", at_flat(mean, i), at_flat(true_mean, i), 1e-14, 0);
        assert_close("variance", at_flat(variance, i), at_flat(true_var, i), 1e-14, 0);
    }
}

static void test_norms_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(0, 2, 3), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *variance = nd_ones(ND_SHAPE(2), ND_F32);
    assert_ok(nd_set_requires_grad(weight, true));
    nd_tensor *results[] = {
        nd_layer_norm(x, NULL, NULL, 1e-5, 2),
        nd_rms_norm(x, NULL, 1e-5, 1),
        nd_group_norm(x, weight, NULL, 2, 1e-5),
        nd_instance_norm(x, weight, NULL, NULL, NULL, NULL),
        nd_batch_norm(x, weight, NULL, mean, variance, options_of(0.1, 1e-5, true)),
    };
    for (size_t i = 0; i < COUNT_OF(results); i++) {
        assert_handle(results[i]);
        assert_shape(results[i], ND_SHAPE(0, 2, 3));
    }
    assert_true(at_flat(mean, 0) == 0 && at_flat(variance, 1) == 1);
    nd_auto nd_tensor *sum = nd_sum(results[4], 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_true(at_flat(nd_get_grad(weight), 0) == 0);
    for (size_t i = 0; i < COUNT_OF(results); i++)
        nd_release(results[i]);
}

/// An expanded x, whose rows are one row in memory, and axes of size 1 with odd strides.
static void test_norms_of_expanded(void **state) {
    (void)state;
    nd_auto nd_tensor *row = wave(0, ND_SHAPE(1, 2, 4));
    nd_auto nd_tensor *x = nd_expand(row, ND_SHAPE(3, 2, 4));
    nd_auto nd_tensor *dense = nd_clone(x);
    nd_auto nd_tensor *odd =
        nd_as_strided(row, 3, (const int64_t[]){1, 2, 4}, (const int64_t[]){7, 4, 1}, 0);
    nd_auto nd_tensor *of_view = nd_batch_norm(x, NULL, NULL, NULL, NULL, NULL);
    nd_auto nd_tensor *of_dense = nd_batch_norm(dense, NULL, NULL, NULL, NULL, NULL);
    nd_auto nd_tensor *grouped = nd_group_norm(x, NULL, NULL, 2, 1e-5);
    nd_auto nd_tensor *of_odd = nd_group_norm(odd, NULL, NULL, 2, 1e-5);
    nd_auto nd_tensor *by_instance = nd_instance_norm(dense, NULL, NULL, NULL, NULL, NULL);
    for (int64_t i = 0; i < 24; i++) {
        assert_close("expanded", at_flat(of_view, i), at_flat(of_dense, i), 1e-13, 1e-13);
        assert_close("groups of one channel", at_flat(grouped, i), at_flat(by_instance, i), 1e-13,
                     1e-13);
        assert_close("odd strides", at_flat(of_odd, i % 8), at_flat(grouped, i), 1e-13, 1e-13);
    }
}

static void test_norms_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 4, 3), ND_F32);
    nd_auto nd_tensor *pair = nd_ones(ND_SHAPE(2, 4), ND_F32);
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1, 4), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(2, 4), ND_I64);
    nd_auto nd_tensor *four = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(4), ND_F64);
    assert_refused(nd_layer_norm(NULL, NULL, NULL, 0, 1), ND_ERROR_INVALID_ARGUMENT,
                   "layer_norm: x is NULL");
    assert_refused(nd_layer_norm(whole, NULL, NULL, 0, 1), ND_ERROR_DTYPE,
                   "layer_norm: x is int64 and must be of floats");
    assert_refused(nd_layer_norm(x, NULL, NULL, 0, 4), ND_ERROR_INVALID_ARGUMENT,
                   "layer_norm: naxes is 4 and must be 1 ... 3");
    assert_refused(nd_layer_norm(x, NULL, NULL, -1, 1), ND_ERROR_INVALID_ARGUMENT,
                   "layer_norm: epsilon is -1");
    assert_refused(nd_layer_norm(x, four, NULL, 0, 1), ND_ERROR_SHAPE,
                   "layer_norm: weight has shape [4] and must have [3]");
    assert_refused(nd_rms_norm(pair, wide, 0, 1), ND_ERROR_DTYPE,
                   "rms_norm: weight is float64 and x float32");
    assert_refused(nd_group_norm(x, NULL, NULL, 3, 0), ND_ERROR_INVALID_ARGUMENT,
                   "group_norm: groups is 3 and must divide the 4 channels of x");
    assert_refused(nd_group_norm(four, NULL, NULL, 1, 0), ND_ERROR_SHAPE,
                   "group_norm: x has shape [4] and must be [n, c, ...]");
    assert_refused(nd_instance_norm(pair, NULL, NULL, NULL, NULL, NULL), ND_ERROR_SHAPE,
                   "instance_norm: x has shape [2, 4] and must be [n, c, ...] with an axis");
    assert_refused(nd_batch_norm(one, NULL, NULL, NULL, NULL, NULL), ND_ERROR_SHAPE,
                   "batch_norm: x has shape [1, 4], so that each mean is of one element");
    assert_refused(nd_batch_norm(x, NULL, NULL, four, NULL, NULL), ND_ERROR_INVALID_ARGUMENT,
                   "batch_norm: running_var is NULL and running_mean is not");
    assert_refused(nd_batch_norm(x, NULL, NULL, four, four, NULL), ND_ERROR_INVALID_ARGUMENT,
                   "batch_norm: running_mean and running_var are one tensor");
    assert_refused(nd_batch_norm(x, NULL, NULL, four, wide, NULL), ND_ERROR_DTYPE,
                   "batch_norm: running_var is float64");
    assert_refused(nd_batch_norm(x, NULL, NULL, four, other, options_of(1.5, 0, true)),
                   ND_ERROR_INVALID_ARGUMENT, "batch_norm: momentum is 1.5");
    nd_batch_norm_options unversioned = {0};
    assert_refused(nd_batch_norm(x, NULL, NULL, four, other, &unversioned),
                   ND_ERROR_INVALID_ARGUMENT, "batch_norm: a struct of size 0");
    assert_true(at_flat(four, 0) == 1);
}

/// Where they are columns of a matrix each operation is a call of its own; else a chain does all.
static void test_running_statistics_wherever_they_lie(void **state) {
    (void)state;
    static const double momenta[] = {0.1, 0.37, 1, 0};
    for (size_t i = 0; i < 4; i++) {
        nd_auto nd_tensor *x = nd_randn(nd_key_new(i), ND_SHAPE(6, 19, 5), ND_F32);
        nd_auto nd_tensor *dense = nd_rand(nd_key_new(i + 9), ND_SHAPE(2, 19), ND_F32);
        nd_auto nd_tensor *turned = nd_transpose(dense, 0, 1);
        nd_auto nd_tensor *columns = nd_contiguous(turned);
        nd_tensor *mean[] = {nd_select(dense, 0, 0), nd_select(columns, 0, 1)};
        nd_tensor *var[] = {nd_select(dense, 1, 0), nd_select(columns, 1, 1)};
        for (int k = 0; k < 2; k++) {
            nd_auto nd_tensor *y =
                nd_batch_norm(x, NULL, NULL, mean[k], var[k], options_of(momenta[i], 1e-5, true));
            assert_handle(y);
        }
        for (int64_t c = 0; c < 19; c++) {
            assert_true(at_flat(mean[0], c) == at_flat(mean[1], c));
            assert_true(at_flat(var[0], c) == at_flat(var[1], c));
        }
        for (int k = 0; k < 2; k++) {
            nd_release(mean[k]);
            nd_release(var[k]);
        }
    }
}

/// Whatever there is no room for: the running statistics are written when all else has succeeded.
static void test_F42_a_refused_batch_norm_has_written_no_statistics(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F16};
    for (size_t i = 0; i < 2; i++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "batch norm");
        nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(3), ND_F32);
        nd_auto nd_tensor *var = nd_ones(ND_SHAPE(3), ND_F32);
        nd_auto nd_tensor *wide = nd_randn(nd_key_new(1), ND_SHAPE(4, 3, 2), ND_F32);
        nd_auto nd_tensor *x = nd_cast(wide, dtypes[i]), *y = NULL;
        assert_ok(nd_set_requires_grad(x, true));
        int refused = 0;
        for (; !y; refused += y == NULL) {
            assert_true(refused < 100);
            assert_ok(nd_manager_set_cap(manager, nd_manager_get_total_objects(manager) + 1 +
                                                      (uint64_t)refused));
            nd_with_manager(manager) {
                nd_auto nd_tensor *held = nd_ones(ND_SHAPE(1), ND_F32); // 0 would be no cap
                y = nd_batch_norm(x, NULL, NULL, mean, var, options_of(0.5, 1e-5, true));
            }
            for (int64_t c = 0; c < 3 && !y; c++)
                assert_true(at_flat(mean, c) == 0 && at_flat(var, c) == 1);
            assert_true(y || nd_error_get_status() == ND_ERROR_QUOTA);
            nd_error_clear();
        }
        assert_true(refused > 2 && at_flat(mean, 0) != 0);
    }
}

/// Which norm; RMS has no bias, GIVEN is a batch norm by running statistics.
enum { LAYER, RMS, GROUP, INSTANCE, BATCH, GIVEN, KINDS };
typedef struct narrow_case {
    int64_t samples, channels, places, groups;
} narrow_case;

static nd_tensor *norm_of_kind(int kind, const nd_tensor *x, const nd_tensor *weight,
                               const nd_tensor *bias, int64_t groups, nd_tensor *mean,
                               nd_tensor *var) {
    nd_auto nd_tensor *factors = NULL, *added = NULL;
    const int last = nd_get_ndim(x) - 1;
    if (kind == LAYER || kind == RMS) {
        const int64_t size = nd_get_size(x, last);
        factors = weight ? nd_full(ND_SHAPE(size), 1.25, ND_F32) : NULL;
        added = bias ? nd_full(ND_SHAPE(size), 0.375, ND_F32) : NULL;
        return kind == LAYER ? nd_layer_norm(x, factors, added, 1e-5, 1)
                             : nd_rms_norm(x, factors, 1e-5, 1);
    }
    if (kind == GROUP)
        return nd_group_norm(x, weight, bias, groups, 1e-5);
    const nd_batch_norm_options *o = options_of(0.25, 1e-5, kind != GIVEN);
    return kind == INSTANCE ? nd_instance_norm(x, weight, bias, mean, var, o)
                            : nd_batch_norm(x, weight, bias, mean, var, o);
}

static nd_tensor *grad_of_squares(const nd_tensor *y, const nd_tensor *x) {
    nd_auto nd_tensor *wide = nd_cast(y, ND_F32);
    nd_auto nd_tensor *squares = nd_square(wide);
    nd_auto nd_tensor *loss = nd_sum(squares, 0, NULL, false);
    nd_tensor *gradient = NULL;
    assert_ok(nd_grad(loss, 1, &x, NULL, &gradient));
    return gradient;
}

static void assert_equal_bits(const nd_tensor *x, const nd_tensor *y) {
    assert_int_equal(nd_get_dtype(x), nd_get_dtype(y));
    assert_memory_equal(nd_get_data(x), nd_get_data(y),
                        (size_t)nd_get_numel(y) * nd_dtype_get_size(nd_get_dtype(y)));
}

static void check_narrow_norm(int kind, narrow_case c, nd_dtype dtype, bool with_parameters) {
    const bool flat = c.places == 1 && kind != INSTANCE;
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(5), flat ? 2 : 3,
                                        (const int64_t[]){c.samples, c.channels, c.places}, ND_F32);
    nd_auto nd_tensor *x = nd_cast(drawn, dtype), *wide = nd_cast(x, ND_F32);
    nd_auto nd_tensor *weight = nd_rand(nd_key_new(6), ND_SHAPE(c.channels), ND_F32);
    nd_auto nd_tensor *bias = nd_rand(nd_key_new(7), ND_SHAPE(c.channels), ND_F32);
    nd_tensor *mean[2], *var[2];
    nd_tensor *result[2], *gradient[2];
    for (int k = 0; k < 2; k++) {
        const nd_tensor *of = k ? wide : x;
        mean[k] = nd_zeros(ND_SHAPE(c.channels), ND_F32);
        var[k] = nd_ones(ND_SHAPE(c.channels), ND_F32);
        assert_ok(nd_set_requires_grad((nd_tensor *)(uintptr_t)of, true));
        nd_auto nd_tensor *y =
            norm_of_kind(kind, of, with_parameters ? weight : NULL, with_parameters ? bias : NULL,
                         c.groups, mean[k], var[k]);
        assert_handle(y);
        result[k] = nd_cast(y, dtype);
        nd_auto nd_tensor *of_x = grad_of_squares(result[k], of);
        gradient[k] = nd_cast(of_x, dtype);
    }
    assert_equal_bits(result[0], result[1]);
    assert_equal_bits(gradient[0], gradient[1]);
    assert_equal_bits(mean[0], mean[1]);
    assert_equal_bits(var[0], var[1]);
    for (int k = 0; k < 2; k++) {
        nd_release(mean[k]);
        nd_release(var[k]);
        nd_release(result[k]);
        nd_release(gradient[k]);
    }
}

/// 16-bit floats as f32 that are rounded at the end: sets of all sizes, of rows, channels and columns,
/// also larger than what is brought together at once.
static void test_norms_of_16_bit_floats(void **state) {
    (void)state;
    static const narrow_case cases[] = {{3, 4, 5, 2},    {5, 300, 1, 3}, {1030, 3, 1, 1},
                                        {2, 6, 700, 3},  {70, 2, 33, 1}, {1, 8, 2500, 4},
                                        {600, 12, 7, 12}};
    const int threads = nd_get_num_threads();
    for (int count = 1; count <= 3; count++) {
        assert_ok(nd_set_num_threads(count));
        for (size_t i = 0; i < COUNT_OF(cases); i++)
            for (int kind = 0; kind < KINDS; kind++) {
                if (kind == INSTANCE && cases[i].places == 1)
                    continue;
                check_narrow_norm(kind, cases[i], ND_BF16, count != 2);
                check_narrow_norm(kind, cases[i], ND_F16, count == 2);
            }
    }
    nd_set_num_threads(threads);
    check_narrow_norm(LAYER, (narrow_case){1, 2, (1 << 20) + 1, 1}, ND_BF16, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_norms_as_in_pytorch),
        ND_TEST(test_running_statistics_as_in_pytorch),
        ND_TEST(test_batch_norm_modes),
        ND_TEST(test_norms_of_nothing),
        ND_TEST(test_norms_of_expanded),
        ND_TEST(test_norms_refuse),
        ND_TEST(test_norms_of_16_bit_floats),
        ND_TEST(test_running_statistics_wherever_they_lie),
        ND_TEST(test_F42_a_refused_batch_norm_has_written_no_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
