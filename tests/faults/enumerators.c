// F43: an enumerator or a flag that no header names, to every parameter and field that takes one. It
// is refused with a sentence, and nothing is written.
#include "tests/testing.h"
#include <limits.h>
#include <math.h>
#include <nd/gguf.h>
#include <nd/nd.h>

static const int wrong[] = {-2, -1, 14, 99, 1 << 20, INT_MAX, INT_MIN};

#define REFUSED(status)                                                                  \
    do {                                                                                 \
        nd_error_clear();                                                                \
        if ((status) == ND_OK || *nd_error_get_message() == '\0')                        \
            fail_msg("line %d, value %d: not refused with a sentence", __LINE__, value); \
    } while (0)
#define NONE(handle)                                                                     \
    do {                                                                                 \
        nd_error_clear();                                                                \
        nd_tensor *none_ = (handle);                                                     \
        if (none_ || nd_error_get_status() == ND_OK || *nd_error_get_message() == '\0')  \
            fail_msg("line %d, value %d: not refused with a sentence", __LINE__, value); \
    } while (0)

static void try_dtypes(int value, const nd_tensor *x) {
    const nd_dtype dtype = (nd_dtype)value;
    const char *path = "/nonexistent/numbers.csv";
    float data[4] = {0};
    NONE(nd_empty(ND_SHAPE(2), dtype));
    NONE(nd_zeros(ND_SHAPE(2), dtype));
    NONE(nd_ones(ND_SHAPE(2), dtype));
    NONE(nd_full(ND_SHAPE(2), 1, dtype));
    NONE(nd_scalar(1, dtype));
    NONE(nd_arange(0, 4, 1, dtype));
    NONE(nd_linspace(0, 4, 3, dtype));
    NONE(nd_eye(2, dtype));
    NONE(nd_from_data(data, ND_SHAPE(2), dtype));
    NONE(nd_wrap(data, ND_SHAPE(2), dtype, NULL));
    NONE(nd_rand(nd_key_new(1), ND_SHAPE(2), dtype));
    NONE(nd_randn(nd_key_new(1), ND_SHAPE(2), dtype));
    NONE(nd_randint(nd_key_new(1), 0, 4, ND_SHAPE(2), dtype));
    NONE(nd_cast(x, dtype));
    NONE(nd_fftfreq(4, 1, dtype));
    NONE(nd_rfftfreq(4, 1, dtype));
    NONE(nd_load_csv(path, dtype, NULL));
    nd_auto nd_tensor *indices = nd_zeros(ND_SHAPE(2), ND_I64);
    NONE(nd_one_hot(indices, 2, dtype));
    nd_tensor *results[3] = {NULL, NULL, NULL};
    REFUSED(nd_quantize(x, 8, 2, dtype, &results[0], &results[1], &results[2]));
    assert_true(!results[0] && !results[1] && !results[2]);
    nd_auto nd_tensor *values = nd_zeros(ND_SHAPE(2, 2), ND_I8);
    nd_auto nd_tensor *scales = nd_ones(ND_SHAPE(2, 1), ND_F32);
    NONE(nd_dequantize(values, scales, NULL, dtype));
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    REFUSED(nd_module_cast(module, dtype));
    // What has no error: nothing is known of it.
    assert_int_equal(nd_dtype_get_size(dtype), 0);
    assert_non_null(nd_dtype_get_name(dtype));
    assert_false(nd_can_cast(dtype, ND_F32) || nd_can_cast(ND_F32, dtype));
    assert_int_equal(nd_promote_dtypes(dtype, ND_F32), ND_DTYPE_COUNT);
    assert_int_equal(nd_promote_dtypes(ND_F32, dtype), ND_DTYPE_COUNT);
    (void)nd_dtype_get_kind(dtype);
    (void)nd_dtype_get_min(dtype);
    (void)nd_dtype_get_max(dtype);
    (void)nd_dtype_get_epsilon(dtype);
    (void)nd_dtype_get_smallest_normal(dtype);
    nd_error_clear();
    const nd_dtype before = nd_get_autocast_dtype();
    nd_autocast(dtype) {
        assert_int_equal(nd_get_autocast_dtype(), before);
    }
}

static void try_devices(int value, const nd_tensor *x) {
    const nd_device_kind kind = (nd_device_kind)value;
    const nd_device devices[] = {{kind, 0}, {ND_CPU, value}};
    nd_auto nd_manager *manager = nd_manager_new(NULL, "devices");
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    for (int i = 0; i < 2; i++) {
        const nd_device device = devices[i];
        REFUSED(nd_set_default_device(device));
        REFUSED(nd_synchronize(device));
        REFUSED(nd_queue_callback(device, NULL, NULL, x));
        NONE(nd_to(x, device));
        REFUSED(nd_module_to(module, device));
        REFUSED(nd_capture_begin(device));
        REFUSED(nd_memory_set_limit(device, 1));
        nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
        REFUSED(nd_memory_get_device_stats(device, &stats));
        REFUSED(nd_stream_set_current(device, NULL));
        assert_null(nd_stream_new(device));
        assert_null(nd_stream_get_current(device));
        assert_null(nd_event_new(device, false));
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.device = device;
        nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(2), ND_I64);
        nd_dataset *dataset = nd_dataset_new(x, labels, &options);
        assert_null(dataset);
    }
    REFUSED(nd_manager_set_quota(manager, kind, 1));
    REFUSED(nd_memory_set_cache_limit(kind, 1));
    nd_memory_cache_stats cache = ND_MEMORY_CACHE_STATS_INIT;
    REFUSED(nd_memory_get_cache_stats(kind, &cache));
    assert_int_equal(nd_get_device_count(kind), 0);
    assert_int_equal(nd_memory_trim(kind), 0);
    assert_int_equal(nd_memory_get_cached(kind), 0);
    nd_error_clear();
}

static void try_ways(int value, const nd_tensor *x) {
    nd_auto nd_tensor *index = nd_zeros(ND_SHAPE(2, 2), ND_I64);
    nd_auto nd_tensor *targets = nd_zeros(ND_SHAPE(2), ND_I64);
    const nd_fft_norm norm = (nd_fft_norm)value;
    nd_auto nd_tensor *pairs = nd_ones(ND_SHAPE(3, 2), ND_F32);
    NONE(nd_fft(pairs, 0, 0, norm));
    NONE(nd_ifft(pairs, 0, 0, norm));
    NONE(nd_rfft(x, 0, 0, norm));
    NONE(nd_irfft(pairs, 0, 0, norm));
    NONE(nd_hfft(pairs, 0, 0, norm));
    NONE(nd_ihfft(x, 0, 0, norm));
    NONE(nd_fftn(pairs, 0, NULL, NULL, norm));
    NONE(nd_ifftn(pairs, 0, NULL, NULL, norm));
    NONE(nd_rfftn(x, 0, NULL, NULL, norm));
    NONE(nd_irfftn(pairs, 0, NULL, NULL, norm));
    NONE(nd_scatter(x, index, x, 0, (nd_scatter_reduction)value, true));
    NONE(nd_matrix_norm(x, (nd_matrix_norm_kind)value, false));
    NONE(nd_pad(x, 1, ((const int64_t[]){1, 1}), 0, (nd_padding)value));
    nd_tensor *grids[2] = {NULL, NULL};
    const nd_tensor *axes[] = {targets, targets};
    REFUSED(nd_meshgrid(2, axes, (nd_indexing)value, grids));
    assert_true(!grids[0] && !grids[1]);
    const double half = 0.5;
    NONE(nd_quantile(x, 1, &half, (nd_quantile_method)value, 0, NULL, false));
    NONE(nd_linear_activation(x, x, NULL, (nd_activation)value));
    const nd_reduction reduction = (nd_reduction)value;
    NONE(nd_l1_loss(x, x, reduction));
    NONE(nd_smooth_l1_loss(x, x, 1, reduction));
    NONE(nd_huber_loss(x, x, 1, reduction));
    NONE(nd_kl_div(x, x, false, reduction));
    NONE(nd_bce_with_logits(x, x, NULL, NULL, reduction));
    NONE(nd_nll_loss(x, targets, NULL, -100, reduction));
    nd_auto nd_tensor *signs = nd_ones(ND_SHAPE(2), ND_F32);
    NONE(nd_cosine_embedding_loss(x, x, signs, 0, reduction));
    nd_cross_entropy_options entropy = ND_CROSS_ENTROPY_OPTIONS_INIT;
    entropy.reduction = reduction;
    NONE(nd_cross_entropy_with(x, targets, NULL, &entropy));
    nd_auto nd_tensor *image = nd_ones(ND_SHAPE(1, 1, 4), ND_F32);
    nd_interpolate_options interpolate = ND_INTERPOLATE_OPTIONS_INIT;
    interpolate.sizes[0] = 8;
    interpolate.mode = (nd_interpolation)value;
    NONE(nd_interpolate(image, &interpolate));
}

static void try_settings(int value, const nd_tensor *x) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "settings");
    const nd_gc_mode before = nd_gc_get_mode();
    REFUSED(nd_gc_set_mode((nd_gc_mode)value));
    assert_int_equal(nd_gc_get_mode(), before);
    if (value != ND_GC_INHERIT)
        REFUSED(nd_manager_set_gc_mode(manager, (nd_gc_mode)value));
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *optimizer = nd_sgd(module, NULL);
    assert_handle(optimizer);
    REFUSED(nd_optimizer_set_option(optimizer, 0, (nd_optimizer_option)value, 0.5));
    assert_true(isnan(nd_optimizer_get_option(optimizer, 0, (nd_optimizer_option)value)));
    const nd_number number = {.kind = (nd_number_kind)value, .value = {.f64 = 1}};
    NONE((nd_full)(ND_SHAPE(2), number, ND_F32));
    NONE((nd_mul_scalar)(x, number));
    nd_error_clear();
}

static void test_F43_enumerators_that_no_header_names_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2), ND_F32);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        try_dtypes(wrong[i], x);
        try_devices(wrong[i], x);
        try_ways(wrong[i], x);
        try_settings(wrong[i], x);
    }
    assert_ok(nd_debug_check());
}

static void test_F43_flags_of_a_type_that_no_header_names_are_refused(void **state) {
    (void)state;
    static nd_type type = {.size = sizeof(nd_type), .version = 1, .name = "flagged"};
    for (int bit = 0; bit < 32; bit++) {
        nd_error_clear();
        type.flags = ND_TYPE_GREEN | 1u << bit;
        nd_object *object = nd_object_new(&type, 8);
        assert_int_equal(object != NULL, bit == 0);
        if (bit > 0) {
            char bits[16];
            snprintf(bits, sizeof bits, "by 0x%x", 1u << bit);
            assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(nd_error_get_message(), bits));
        }
        nd_release(object);
    }
    assert_ok(nd_debug_check());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F43_enumerators_that_no_header_names_are_refused),
        ND_TEST(test_F43_flags_of_a_type_that_no_header_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
