// Programs that use <nd/distributed.h> in odd ways, all of them allowed: shapes without elements and
// with strides of 0, communicators that end in another order on each rank or outlive what they were
// made of, managers that are closed during a call, threads that fork meanwhile.
#include "tests/distributed/ranks.h"

#include <nd/distributed.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

// -------------------------------------------------------------------------------------------------
// shapes

/// [2, 3, 4] in which this rank repeats one element along the axes of `expanded`, or [0, 3] and such.
static nd_tensor *odd_tensor(int which) {
    if (which == 0)
        return nd_ones(ND_SHAPE(0, 3), ND_F32);
    if (which == 1)
        return nd_ones(ND_SHAPE(4, 0, 1), ND_F32);
    nd_auto nd_tensor *one =
        which == 2 ? nd_ones(ND_SHAPE(1, 1, 1), ND_F32) : nd_ones(ND_SHAPE(1, 3, 1), ND_F32);
    return nd_expand(one, ND_SHAPE(4, 3, 2));
}

static void test_empty_and_expanded_tensors(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int which = 0; which < 4; which++) {
        // Of one shape, in other strides on each rank.
        nd_auto nd_tensor *x = odd_tensor(which);
        nd_auto nd_tensor *packed = nd_contiguous(x);
        const nd_tensor *mine = rank % 2 ? packed : x;
        nd_auto nd_tensor *sum = nd_all_reduce(mine, world, ND_COLLECTIVE_SUM);
        nd_auto nd_tensor *all = nd_all_gather(mine, world);
        assert_handle(sum);
        assert_handle(all);
        assert_int_equal(nd_get_numel(all), ranks * nd_get_numel(x));
        for (int64_t i = 0; i < nd_get_numel(sum); i++)
            assert_true(element_at(sum, i) == ranks);
        if (nd_get_shape(x)[0] % ranks == 0) {
            nd_auto nd_tensor *share = nd_reduce_scatter(mine, world, ND_COLLECTIVE_MEAN);
            assert_handle(share);
            for (int64_t i = 0; i < nd_get_numel(share); i++)
                assert_true(element_at(share, i) == 1);
        }
        assert_ok(nd_broadcast_(packed, world, ranks - 1));
        // What shares memory with itself cannot be written: an error on all, of one rank's doing.
        if (which >= 2 && ranks > 1)
            assert_true(nd_broadcast_(rank == 1 ? x : packed, world, 0) ==
                        ND_ERROR_INVALID_ARGUMENT);
        nd_error_clear();
    }
    assert_ok(nd_barrier(world));
}

// -------------------------------------------------------------------------------------------------
// communicators

/// Each rank lets go of them in another order; those that are there still are as good as before.
static void test_communicators_end_in_any_order(void **state) {
    (void)state;
    enum { MOST = 6 };
    nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_communicator *made[MOST] = {world};
    for (int i = 1; i < MOST; i++) // of the first, or of one another
        assert_handle(made[i] = nd_communicator_duplicate(made[i / 2], NULL));
    for (int i = 0; i < MOST - 1; i++) {
        int gone = (i + rank) % (MOST - 1);
        nd_release(made[gone]);
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(100), rank, ND_F32);
        assert_ok(nd_all_reduce_(x, made[MOST - 1], ND_COLLECTIVE_SUM));
        assert_true(element_at(x, 99) == ranks * (ranks - 1) / 2);
    }
    nd_auto nd_communicator *child = nd_communicator_duplicate(made[MOST - 1], NULL);
    nd_release(made[MOST - 1]);
    assert_ok(nd_barrier(child));
}

typedef struct closing {
    nd_manager *manager;
    int delay;
} closing;

static void *close_manager(void *data) {
    closing *self = data;
    usleep((useconds_t)self->delay);
    nd_manager_close(self->manager, NULL);
    return NULL;
}

/// On one rank after the other the manager of tensors is closed in the middle of calls: that rank has
/// an error, the others one or none, and the communicator lives elsewhere.
static void test_managers_are_closed_during_calls(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int round = 0; round < 12; round++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "short");
        closing self = {manager, 200 + round * 150};
        pthread_t thread;
        if (round % ranks == rank)
            assert_int_equal(pthread_create(&thread, NULL, close_manager, &self), 0);
        for (int i = 0; i < 30; i++)
            nd_with_manager(manager) {
                nd_auto nd_tensor *x = nd_full(ND_SHAPE(20000), 1, ND_F32);
                nd_auto nd_tensor *sum = nd_all_reduce(x, world, ND_COLLECTIVE_SUM);
                if (sum && !nd_is_closed(sum) && nd_get_data(sum))
                    assert_true(nd_get_numel(sum) == 20000);
                nd_auto nd_tensor *all = nd_all_gather(x, world);
                (void)all;
                nd_error_clear();
            }
        if (round % ranks == rank)
            pthread_join(thread, NULL);
        assert_ok(nd_barrier(world));
    }
    assert_false(nd_communicator_is_broken(world));
}

// -------------------------------------------------------------------------------------------------
// threads that fork

typedef struct worker {
    nd_communicator *comm;
    pthread_t thread;
    int number;
    bool well;
} worker;

static void *work(void *data) {
    worker *self = data;
    int rank = nd_communicator_get_rank(self->comm), ranks = nd_communicator_get_size(self->comm);
    self->well = true;
    for (int i = 0; i < 80 && self->well; i++) {
        int64_t count = 1 + (int64_t)(mix((uint64_t)(i * 8 + self->number)) % 40000);
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), rank == i % ranks ? i : -1, ND_F32);
        nd_auto nd_tensor *sum = NULL;
        self->well = nd_broadcast_(x, self->comm, i % ranks) == ND_OK &&
                     element_at(x, count - 1) == i &&
                     (sum = nd_all_reduce(x, self->comm, ND_COLLECTIVE_SUM)) != NULL &&
                     element_at(sum, 0) == i * ranks;
    }
    return NULL;
}

static void test_children_are_forked_between_and_during_calls(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    worker workers[2] = {{.number = 0}, {.number = 1}};
    for (int i = 0; i < 2; i++)
        assert_handle(workers[i].comm = nd_communicator_duplicate(world, NULL));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            bool refused = nd_barrier(workers[i % 2].comm) == ND_ERROR_STATE;
            nd_release(workers[0].comm);
            _exit(!refused);
        }
        int answer = -1;
        assert_int_equal(waitpid(child, &answer, 0), child);
        assert_int_equal(answer, 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].well);
        nd_release(workers[i].comm);
    }
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_empty_and_expanded_tensors),
    ND_TEST(test_communicators_end_in_any_order),
    ND_TEST(test_managers_are_closed_during_calls),
    ND_TEST(test_children_are_forked_between_and_during_calls),
};
RANKS_MAIN(tests)
