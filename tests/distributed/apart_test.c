// Steps and objects that one rank cannot make: no rank makes them. What a rank could not finish
// after others had, each later step says, until all ranks have the same values again.
#include "tests/distributed/ranks.h"

#include <nd/memory.h>
#include <nd/state.h>
#include <pthread.h>
#include <unistd.h>

/// One rank's training, of which the last rank has trouble.
typedef struct training {
    nd_communicator *world;
    nd_manager *manager; ///< of the parameters, and so of the optimizer's state
    nd_module *module;
    nd_data_parallel *parallel;
    nd_optimizer *optimizer;
    int rank, ranks;
    bool last;
} training;

static training begin(bool sharded) {
    training t = {.world = open_world(20)};
    t.rank = nd_communicator_get_rank(t.world);
    t.ranks = nd_communicator_get_size(t.world);
    t.last = t.rank == t.ranks - 1;
    t.manager = nd_manager_new(NULL, "parameters");
    nd_with_manager(t.manager) {
        t.module = ND_SEQUENTIAL(nd_linear_module(nd_key_new((uint64_t)t.rank), 20, 30, true),
                                 nd_tanh_module(), nd_linear_module(nd_key_new(5), 30, 20, true));
    }
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.shard_optimizer = sharded;
    t.parallel = nd_data_parallel_new(t.module, t.world, &options);
    assert_handle(t.parallel);
    t.optimizer = nd_adam(t.module, NULL);
    return t;
}

static void end(training *t) {
    assert_ok(nd_barrier(t->world));
    nd_release(t->parallel);
    nd_release(t->optimizer);
    nd_release(t->module);
    assert_ok(nd_manager_close(t->manager, NULL));
    nd_release(t->manager);
    nd_release(t->world);
}

static void backward(const training *t) {
    assert_ok(nd_module_zero_grad(t->module));
    nd_auto nd_tensor *x = nd_randn(nd_key_new(10 + (uint64_t)t->rank), ND_SHAPE(4, 20), ND_F32);
    nd_auto nd_tensor *y = nd_module_forward(t->module, x);
    nd_auto nd_tensor *loss = nd_mean(y, 0, NULL, false);
    assert_ok(nd_data_parallel_backward(t->parallel, loss, NULL));
}

/// All parameters behind each other.
static nd_tensor *values_of(const training *t) {
    nd_tensor *flat[8];
    size_t count = nd_module_get_parameter_count(t->module);
    nd_tensor *all = NULL;
    nd_no_grad {
        for (size_t i = 0; i < count; i++)
            flat[i] = nd_reshape(nd_module_get_parameter_at(t->module, i, NULL), ND_SHAPE(-1));
        nd_auto nd_tensor *joined = nd_concat(count, (const nd_tensor *const *)flat, 0);
        all = nd_clone(joined);
        for (size_t i = 0; i < count; i++)
            nd_release(flat[i]);
    }
    assert_handle(all);
    return all;
}

static bool are_same(const nd_tensor *a, const nd_tensor *b) {
    return memcmp(nd_get_data(a), nd_get_data(b), (size_t)nd_get_numel(a) * sizeof(float)) == 0;
}

/// All ranks have the values of rank 0.
static void assert_together(const training *t) {
    nd_auto nd_tensor *here = values_of(t);
    nd_auto nd_tensor *there = nd_clone(here);
    assert_ok(nd_broadcast_(there, t->world, 0));
    assert_true(are_same(here, there));
}

/// A quota on the last rank has no room for the state that the first step makes.
static void step_without_room(bool sharded) {
    training t = begin(sharded), reference = begin(sharded);
    backward(&t);
    nd_auto nd_tensor *before = values_of(&t);
    if (t.last)
        assert_ok(nd_manager_set_quota(t.manager, ND_CPU, 100));
    assert_int_equal(nd_data_parallel_step(t.parallel, t.optimizer), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_get_message(), t.last ? "quota" : "does not take part"));
    nd_error_clear();
    assert_ok(nd_manager_set_quota(t.manager, ND_CPU, 0));
    nd_auto nd_tensor *after = values_of(&t);
    assert_true(are_same(before, after)); // on every rank
    backward(&reference);
    for (int n = 0; n < 3; n++) { // as if nothing had been
        assert_ok(nd_data_parallel_step(t.parallel, t.optimizer));
        assert_ok(nd_data_parallel_step(reference.parallel, reference.optimizer));
        assert_together(&t);
    }
    nd_auto nd_tensor *stepped = values_of(&t);
    nd_auto nd_tensor *expected = values_of(&reference);
    assert_true(are_same(stepped, expected));
    assert_false(are_same(stepped, before));
    end(&reference);
    end(&t);
}

static void test_no_rank_steps_before_all_are_ready(void **state) {
    (void)state;
    step_without_room(false);
    step_without_room(true);
}

/// A thread that closes the optimizer while its rank waits, in a step, for the others, whom it then
/// lets come.
typedef struct closer {
    training *of;
    nd_communicator *beside;
    uint64_t bytes; ///< that the manager has when the state has been made
} closer;

static void *close_meanwhile(void *data) {
    closer *closer = data;
    while (nd_manager_get_total_bytes(closer->of->manager) < closer->bytes)
        usleep(1000);
    usleep(50000);                                  // what has its state waits
    bool met = nd_barrier(closer->beside) == ND_OK; // MPI's lock is between the threads
    bool closed = nd_close(closer->of->optimizer) == ND_OK;
    met &= nd_barrier(closer->beside) == ND_OK;
    return closed && met ? data : NULL;
}

/// The last rank's optimizer goes after all have agreed to step.
static nd_status step_that_the_last_rank_cannot_finish(training *t, nd_communicator *beside) {
    pthread_t thread;
    // Moments of its share: with shares that is at least one of a bias.
    uint64_t bytes = nd_manager_get_total_bytes(t->manager);
    closer closer = {t, beside, bytes};
    for (size_t i = 0; i < nd_module_get_parameter_count(t->module); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(t->module, i, NULL);
        if (nd_get_grad(parameter))
            closer.bytes += 2 * (uint64_t)nd_get_numel(parameter) * sizeof(float);
    }
    if (t->last)
        assert_int_equal(pthread_create(&thread, NULL, close_meanwhile, &closer), 0);
    for (int n = 0; n < 2 && !t->last; n++)
        assert_ok(nd_barrier(beside));
    nd_status status = nd_data_parallel_step(t->parallel, t->optimizer);
    void *answer = NULL;
    if (t->last)
        assert_int_equal(pthread_join(thread, &answer), 0);
    assert_true(!t->last || answer);
    return status;
}

static void step_apart(bool sharded, bool loads) {
    training t = begin(sharded);
    if (t.ranks == 1) { // nobody to wait for
        end(&t);
        return;
    }
    nd_communicator *beside = nd_communicator_duplicate(t.world, NULL);
    nd_state *file = nd_state_new();
    assert_ok(nd_state_add_module(file, "model", t.module));
    char path[300];
    snprintf(path, sizeof path, "%s/apart-%d", getenv("TMPDIR"), sharded);
    if (loads)
        assert_ok(nd_data_parallel_save_state(t.parallel, t.optimizer, file, path));
    backward(&t);
    assert_int_equal(step_that_the_last_rank_cannot_finish(&t, beside), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_optimizer *optimizer = nd_adam(t.module, NULL);
    for (int n = 0; n < 2; n++) {
        nd_auto nd_tensor *before = values_of(&t);
        assert_int_equal(nd_data_parallel_step(t.parallel, optimizer), ND_ERROR_STATE);
        assert_non_null(strstr(nd_error_get_message(), "nd_data_parallel_synchronize()"));
        nd_error_clear();
        nd_auto nd_tensor *after = values_of(&t);
        assert_true(are_same(before, after));
    }
    if (loads) { // the file of before stays
        assert_int_equal(nd_data_parallel_save_state(t.parallel, optimizer, file, path),
                         ND_ERROR_STATE);
        nd_error_clear();
    }
    assert_ok(loads ? nd_data_parallel_load_state(t.parallel, optimizer, file, path, NULL)
                    : nd_data_parallel_synchronize(t.parallel));
    assert_together(&t);
    assert_ok(nd_data_parallel_step(t.parallel, optimizer));
    assert_together(&t);
    nd_release(optimizer);
    nd_release(file);
    nd_release(beside);
    end(&t);
}

static void test_a_step_that_was_made_by_some_is_remembered(void **state) {
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++)
        for (int loads = 0; loads < 2; loads++)
            step_apart(sharded, loads);
}

/// The manager of the last rank has room for so many objects, one of which is there.
static void test_a_rank_without_room_says_so_to_all(void **state) {
    (void)state;
    for (uint64_t room = 1; room <= 8; room++) {
        training t = begin(false);
        nd_auto nd_module *module = nd_linear_module(nd_key_new((uint64_t)t.rank), 3, 3, true);
        nd_auto nd_tensor *before = nd_clone(nd_module_get_parameter(module, "weight"));
        nd_manager *full = nd_manager_new(NULL, "full");
        assert_ok(nd_manager_set_cap(full, t.last ? room : 20));
        nd_with_manager(full) {
            nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
            nd_auto nd_data_parallel *made = nd_data_parallel_new(module, t.world, NULL);
            const nd_tensor *weight = nd_module_get_parameter(module, "weight");
            assert_true(made ? room > 2 : room < 8); // it, and a communicator
            if (!made) {
                assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
                assert_non_null(
                    strstr(nd_error_get_message(), t.last ? "full" : "does not take part"));
                assert_true(are_same(before, weight));
            }
        }
        nd_error_clear();
        assert_ok(nd_manager_close(full, NULL));
        nd_release(full);
        end(&t);
    }
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_no_rank_steps_before_all_are_ready),
    ND_TEST(test_a_step_that_was_made_by_some_is_remembered),
    ND_TEST(test_a_rank_without_room_says_so_to_all),
};
RANKS_MAIN(tests)
