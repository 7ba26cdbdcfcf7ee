// phases_test PHASE: a run of training, with a checkpoint in each step, of which rank 1 is killed in
// that phase or some moments after it has begun, while another thread communicates beside it. Every
// other rank gets an error in time, all later calls answer at once, the checkpoint that is there can
// be loaded, and nothing is left. With four ranks the optimizer's state is sharded. Prints one line
// per rank that has seen all that; faults_test.sh counts them.
#include "lib/base/clock.h"
#include "tests/distributed/nets.h"

#include <nd/state.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static const char *phase;
static double ended; ///< when this rank's test had passed; 0: not yet

/// Seconds that the others wait, and what they may need beyond.
static const double timeout = 2, slack = 6;
/// In which of its steps rank 1 is killed, and how much later at most.
enum { STRUCK = 2, MOST_DELAY_US = 3000 };

static double seconds(void) {
    return (double)nd__clock_now_ns() * 1e-9;
}

/// Everything that a run consists of.
typedef struct run {
    nd_communicator *world, *other; ///< the other thread's
    nd_module *model;
    nd_optimizer *optimizer;
    nd_dataset *data;
    nd_state *state;
    nd_data_parallel *parallel;
    nd_tensor *loss;
    char path[512];
    int rank, step;
} run;

// -------------------------------------------------------------------------------------------------
// the phases

static nd_status shard_data(run *it) {
    return nd_dataset_shard(it->data, it->world);
}

static nd_status make_parallel(run *it) {
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 600;
    options.shard_optimizer = nd_communicator_get_size(it->world) > 2;
    it->parallel = nd_data_parallel_new(it->model, it->world, &options);
    return it->parallel ? ND_OK : nd_error_get_status();
}

static nd_status duplicate(run *it) {
    it->other = nd_communicator_duplicate(it->world, NULL);
    return it->other ? ND_OK : nd_error_get_status();
}

static nd_status load(run *it) {
    bool there = false;
    nd_status status =
        nd_data_parallel_load_state(it->parallel, it->optimizer, it->state, it->path, &there);
    return status == ND_OK && !there ? nd_dataset_start(it->data, 0) : status;
}

static nd_status synchronize(run *it) {
    return nd_data_parallel_synchronize(it->parallel);
}

/// The loss of the next batch.
static nd_status forward(run *it) {
    nd_auto nd_tensor *x = NULL;
    nd_auto nd_tensor *labels = NULL;
    nd_release(it->loss);
    it->loss = NULL;
    nd_status status = nd_dataset_next_batch(it->data, &x, &labels);
    if (status == ND_OK && !x)
        status = nd_dataset_start(it->data, nd_dataset_get_epoch(it->data) + 1);
    if (status == ND_OK && !x)
        status = nd_dataset_next_batch(it->data, &x, &labels);
    nd_auto nd_tensor *logits = status == ND_OK ? nd_module_forward(it->model, x) : NULL;
    it->loss = status == ND_OK ? nd_cross_entropy(logits, labels) : NULL;
    return it->loss ? ND_OK : nd_error_get_status();
}

/// One batch without communication, and the next one.
static nd_status accumulate(run *it) {
    nd_status status = nd_backward(it->loss, NULL);
    return status == ND_OK ? forward(it) : status;
}

static nd_status backward(run *it) {
    return nd_data_parallel_backward(it->parallel, it->loss, NULL);
}

static nd_status clip(run *it) {
    return nd_data_parallel_clip_grad_norm(it->parallel, 0.5, NULL);
}

static nd_status step(run *it) {
    nd_status status = nd_data_parallel_step(it->parallel, it->optimizer);
    nd_module_zero_grad(it->model);
    return status;
}

static nd_status save(run *it) {
    return nd_data_parallel_save_state(it->parallel, it->optimizer, it->state, it->path);
}

typedef struct stage {
    const char *name;
    nd_status (*run)(run *it);
} stage;

static const stage first[] = {{"shard", shard_data},
                              {"duplicate", duplicate},
                              {"new", make_parallel},
                              {"load", load},
                              {"synchronize", synchronize}};
static const stage each[] = {{"forward", forward},   {"accumulate", accumulate},
                             {"backward", backward}, {"clip", clip},
                             {"step", step},         {"save", save}};

/// Rank 1 is killed when its phase has begun, or up to three milliseconds later.
static void strike(const run *it, const char *name) {
    if (it->rank != 1 || strcmp(phase, name) != 0 || it->step != STRUCK)
        return;
    uint64_t state = (uint64_t)getpid();
    int64_t delay = draw(&state, MOST_DELAY_US);
    pid_t self = getpid();
    if (delay < MOST_DELAY_US / 4)
        kill(self, SIGKILL);
    if (fork() == 0) {
        usleep((useconds_t)delay);
        kill(self, SIGKILL);
        _exit(0);
    }
}

static nd_status go_through(run *it, const stage *stages, size_t count) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        strike(it, stages[i].name);
        double begin = seconds();
        status = stages[i].run(it);
        assert_true(seconds() - begin < timeout + slack);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// beside it

/// Until it fails: then it has done so in time.
static void *communicate(void *data) {
    const nd_communicator *comm = data;
    nd_status status = ND_OK;
    double begin = 0;
    while (status == ND_OK) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3000), ND_F32);
        begin = seconds();
        status = nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM);
        usleep(200);
    }
    bool in_time = status == ND_ERROR_IO && seconds() - begin < timeout + slack;
    nd_error_clear();
    return in_time ? data : NULL;
}

static run new_run(void) {
    run it = {.world = open_world(timeout), .step = STRUCK};
    it.rank = nd_communicator_get_rank(it.world);
    const char *folder = getenv("TMPDIR");
    snprintf(it.path, sizeof it.path, "%s/checkpoint", folder ? folder : "/tmp");
    it.model = make_mlp(1);
    it.optimizer = nd_adamw(it.model, NULL);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(5), ND_SHAPE(4096, FEATURES), ND_F32);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(6), 0, CLASSES, ND_SHAPE(4096), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = PER_RANK;
    options.prefetch = true;
    it.data = nd_dataset_new(x, labels, &options);
    it.state = nd_state_new();
    assert_ok(nd_state_add_module(it.state, "model", it.model));
    assert_ok(nd_state_add_optimizer(it.state, "optimizer", it.optimizer));
    assert_ok(nd_state_add_dataset(it.state, "data", it.data));
    return it;
}

static void free_run(run *it) {
    nd_release(it->loss);
    nd_release(it->parallel);
    nd_release(it->state);
    nd_release(it->data);
    nd_release(it->optimizer);
    nd_release(it->model);
    nd_release(it->other);
    nd_release(it->world);
}

/// Every later call answers, and each communicator waits once at most.
static void check_what_follows(run *it) {
    double begin = seconds();
    for (int n = 0; n < 10; n++) {
        assert_int_equal(nd_barrier(it->world), ND_ERROR_IO);
        for (size_t i = 0; it->parallel && i < sizeof each / sizeof *each; i++)
            if (each[i].run != forward && each[i].run != accumulate)
                assert_int_not_equal(each[i].run(it), ND_OK);
    }
    assert_true(seconds() - begin < 2 * timeout + slack);
    if (it->rank == 0 && access(it->path, F_OK) == 0)
        assert_ok(nd_load_state(it->state, it->path));
}

static void test_the_others_get_an_error_in_time(void **state) {
    (void)state;
    run it = new_run();
    nd_status status = go_through(&it, first, 2);
    pthread_t thread;
    bool beside = it.other && pthread_create(&thread, NULL, communicate, it.other) == 0;
    if (status == ND_OK)
        status = go_through(&it, first + 2, sizeof first / sizeof *first - 2);
    for (it.step = 0; status == ND_OK; it.step++)
        status = go_through(&it, each, sizeof each / sizeof *each);
    assert_int_equal(status, ND_ERROR_IO);
    check_what_follows(&it);
    void *in_time = &it;
    if (beside)
        pthread_join(thread, &in_time);
    assert_non_null(in_time);
    free_run(&it);
}

/// Runs after the library's part of the exit.
static void say(void) {
    if (ended > 0 && seconds() - ended < timeout / 2)
        puts("rank 0: survived"); // any of them: they are counted
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (!nd_has_mpi()) {
        puts("SKIPPED: built without MPI");
        return 0;
    }
    phase = count > 1 ? arguments[1] : "backward";
    atexit(say);
    const struct CMUnitTest tests[] = {ND_TEST(test_the_others_get_an_error_in_time)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ended = failed ? 0 : seconds();
    return failed;
}
