// faults_test HOW: rank 1 dies, hangs or leaves while the others work with it. Each of them gets an
// error in time, every later call answers at once, managers close, nothing is left, and the process
// ends without waiting for rank 1 once more. Prints one line per rank that has seen all that;
// faults_test.sh counts them. Every phase of a call in shared memory: node_faults_test.c.
#include "lib/base/clock.h"
#include "tests/distributed/ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#if ND_HAVE_MPI
#include <mpi.h>
#endif

static const char *how;
static int rank_here;
static double ended; ///< when this rank's tests had passed; 0: not yet
static bool strikes; ///< rank 1 is in the call that the others count on

/// Seconds that the others wait, and what they may need beyond.
static const double timeout = 2, slack = 6;
/// Seconds that rank 1 is away when it hangs.
enum { AWAY = 6 };

static double seconds(void) {
    return (double)nd__clock_now_ns() * 1e-9;
}

static bool is(const char *manner) {
    return strcmp(how, manner) == 0;
}

/// The process sleeps without knowing of it, and is woken by a child.
static void stop(void) {
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        sleep(AWAY);
        kill(self, SIGCONT);
        _exit(0);
    }
    kill(self, SIGSTOP);
    waitpid(child, NULL, 0);
}

/// What rank 1 does when the others count on it.
static void misbehave(void) {
    strikes = true;
    if (is("killed"))
        kill(getpid(), SIGKILL);
    if (is("hangs"))
        sleep(AWAY);
    if (is("stopped"))
        stop();
    if (is("leaves"))
        exit(0);
#if ND_HAVE_MPI
    if (is("finalizes")) {
        alarm(8); // MPI may wait there for ranks that do not come, as long as it likes
        MPI_Finalize();
        _exit(0);
    }
#endif
}

#if ND_HAVE_MPI
// The library's calls of MPI come here first, and tell where it is.

int MPI_Reduce_local(const void *from, void *into, int count, MPI_Datatype type, MPI_Op op) {
    if (strikes && is("killed-adding"))
        kill(getpid(), SIGKILL);
    if (strikes && is("hangs-adding"))
        sleep(AWAY);
    strikes = false;
    return PMPI_Reduce_local(from, into, count, type, op);
}

/// In memory in common a rank that waits looks here, else at its messages.
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *there, MPI_Status *status) {
    if (strikes && is("killed-waiting"))
        kill(getpid(), SIGKILL);
    return PMPI_Iprobe(source, tag, comm, there, status);
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses) {
    int answer = PMPI_Testall(count, requests, done, statuses);
    if (strikes && is("killed-waiting") && !*done)
        kill(getpid(), SIGKILL);
    return answer;
}

/// By which the library ends MPI when the process does.
int MPI_Finalize(void) {
    if (rank_here == 1 && is("killed-at-exit"))
        kill(getpid(), SIGKILL);
    if (rank_here == 1 && is("hangs-at-exit"))
        sleep(AWAY);
    return PMPI_Finalize();
}
#endif

/// Rank 1 ends somewhere in a step.
static void killed_meanwhile(void) {
    pid_t self = getpid();
    if (fork() == 0) {
        usleep(150000);
        kill(self, SIGKILL);
        _exit(0);
    }
}

static nd_status step(nd_communicator *world, int n) {
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(300000), n, ND_F32);
    nd_status status = nd_all_reduce_(x, world, ND_COLLECTIVE_SUM);
    int expected = status == ND_OK ? n * nd_communicator_get_size(world) : n; // all, or nothing
    for (int64_t i = 0; i < 300000; i += 1000)
        assert_true(element_at(x, i) == expected);
    return status;
}

/// A step of training that rank 1 leaves while its gradients are on their way: by a hook between
/// two layers.
static nd_tensor *hook(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    if (rank_here == 1)
        kill(getpid(), SIGKILL);
    return NULL;
}

static void test_training_ends_with_an_error_in_time(void **state) {
    (void)state;
    nd_communicator *world = open_world(timeout);
    rank_here = nd_communicator_get_rank(world);
    nd_auto nd_module *module =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 64, 64, true), nd_tanh_module(),
                      nd_linear_module(nd_key_new(2), 64, 64, true));
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 1000;
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, world, &options);
    assert_handle(parallel);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(8, 64), ND_F32);
    for (int n = 0; n < 4; n++) {
        nd_auto nd_tensor *middle = nd_module_forward(nd_module_get_child(module, 0), x);
        nd_auto nd_tensor *bent = nd_tanh(middle);
        if (n == 3)
            assert_ok(nd_register_hook(middle, hook, NULL));
        nd_auto nd_tensor *y = nd_module_forward(nd_module_get_child(module, 2), bent);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        double begin = seconds();
        nd_status status = nd_data_parallel_backward(parallel, loss, NULL);
        assert_int_equal(status, n < 3 ? ND_OK : ND_ERROR_IO);
        assert_true(seconds() - begin < timeout + slack);
        for (size_t i = 0; i < nd_module_get_parameter_count(module); i++)
            assert_true(!nd_get_grad(nd_module_get_parameter_at(module, i, NULL)) == (n == 3));
        assert_ok(nd_module_zero_grad(module));
    }
    nd_auto nd_tensor *y = nd_module_forward(module, x);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    double begin = seconds();
    assert_int_equal(nd_data_parallel_backward(parallel, loss, NULL), ND_ERROR_IO);
    assert_true(seconds() - begin < timeout);
    nd_release(world);
}

/// Works until that ends; seconds that the last step took.
static double work(nd_communicator *world, nd_status *ret_status) {
    bool meanwhile = is("killed-meanwhile");
    if (rank_here == 1 && meanwhile)
        killed_meanwhile();
    double begin = 0;
    *ret_status = ND_OK;
    for (int n = 0; *ret_status == ND_OK; n++) {
        if (n == 5 && rank_here == 1 && !meanwhile)
            misbehave();
        if (n == 5 && rank_here == 0 && is("killed-waiting"))
            usleep(100000);
        begin = seconds();
        *ret_status = step(world, n);
    }
    return seconds() - begin;
}

static void test_the_others_get_an_error_in_time(void **state) {
    (void)state;
    nd_communicator *world = open_world(timeout);
    rank_here = nd_communicator_get_rank(world);
    nd_manager *manager = nd_manager_new(NULL, "training");
    nd_status status = ND_OK;
    double took = 0;
    nd_with_manager(manager) {
        took = work(world, &status);
    }
    assert_int_equal(status, ND_ERROR_IO);
    assert_true(took < timeout + slack + (rank_here == 1 ? AWAY : 0));
    assert_true(nd_communicator_is_broken(world));
    double begin = seconds();
    for (int n = 0; n < 20; n++) { // one that waited would take all of the time by itself
        assert_int_equal(nd_barrier(world), ND_ERROR_IO);
        assert_int_equal(step(world, n), ND_ERROR_IO);
        assert_null(nd_communicator_duplicate(world, NULL));
    }
    assert_non_null(strstr(nd_error_get_message(), "broken since"));
    assert_true(seconds() - begin < timeout);
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
    nd_release(world);
}

/// All is well until the processes end.
static void test_a_run_without_faults(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(timeout);
    rank_here = nd_communicator_get_rank(world);
    for (int n = 0; n < 5; n++)
        assert_ok(step(world, n));
}

/// Runs after the library's part of the exit.
static void say(void) {
    double took = seconds() - ended;
    if (ended > 0 && took < timeout / 2)
        printf("rank %d: survived\n", rank_here);
    else if (ended > 0)
        printf("rank %d: came to its end after %.1f s\n", rank_here, took);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (!nd_has_mpi()) {
        puts("SKIPPED: built without MPI");
        return 0;
    }
    how = count > 1 ? arguments[1] : "killed";
    atexit(say);
#if ND_HAVE_MPI
    int provided;
    if (is("finalizes"))
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
#endif
    const struct CMUnitTest tests[] = {ND_TEST(test_the_others_get_an_error_in_time)};
    const struct CMUnitTest training[] = {ND_TEST(test_training_ends_with_an_error_in_time)};
    const struct CMUnitTest faultless[] = {ND_TEST(test_a_run_without_faults)};
    bool at_exit = is("killed-at-exit") || is("hangs-at-exit");
    int failed = is("killed-in-training") ? cmocka_run_group_tests(training, NULL, NULL)
                 : at_exit                ? cmocka_run_group_tests(faultless, NULL, NULL)
                                          : cmocka_run_group_tests(tests, NULL, NULL);
    ended = failed ? 0 : seconds();
    if (!failed && at_exit) { // what comes later may not come: MPI_Finalize() waits
        printf("rank %d: survived\n", rank_here);
        ended = 0;
    }
    return failed;
}
