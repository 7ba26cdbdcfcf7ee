// Training over an NCCL without GPUs: the parameters are on devices, and so are the buckets. Against one
// process that has all ranks' shares: bit by bit for two ranks, within rounding for four. That
// gradients are reduced while the backward pass goes on, and what becomes of a step that fails.
#include "lib/distributed/data_parallel.h"
#include "tests/distributed/nccl_ranks.h"
#include "tests/distributed/nets.h"
#include <nd/state.h>

#include <sched.h>
#include <time.h>

static nd_tensor *loss_there(const kind *k, const nd_module *module, uint64_t seed, int rank,
                             nd_device device) {
    nd_auto nd_tensor *x = k->input(seed, rank);
    nd_auto nd_tensor *y = labels(seed, rank);
    nd_auto nd_tensor *there = nd_to(x, device);
    nd_auto nd_tensor *labels_there = nd_to(y, device);
    nd_auto nd_tensor *logits = nd_module_forward(module, there);
    nd_tensor *loss = nd_cross_entropy(logits, labels_there);
    assert_handle(loss);
    return loss;
}

static nd_module *make_on(const kind *k, uint64_t seed, nd_device device) {
    nd_module *module = k->make(seed);
    assert_ok(nd_module_to(module, device));
    return module;
}

/// The mean of all ranks' gradients, in the order of ranks, on one device.
static void mean_there(const kind *k, const nd_module *module, uint64_t seed, int ranks,
                       nd_device device) {
    for (int r = 0; r < ranks; r++) {
        nd_auto nd_tensor *loss = loss_there(k, module, seed, r, device);
        assert_ok(nd_backward(loss, NULL));
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(module, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
}

static void assert_near(const char *what, const nd_tensor *a, const nd_tensor *b,
                        double tolerance) {
    assert_handle(a);
    assert_handle(b);
    assert_int_equal(nd_get_device(a).kind, ND_CUDA);
    nd_auto nd_tensor *x = nd_to(a, cpu), *y = nd_to(b, cpu);
    for (int64_t n = 0; n < nd_get_numel(x); n++) {
        double difference = fabs(element_at(x, n) - element_at(y, n));
        if (!(difference <= tolerance * (1 + fabs(element_at(y, n)))))
            fail_msg("%s[%lld]: %.9g and %.9g", what, (long long)n, element_at(x, n),
                     element_at(y, n));
    }
}

static void assert_near_modules(const nd_module *a, const nd_module *b, bool gradients,
                                double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a); i++) {
        const char *name;
        const nd_tensor *x = nd_module_get_parameter_at(a, i, &name);
        const nd_tensor *y = nd_module_get_parameter_at(b, i, NULL);
        assert_near(name, gradients ? nd_get_grad(x) : x, gradients ? nd_get_grad(y) : y,
                    tolerance);
    }
}

static nd_data_parallel *begin_parallel(const nd_module *module, const nd_communicator *comm,
                                        uint64_t bucket_bytes, bool sharded) {
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = bucket_bytes;
    options.shard_optimizer = sharded;
    nd_data_parallel *parallel = nd_data_parallel_new(module, comm, &options);
    assert_handle(parallel);
    return parallel;
}

/// How a net is trained.
typedef struct training {
    const kind *kind;
    uint64_t bucket_bytes;
    bool sharded;
    double limit; ///< of the norm
    bool scaled;  ///< the loss is, and the gradients are not
} training;

static void train(nd_communicator *comm, int rank, void *context) {
    const training *how = context;
    const kind *k = how->kind;
    int ranks = nd_communicator_get_size(comm);
    nd_device device = cuda(rank);
    nd_auto nd_module *module = make_on(k, 100 + (uint64_t)rank, device);
    nd_auto nd_module *alone = make_on(k, 100, device);
    nd_auto nd_data_parallel *parallel =
        begin_parallel(module, comm, how->bucket_bytes, how->sharded);
    assert_near_modules(module, alone, false, 0);
    nd_auto nd_optimizer *optimizer = nd_adam(module, NULL);
    nd_auto nd_optimizer *optimizer_alone = nd_adam(alone, NULL);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    bool clips = how->limit < 1e3;
    for (uint64_t n = 0; n < 3; n++) { // buckets have another order behind the first step
        nd_auto nd_tensor *loss = loss_there(k, module, n, rank, device);
        nd_auto nd_tensor *scaled = nd_loss_scaler_scale(scaler, loss);
        assert_ok(nd_data_parallel_backward(parallel, how->scaled ? scaled : loss, NULL));
        mean_there(k, alone, n, ranks, device);
        if (how->scaled)
            assert_ok(nd_data_parallel_unscale(parallel, scaler, optimizer));
        if (!how->sharded)
            assert_near_modules(module, alone, true, n > 0 && clips ? 1e-5 : ranks <= 2 ? 0 : 1e-6);
        double norm, norm_alone;
        assert_ok(nd_data_parallel_clip_grad_norm(parallel, how->limit, &norm));
        assert_ok(nd_clip_grad_norm(alone, how->limit, &norm_alone));
        assert_true(fabs(norm - norm_alone) <= 1e-5 * norm_alone);
        if (how->scaled)
            assert_ok(nd_data_parallel_step_scaled(parallel, scaler, optimizer, NULL));
        else
            assert_ok(nd_data_parallel_step(parallel, optimizer));
        assert_ok(nd_optimizer_step(optimizer_alone));
        assert_ok(nd_module_zero_grad(module));
        assert_ok(nd_module_zero_grad(alone));
        assert_near_modules(module, alone, false, ranks <= 2 && !clips ? 0 : 1e-3);
    }
}

static void train_all(void) {
    static const training ways[] = {
        {&kinds[0], UINT64_C(25) << 20, false, 1e9, false},
        {&kinds[0], 300, false, 0.5, false},
        {&kinds[0], 3000, true, 1e9, false},
        {&kinds[0], 3000, true, 1e9, true},
        {&kinds[2], 400, false, 1e9, true},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        nccl()->set_seed(i);
        training how = ways[i];
        nccl_run(2, 120, train, &how);
        if (i == 2)
            nccl_run(NCCL_RANKS, 120, train, &how);
    }
    nccl()->set_seed(0);
}

static void test_ranks_train_as_one_process_would(void **state) {
    (void)state;
    train_all();
    assert_no_nccl_left();
    assert_int_equal(nccl_counts().aborted, 0);
}

static void test_with_the_collector_on_nothing_changes(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    training how = {.kind = &kinds[0], .bucket_bytes = 2000, .limit = 1e9};
    nccl_run(2, 120, train, &how);
    how.sharded = true;
    nccl_run(2, 120, train, &how);
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_gc_set_mode(ND_GC_OFF);
    assert_no_nccl_left();
}

static void accumulate(nd_communicator *comm, int rank, void *context) {
    (void)context;
    const kind *k = &kinds[0];
    int ranks = nd_communicator_get_size(comm);
    nd_auto nd_module *module = make_on(k, 3, cuda(rank)), *alone = make_on(k, 3, cuda(rank));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 2000, false);
    for (uint64_t n = 0; n < 3; n++) {
        nd_auto nd_tensor *loss = loss_there(k, module, n, rank, cuda(rank));
        assert_ok(n < 2 ? nd_backward(loss, NULL)
                        : nd_data_parallel_backward(parallel, loss, NULL));
        for (int r = 0; r < ranks; r++) {
            nd_auto nd_tensor *share = loss_there(k, alone, n, r, cuda(rank));
            assert_ok(nd_backward(share, NULL));
        }
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(alone); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(alone, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
    assert_near_modules(module, alone, true, 1e-5);
}

static void test_gradients_accumulate_without_communication(void **state) {
    (void)state;
    nccl_run(2, 120, accumulate, NULL);
    assert_no_nccl_left();
}

static double element_there(const nd_tensor *x, int64_t i) {
    nd_auto nd_tensor *here = nd_to(x, cpu);
    return element_at(here, i);
}

static void use_some(nd_communicator *comm, int rank, void *context) {
    (void)context;
    int ranks = nd_communicator_get_size(comm);
    static const nd_module_type type = {sizeof(nd_module_type), 1, "three", transformer_forward};
    nd_auto nd_module *module = nd_module_new(&type, NULL, 0);
    static const char *const names[] = {"all", "one", "none"};
    nd_tensor *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = full_on(cuda(rank), 4, i + 1);
        assert_ok(nd_set_requires_grad(p[i], true));
        assert_ok(nd_module_add_parameter(module, names[i], p[i]));
    }
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 1 << 20, false);
    for (int n = 0; n < 3; n++) {
        nd_auto nd_tensor *sum = rank == 0 ? nd_add(p[0], p[1]) : nd_retain(p[0]);
        nd_auto nd_tensor *loss = nd_sum(sum, 0, NULL, false);
        assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        assert_true(element_there(nd_get_grad(p[0]), 3) == 1);
        assert_true(element_there(nd_get_grad(p[1]), 3) == 1.0 / ranks);
        assert_null(nd_get_grad(p[2]));
        assert_ok(nd_module_zero_grad(module));
    }
    for (int i = 0; i < 3; i++)
        nd_release(p[i]);
}

static void test_parameters_that_are_not_used(void **state) {
    (void)state;
    nccl_run(2, 120, use_some, NULL);
    nccl_run(NCCL_RANKS, 120, use_some, NULL);
    assert_no_nccl_left();
}

/// As many elements for each rank in a bucket, which go by NCCL's own calls for that.
static void share_alike(nd_communicator *comm, int rank, void *context) {
    (void)context;
    int ranks = nd_communicator_get_size(comm);
    static const nd_module_type type = {sizeof(nd_module_type), 1, "alike", transformer_forward};
    static const char *const names[] = {"a", "b", "c", "d"};
    nd_auto nd_module *module = nd_module_new(&type, NULL, 0);
    nd_tensor *p[NCCL_RANKS], *sum = NULL;
    for (int i = 0; i < ranks; i++) {
        p[i] = full_on(cuda(rank), 3, i + 1);
        assert_ok(nd_set_requires_grad(p[i], true));
        assert_ok(nd_module_add_parameter(module, names[i], p[i]));
    }
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 1 << 20, true);
    nd_auto nd_optimizer *optimizer = nd_sgd(module, NULL);
    for (int i = 0; i < ranks; i++) { // of p[i] the gradient is (i + 1) (rank + 1) on each rank
        nd_auto nd_tensor *scaled = nd_mul_scalar(p[i], (i + 1) * (rank + 1));
        nd_tensor *more = sum ? nd_add(sum, scaled) : nd_retain(scaled);
        nd_release(sum);
        sum = more;
    }
    nd_auto nd_tensor *loss = nd_sum(sum, 0, NULL, false);
    nd_release(sum);
    assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
    int owned = 0;
    for (int i = 0; i < ranks; i++) {
        const nd_tensor *grad = nd_get_grad(p[i]);
        if (grad)
            assert_true(element_there(grad, 2) == (i + 1) * (ranks + 1) / 2.0);
        owned += grad != NULL;
    }
    assert_int_equal(owned, 1);
    assert_int_equal(nd_data_parallel_get_bucket_count(parallel), 1);
    assert_ok(nd_data_parallel_step(parallel, optimizer));
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    for (int i = 0; i < ranks; i++) {
        double wanted = i + 1 - options.rate * (i + 1) * (ranks + 1) / 2.0;
        assert_true(fabs(element_there(p[i], 2) - wanted) < 1e-6);
        nd_release(p[i]);
    }
}

static void test_shares_that_are_alike(void **state) {
    (void)state;
    nccl_run(2, 120, share_alike, NULL);
    nccl_run(NCCL_RANKS, 120, share_alike, NULL);
    assert_no_nccl_left();
}

// -------------------------------------------------------------------------------------------------
// beside the backward pass

enum { WIDE = 128, WIDE_BYTES = WIDE * WIDE * 4 };

static uint64_t reduced_before;
static atomic_bool waited_in_vain;

/// In the middle of the pass: waits until the gradients that are there have been reduced, which takes
/// all ranks, and what this pass has queued.
static nd_tensor *wait_until_reduced(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    struct timespec now, begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begin.tv_sec > 60)
            atomic_store(&waited_in_vain, true);
    } while (nccl_counts().reduced - reduced_before < 2 * WIDE_BYTES &&
             !atomic_load(&waited_in_vain));
    return NULL;
}

static void overlap(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_key key = nd_key_new(7);
    nd_auto nd_module *first = nd_linear_module(nd_key_fold(key, 0), FEATURES, WIDE, true);
    nd_auto nd_module *last = nd_linear_module(nd_key_fold(key, 1), WIDE, WIDE, true);
    static const nd_module_type type = {sizeof(nd_module_type), 1, "two", transformer_forward};
    nd_auto nd_module *module = nd_module_new(&type, NULL, 0);
    assert_ok(nd_module_add_child(module, "first", first));
    assert_ok(nd_module_add_child(module, "last", last));
    assert_ok(nd_module_to(module, cuda(rank)));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, WIDE_BYTES, false);
    nd_auto nd_tensor *x = rows(5, rank), *there = nd_to(x, cuda(rank));
    nd_auto nd_tensor *middle = nd_module_forward(first, there);
    nd_auto nd_tensor *end = nd_module_forward(last, middle);
    nd_auto nd_tensor *loss = nd_sum(end, 0, NULL, false);
    assert_ok(nd_register_hook(middle, wait_until_reduced, NULL));
    assert_ok(nd_barrier(comm));
    assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
    assert_true(nd_data_parallel_get_bucket_count(parallel) > 1);
}

static void test_gradients_are_reduced_while_the_pass_goes_on(void **state) {
    (void)state;
    reduced_before = nccl_counts().reduced;
    nccl_run(2, 120, overlap, NULL);
    assert_false(atomic_load(&waited_in_vain));
    assert_no_nccl_left();
}

// -------------------------------------------------------------------------------------------------
// faults

static nd_tensor *fail_here(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    return nd_zeros(ND_SHAPE(1, 2, 3), ND_F32); // of a wrong shape
}

static void fail_on_one(nd_communicator *comm, int rank, void *context) {
    (void)context;
    const kind *k = &kinds[0];
    nd_auto nd_module *module = make_on(k, 3, cuda(rank));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 300, false);
    size_t count = nd_module_get_parameter_count(module);
    for (size_t i = 0; i < count; i++) {
        nd_tensor *hooked = (nd_tensor *)(uintptr_t)nd_module_get_parameter_at(module, i, NULL);
        uint64_t id = 0;
        if (rank == 1)
            assert_ok(nd_add_hook(hooked, fail_here, NULL, &id));
        nd_auto nd_tensor *loss = loss_there(k, module, i, rank, cuda(rank));
        assert_int_equal(nd_data_parallel_backward(parallel, loss, NULL), ND_ERROR_SHAPE);
        if (rank != 1)
            assert_non_null(strstr(nd_error_get_message(), "does not take part: "));
        nd_error_clear();
        for (size_t other = 0; other < count; other++)
            assert_null(nd_get_grad(nd_module_get_parameter_at(module, other, NULL)));
        if (id)
            assert_ok(nd_remove_hook(hooked, id));
        nd_auto nd_tensor *again = loss_there(k, module, i, rank, cuda(rank));
        assert_ok(nd_data_parallel_backward(parallel, again, NULL));
        assert_ok(nd_module_zero_grad(module));
    }
}

static void test_a_pass_that_fails_changes_nothing_anywhere(void **state) {
    (void)state;
    nccl_run(2, 120, fail_on_one, NULL);
    assert_no_nccl_left();
    assert_int_equal(nccl_counts().aborted, 0);
}

/// How a step is lost.
typedef enum loss { LEFT, FAILED, LATE, LOST } loss;

static void lose_a_step(nd_communicator *comm, int rank, void *context) {
    const loss how = *(loss *)context;
    const kind *k = &kinds[0];
    nd_auto nd_module *module = make_on(k, 3, cuda(rank));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 300, false);
    double seconds = rank == 0 && how != LOST ? 10 : 0.5;
    assert_ok(nd_communicator_set_timeout(parallel->comm, seconds));
    nd_auto nd_tensor *loss = loss_there(k, module, 1, rank, cuda(rank));
    assert_ok(nd_barrier(comm));
    if (how == LEFT && rank == 0)
        return;
    if (rank == 0 && how == FAILED)
        nccl()->fail_call(0, "ncclAllReduce", 4, 1);
    if (rank == 0 && (how == LATE || how == LOST))
        nccl()->fail_late(0, 4, how == LATE ? NCCL_REMOTE_ERROR : 0);
    assert_int_equal(nd_data_parallel_backward(parallel, loss, NULL), ND_ERROR_IO);
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++)
        assert_null(nd_get_grad(nd_module_get_parameter_at(module, i, NULL)));
    nd_auto nd_tensor *again = loss_there(k, module, 2, rank, cuda(rank));
    assert_int_equal(nd_data_parallel_backward(parallel, again, NULL), ND_ERROR_IO);
    assert_non_null(strstr(nd_error_get_message(), "the communicator is broken since"));
    nd_error_clear();
    assert_ok(nd_synchronize(cuda(rank)));
    nd_auto nd_tensor *alone = loss_there(k, module, 3, rank, cuda(rank));
    assert_ok(nd_backward(alone, NULL)); // the device goes on
}

static void test_a_step_that_a_rank_is_lost_in_is_an_error_on_the_others(void **state) {
    (void)state;
    for (loss how = LEFT; how <= LOST; how++) {
        uint64_t aborted = nccl_counts().aborted;
        nccl_run(2, 120, lose_a_step, &how);
        nccl()->fail_call(-1, "", 0, 0);
        nccl()->fail_late(-1, 0, 0);
        assert_int_equal(nccl_counts().aborted - aborted, how == LEFT ? 1 : 2);
        assert_no_nccl_left();
    }
}

static void refuse(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_auto nd_module *here = kinds[0].make(1);
    assert_null(nd_data_parallel_new(here, comm, NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
    assert_non_null(strstr(nd_error_get_message(), "a parameter is on cpu:0"));
    nd_error_clear();
    nd_auto nd_module *module = make_on(&kinds[0], 1, cuda(rank));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 300, false);
    assert_ok(nd_close(parallel));
    assert_ok(nd_barrier(comm));
}

static void test_parameters_of_another_device_are_refused(void **state) {
    (void)state;
    nccl_run(2, 120, refuse, NULL);
    assert_no_nccl_left();
}

// -------------------------------------------------------------------------------------------------
// checkpoints

static void open_state(nd_state *file, const nd_module *module, const nd_optimizer *optimizer) {
    assert_ok(nd_state_add_module(file, "model", module));
    assert_ok(nd_state_add_optimizer(file, "optimizer", optimizer));
}

/// Steps with the optimizer's state in shares; then saves, or loads before and goes on.
static void step_and_save(nd_communicator *comm, int rank, void *context) {
    const char *path = context;
    const kind *k = &kinds[0];
    nd_auto nd_module *module = make_on(k, 100, cuda(rank));
    nd_auto nd_data_parallel *parallel = begin_parallel(module, comm, 3000, true);
    nd_auto nd_optimizer *optimizer = nd_adam(module, NULL);
    nd_auto nd_state *file = nd_state_new();
    open_state(file, module, optimizer);
    bool loaded = false;
    assert_ok(nd_data_parallel_load_state(parallel, optimizer, file, path, &loaded));
    for (uint64_t n = loaded ? 2 : 0; n < (loaded ? 4 : 2); n++) {
        nd_auto nd_tensor *loss = loss_there(k, module, n, rank, cuda(rank));
        assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        assert_ok(nd_data_parallel_step(parallel, optimizer));
        assert_ok(nd_module_zero_grad(module));
    }
    assert_ok(nd_data_parallel_save_state(parallel, optimizer, file, path));
}

/// Two ranks save, four go on and save, and one process without any comes to the same.
static void test_a_checkpoint_is_loaded_by_another_number_of_ranks(void **state) {
    (void)state;
    char path[300];
    nccl_path(path, sizeof path);
    nccl_run(2, 120, step_and_save, path);
    nccl_run(NCCL_RANKS, 120, step_and_save, path);
    const kind *k = &kinds[0];
    nd_auto nd_module *alone = make_on(k, 100, cuda(0)), *loaded = make_on(k, 5, cuda(0));
    nd_auto nd_optimizer *optimizer = nd_adam(alone, NULL), *of_loaded = nd_adam(loaded, NULL);
    for (uint64_t n = 0; n < 4; n++) {
        mean_there(k, alone, n, n < 2 ? 2 : NCCL_RANKS, cuda(0));
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_module_zero_grad(alone));
    }
    nd_auto nd_state *file = nd_state_new();
    open_state(file, loaded, of_loaded);
    assert_ok(nd_load_state(file, path));
    assert_near_modules(loaded, alone, false, 1e-3);
    unlink(path);
    assert_int_equal(nccl_counts().alive, 0);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_ranks_train_as_one_process_would),
    ND_TEST(test_with_the_collector_on_nothing_changes),
    ND_TEST(test_gradients_accumulate_without_communication),
    ND_TEST(test_parameters_that_are_not_used),
    ND_TEST(test_shares_that_are_alike),
    ND_TEST(test_gradients_are_reduced_while_the_pass_goes_on),
    ND_TEST(test_a_pass_that_fails_changes_nothing_anywhere),
    ND_TEST(test_a_step_that_a_rank_is_lost_in_is_an_error_on_the_others),
    ND_TEST(test_parameters_of_another_device_are_refused),
    ND_TEST(test_a_checkpoint_is_loaded_by_another_number_of_ranks),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
