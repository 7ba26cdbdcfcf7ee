// Data-parallel training against one process that has the data of all ranks: the mean of the ranks'
// gradients bit by bit for two of them, the whole batch in one pass within rounding.
#include "tests/distributed/ranks.h"

#include <math.h>
#include <nd/state.h>

enum { PER_RANK = 6, FEATURES = 8, CLASSES = 5, IMAGE = 8 };

/// A net and what it takes.
typedef struct kind {
    const char *name;
    nd_module *(*make)(uint64_t seed);
    nd_tensor *(*input)(uint64_t seed, int rank);
} kind;

static nd_module *make_mlp(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    return ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), FEATURES, 32, true),
                         nd_tanh_module(), nd_linear_module(nd_key_fold(key, 1), 32, 32, true),
                         nd_gelu_module(),
                         nd_linear_module(nd_key_fold(key, 2), 32, CLASSES, true));
}

static nd_tensor *rows(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank), ND_SHAPE(PER_RANK, FEATURES),
                    ND_F32);
}

static nd_module *make_cnn(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    nd_conv2d_options conv = ND_CONV2D_OPTIONS_INIT;
    return ND_SEQUENTIAL(
        nd_conv2d_module(nd_key_fold(key, 0), 1, 4, 3, 3, true, &conv), nd_relu_module(),
        nd_flatten_module(),
        nd_linear_module(nd_key_fold(key, 1), 4 * (IMAGE - 2) * (IMAGE - 2), CLASSES, true));
}

static nd_tensor *images(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank),
                    ND_SHAPE(PER_RANK, 1, IMAGE, IMAGE), ND_F32);
}

/// Attention between the rows of a batch of sequences, with a norm and a feed-forward part.
static nd_tensor *transformer_forward(const nd_module *self, const nd_tensor *x) {
    nd_auto nd_tensor *q = nd_module_forward(nd_module_get_child(self, 0), x);
    nd_auto nd_tensor *k = nd_module_forward(nd_module_get_child(self, 1), x);
    nd_auto nd_tensor *turned = nd_transpose(k, -2, -1);
    nd_auto nd_tensor *scores = nd_matmul(q, turned);
    nd_auto nd_tensor *weights = nd_softmax(scores, -1);
    nd_auto nd_tensor *mixed = nd_matmul(weights, x);
    nd_auto nd_tensor *sum = nd_add(mixed, x);
    nd_auto nd_tensor *normal = nd_module_forward(nd_module_get_child(self, 2), sum);
    nd_auto nd_tensor *flat = nd_mean(normal, 1, (const int[]){1}, false);
    return nd_module_forward(nd_module_get_child(self, 3), flat);
}

static const nd_module_type transformer_type = {
    .size = sizeof(nd_module_type),
    .version = 1,
    .name = "transformer",
    .forward = transformer_forward,
};

static nd_module *make_transformer(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    nd_module *whole = nd_module_new(&transformer_type, NULL, 0);
    nd_module *parts[] = {
        nd_linear_module(nd_key_fold(key, 0), FEATURES, FEATURES, true),
        nd_linear_module(nd_key_fold(key, 1), FEATURES, FEATURES, true),
        nd_layer_norm_module(1e-5, ND_SHAPE(FEATURES)),
        nd_linear_module(nd_key_fold(key, 2), FEATURES, CLASSES, true),
    };
    static const char *const names[] = {"query", "key", "norm", "head"};
    for (int i = 0; i < 4; i++) {
        assert_ok(nd_module_add_child(whole, names[i], parts[i]));
        nd_release(parts[i]);
    }
    return whole;
}

static nd_tensor *sequences(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank), ND_SHAPE(PER_RANK, 7, FEATURES),
                    ND_F32);
}

static const kind kinds[] = {
    {"MLP", make_mlp, rows},
    {"CNN", make_cnn, images},
    {"transformer", make_transformer, sequences},
};

static nd_tensor *labels(uint64_t seed, int rank) {
    return nd_randint(nd_key_fold(nd_key_new(seed + 1), (uint64_t)rank), 0, CLASSES,
                      ND_SHAPE(PER_RANK), ND_I64);
}

/// The loss of a rank's share.
static nd_tensor *loss_of(const kind *k, const nd_module *module, uint64_t seed, int rank) {
    nd_auto nd_tensor *x = k->input(seed, rank);
    nd_auto nd_tensor *y = labels(seed, rank);
    nd_auto nd_tensor *logits = nd_module_forward(module, x);
    nd_tensor *loss = nd_cross_entropy(logits, y);
    assert_handle(loss);
    return loss;
}

static nd_tensor *whole_loss(const kind *k, const nd_module *module, uint64_t seed, int ranks) {
    nd_tensor *xs[8], *ys[8];
    for (int r = 0; r < ranks; r++) {
        xs[r] = k->input(seed, r);
        ys[r] = labels(seed, r);
    }
    nd_auto nd_tensor *x = nd_concat((size_t)ranks, (const nd_tensor *const *)xs, 0);
    nd_auto nd_tensor *y = nd_concat((size_t)ranks, (const nd_tensor *const *)ys, 0);
    for (int r = 0; r < ranks; r++) {
        nd_release(xs[r]);
        nd_release(ys[r]);
    }
    nd_auto nd_tensor *logits = nd_module_forward(module, x);
    return nd_cross_entropy(logits, y);
}

/// The mean of all ranks' gradients, in one process, in the order of ranks; bitwise what two ranks
/// compute.
static void mean_of_shares(const kind *k, const nd_module *module, uint64_t seed, int ranks) {
    for (int r = 0; r < ranks; r++) {
        nd_auto nd_tensor *loss = loss_of(k, module, seed, r);
        assert_ok(nd_backward(loss, NULL));
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(module, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
}

static void assert_same_gradients(const char *what, const nd_module *a, const nd_module *b,
                                  double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a); i++) {
        const char *name;
        const nd_tensor *x = nd_get_grad(nd_module_get_parameter_at(a, i, &name));
        const nd_tensor *y = nd_get_grad(nd_module_get_parameter_at(b, i, NULL));
        assert_handle(x);
        assert_handle(y);
        for (int64_t n = 0; n < nd_get_numel(x); n++) {
            double difference = fabs(element_at(x, n) - element_at(y, n));
            if (!(difference <= tolerance * (1 + fabs(element_at(y, n)))))
                fail_msg("%s: %s[%lld]: %.9g and %.9g", what, name, (long long)n, element_at(x, n),
                         element_at(y, n));
        }
    }
}

static void assert_same_parameters(const nd_module *a, const nd_module *b, double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a); i++) {
        const nd_tensor *x = nd_module_get_parameter_at(a, i, NULL);
        const nd_tensor *y = nd_module_get_parameter_at(b, i, NULL);
        for (int64_t n = 0; n < nd_get_numel(x); n++)
            assert_true(fabs(element_at(x, n) - element_at(y, n)) <= tolerance);
    }
}

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

static uint64_t bytes_alive(void) {
    return nd_manager_get_total_bytes(NULL);
}

/// A rank's model, trained with sharded state.
typedef struct trainee {
    nd_module *module;
    nd_data_parallel *parallel;
    nd_optimizer *optimizer;
} trainee;

static trainee begin_trainee(const kind *k, nd_communicator *world, nd_dtype dtype) {
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 3000;
    options.shard_optimizer = true;
    trainee t = {.module = k->make(100 + (uint64_t)nd_communicator_get_rank(world))};
    assert_ok(nd_module_cast(t.module, dtype));
    t.parallel = nd_data_parallel_new(t.module, world, &options);
    assert_handle(t.parallel);
    t.optimizer = nd_adam(t.module, NULL);
    return t;
}

static void end_trainee(trainee *t) {
    nd_release(t->parallel);
    nd_release(t->optimizer);
    nd_release(t->module);
}

static nd_tensor *cast_loss(const kind *k, const nd_module *module, uint64_t seed, int rank,
                            nd_dtype dtype) {
    nd_auto nd_tensor *x = k->input(seed, rank);
    nd_auto nd_tensor *cast = nd_cast(x, dtype);
    nd_auto nd_tensor *y = labels(seed, rank);
    nd_auto nd_tensor *logits = nd_module_forward(module, cast);
    nd_auto nd_tensor *wide = nd_cast(logits, ND_F32);
    return nd_cross_entropy(wide, y);
}

static void train_trainee(const kind *k, trainee *t, int rank, uint64_t from, uint64_t to,
                          nd_dtype dtype) {
    for (uint64_t n = from; n < to; n++) {
        nd_auto nd_tensor *loss = cast_loss(k, t->module, n, rank, dtype);
        assert_ok(nd_data_parallel_backward(t->parallel, loss, NULL));
        assert_ok(nd_data_parallel_clip_grad_norm(t->parallel, 0.5, NULL));
        assert_ok(nd_data_parallel_step(t->parallel, t->optimizer));
        assert_ok(nd_module_zero_grad(t->module));
    }
}

static void train_alone(const kind *k, const nd_module *module, nd_optimizer *optimizer, int ranks,
                        uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; n++) {
        mean_of_shares(k, module, n, ranks);
        assert_ok(nd_clip_grad_norm(module, 0.5, NULL));
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_module_zero_grad(module));
    }
}

/// As many bytes of state as each rank has gradients to keep it for; the same steps.
static void test_sharded_state_makes_the_same_steps(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        trainee t = begin_trainee(k, world, ND_F32);
        nd_auto nd_module *alone = k->make(100);
        nd_auto nd_optimizer *optimizer = nd_adam(alone, NULL);
        uint64_t before = bytes_alive();
        train_trainee(k, &t, rank, 0, 8, ND_F32);
        uint64_t sharded = bytes_alive() - before;
        before = bytes_alive();
        train_alone(k, alone, optimizer, ranks, 0, 8);
        uint64_t whole = bytes_alive() - before;
        assert_same_parameters(t.module, alone, ranks == 1 ? 1e-7 : 1e-3);
        if (ranks > 1)
            assert_true(sharded < whole);
        // All ranks have them.
        nd_auto nd_data_parallel *again = nd_data_parallel_new(t.module, world, NULL);
        nd_auto nd_module *copy = k->make(1);
        for (size_t p = 0; p < nd_module_get_parameter_count(copy); p++)
            nd_no_grad {
                nd_auto nd_tensor *first = nd_clone(nd_module_get_parameter_at(t.module, p, NULL));
                assert_ok(nd_broadcast_(first, world, 0));
                assert_ok(nd_copy_(
                    (nd_tensor *)(uintptr_t)nd_module_get_parameter_at(copy, p, NULL), first));
            }
        assert_same_parameters(t.module, copy, 0);
        end_trainee(&t);
    }
}

static void make_state(nd_state *file, const nd_module *module, const nd_optimizer *optimizer) {
    assert_ok(nd_state_add_module(file, "model", module));
    assert_ok(nd_state_add_optimizer(file, "optimizer", optimizer));
}

/// Saved by rank 0 in the middle, loaded by as many ranks, which go on to the same bits, and by a
/// program without ranks.
static void go_on_from_file(nd_dtype dtype) {
    const kind *k = &kinds[0];
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    char path[300];
    snprintf(path, sizeof path, "%s/state-%d.safetensors", getenv("TMPDIR"), (int)dtype);
    trainee t = begin_trainee(k, world, dtype);
    train_trainee(k, &t, rank, 0, 4, dtype);
    assert_ok(nd_data_parallel_gather_state(t.parallel, t.optimizer));
    if (rank == 0) {
        nd_auto nd_state *file = nd_state_new();
        make_state(file, t.module, t.optimizer);
        assert_ok(nd_save_state(file, path));
    }
    assert_ok(nd_data_parallel_drop_state(t.parallel, t.optimizer));
    assert_ok(nd_barrier(world));
    train_trainee(k, &t, rank, 4, 8, dtype);

    trainee loaded = begin_trainee(k, world, dtype);
    nd_auto nd_state *file = nd_state_new();
    make_state(file, loaded.module, loaded.optimizer);
    assert_ok(nd_load_state(file, path));
    assert_ok(nd_data_parallel_drop_state(loaded.parallel, loaded.optimizer));
    train_trainee(k, &loaded, rank, 4, 8, dtype);
    assert_same_parameters(loaded.module, t.module, 0);

    if (dtype == ND_F32) {
        nd_auto nd_module *alone = k->make(5);
        nd_auto nd_optimizer *optimizer = nd_adam(alone, NULL);
        nd_auto nd_state *whole = nd_state_new();
        make_state(whole, alone, optimizer);
        assert_ok(nd_load_state(whole, path));
        train_alone(k, alone, optimizer, ranks, 4, 8);
        assert_same_parameters(alone, t.module, 1e-4);
    }
    nd_auto nd_optimizer *none = NULL;
    assert_int_equal(nd_data_parallel_step(t.parallel, none), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_barrier(world));
    end_trainee(&loaded);
    end_trainee(&t);
}

static void test_a_checkpoint_fits_any_number_of_ranks(void **state) {
    (void)state;
    go_on_from_file(ND_F32);
    go_on_from_file(ND_BF16);
}

static void test_a_rank_that_cannot_step_says_so(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    trainee t = begin_trainee(&kinds[0], world, ND_F32);
    train_trainee(&kinds[0], &t, rank, 0, 2, ND_F32);
    nd_error_clear();
    nd_status status = nd_data_parallel_step(t.parallel, rank == ranks - 1 ? NULL : t.optimizer);
    assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
    if (rank != ranks - 1)
        assert_non_null(strstr(nd_error_get_message(), "does not take part"));
    nd_error_clear();
    double norm = -1;
    status = nd_data_parallel_clip_grad_norm(t.parallel, rank == ranks - 1 ? -1 : 1, &norm);
    assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
    assert_true(norm == -1);
    nd_error_clear();
    status = nd_data_parallel_gather_state(t.parallel, rank == ranks - 1 ? NULL : t.optimizer);
    assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_barrier(world));
    end_trainee(&t);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_ranks_train_as_one_process_would),
    ND_TEST(test_with_the_collector_on_nothing_changes),
    ND_TEST(test_gradients_accumulate_without_communication),
    ND_TEST(test_parameters_that_are_not_used),
    ND_TEST(test_a_pass_that_fails_changes_nothing_anywhere),
    ND_TEST(test_modules_that_differ_are_refused),
    ND_TEST(test_closing_takes_nothing_away),
    ND_TEST(test_synchronize_brings_the_values_of_rank_0),
    ND_TEST(test_gradients_of_gradients),
    ND_TEST(test_closed_inside_a_step_it_fails_everywhere),
    ND_TEST(test_sharded_state_makes_the_same_steps),
    ND_TEST(test_a_checkpoint_fits_any_number_of_ranks),
    ND_TEST(test_a_rank_that_cannot_step_says_so),
};

RANKS_MAIN(tests)
