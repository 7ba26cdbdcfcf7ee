// What an NCCL without GPUs is told to do wrong: calls that fail, errors that come later, work that is
// never done, ranks that never come. Every rank has an error within its deadline, communicators are
// aborted, what was in place is unchanged, devices go on, and nothing is left.
#include "tests/distributed/nccl_ranks.h"

#include <signal.h>

enum { ROWS = 8 };

/// A call to go wrong, on rank 0, while the others wait for it so long.
typedef struct fault {
    const char *function; ///< NULL: work that is late
    int error;            ///< 0: it is just never done
    nd_status (*call)(nd_tensor *x, nd_communicator *comm, int rank);
    double others;
    atomic_int told; ///< ranks that NCCL has told of its failure
} fault;

static nd_status of(nd_tensor *result) {
    nd_status status = result ? ND_OK : nd_error_get_status();
    nd_release(result);
    return status;
}

static nd_status all_reduce(nd_tensor *x, nd_communicator *comm, int rank) {
    (void)rank;
    return nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM);
}

static nd_status reduce_scatter(nd_tensor *x, nd_communicator *comm, int rank) {
    (void)rank;
    return of(nd_reduce_scatter(x, comm, ND_COLLECTIVE_SUM));
}

static nd_status all_gather(nd_tensor *x, nd_communicator *comm, int rank) {
    (void)rank;
    return of(nd_all_gather(x, comm));
}

static nd_status broadcast(nd_tensor *x, nd_communicator *comm, int rank) {
    (void)rank;
    return nd_broadcast_(x, comm, 0);
}

static nd_status message(nd_tensor *x, nd_communicator *comm, int rank) {
    return rank == 0 ? nd_send(x, comm, 1) : rank == 1 ? nd_receive_(x, comm, 0) : nd_barrier(comm);
}

static nd_status duplicate(nd_tensor *x, nd_communicator *comm, int rank) {
    (void)x;
    (void)rank;
    nd_communicator *made = nd_communicator_duplicate(comm, NULL);
    nd_status status = made ? ND_OK : nd_error_get_status();
    nd_release(made);
    return status;
}

/// x is what it was, the device works, and the next call says why it does not.
static void assert_given_up(nd_communicator *comm, const nd_tensor *x, int rank) {
    assert_true(nd_communicator_is_broken(comm));
    assert_int_equal(nd_barrier(comm), ND_ERROR_IO);
    assert_non_null(strstr(nd_error_get_message(), "the communicator is broken since"));
    nd_error_clear();
    assert_ok(nd_synchronize(cuda(rank)));
    assert_true(sum_of(x) == (rank + 1) * ROWS);
    nd_auto nd_tensor *y = nd_add(x, x);
    assert_true(sum_of(y) == 2 * (rank + 1) * ROWS);
}

static void go_wrong(nd_communicator *comm, int rank, void *context) {
    fault *it = context;
    nd_auto nd_tensor *x = full_on(cuda(rank), ROWS, rank + 1);
    assert_ok(nd_barrier(comm));
    assert_ok(nd_communicator_set_timeout(comm, rank == 0 && it->function ? 20 : it->others));
    if (rank == 0 && it->function)
        nccl()->fail_call(0, it->function, 1, it->error);
    else if (rank == 0)
        nccl()->fail_late(0, 1, it->error);
    assert_int_equal(it->call(x, comm, rank), ND_ERROR_IO);
    const char *said = nd_error_get_message();
    if (strstr(said, "NCCL failed: "))
        atomic_fetch_add(&it->told, 1);
    else
        assert_non_null(strstr(said, "nothing came from the other ranks"));
    assert_given_up(comm, x, rank);
}

/// A rank that is slow for another reason may have come too late to be told.
static void assert_told(fault it, int ranks) {
    for (int tries = 0; tries < 4; tries++) {
        it.others = 0.3 * (1 << (2 * tries));
        atomic_init(&it.told, 0);
        uint64_t aborted = nccl_counts().aborted;
        nccl_run(ranks, 120, go_wrong, &it);
        assert_int_equal(nccl_counts().aborted - aborted, ranks);
        nccl()->fail_call(0, "", 0, 0);
        assert_no_nccl_left();
        if (it.error == 0 || atomic_load(&it.told) > 0)
            return;
    }
    fail_msg("%s: nobody was told", it.function ? it.function : "late");
}

static void test_a_call_that_fails_is_an_error_everywhere(void **state) {
    (void)state;
    static const fault faults[] = {
        {.function = "ncclAllReduce", .error = 3, .call = all_reduce},
        {.function = "ncclReduceScatter", .error = 1, .call = reduce_scatter},
        {.function = "ncclAllGather", .error = 2, .call = all_gather},
        {.function = "ncclBroadcast", .error = 4, .call = broadcast},
        {.function = "ncclSend", .error = 5, .call = message},
        {.function = "ncclRecv", .error = 5, .call = message},
        {.function = "ncclCommGetAsyncError", .error = 3, .call = all_reduce},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        assert_told(faults[i], 2);
    assert_told(faults[0], 4);
}

static void test_work_that_fails_later_is_an_error_everywhere(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= NCCL_RANKS; ranks += 2) {
        assert_told((fault){.error = NCCL_REMOTE_ERROR, .call = all_reduce}, ranks);
        assert_told((fault){.error = NCCL_REMOTE_ERROR, .call = message}, ranks);
    }
}

/// Nobody says anything: the deadline alone, and the abort without which the stream would wait for ever.
static void test_work_that_is_never_done_is_aborted(void **state) {
    (void)state;
    uint64_t unblocked = nccl_counts().unblocked;
    assert_told((fault){.call = all_reduce}, 2);
    assert_told((fault){.call = all_gather}, 4);
    assert_true(nccl_counts().unblocked > unblocked);
}

static void stay_away(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_auto nd_tensor *x = full_on(cuda(rank), ROWS, rank + 1);
    assert_ok(nd_barrier(comm));
    if (rank == 1)
        return; // it has left
    assert_ok(nd_communicator_set_timeout(comm, 0.3));
    assert_int_equal(nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM), ND_ERROR_IO);
    assert_non_null(strstr(nd_error_get_message(), "nothing came from the other ranks for 0.3 s"));
    assert_given_up(comm, x, rank);
}

static void test_a_rank_that_leaves_is_noticed(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= NCCL_RANKS; ranks += 2) {
        uint64_t aborted = nccl_counts().aborted;
        nccl_run(ranks, 120, stay_away, NULL);
        assert_int_equal(nccl_counts().aborted - aborted, ranks - 1);
        assert_no_nccl_left();
    }
}

static void test_a_rank_that_never_joins_is_noticed(void **state) {
    (void)state;
    char path[300];
    nccl_path(path, sizeof path);
    uint64_t aborted = nccl_counts().aborted;
    assert_null(nccl_join(path, 0, 2, 0.3));
    assert_int_equal(nd_error_get_status(), ND_ERROR_IO);
    assert_non_null(strstr(nd_error_get_message(), "nothing came from the other ranks"));
    assert_int_equal(nccl_counts().aborted - aborted, 1);
    unlink(path);
    assert_no_nccl_left();
}

static void test_joining_that_fails_leaves_nothing(void **state) {
    (void)state;
    static const char *const functions[] = {"ncclGetUniqueId", "ncclCommInitRankConfig",
                                            "ncclCommGetAsyncError"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        char path[300];
        nccl_path(path, sizeof path);
        nccl()->fail_call(-1, functions[i], 1, 2);
        assert_null(nccl_join(path, 0, 1, 30));
        assert_int_equal(nd_error_get_status(), ND_ERROR_IO);
        assert_non_null(strstr(nd_error_get_message(), "unhandled system error"));
        unlink(path);
        nd_auto nd_communicator *comm = nccl_join(path, 0, 1, 30);
        assert_handle(comm);
        assert_ok(nd_barrier(comm));
        unlink(path);
    }
    assert_no_nccl_left();
}

/// Rank 0 makes the id before all agree, so that no rank waits where it cannot.
static void refuse_an_id(nd_communicator *comm, int rank, void *context) {
    (void)context;
    assert_ok(nd_barrier(comm));
    if (rank == 0)
        nccl()->fail_call(-1, "ncclGetUniqueId", 1, 3);
    assert_int_equal(duplicate(NULL, comm, rank), ND_ERROR_IO);
    if (rank != 0)
        assert_non_null(strstr(nd_error_get_message(), "rank 0 does not take part"));
    nd_error_clear();
    assert_false(nd_communicator_is_broken(comm));
    assert_ok(duplicate(NULL, comm, rank));
    assert_ok(nd_barrier(comm));
}

static void test_a_duplicate_without_an_id_is_on_no_rank(void **state) {
    (void)state;
    nccl_run(2, 120, refuse_an_id, NULL);
    assert_no_nccl_left();
}

/// A process that is killed in the middle of its work.
static int be_killed(void) {
    nd_communicator *comm = nccl_join(getenv("ND_TEST_ID"), 1, 2, 60);
    if (!comm || nd_barrier(comm) != ND_OK)
        return 1;
    kill(getpid(), SIGKILL);
    return 1;
}

static void test_a_process_that_is_killed_is_noticed(void **state) {
    (void)state;
    char path[300], program[4096];
    nccl_path(path, sizeof path);
    assert_int_equal(setenv("ND_TEST_ID", path, 1), 0);
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    pid_t child;
    int status;
    char *arguments[] = {program, "killed", NULL};
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    nd_auto nd_communicator *comm = nccl_join(path, 0, 2, 60);
    assert_handle(comm);
    nd_auto nd_tensor *x = full_on(cuda(0), ROWS, 1);
    assert_ok(nd_barrier(comm));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_ok(nd_communicator_set_timeout(comm, 0.3));
    assert_int_equal(nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM), ND_ERROR_IO);
    assert_given_up(comm, x, 0);
    unlink(path);
}

/// Whether joining is refused, as the environment says.
static int be_refused(void) {
    char path[300];
    nccl_path(path, sizeof path);
    nd_communicator *comm = nccl_join(path, 0, 1, 30);
    bool refused = !comm && strstr(nd_error_get_message(), "NCCL failed: internal error");
    nd_release(comm);
    unlink(path);
    return refused ? 0 : 7;
}

/// Whether the third piece of work fails, or is never done.
static int be_late(void) {
    char path[300];
    nccl_path(path, sizeof path);
    nd_communicator *comm = nccl_join(path, 0, 1, 30);
    unlink(path);
    if (!comm || nd_barrier(comm) != ND_OK || nd_barrier(comm) != ND_OK ||
        nd_communicator_set_timeout(comm, 0.5) != ND_OK)
        return 1;
    nd_status status = nd_barrier(comm);
    bool told = strstr(nd_error_get_message(), "remote process exited") != NULL;
    nd_release(comm);
    return status != ND_ERROR_IO ? 7 : told ? 8 : 0;
}

static void test_faults_of_the_environment(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *role;
        int exit_status;
    } cases[] = {
        {"ND_NCCL_FAIL", "ncclCommInitRankConfig:1:3", "refused", 0},
        {"ND_NCCL_FAIL", "0:ncclCommInitRankConfig:1:3", "refused", 0},
        {"ND_NCCL_FAIL", "1:ncclCommInitRankConfig:1:3", "refused", 7},
        {"ND_NCCL_LATE", "3:6", "late", 8},
        {"ND_NCCL_LATE", "0:3:6", "late", 8},
        {"ND_NCCL_LOSE", "3", "late", 0},
        {"ND_NCCL_LOSE", "0:3", "late", 0},
        {"ND_NCCL_LOSE", "1:3", "late", 7},
        {"ND_NCCL_SEED", "5", "late", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[4096];
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        int status = run_role(cases[i].role, said, sizeof said);
        unsetenv(cases[i].variable);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != cases[i].exit_status)
            fail_msg("%s=%s: status %d: %s", cases[i].variable, cases[i].value, status, said);
    }
}

/// The device is out of memory for a communicator.
static void test_a_device_without_memory_joins_nothing(void **state) {
    (void)state;
    char path[300];
    nccl_path(path, sizeof path);
    nd_auto nd_tensor *x = full_on(cuda(0), 1, 1);
    assert_handle(x);
    cudart_fail("cudaMallocFromPoolAsync", 1, cudaErrorMemoryAllocation);
    assert_null(nccl_join(path, 0, 1, 30));
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    cudart_fail(NULL, 0, cudaSuccess);
    unlink(path);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_a_call_that_fails_is_an_error_everywhere),
    ND_TEST(test_work_that_fails_later_is_an_error_everywhere),
    ND_TEST(test_work_that_is_never_done_is_aborted),
    ND_TEST(test_a_rank_that_leaves_is_noticed),
    ND_TEST(test_a_process_that_is_killed_is_noticed),
    ND_TEST(test_a_rank_that_never_joins_is_noticed),
    ND_TEST(test_joining_that_fails_leaves_nothing),
    ND_TEST(test_a_duplicate_without_an_id_is_on_no_rank),
    ND_TEST(test_faults_of_the_environment),
    ND_TEST(test_a_device_without_memory_joins_nothing),
};

static const role roles[] = {
    {"killed", be_killed}, {"refused", be_refused}, {"late", be_late}, {0}};

int main(int argc, char **argv) {
    int exit_status = 0;
    if (role_asked(roles, argc, argv, &exit_status))
        return exit_status;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
