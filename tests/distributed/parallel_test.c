// Data-parallel training against one process that has the data of all ranks: the mean of the ranks'
// gradients bit by bit for two of them, the whole batch in one pass within rounding.
#include "tests/distributed/nets.h"

/// Ten steps of two nets that began alike, one on all ranks and one here.
static void train(const kind *k, nd_communicator *world, uint64_t bucket_bytes) {
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *module = k->make(100 + (uint64_t)rank); // rank 0's is taken
    nd_auto nd_module *alone = k->make(100);
    nd_auto nd_module *whole = k->make(100);
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = bucket_bytes;
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, &options);
    assert_handle(parallel);
    assert_same_parameters(module, alone, 0);
    nd_auto nd_optimizer *optimizer = nd_adam(module, NULL);
    nd_auto nd_optimizer *optimizer_alone = nd_adam(alone, NULL);
    for (uint64_t n = 0; n < 10; n++) {
        nd_auto nd_tensor *loss = loss_of(k, module, n, rank);
        assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        mean_of_shares(k, alone, n, ranks);
        assert_same_gradients(k->name, module, alone, ranks <= 2 ? 0 : 1e-6);
        if (n == 0) {
            nd_auto nd_tensor *all = whole_loss(k, whole, n, ranks);
            assert_ok(nd_backward(all, NULL));
            assert_same_gradients(k->name, module, whole, 1e-5);
        }
        double norm, norm_alone;
        assert_ok(nd_clip_grad_norm(module, 0.5, &norm));
        assert_ok(nd_clip_grad_norm(alone, 0.5, &norm_alone));
        assert_true(fabs(norm - norm_alone) <= 1e-5 * norm_alone);
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_optimizer_step(optimizer_alone));
        assert_ok(nd_module_zero_grad(module));
        assert_ok(nd_module_zero_grad(alone));
        assert_same_parameters(module, alone, ranks <= 2 ? 0 : 1e-3);
    }
}

static void test_ranks_train_as_one_process_would(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        train(&kinds[i], world, UINT64_C(25) << 20);
        train(&kinds[i], world, 300); // a bucket for nearly every parameter
    }
}

static void test_with_the_collector_on_nothing_changes(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    nd_auto nd_communicator *world = open_world(60);
    train(&kinds[0], world, 2000);
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_gc_set_mode(ND_GC_OFF);
}

static void test_gradients_accumulate_without_communication(void **state) {
    (void)state;
    const kind *k = &kinds[0];
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *module = k->make(3), *alone = k->make(3);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    assert_handle(parallel);
    for (uint64_t n = 0; n < 3; n++) {
        nd_auto nd_tensor *loss = loss_of(k, module, n, rank);
        assert_ok(n < 2 ? nd_backward(loss, NULL)
                        : nd_data_parallel_backward(parallel, loss, NULL));
        for (int r = 0; r < ranks; r++) {
            nd_auto nd_tensor *share = loss_of(k, alone, n, r);
            assert_ok(nd_backward(share, NULL));
        }
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(alone); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(alone, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
    assert_same_gradients("accumulated", module, alone, 1e-5);
}

/// y = x w (and of the second kind: + v).
static void test_parameters_that_are_not_used(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    static const nd_module_type type = {sizeof(nd_module_type), 1, "three", transformer_forward};
    nd_auto nd_module *module = nd_module_new(&type, NULL, 0);
    static const char *const names[] = {"all", "one", "none"};
    nd_tensor *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = nd_full(ND_SHAPE(4), i + 1, ND_F32);
        assert_ok(nd_set_requires_grad(p[i], true));
        assert_ok(nd_module_add_parameter(module, names[i], p[i]));
    }
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    assert_handle(parallel);
    for (int n = 0; n < 3; n++) {
        nd_auto nd_tensor *sum = rank == 0 ? nd_add(p[0], p[1]) : nd_retain(p[0]);
        nd_auto nd_tensor *loss = nd_sum(sum, 0, NULL, false);
        assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        assert_true(element_at(nd_get_grad(p[0]), 3) == 1);
        assert_true(element_at(nd_get_grad(p[1]), 3) == 1.0 / ranks);
        assert_null(nd_get_grad(p[2]));
        assert_ok(nd_module_zero_grad(module));
    }
    for (int i = 0; i < 3; i++)
        nd_release(p[i]);
}

static nd_tensor *fail_here(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    return nd_zeros(ND_SHAPE(1, 2, 3), ND_F32); // of a wrong shape
}

/// A pass that fails on one rank fails on all, and the next one goes on.
static void test_a_pass_that_fails_changes_nothing_anywhere(void **state) {
    (void)state;
    const kind *k = &kinds[0];
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *module = k->make(3);
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 300;
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, &options);
    size_t count = nd_module_get_parameter_count(module);
    for (size_t i = 0; i < count; i++) {
        nd_tensor *hooked = (nd_tensor *)(uintptr_t)nd_module_get_parameter_at(module, i, NULL);
        uint64_t id = 0;
        if (rank == ranks - 1)
            assert_ok(nd_add_hook(hooked, fail_here, NULL, &id));
        nd_auto nd_tensor *loss = loss_of(k, module, i, rank);
        nd_error_clear();
        assert_int_equal(nd_data_parallel_backward(parallel, loss, NULL), ND_ERROR_SHAPE);
        if (rank != ranks - 1)
            assert_non_null(strstr(nd_error_get_message(), "does not take part: "));
        assert_non_null(strstr(nd_error_get_message(), "returned by a hook"));
        for (size_t other = 0; other < count; other++)
            assert_null(nd_get_grad(nd_module_get_parameter_at(module, other, NULL)));
        if (id)
            assert_ok(nd_remove_hook(hooked, id));
        nd_auto nd_tensor *again = loss_of(k, module, i, rank);
        assert_ok(nd_data_parallel_backward(parallel, again, NULL));
        assert_ok(nd_module_zero_grad(module));
    }
}

static void test_modules_that_differ_are_refused(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *module = rank == 0 ? make_cnn(1) : make_mlp(1);
    nd_auto nd_module *before = rank == 0 ? make_cnn(1) : make_mlp(1);
    nd_error_clear();
    nd_auto nd_data_parallel *parallel =
        ranks == 1 ? NULL : nd_data_parallel_new(module, world, NULL);
    assert_null(parallel);
    if (ranks > 1)
        assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    assert_same_parameters(module, before, 0);
    assert_null(nd_data_parallel_new(rank == 0 ? NULL : module, world, NULL));
    assert_null(nd_data_parallel_new(module, NULL, NULL));
    assert_ok(nd_barrier(world));
}

/// What is on its way is nobody's to take away: the manager of the step closes, and the object too.
/// A module that was cast on all ranks, or on one, before a pass, or before its step: an error on all,
/// nothing has changed, and a new object goes on.
static void check_cast(nd_communicator *world, bool sharded, bool everywhere, bool before_step) {
    const int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *net = make_mlp(1);
    nd_auto nd_optimizer *sgd = nd_sgd(net, NULL);
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.shard_optimizer = sharded;
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(net, world, &options);
    assert_handle(parallel);
    const bool casts = everywhere || rank == ranks - 1;
    for (int pass = 0; pass < 2; pass++) { // the second one is cast
        const bool is_cast = pass && casts;
        if (is_cast && !before_step)
            assert_ok(nd_module_cast(net, ND_F64));
        nd_auto nd_tensor *numbers = rows(3, rank);
        nd_auto nd_tensor *x = nd_cast(numbers, is_cast && !before_step ? ND_F64 : ND_F32);
        nd_auto nd_tensor *y = nd_module_forward(net, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        nd_status status = nd_data_parallel_backward(parallel, loss, NULL);
        if (pass && !before_step) {
            assert_int_not_equal(status, ND_OK);
            assert_null(nd_get_grad(nd_module_get_parameter_at(net, 0, NULL)));
        } else {
            assert_ok(status);
            if (is_cast)
                assert_ok(nd_module_cast(net, ND_F64));
            status = nd_data_parallel_step(parallel, sgd);
            assert_true((status == ND_OK) == !pass);
        }
        if (pass && casts)
            assert_non_null(strstr(nd_error_get_message(), "was float32 when"));
        nd_error_clear();
        assert_ok(nd_module_zero_grad(net));
    }
    if (!everywhere)
        return;
    nd_auto nd_data_parallel *again = nd_data_parallel_new(net, world, &options);
    nd_auto nd_tensor *numbers = rows(3, rank);
    nd_auto nd_tensor *x = nd_cast(numbers, ND_F64);
    nd_auto nd_tensor *y = nd_module_forward(net, x);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_data_parallel_backward(again, loss, NULL));
    assert_ok(nd_data_parallel_step(again, sgd));
}

static void test_a_module_that_was_cast_is_refused(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    for (int i = 0; i < 8; i++)
        check_cast(world, i & 1, i & 2, i & 4);
}

static void test_closing_takes_nothing_away(void **state) {
    (void)state;
    const kind *k = &kinds[0];
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world);
    nd_auto nd_module *module = k->make(3);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    for (uint64_t n = 0; n < 3; n++) {
        nd_manager *step = nd_manager_new(NULL, "step");
        nd_with_manager(step) {
            nd_auto nd_tensor *loss = loss_of(k, module, n, rank);
            assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(step, &report));
        assert_int_equal(report.escaped_objects, 0); // gradients live with their parameters
        nd_release(step);
        assert_ok(nd_module_zero_grad(module));
    }
    assert_true(nd_data_parallel_get_bucket_count(parallel) == 1);
    assert_ok(nd_close(parallel));
    assert_int_equal(nd_data_parallel_synchronize(parallel), ND_ERROR_CLOSED);
    assert_true(nd_data_parallel_get_bucket_count(parallel) == 0);
}

static void test_synchronize_brings_the_values_of_rank_0(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world);
    nd_auto nd_module *module = nd_batch_norm_module(3, NULL);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    nd_no_grad {
        for (size_t i = 0; i < 2; i++) {
            assert_ok(nd_fill_((nd_tensor *)(uintptr_t)nd_module_get_parameter_at(module, i, NULL),
                               rank + 10));
            assert_ok(nd_fill_((nd_tensor *)(uintptr_t)nd_module_get_buffer_at(module, i, NULL),
                               rank + 20));
        }
    }
    assert_ok(nd_data_parallel_synchronize(parallel));
    for (size_t i = 0; i < 2; i++) {
        assert_true(element_at(nd_module_get_parameter_at(module, i, NULL), 2) == 10);
        assert_true(element_at(nd_module_get_buffer_at(module, i, NULL), 2) == 20);
    }
}

/// A penalty of the gradient: second order inside, the mean outside.
static void test_gradients_of_gradients(void **state) {
    (void)state;
    const kind *k = &kinds[0];
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *module = k->make(3), *alone = k->make(3);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    for (int r = -1; r < ranks; r++) { // -1: this rank, with the others
        const nd_module *net = r < 0 ? module : alone;
        const nd_tensor *weight = nd_module_get_parameter_at(net, 0, NULL);
        nd_auto nd_tensor *loss = loss_of(k, net, 9, r < 0 ? rank : r);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        if (r < 0)
            assert_int_equal(nd_data_parallel_backward(parallel, loss, &options),
                             ND_ERROR_UNSUPPORTED);
        nd_tensor *slope = NULL;
        assert_ok(nd_grad(loss, 1, &weight, &options, &slope));
        nd_auto nd_tensor *square = nd_square(slope);
        nd_auto nd_tensor *penalty = nd_sum(square, 0, NULL, false);
        nd_auto nd_tensor *total = nd_add(loss, penalty);
        nd_release(slope);
        assert_ok(r < 0 ? nd_data_parallel_backward(parallel, total, NULL)
                        : nd_backward(total, NULL));
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(alone); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(alone, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
    assert_same_gradients("second order", module, alone, ranks <= 2 ? 0 : 1e-5);
    nd_gc_collect(NULL, NULL);
}

/// Closes the object whose pass calls it.
static nd_tensor *close_it(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    assert_ok(nd_close((void *)(uintptr_t)context));
    return NULL;
}

static void test_closed_inside_a_step_it_fails_everywhere(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world);
    nd_auto nd_module *module = make_mlp(3);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, NULL);
    nd_auto nd_tensor *loss = loss_of(&kinds[0], module, 1, rank);
    if (rank == 0)
        assert_ok(nd_register_hook(loss, close_it, parallel));
    assert_int_equal(nd_data_parallel_backward(parallel, loss, NULL), ND_ERROR_CLOSED);
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++)
        assert_null(nd_get_grad(nd_module_get_parameter_at(module, i, NULL)));
    if (rank == 0)
        assert_ok(nd_remove_hooks(loss));
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_ranks_train_as_one_process_would),
    ND_TEST(test_with_the_collector_on_nothing_changes),
    ND_TEST(test_gradients_accumulate_without_communication),
    ND_TEST(test_parameters_that_are_not_used),
    ND_TEST(test_a_pass_that_fails_changes_nothing_anywhere),
    ND_TEST(test_modules_that_differ_are_refused),
    ND_TEST(test_a_module_that_was_cast_is_refused),
    ND_TEST(test_closing_takes_nothing_away),
    ND_TEST(test_synchronize_brings_the_values_of_rank_0),
    ND_TEST(test_gradients_of_gradients),
    ND_TEST(test_closed_inside_a_step_it_fails_everywhere),
};

RANKS_MAIN(tests)
