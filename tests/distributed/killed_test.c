// killed_test FOLDER PLAN: one run of training on all ranks, from its last checkpoint in FOLDER or
// from the beginning, to its end; a checkpoint after every step. killed_test.sh kills it at random
// moments and starts it again. PLAN: whole, or sharded, for the optimizer's state. At its end each
// rank leaves FOLDER/end.RANK.
#include "tests/distributed/ranks.h"
#include "tests/training.h"

#include <nd/state.h>
#include <unistd.h>

enum { SAMPLES = 45, BATCH = 4, EPOCHS = 8, BALLAST = 1 << 19 };

static const char *folder, *plan;

/// Draws keys of its own on each rank, which also has running means of its own.
static nd_module *new_model(void) {
    nd_module *model =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 3, 16, true), nd_batch_norm_module(16, NULL),
                      nd_dropout_module(nd_key_new(5), 0.5), nd_tanh_module(),
                      nd_linear_module(nd_key_new(2), 16, 4, true));
    assert_handle(model);
    return model;
}

/// This rank's share of samples that all have.
static nd_dataset *new_data(const nd_communicator *world) {
    nd_auto nd_tensor *points = nd_randn(nd_key_new(77), ND_SHAPE(SAMPLES, 3), ND_F32);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(78), 0, 4, ND_SHAPE(SAMPLES), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = BATCH;
    options.key = nd_key_new(9);
    options.shuffle = true;
    options.prefetch = true;
    nd_dataset *data = nd_dataset_new(points, labels, &options);
    assert_ok(nd_dataset_shard(data, world));
    return data;
}

/// Everything that a run consists of.
typedef struct run {
    nd_communicator *world;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_schedule *schedule;
    nd_dataset *data;
    nd_tensor *losses;  ///< the sum of all
    nd_tensor *ballast; ///< so that writing takes a while; all elements are the number of steps
    nd_state *state;
    nd_data_parallel *parallel;
} run;

static run new_run(void) {
    run it = {.world = open_world(60)};
    it.model = new_model();
    it.optimizer = adamw_of(it.model, 0.01, 0.9, 0.99, 1e-8, 0.1);
    it.schedule = nd_cosine_schedule(0.1, 100);
    assert_ok(nd_schedule_start(it.schedule, it.optimizer));
    it.data = new_data(it.world);
    it.losses = nd_zeros(ND_SHAPE(1), ND_F64);
    it.ballast = nd_zeros(ND_SHAPE(BALLAST), ND_F32);
    it.state = nd_state_new();
    assert_ok(nd_state_add_module(it.state, "model", it.model));
    assert_ok(nd_state_add_optimizer(it.state, "optimizer", it.optimizer));
    assert_ok(nd_state_add_schedule(it.state, "schedule", it.schedule));
    assert_ok(nd_state_add_dataset(it.state, "data", it.data));
    assert_ok(nd_state_add_tensor(it.state, "losses", it.losses));
    assert_ok(nd_state_add_tensor(it.state, "ballast", it.ballast));
    assert_ok(nd_state_set_i64(it.state, "step", 0));
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 300; // several, which are reordered
    options.shard_optimizer = strcmp(plan, "sharded") == 0;
    it.parallel = nd_data_parallel_new(it.model, it.world, &options);
    assert_handle(it.parallel);
    return it;
}

static void free_run(run *it) {
    nd_release(it->parallel);
    nd_release(it->state);
    nd_release(it->ballast);
    nd_release(it->losses);
    nd_release(it->data);
    nd_release(it->schedule);
    nd_release(it->optimizer);
    nd_release(it->model);
    nd_release(it->world);
}

static void train_step(run *it, const nd_tensor *points, const nd_tensor *labels) {
    int64_t step = 0;
    assert_ok(nd_state_get_i64(it->state, "step", &step));
    assert_true(element_at(it->ballast, 0) == (double)step);
    assert_true(element_at(it->ballast, BALLAST - 1) == (double)step);
    nd_auto nd_tensor *logits = nd_module_forward(it->model, points);
    nd_auto nd_tensor *mean = nd_cross_entropy(logits, labels);
    nd_auto nd_tensor *loss = nd_mul_scalar(mean, nd_dataset_get_weight(it->data));
    assert_ok(nd_data_parallel_backward(it->parallel, loss, NULL));
    assert_ok(nd_data_parallel_clip_grad_norm(it->parallel, 0.5, NULL));
    assert_ok(nd_data_parallel_step(it->parallel, it->optimizer));
    assert_ok(nd_module_zero_grad(it->model));
    assert_ok(nd_schedule_step(it->schedule));
    nd_no_grad {
        nd_auto nd_tensor *all = nd_all_reduce(loss, it->world, ND_COLLECTIVE_MEAN);
        assert_handle(all);
        assert_ok(nd_fill_(it->losses, nd_get_item(it->losses) + nd_get_item(all)));
    }
    assert_ok(nd_fill_(it->ballast, (double)(step + 1)));
    assert_ok(nd_state_set_i64(it->state, "step", step + 1));
}

/// From wherever it stands to the end.
static void train(run *it, const char *path) {
    bool resumed = false;
    assert_ok(nd_data_parallel_load_state(it->parallel, it->optimizer, it->state, path, &resumed));
    for (uint64_t epoch = nd_dataset_get_epoch(it->data); epoch < EPOCHS; epoch++) {
        if (!resumed)
            assert_ok(nd_dataset_start(it->data, epoch));
        resumed = false;
        nd_tensor *points = NULL, *labels = NULL;
        while (next_batch(it->data, &points, &labels)) {
            train_step(it, points, labels);
            nd_release(points);
            nd_release(labels);
            assert_ok(nd_data_parallel_save_state(it->parallel, it->optimizer, it->state, path));
            usleep(2000);
        }
    }
}

static char *path_of(const char *name, int rank) {
    static char path[2][512];
    char *chosen = path[rank < 0];
    if (rank < 0)
        snprintf(chosen, sizeof *path, "%s/%s", folder, name);
    else
        snprintf(chosen, sizeof *path, "%s/%s.%d", folder, name, rank);
    return chosen;
}

static void test_a_run(void **state) {
    (void)state;
    run it = new_run();
    int rank = nd_communicator_get_rank(it.world);
    FILE *file = fopen(path_of("process", rank), "w");
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
    train(&it, path_of("checkpoint", -1));
    assert_int_equal(nd_module_get_parameter_count(it.model), 6);
    nd_auto nd_state *end = nd_state_new(); // what all ranks have; the optimizer's is rank 0's
    assert_ok(nd_state_add_module(end, "model", it.model));
    assert_ok(nd_state_add_dataset(end, "data", it.data));
    assert_ok(nd_state_add_tensor(end, "losses", it.losses));
    assert_ok(nd_save_state(end, path_of("end", rank)));
    assert_ok(nd_barrier(it.world));
    free_run(&it);
}

int main(int count, char **arguments) {
    if (!nd_has_mpi()) {
        puts("SKIPPED: built without MPI");
        return 0;
    }
    if (count != 3)
        return 2;
    folder = arguments[1];
    plan = arguments[2];
    const struct CMUnitTest tests[] = {ND_TEST(test_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
