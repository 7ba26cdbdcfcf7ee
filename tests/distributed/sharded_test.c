// Training whose optimizer's state is shared out among the ranks: the same steps as with all of it,
// and checkpoints that fit any number of ranks.
#include "tests/distributed/nets.h"

#include <nd/state.h>

#if ND_HAVE_MPI
#include <mpi.h>
#endif

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

#if ND_HAVE_MPI
/// A communicator of so many of the ranks; NULL on the others.
static nd_communicator *open_first(int ranks, int rank) {
    MPI_Comm some;
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &some);
    if (rank >= ranks)
        return NULL;
    nd_communicator *comm = nd_communicator_from_mpi(&some, NULL);
    assert_handle(comm);
    MPI_Comm_free(&some);
    return comm;
}

static void save_trainee(trainee *t, const char *path) {
    nd_auto nd_state *file = nd_state_new();
    make_state(file, t->module, t->optimizer);
    assert_ok(nd_data_parallel_save_state(t->parallel, t->optimizer, file, path));
}

static void load_trainee(trainee *t, const char *path) {
    nd_auto nd_state *file = nd_state_new();
    make_state(file, t->module, t->optimizer);
    assert_ok(nd_data_parallel_load_state(t->parallel, t->optimizer, file, path, NULL));
}

static char *read_all(const char *path, size_t *ret_bytes) {
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *ret_bytes = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*ret_bytes);
    assert_int_equal(fread(bytes, 1, *ret_bytes, file), *ret_bytes);
    fclose(file);
    return bytes;
}

static void assert_same_files(const char *a, const char *b) {
    size_t bytes_a, bytes_b;
    char *of_a = read_all(a, &bytes_a), *of_b = read_all(b, &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_memory_equal(of_a, of_b, bytes_a);
    free(of_a);
    free(of_b);
}

/// Some ranks save in the middle. Others load: what they save at once is the same file, bit by bit, and
/// when they go on they come where one process comes that has all their shares.
static void go_on_with(int from, int to, const nd_communicator *world) {
    const kind *k = &kinds[2]; // with a norm: parameters of many sizes
    int rank = nd_communicator_get_rank(world);
    char path[300], again[310];
    snprintf(path, sizeof path, "%s/from-%d-to-%d", getenv("TMPDIR"), from, to);
    snprintf(again, sizeof again, "%s-again", path);
    nd_auto nd_communicator *before = open_first(from, rank), *behind = open_first(to, rank);
    if (before) {
        trainee t = begin_trainee(k, before, ND_F32);
        train_trainee(k, &t, rank, 0, 4, ND_F32);
        save_trainee(&t, path);
        end_trainee(&t);
    }
    assert_ok(nd_barrier(world));
    if (behind) {
        trainee t = begin_trainee(k, behind, ND_F32);
        uint64_t bare = bytes_alive();
        load_trainee(&t, path);
        uint64_t state = bytes_alive() - bare;
        save_trainee(&t, again);
        train_trainee(k, &t, rank, 4, 8, ND_F32);
        nd_auto nd_module *alone = k->make(100);
        nd_auto nd_optimizer *optimizer = nd_adam(alone, NULL);
        bare = bytes_alive();
        train_alone(k, alone, optimizer, from, 0, 4);
        uint64_t whole = bytes_alive() - bare;
        train_alone(k, alone, optimizer, to, 4, 8);
        assert_same_parameters(t.module, alone, from * to == 1 ? 1e-7 : 1e-3);
        if (to > 1) // its share alone
            assert_true(state < whole);
        end_trainee(&t);
    }
    assert_ok(nd_barrier(world));
    if (rank == 0)
        assert_same_files(path, again);
}

static void test_a_checkpoint_of_some_ranks_is_loaded_by_others(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    static const int numbers[][2] = {{4, 2}, {2, 4}, {1, 4}, {4, 1}, {3, 4}, {2, 1}, {1, 2}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i][0] <= nd_communicator_get_size(world) &&
            numbers[i][1] <= nd_communicator_get_size(world))
            go_on_with(numbers[i][0], numbers[i][1], world);
}
#endif

/// It would see one rank's gradients alone. Without the object, or without shares, it does what it does.
static void test_a_loss_scaler_is_refused(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    trainee t = begin_trainee(&kinds[0], world, ND_F32);
    nd_auto nd_tensor *loss =
        cast_loss(&kinds[0], t.module, 1, nd_communicator_get_rank(world), ND_F32);
    assert_ok(nd_data_parallel_backward(t.parallel, loss, NULL));
    assert_int_equal(nd_loss_scaler_unscale(scaler, t.optimizer), ND_ERROR_UNSUPPORTED);
    assert_int_equal(nd_loss_scaler_step(scaler, t.optimizer, NULL), ND_ERROR_UNSUPPORTED);
    nd_error_clear();
    nd_release(t.parallel);
    t.parallel = nd_data_parallel_new(t.module, world, NULL);
    assert_ok(nd_module_zero_grad(t.module));
    nd_auto nd_tensor *again =
        cast_loss(&kinds[0], t.module, 2, nd_communicator_get_rank(world), ND_F32);
    assert_ok(nd_data_parallel_backward(t.parallel, again, NULL));
    assert_ok(nd_loss_scaler_step(scaler, t.optimizer, NULL));
    end_trainee(&t);
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
#if ND_HAVE_MPI
    ND_TEST(test_a_checkpoint_of_some_ranks_is_loaded_by_others),
#endif
    ND_TEST(test_a_loss_scaler_is_refused),
    ND_TEST(test_a_rank_that_cannot_step_says_so),
};

RANKS_MAIN(tests)
