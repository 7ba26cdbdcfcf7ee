// Small trainings from beginning to end: the loss falls, the task is learnt, and nothing is left.
#include "tests/training.h"
#include "tests/unit/io/files.h"

#include "lib/base/alloc.h"

/// One step; returns the loss before it.
static double train_step(const nd_module *net, nd_optimizer *optimizer, const nd_tensor *x,
                         const nd_tensor *targets) {
    double value = 0;
    ND_SCOPE {
        const nd_tensor *logits = nd_tmp(nd_module_forward(net, x));
        const nd_tensor *loss = nd_tmp(nd_cross_entropy(logits, targets));
        assert_handle(loss);
        value = nd_get_item(loss);
        assert_ok(nd_optimizer_zero_grad(optimizer));
        assert_ok(nd_backward(loss, NULL));
        assert_ok(nd_optimizer_step(optimizer));
    }
    return value;
}

static void test_xor_is_learnt_by_every_optimizer(void **state) {
    (void)state;
    static const float points[] = {0, 0, 0, 1, 1, 0, 1, 1};
    static const int64_t classes[] = {0, 1, 1, 0};
    for (int kind = 0; kind < 4; kind++) {
        nd_manager *run = nd_manager_new(NULL, "xor");
        nd_with_manager(run) {
            nd_auto nd_tensor *x = nd_from_data(points, ND_SHAPE(4, 2), ND_F32);
            nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(4), ND_I64);
            nd_auto nd_module *net =
                ND_SEQUENTIAL(nd_linear_module(nd_key_new(5), 2, 16, true), nd_tanh_module(),
                              nd_linear_module(nd_key_new(6), 16, 2, true));
            nd_auto nd_optimizer *optimizer = kind == 0   ? sgd_of(net, 0.5, 0, 0)
                                              : kind == 1 ? sgd_of(net, 0.2, 0.9, 0)
                                              : kind == 2
                                                  ? adam_of(net, 0.05, 0.9, 0.999, 1e-8, 0)
                                                  : adamw_of(net, 0.05, 0.9, 0.999, 1e-8, 0.01);
            assert_handle(optimizer);
            double loss = 0;
            uint64_t objects = 0;
            for (int step = 0; step < 1000; step++) {
                loss = train_step(net, optimizer, x, targets);
                if (step == 10)
                    objects = nd_manager_get_total_objects(run);
            }
            assert_int_equal(nd_manager_get_total_objects(run), objects);
            if (!(loss < 0.05))
                fail_msg("optimizer %d ends with the loss %g", kind, loss);
            nd_auto nd_tensor *logits = nd_module_forward(net, x);
            nd_auto nd_tensor *answer = nd_argmax(logits, 1, false);
            assert_memory_equal(nd_get_data(answer), classes, sizeof(classes));
        }
        assert_int_equal(nd_manager_get_total_objects(run), 0);
        assert_int_equal(nd_manager_get_total_bytes(run), 0);
        nd_release(run);
    }
}

#if ND_HAVE_ZLIB
static void test_digits_are_learnt_with_the_collector_off_and_on(void **state) {
    (void)state;
    for (int collect = 0; collect < 2; collect++) {
        assert_ok(nd_gc_set_mode(collect ? ND_GC_ON : ND_GC_OFF));
        nd_manager *run = nd_manager_new(NULL, "digits");
        nd_with_manager(run) {
            nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
            options.batch = 64;
            options.shuffle = true;
            options.prefetch = true;
            options.key = nd_key_new(1);
            nd_auto nd_dataset *digits = nd_dataset_open_idx("data/mnist", "t10k", &options);
            assert_handle(digits);
            nd_auto nd_module *net =
                ND_SEQUENTIAL(nd_flatten_module(), nd_linear_module(nd_key_new(2), 784, 32, true),
                              nd_relu_module(), nd_linear_module(nd_key_new(3), 32, 10, true));
            nd_auto nd_optimizer *optimizer = sgd_of(net, 0.1, 0.5, 0);
            double first = 0;
            double last = 0;
            assert_ok(nd_dataset_start(digits, 0));
            for (int step = 0; step < 100; step++) {
                nd_manager *manager = nd_manager_new(NULL, "step");
                nd_with_manager(manager) {
                    nd_auto nd_tensor *images = NULL;
                    nd_auto nd_tensor *labels = NULL;
                    assert_true(next_batch(digits, &images, &labels));
                    double loss = train_step(net, optimizer, images, labels);
                    first += step < 10 ? loss / 10 : 0;
                    last += step >= 90 ? loss / 10 : 0;
                }
                nd_close_report report = ND_CLOSE_REPORT_INIT;
                assert_ok(nd_manager_close(manager, &report));
                assert_int_equal(report.escaped_objects, 0);
                nd_release(manager);
            }
            if (!(first > 1.5 && last < 0.6))
                fail_msg("the loss goes from %g to %g", first, last);
        }
        assert_int_equal(nd_manager_get_total_objects(run), 0);
        nd_release(run);
    }
}
#endif

static int allocations_left;

static bool allocation_fails(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

/// Forward, backward and update without a scope, so that nothing but the step itself allocates.
static nd_status try_step(const nd_module *net, nd_optimizer *optimizer, const nd_tensor *x,
                          const nd_tensor *targets) {
    nd_auto nd_tensor *logits = nd_module_forward(net, x);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, targets);
    if (!loss)
        return nd_error_get_status();
    nd_status status = nd_backward(loss, NULL);
    return status == ND_OK ? nd_optimizer_step(optimizer) : status;
}

static void test_F01_every_allocation_of_a_training_step_fails_once(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(8, 5), ND_F32);
    nd_auto nd_tensor *targets = nd_zeros(ND_SHAPE(8), ND_I64);
    bool done = false;
    for (int n = 0; !done; n++) {
        assert_true(n < 2000);
        nd_auto nd_module *net =
            ND_SEQUENTIAL(nd_linear_module(nd_key_new(5), 5, 16, true), nd_gelu_module(),
                          nd_linear_module(nd_key_new(6), 16, 3, true));
        nd_auto nd_optimizer *optimizer = adamw_of(net, 0.05, 0.9, 0.999, 1e-8, 0.01);
        nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "0.weight"));
        nd_auto nd_tensor *before = nd_clone(weight);
        allocations_left = n;
        nd__alloc_should_fail = allocation_fails;
        nd_status status = try_step(net, optimizer, x, targets);
        nd__alloc_should_fail = NULL;
        done = status == ND_OK;
        assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
        bool same = memcmp(nd_get_data(before), nd_get_data(weight), 80 * sizeof(float)) == 0;
        assert_true(same != done);
        // The same step goes through when there is memory again.
        assert_ok(nd_module_zero_grad(net));
        assert_ok(try_step(net, optimizer, x, targets));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_xor_is_learnt_by_every_optimizer),
        ND_TEST(test_F01_every_allocation_of_a_training_step_fails_once),
#if ND_HAVE_ZLIB
        ND_TEST(test_digits_are_learnt_with_the_collector_off_and_on),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
