// Training whose optimizer's state is shared out among the ranks: the same steps as with all of it,
// and checkpoints that fit any number of ranks.
#include "tests/distributed/nets.h"

#include <nd/state.h>

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
    ND_TEST(test_sharded_state_makes_the_same_steps),
    ND_TEST(test_a_checkpoint_fits_any_number_of_ranks),
    ND_TEST(test_a_rank_that_cannot_step_says_so),
};

RANKS_MAIN(tests)
