// Beside a program that uses MPI itself: it begins and ends MPI, has communicators of its own, and
// may have begun it for a single thread.
#include "tests/distributed/ranks.h"

#if ND_HAVE_MPI
#include <mpi.h>
#include <pthread.h>

static void test_a_programs_communicator_is_duplicated(void **state) {
    (void)state;
    int rank, ranks, number = 7;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half); // the other way round
    nd_auto nd_communicator *comm = nd_communicator_from_mpi(&half, NULL);
    assert_handle(comm);
    int half_rank, half_ranks;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_ranks);
    MPI_Comm_free(&half);
    assert_int_equal(nd_communicator_get_rank(comm), half_rank);
    assert_int_equal(nd_communicator_get_size(comm), half_ranks);
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), rank, ND_F64);
    assert_ok(nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM));
    double expected = 0;
    for (int r = rank % 2; r < ranks; r += 2)
        expected += r;
    assert_true(element_at(x, 2) == expected);
    // The program's own messages are not ours.
    MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Comm none = MPI_COMM_NULL;
    assert_null(nd_communicator_from_mpi(&none, NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
}

typedef struct worker {
    nd_communicator *comm;
    pthread_t thread;
    bool well;
} worker;

static void *work(void *data) {
    worker *self = data;
    self->well = true;
    for (int i = 0; i < 200 && self->well; i++) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(100), i, ND_F32);
        self->well =
            nd_all_reduce_(x, self->comm, ND_COLLECTIVE_MEAN) == ND_OK && element_at(x, 99) == i;
    }
    return NULL;
}

static void test_threads_communicate_beside_each_other(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    worker workers[3] = {0};
    for (int i = 0; i < 3; i++)
        workers[i].comm = nd_communicator_duplicate(world, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].well);
        nd_release(workers[i].comm);
    }
}

static void test_one_thread_is_too_few(void **state) {
    (void)state;
    assert_null(nd_communicator_from_world(NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_UNSUPPORTED);
    assert_non_null(strstr(nd_error_get_message(), "MPI_THREAD_SERIALIZED"));
}

static nd_communicator *outlives;

static void test_a_finalized_mpi_is_named(void **state) {
    (void)state;
    assert_int_equal(nd_barrier(outlives), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "finalized"));
    assert_null(nd_communicator_from_world(NULL));
}

int main(int count, char **arguments) {
    bool single = count > 1 && strcmp(arguments[1], "single") == 0;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_programs_communicator_is_duplicated),
        ND_TEST(test_threads_communicate_beside_each_other),
    };
    const struct CMUnitTest single_tests[] = {ND_TEST(test_one_thread_is_too_few)};
    const struct CMUnitTest last_tests[] = {ND_TEST(test_a_finalized_mpi_is_named)};
    int provided;
    MPI_Init_thread(&count, &arguments, single ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED,
                    &provided);
    int failed = single ? cmocka_run_group_tests(single_tests, NULL, NULL)
                        : cmocka_run_group_tests(tests, NULL, NULL);
    outlives = single ? NULL : nd_communicator_from_world(NULL);
    MPI_Finalize();
    if (!single)
        failed += cmocka_run_group_tests(last_tests, NULL, NULL);
    nd_release(outlives);
    return failed;
}
#else
static void test_without_mpi_communicators_say_so(void **state) {
    (void)state;
    assert_null(nd_communicator_from_world(NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_UNSUPPORTED);
    assert_null(nd_communicator_from_mpi(&(int){0}, NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_without_mpi_communicators_say_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
