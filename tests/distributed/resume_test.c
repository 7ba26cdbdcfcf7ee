// Shares of a data set by a communicator, and the state of a training that rank 0 saves and all
// load: what differs between ranks is an error on all of them, and nothing has changed.
#include "tests/distributed/ranks.h"
#include "tests/training.h"

#include <nd/state.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLES = 37 };

/// A path in a folder that all ranks have, which rank 0 names.
static void shared_path(const nd_communicator *world, const char *name, char *ret_path) {
    nd_auto nd_tensor *number = nd_full(ND_SHAPE(1), (int64_t)getpid(), ND_I64);
    assert_ok(nd_broadcast_(number, world, 0));
    const char *folder = getenv("TMPDIR");
    snprintf(ret_path, 512, "%s/nd-%lld-%s", folder ? folder : "/tmp",
             (long long)*(const int64_t *)nd_get_data(number), name);
}

static nd_dataset *make_data_of(uint64_t seed, int64_t batch, nd_dtype labels_dtype) {
    nd_auto nd_tensor *points = nd_zeros(ND_SHAPE(SAMPLES, 3), ND_F32);
    nd_auto nd_tensor *labels = nd_arange(0, SAMPLES, 1, labels_dtype);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = batch;
    options.shuffle = true;
    options.key = nd_key_new(seed);
    nd_dataset *data = nd_dataset_new(points, labels, &options);
    assert_handle(data);
    return data;
}

static nd_dataset *make_data(uint64_t seed, int64_t batch) {
    return make_data_of(seed, batch, ND_I64);
}

static void test_each_sample_is_on_one_rank(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    nd_auto nd_dataset *data = make_data(4, 3);
    assert_ok(nd_dataset_shard(data, world));
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        nd_auto nd_tensor *seen = nd_zeros(ND_SHAPE(SAMPLES), ND_I64);
        int64_t *times = nd_get_data(seen), steps = 0;
        nd_tensor *points = NULL, *labels = NULL;
        assert_ok(nd_dataset_start(data, epoch));
        for (; next_batch(data, &points, &labels); steps++) {
            for (int64_t i = 0; i < nd_get_numel(labels); i++)
                times[((const int64_t *)nd_get_data(labels))[i]]++;
            nd_release(points);
            nd_release(labels);
            assert_ok(nd_barrier(world)); // all make as many steps
        }
        assert_int_equal(steps, nd_dataset_get_batches(data));
        assert_ok(nd_all_reduce_(seen, world, ND_COLLECTIVE_SUM));
        for (int64_t i = 0; i < SAMPLES; i++)
            assert_int_equal(times[i], 1);
    }
    assert_int_equal(nd_dataset_shard(data, world), ND_ERROR_STATE); // it is read already
    nd_error_clear();
    nd_release(world);
}

static void test_data_sets_that_differ_are_refused(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    bool other = ranks > 1 && rank == 1;
    int64_t batches = 0;
    for (int what = 0; what < 5; what++) {
        nd_auto nd_dataset *data =
            make_data_of(what == 0 && other ? 5 : 4, what == 1 && other ? 2 : 3,
                         what == 4 && other ? ND_I32 : ND_I64);
        nd_auto nd_state *position = nd_state_new();
        batches = nd_dataset_get_batches(data);
        if (what == 2 && other)
            assert_ok(nd_dataset_start(data, 1));
        nd_status status = nd_dataset_shard(what == 3 && other ? NULL : data, world);
        if (ranks == 1)
            assert_ok(status);
        else
            assert_int_not_equal(status, ND_OK);
        if (ranks > 1 && (what < 2 || what == 4))
            assert_non_null(
                strstr(nd_error_get_message(),
                       "the data sets of rank 0 and rank 1 differ in their labels, batch, key"));
        assert_int_equal(nd_dataset_get_batches(data), batches); // a share has fewer
        nd_error_clear();
    }
    nd_auto nd_dataset *data = make_data(4, 3); // the communicator is as good as before
    assert_ok(nd_dataset_shard(data, world));
    nd_release(world);
}

/// A net whose buffers and dropout are each rank's own, and its state.
typedef struct run {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_data_parallel *parallel;
    nd_state *state;
} run;

static run new_run(const nd_communicator *world, uint64_t seed, bool sharded, int64_t width) {
    run it;
    // The last one is the first of the list: gradients come in another order than parameters stand.
    it.model = ND_SEQUENTIAL(nd_linear_module(nd_key_new(seed + 2), width, 4, true),
                             nd_linear_module(nd_key_new(seed), 3, width, true),
                             nd_batch_norm_module(width, NULL),
                             nd_linear_module(nd_key_new(seed + 1), width, width, true));
    it.optimizer = adam_of(it.model, 0.01, 0.9, 0.99, 1e-8, 0);
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.shard_optimizer = sharded;
    options.bucket_bytes = options.first_bucket_bytes = 4900;
    it.parallel = nd_data_parallel_new(it.model, world, &options);
    it.state = nd_state_new();
    assert_handle(it.parallel);
    assert_ok(nd_state_add_module(it.state, "model", it.model));
    assert_ok(nd_state_add_optimizer(it.state, "optimizer", it.optimizer));
    assert_ok(nd_state_set_i64(it.state, "step", 0));
    return it;
}

static void free_run(run *it) {
    nd_release(it->state);
    nd_release(it->parallel);
    nd_release(it->optimizer);
    nd_release(it->model);
}

static void step(run *it, const nd_communicator *world, uint64_t n) {
    nd_key key = nd_key_fold(nd_key_new(n), (uint64_t)nd_communicator_get_rank(world));
    nd_auto nd_tensor *x = nd_randn(key, ND_SHAPE(6, 3), ND_F32);
    nd_auto nd_tensor *y = nd_randint(key, 0, 4, ND_SHAPE(6), ND_I64);
    nd_auto nd_tensor *first = nd_module_forward(nd_module_get_child(it->model, 1), x);
    nd_auto nd_tensor *normal = nd_module_forward(nd_module_get_child(it->model, 2), first);
    nd_auto nd_tensor *bent = nd_tanh(normal);
    nd_auto nd_tensor *second = nd_module_forward(nd_module_get_child(it->model, 3), bent);
    nd_auto nd_tensor *logits = nd_module_forward(nd_module_get_child(it->model, 0), second);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, y);
    assert_ok(nd_data_parallel_backward(it->parallel, loss, NULL));
    assert_ok(nd_data_parallel_step(it->parallel, it->optimizer));
    assert_ok(nd_module_zero_grad(it->model));
    assert_ok(nd_state_set_i64(it->state, "step", (int64_t)n + 1));
}

/// Parameters and buffers of two runs, bit by bit.
static void assert_same(const run *a, const run *b) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a->model); i++) {
        const nd_tensor *x = nd_module_get_parameter_at(a->model, i, NULL);
        const nd_tensor *y = nd_module_get_parameter_at(b->model, i, NULL);
        assert_memory_equal(nd_get_data(x), nd_get_data(y),
                            (size_t)nd_get_numel(x) * sizeof(float));
    }
    static const char *const names[] = {"running_mean", "running_var"};
    for (int i = 0; i < 2; i++) {
        const nd_tensor *x = nd_module_get_buffer(nd_module_get_child(a->model, 2), names[i]);
        const nd_tensor *y = nd_module_get_buffer(nd_module_get_child(b->model, 2), names[i]);
        assert_memory_equal(nd_get_data(x), nd_get_data(y),
                            (size_t)nd_get_numel(x) * sizeof(float));
    }
}

static void test_a_run_that_loads_goes_on_as_the_one_that_saved(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    char path[512];
    shared_path(world, "goes-on", path);
    // How MPI adds up the numbers of three ranks may depend on where in a message they stand: how many
    // buckets there are shows in which order they are filled.
    const int64_t width = 200;
    const size_t at_first = 5, reordered = 4;
    for (int sharded = 0; sharded < 2; sharded++) {
        run first = new_run(world, 1, sharded, width);
        bool loaded = true;
        assert_ok(nd_data_parallel_load_state(first.parallel, first.optimizer, first.state, path,
                                              &loaded));
        assert_false(loaded); // there is none yet
        for (uint64_t n = 0; n < 3; n++)
            step(&first, world, n);
        assert_int_equal(nd_data_parallel_get_bucket_count(first.parallel), reordered);
        assert_ok(nd_data_parallel_save_state(first.parallel, first.optimizer, first.state, path));
        assert_int_equal(nd_data_parallel_get_bucket_count(first.parallel), at_first);
        run second = new_run(world, 7, sharded, width);
        step(&second, world, 50); // state and an order of its own, which go
        step(&second, world, 51);
        assert_ok(nd_data_parallel_load_state(second.parallel, second.optimizer, second.state, path,
                                              &loaded));
        assert_true(loaded);
        assert_int_equal(nd_data_parallel_get_bucket_count(second.parallel), at_first);
        int64_t steps = 0;
        assert_ok(nd_state_get_i64(second.state, "step", &steps));
        assert_int_equal(steps, 3);
        assert_same(&first, &second);
        for (uint64_t n = 3; n < 6; n++) {
            step(&first, world, n);
            step(&second, world, n);
            assert_same(&first, &second);
        }
        free_run(&first);
        free_run(&second);
        assert_ok(nd_barrier(world));
        if (nd_communicator_get_rank(world) == 0)
            unlink(path);
        assert_ok(nd_barrier(world));
    }
    nd_release(world);
}

/// The sum over all ranks of what a dropout lets through of ones: no element is the same on all of
/// many ranks, and loading brings the same again.
static void test_each_rank_draws_keys_of_its_own(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_module *model = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 3, 3, true),
                                             nd_dropout_module(nd_key_new(3), 0.5));
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(model, world, NULL);
    assert_handle(parallel);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(1000), ND_F32);
    const nd_module *dropout = nd_module_get_child(model, 1);
    nd_auto nd_module *alone = nd_dropout_module(nd_key_new(3), 0.5);
    for (int n = 0; n < 3; n++) {
        nd_auto nd_tensor *x = nd_module_forward(dropout, ones);
        nd_auto nd_tensor *of_one = nd_module_forward(alone, ones);
        nd_auto nd_tensor *all = nd_all_gather(x, world);
        const float *kept = nd_get_data(all);
        assert_memory_equal(kept, nd_get_data(of_one), 1000 * sizeof *kept); // rank 0
        for (int r = 1; r < ranks; r++)
            assert_memory_not_equal(kept, kept + 1000 * r, 1000 * sizeof *kept);
        if (rank == 1) // one that has drawn more
            nd_release(nd_module_forward(dropout, ones));
        assert_ok(nd_data_parallel_synchronize(parallel));
    }
    nd_release(world);
}

static void test_what_one_rank_cannot_save_or_load_is_an_error_on_all(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    char path[512], nowhere[600], own[600];
    shared_path(world, "refused", path);
    snprintf(nowhere, sizeof nowhere, "%s-folder/file", path);
    run it = new_run(world, 1, true, 8), before = new_run(world, 1, true, 8);
    step(&it, world, 0);
    step(&before, world, 0);
    assert_int_equal(nd_data_parallel_save_state(it.parallel, it.optimizer, it.state, nowhere),
                     ND_ERROR_IO);
    assert_non_null(strstr(nd_error_get_message(), "cannot be created"));
    assert_ptr_equal(strstr(nd_error_get_message(), "data_parallel_save_state: "),
                     nd_error_get_message());
    assert_int_not_equal(nd_data_parallel_save_state(it.parallel, rank == 0 ? it.optimizer : NULL,
                                                     it.state, path) == ND_OK,
                         ranks > 1);
    assert_ok(nd_data_parallel_save_state(it.parallel, it.optimizer, it.state, path));
    assert_ok(nd_data_parallel_save_state(before.parallel, before.optimizer, before.state, path));

    // Without the flag a file that is not there is an error.
    assert_int_equal(
        nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, nowhere, NULL),
        ND_ERROR_IO);
    // Seen by some only; another one on some; one that fits nowhere.
    bool loaded = false;
    snprintf(own, sizeof own, "%s%s", path, rank == 0 ? "" : "-missing");
    nd_status status =
        nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, own, &loaded);
    assert_int_equal(status, ranks > 1 ? ND_ERROR_IO : ND_OK);
    assert_int_equal(loaded, ranks == 1);
    snprintf(own, sizeof own, "%s-%d", path, rank);
    assert_ok(nd_state_set_i64(it.state, "step", rank));
    assert_ok(nd_data_parallel_gather_state(it.parallel, it.optimizer));
    assert_ok(nd_save_state(it.state, own));
    status = nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, own, &loaded);
    assert_int_not_equal(status == ND_OK, ranks > 1);
    assert_ok(nd_state_set_f64(it.state, "more", 1));
    assert_int_not_equal(
        nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, path, &loaded), ND_OK);
    assert_int_not_equal(
        nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, NULL, &loaded), ND_OK);
    assert_int_not_equal(nd_data_parallel_save_state(NULL, it.optimizer, it.state, path), ND_OK);
    if (rank == 0)
        assert_int_not_equal(access(path, F_OK), -1);
    nd_error_clear();

    // Nothing has changed, and the next step is that of one that never tried.
    assert_ok(nd_data_parallel_drop_state(it.parallel, it.optimizer));
    step(&it, world, 1);
    step(&before, world, 1);
    assert_same(&it, &before);
    unlink(own);
    free_run(&it);
    free_run(&before);
    assert_ok(nd_barrier(world));
    if (rank == 0)
        unlink(path);
    nd_release(world);
}

/// What the ranks save must be of the same parts, although rank 0 alone writes.
static void test_states_that_differ_are_not_saved(void **state) {
    (void)state;
    nd_communicator *world = open_world(20);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    char path[512];
    shared_path(world, "differ", path);
    for (int sharded = 0; sharded < 2; sharded++) {
        run it = new_run(world, 1, sharded, 8);
        step(&it, world, 0);
        const nd_module *normal = nd_module_get_child(it.model, 2);
        nd_auto nd_tensor *before = nd_clone(nd_module_get_buffer(normal, "running_mean"));
        nd_auto nd_state *closed = nd_state_new(), *renamed = nd_state_new(),
                         *partly = nd_state_new();
        nd_auto nd_optimizer *gone = nd_sgd(it.model, NULL);
        assert_ok(nd_close(closed));
        assert_ok(nd_state_add_module(renamed, "model", it.model));
        assert_ok(nd_state_add_optimizer(renamed, "optimizer", it.optimizer));
        assert_ok(nd_state_set_i64(renamed, "stop", 0));
        assert_ok(nd_state_add_module(partly, "model", it.model));
        assert_ok(nd_state_add_optimizer(partly, "optimizer", gone));
        assert_ok(nd_state_set_i64(partly, "step", 0));
        assert_ok(nd_close(gone));
        nd_state *const wrong[] = {NULL, closed, renamed, partly};
        static const nd_status expected[] = {ND_ERROR_INVALID_ARGUMENT, ND_ERROR_CLOSED,
                                             ND_ERROR_INVALID_ARGUMENT, ND_ERROR_CLOSED};
        for (int what = 0; ranks > 1 && what < 4; what++) {
            nd_status status =
                nd_data_parallel_save_state(it.parallel, sharded ? it.optimizer : NULL,
                                            rank == 1 ? wrong[what] : it.state, path);
            assert_int_equal(status, expected[what]);
            const char *words = what == 2
                                    ? "data_parallel_save_state: the state of rank 0 and that "
                                      "of rank 1 have other parts"
                                : rank == 1 ? "data_parallel_save_state: "
                                            : "data_parallel_save_state: rank 1 does not take part";
            assert_non_null(strstr(nd_error_get_message(), words));
            assert_int_equal(access(path, F_OK), -1);
            assert_memory_equal(nd_get_data(before),
                                nd_get_data(nd_module_get_buffer(normal, "running_mean")),
                                8 * sizeof(float));
            nd_error_clear();
        }
        assert_int_equal(nd_data_parallel_save_state(it.parallel, it.optimizer, it.state,
                                                     rank == 0 ? NULL : path),
                         ND_ERROR_INVALID_ARGUMENT);
        nd_error_clear();
        assert_ok(nd_data_parallel_save_state(it.parallel, it.optimizer, it.state,
                                              rank == 0 ? path : NULL)); // of rank 0 alone
        assert_ok(nd_barrier(world));
        assert_int_equal(access(path, F_OK), 0);
        assert_ok(nd_barrier(world));
        if (rank == 0)
            unlink(path);
        assert_ok(nd_barrier(world));
        // One rank that wants a file is enough for its absence to be an error; of the public call.
        bool loaded = true;
        nd_status status = nd_data_parallel_load_state(it.parallel, it.optimizer, it.state, path,
                                                       rank == 0 ? NULL : &loaded);
        assert_int_equal(status, ND_ERROR_IO);
        nd_error_clear();
        status = nd_data_parallel_load_state(it.parallel, it.optimizer, it.state,
                                             rank == ranks - 1 ? NULL : path, &loaded);
        assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(nd_error_get_message(), "data_parallel_load_state: "));
        assert_null(strstr(nd_error_get_message(), "all_reduce"));
        nd_error_clear();
        status =
            nd_data_parallel_gather_state(it.parallel, rank == ranks - 1 ? NULL : it.optimizer);
        assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(nd_error_get_message(), "data_parallel_gather_state: "));
        assert_null(strstr(nd_error_get_message(), "all_reduce"));
        nd_error_clear();
        free_run(&it);
    }
    nd_release(world);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_each_sample_is_on_one_rank),
    ND_TEST(test_data_sets_that_differ_are_refused),
    ND_TEST(test_a_run_that_loads_goes_on_as_the_one_that_saved),
    ND_TEST(test_each_rank_draws_keys_of_its_own),
    ND_TEST(test_what_one_rank_cannot_save_or_load_is_an_error_on_all),
    ND_TEST(test_states_that_differ_are_not_saved),
};
RANKS_MAIN(tests)
