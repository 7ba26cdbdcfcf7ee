// The state of a training in one file: a run that is killed goes on to the same bits; what does not
// fit changes nothing.
#include "tests/training.h"
#include "tests/unit/io/files.h"

#include "lib/base/alloc.h"
#include "lib/device/fake/fake.h"
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 23, BATCH = 4, EPOCHS = 3, STEPS = EPOCHS * 6 };

/// Drops half of x, by a key of its own at each call in training, and counts the calls in a buffer.
static nd_tensor *noise_forward(const nd_module *self, const nd_tensor *x) {
    if (!nd_module_is_training(self))
        return nd_retain(x);
    nd_key key;
    if (nd_module_next_key(self, &key) != ND_OK)
        return NULL;
    nd_auto nd_tensor *calls = nd_retain(nd_module_get_buffer(self, "calls"));
    nd_no_grad {
        nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1), ND_I64);
        if (nd_add_(calls, one) != ND_OK)
            return NULL;
    }
    nd_auto nd_tensor *drawn = nd_rand(key, nd_get_ndim(x), nd_get_shape(x), ND_F32);
    nd_auto nd_tensor *half = nd_scalar(0.5, ND_F32);
    nd_auto nd_tensor *kept = nd_less(drawn, half);
    nd_auto nd_tensor *mask = nd_cast(kept, ND_F32);
    return nd_mul(x, mask);
}

static const nd_module_type noise_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "noise", .forward = noise_forward};

// Everything that a run consists of.
typedef struct run {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_schedule *schedule;
    nd_dataset *data;
    nd_tensor *average;
    nd_state *state;
} run;

static nd_module *new_model(uint64_t seed) {
    nd_module *noise = nd_module_new(&noise_type, NULL, 0);
    nd_auto nd_tensor *calls = nd_zeros(ND_SHAPE(1), ND_I64);
    assert_ok(nd_module_add_buffer(noise, "calls", calls));
    assert_ok(nd_module_set_key(noise, nd_key_new(seed + 5)));
    nd_module *model =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(seed), 3, 8, true), noise, nd_tanh_module(),
                      nd_linear_module(nd_key_new(seed + 1), 8, 4, true));
    assert_handle(model);
    return model;
}

/// A run whose beginning depends on the seed in every part.
static run new_run(uint64_t seed, bool prefetch) {
    run it = {.model = new_model(seed)};
    it.optimizer = adamw_of(it.model, 0.01 * (double)(seed + 1), 0.9, 0.99, 1e-8, 0.1);
    const nd_tensor *biases[] = {nd_module_get_parameter(it.model, "0.bias"),
                                 nd_module_get_parameter(it.model, "3.bias")};
    assert_ok(nd_optimizer_add_group(it.optimizer, seed % 2 ? 1 : 2, biases, NULL));
    assert_ok(nd_optimizer_set_option(it.optimizer, 1, ND_OPTIMIZER_WEIGHT_DECAY, 0));
    nd_plateau_options plateau = ND_PLATEAU_OPTIONS_INIT;
    plateau.patience = 1;
    plateau.gamma = 0.5;
    it.schedule = nd_product_schedule(
        2, (nd_schedule *[]){nd_cosine_schedule(0.1, STEPS), nd_plateau_schedule(&plateau)});
    assert_ok(nd_schedule_start(it.schedule, it.optimizer));
    nd_auto nd_tensor *points = nd_randn(nd_key_new(77), ND_SHAPE(SAMPLES, 3), ND_F32);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(78), 0, 4, ND_SHAPE(SAMPLES), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = BATCH;
    options.key = nd_key_new(seed + 9);
    options.shuffle = true;
    options.prefetch = prefetch;
    it.data = nd_dataset_new(points, labels, &options);
    it.average = nd_zeros(ND_SHAPE(1), ND_F64);
    it.state = nd_state_new();
    assert_handle(it.state);
    assert_ok(nd_state_add_optimizer(it.state, "optimizer", it.optimizer));
    assert_ok(nd_state_add_module(it.state, "model", it.model));
    assert_ok(nd_state_add_schedule(it.state, "schedule", it.schedule));
    assert_ok(nd_state_add_dataset(it.state, "data", it.data));
    assert_ok(nd_state_add_tensor(it.state, "average", it.average));
    assert_ok(nd_state_set_i64(it.state, "step", 0));
    assert_ok(nd_state_set_f64(it.state, "loss", 0));
    assert_ok(nd_state_set_key(it.state, "key", nd_key_new(seed + 11)));
    return it;
}

static void free_run(run *it) {
    nd_release(it->state);
    nd_release(it->average);
    nd_release(it->data);
    nd_release(it->schedule);
    nd_release(it->optimizer);
    nd_release(it->model);
}

static void train_step(run *it, const nd_tensor *points, const nd_tensor *labels) {
    nd_key key;
    int64_t step = 0;
    assert_ok(nd_state_get_key(it->state, "key", &key));
    assert_ok(nd_state_get_i64(it->state, "step", &step));
    nd_auto nd_tensor *noise = nd_randn(nd_key_fold(key, (uint64_t)step), nd_get_ndim(points),
                                        nd_get_shape(points), ND_F32);
    nd_auto nd_tensor *noisy = nd_add(points, noise);
    nd_auto nd_tensor *logits = nd_module_forward(it->model, noisy);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels);
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_optimizer_step(it->optimizer));
    assert_ok(nd_optimizer_zero_grad(it->optimizer));
    assert_ok(nd_schedule_step_with(it->schedule, nd_get_item(loss)));
    assert_ok(nd_fill_(it->average, nd_get_item(it->average) + nd_get_item(loss)));
    assert_ok(nd_state_set_f64(it->state, "loss", nd_get_item(loss)));
    assert_ok(nd_state_set_i64(it->state, "step", step + 1));
}

/// Trains to the end, from wherever the run stands; `steps` at most. Saves after every step when
/// there is a path, and says so on `report` when that is not negative.
static void train(run *it, const char *path, int report, int steps) {
    int64_t step = 0;
    assert_ok(nd_state_get_i64(it->state, "step", &step));
    bool resumed = step > 0;
    for (uint64_t epoch = nd_dataset_get_epoch(it->data); epoch < EPOCHS && steps > 0; epoch++) {
        if (!resumed)
            assert_ok(nd_dataset_start(it->data, epoch));
        resumed = false;
        nd_tensor *points = NULL, *labels = NULL;
        while (steps > 0 && next_batch(it->data, &points, &labels)) {
            train_step(it, points, labels);
            nd_release(points);
            nd_release(labels);
            steps--;
            if (path)
                assert_ok(nd_save_state(it->state, path));
            if (report >= 0)
                assert_int_equal(write(report, "s", 1), 1);
        }
    }
}

/// Every byte that two runs have come to.
static void assert_same(const run *a, const run *b) {
    const char *first = nd_test_path("first.safetensors");
    char first_path[512];
    snprintf(first_path, sizeof first_path, "%s", first);
    assert_ok(nd_save_state(a->state, first_path));
    const char *second = nd_test_path("second.safetensors");
    assert_ok(nd_save_state(b->state, second));
    size_t first_bytes, second_bytes;
    char *x = nd_test_read(first_path, &first_bytes);
    char *y = nd_test_read(second, &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(x, y, first_bytes);
    free(x);
    free(y);
}

static void resume_anywhere(bool prefetch) {
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("resumed.safetensors"));
    run whole = new_run(0, prefetch);
    train(&whole, NULL, -1, STEPS);
    for (int stop = 0; stop <= STEPS; stop++) {
        run before = new_run(0, prefetch);
        train(&before, NULL, -1, stop);
        assert_ok(nd_save_state(before.state, path));
        free_run(&before);
        run after = new_run(3, prefetch); // begins with everything else
        if (stop == 0)
            assert_ok(nd_dataset_start(after.data, 2)); // also from the middle of another epoch
        assert_ok(nd_load_state(after.state, path));
        train(&after, NULL, -1, STEPS);
        assert_same(&whole, &after);
        free_run(&after);
    }
    free_run(&whole);
}

static void test_a_run_goes_on_to_the_same_bits_from_every_step(void **state) {
    (void)state;
    resume_anywhere(false);
    resume_anywhere(true);
}

/// The first label of the next batch of one rank of `ranks`, after a position was loaded.
static void assert_next_labels(const char *path, int ranks, const int64_t *expected) {
    nd_auto nd_tensor *points = nd_zeros(ND_SHAPE(SAMPLES, 3), ND_F32);
    nd_auto nd_tensor *numbers = nd_arange(0, SAMPLES, 1, ND_I64);
    for (int rank = 0; rank < ranks; rank++) {
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 8 / ranks;
        options.shuffle = true;
        options.rank = rank;
        options.ranks = ranks;
        nd_auto nd_dataset *data = nd_dataset_new(points, numbers, &options);
        nd_auto nd_state *it = nd_state_new();
        assert_ok(nd_state_add_dataset(it, "data", data));
        assert_ok(nd_load_state(it, path));
        nd_auto nd_tensor *x = NULL, *y = NULL;
        assert_true(next_batch(data, &x, &y));
        int64_t count = 8 / ranks;
        assert_int_equal(nd_get_numel(y), count);
        assert_memory_equal(nd_get_data(y), expected + rank * count,
                            (size_t)count * sizeof(int64_t));
    }
}

static void test_another_number_of_ranks_goes_on_with_the_same_batches(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("ranks.safetensors"));
    nd_auto nd_tensor *points = nd_zeros(ND_SHAPE(SAMPLES, 3), ND_F32);
    nd_auto nd_tensor *numbers = nd_arange(0, SAMPLES, 1, ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 8;
    options.key = nd_key_new(5);
    options.shuffle = true;
    nd_auto nd_dataset *one = nd_dataset_new(points, numbers, &options);
    nd_auto nd_state *it = nd_state_new();
    assert_ok(nd_state_add_dataset(it, "data", one));
    assert_ok(nd_dataset_start(one, 6));
    nd_auto nd_tensor *x = NULL, *y = NULL, *next_x = NULL, *next_y = NULL;
    assert_true(next_batch(one, &x, &y));
    assert_ok(nd_save_state(it, path));
    assert_true(next_batch(one, &next_x, &next_y));
    for (int ranks = 1; ranks < 8; ranks *= 2)
        assert_next_labels(path, ranks, nd_get_data(next_y));
    options.batch = 1;
    options.ranks = 4; // a whole batch of 4
    nd_auto nd_dataset *smaller = nd_dataset_new(points, numbers, &options);
    nd_auto nd_state *other = nd_state_new();
    assert_ok(nd_state_add_dataset(other, "data", smaller));
    assert_int_not_equal(nd_load_state(other, path), ND_OK);
    nd_error_clear();
}

static void test_a_killed_run_goes_on_to_the_same_bits(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("killed.safetensors"));
    run whole = new_run(0, true);
    train(&whole, NULL, -1, STEPS);
    uint32_t random = (uint32_t)getpid();
    for (int round = 0; round < 6; round++) {
        unlink(path);
        random = random * 1664525u + 1013904223u;
        const int kill_after = 1 + (int)(random >> 8) % (STEPS - 1);
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            run it = new_run(0, true);
            train(&it, path, ends[1], STEPS);
            for (;;) // the parent kills it
                pause();
        }
        close(ends[1]);
        char byte;
        for (int seen = 0; seen < kill_after; seen++)
            assert_int_equal(read(ends[0], &byte, 1), 1);
        usleep((useconds_t)(random % 700)); // somewhere in the steps and saves that follow
        assert_int_equal(kill(child, SIGKILL), 0);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        close(ends[0]);
        run after = new_run(1, true);
        assert_ok(nd_load_state(after.state, path));
        int64_t step = 0;
        assert_ok(nd_state_get_i64(after.state, "step", &step));
        assert_true(step >= kill_after);
        train(&after, NULL, -1, STEPS);
        assert_same(&whole, &after);
        free_run(&after);
    }
    free_run(&whole);
}

/// Loading a file that does not fit into a run of some steps fails with a fragment and leaves the run
/// as it was.
static void refuse_after(int steps, const char *path, nd_status status, const char *fragment) {
    run it = new_run(0, false);
    run same = new_run(0, false);
    train(&it, NULL, -1, steps);
    train(&same, NULL, -1, steps);
    const uint64_t objects = nd_manager_get_total_objects(NULL);
    const uint64_t bytes = nd_manager_get_total_bytes(NULL);
    assert_int_equal(nd_load_state(it.state, path), status);
    assert_failed(status, fragment);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    assert_same(&it, &same);
    train(&it, NULL, -1, 2);
    train(&same, NULL, -1, 2);
    assert_same(&it, &same);
    free_run(&it);
    free_run(&same);
}

/// Also where the optimizer has none of its state tensors yet.
static void refuse(const char *path, nd_status status, const char *fragment) {
    refuse_after(0, path, status, fragment);
    refuse_after(3, path, status, fragment);
}

/// Writes the file of a run with one entry left out, replaced, or added.
static void write_changed(const char *from, const char *path, const char *name,
                          const nd_tensor *replacement) {
    nd_auto nd_list *list = nd_load_safetensors(from);
    const nd_tensor *tensors[80];
    static char names[80][128];
    const char *pointers[80];
    size_t count = 0;
    bool replaced = false;
    for (size_t i = 0; i < nd_list_get_size(list); i++) {
        assert_true(count < 79);
        tensors[count] = (const nd_tensor *)nd_list_get(list, i);
        nd_get_name(tensors[count], names[count], sizeof names[count]);
        if (strcmp(names[count], name) == 0) {
            replaced = true;
            if (!replacement)
                continue;
            tensors[count] = replacement;
        }
        pointers[count] = names[count];
        count++;
    }
    if (!replaced) {
        pointers[count] = name;
        tensors[count++] = replacement;
    }
    assert_ok(nd_save_safetensors(path, count, pointers, tensors));
}

static void test_what_does_not_fit_changes_nothing(void **state) {
    (void)state;
    char whole[512], path[512];
    snprintf(whole, sizeof whole, "%s", nd_test_path("whole.safetensors"));
    snprintf(path, sizeof path, "%s", nd_test_path("changed.safetensors"));
    run it = new_run(0, false);
    train(&it, whole, -1, 7);
    free_run(&it);
    static const char *const missing[] = {"model.0.weight",
                                          "model.1.calls",
                                          "model.1..random",
                                          "optimizer.steps",
                                          "optimizer.adamw.rate",
                                          "optimizer.group",
                                          "optimizer.first_moment.0.weight",
                                          "optimizer.second_moment.3.bias",
                                          "schedule.steps",
                                          "schedule.metrics.2",
                                          "data.position",
                                          "average",
                                          "step",
                                          "key"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        char expected[96];
        snprintf(expected, sizeof expected, "has no '%s'", missing[i]);
        write_changed(whole, path, missing[i], NULL);
        refuse(path, ND_ERROR_INVALID_ARGUMENT, expected);
    }
    // A file of before, which does not say which state tensors there were.
    run older = new_run(1, false);
    write_changed(whole, path, "optimizer.slots", NULL);
    assert_ok(nd_load_state(older.state, path));
    free_run(&older);
    nd_auto nd_tensor *slots = nd_full(ND_SHAPE(4), 1 << 20, ND_I64);
    write_changed(whole, path, "optimizer.slots", slots);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "'optimizer.slots' names what its kind has not");
    nd_auto nd_tensor *floats = nd_zeros(ND_SHAPE(8, 3), ND_F32);
    nd_auto nd_tensor *turned = nd_zeros(ND_SHAPE(3, 8), ND_F32);
    nd_auto nd_tensor *doubles = nd_zeros(ND_SHAPE(8, 3), ND_F64);
    nd_auto nd_tensor *groups = nd_full(ND_SHAPE(4), 2, ND_I64);
    nd_auto nd_tensor *position = nd_full(ND_SHAPE(9), 1, ND_I64);
    write_changed(whole, path, "another", floats);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "has 'another', which no part");
    write_changed(whole, path, "optimizer.momentum.0.weight", floats);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "has 'optimizer.momentum.0.weight', which no part");
    write_changed(whole, path, "model.0.weight", turned);
    refuse(path, ND_ERROR_SHAPE, "'model.0.weight' has the shape [3, 8]");
    write_changed(whole, path, "model.0.weight", doubles);
    refuse(path, ND_ERROR_DTYPE, "'model.0.weight' is float64");
    write_changed(whole, path, "optimizer.first_moment.0.weight", doubles);
    refuse(path, ND_ERROR_DTYPE, "'optimizer.first_moment.0.weight' is float64");
    nd_auto nd_tensor *rates = nd_full(ND_SHAPE(2), (double)NAN, ND_F64);
    write_changed(whole, path, "optimizer.adamw.rate", rates);
    refuse(path, ND_ERROR_INVALID_ARGUMENT,
           "changed.safetensors': 'optimizer.adamw.rate' has nan, which is no rate");
    write_changed(whole, path, "schedule.rates", rates);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "'schedule.rates' has nan, which is no rate");
    write_changed(whole, path, "schedule.metrics.2", rates);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "'schedule.metrics.2' is of no plateau");
    write_changed(whole, path, "optimizer.group", groups);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "a group that is not there");
    write_changed(whole, path, "data.position", position);
    refuse(path, ND_ERROR_INVALID_ARGUMENT, "another size, batch or order");
    size_t bytes;
    char *content = nd_test_read(whole, &bytes);
    nd_test_write(path, content, bytes - 8);
    free(content);
    refuse(path, ND_ERROR_FORMAT, "changed.safetensors");
    snprintf(path, sizeof path, "%s", nd_test_path("none.safetensors"));
    refuse(path, ND_ERROR_IO, "none.safetensors");
}

static int allocations_left;

static bool allocation_fails(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

static void test_every_allocation_of_saving_and_loading_fails_once(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("memory.safetensors"));
    run saved = new_run(0, false);
    train(&saved, path, -1, 4);
    // Saving, and loading where the optimizer has all that the file has of it, and nothing.
    static const int steps[] = {4, 2, 0};
    for (int loads = 0; loads < 3; loads++) {
        run it = new_run(0, false);
        run same = new_run(0, false);
        train(&it, NULL, -1, steps[loads]);
        train(&same, NULL, -1, steps[loads]);
        const uint64_t objects = nd_manager_get_total_objects(NULL);
        bool done = false;
        for (int n = 0; !done; n++) {
            assert_true(n < 3000);
            allocations_left = n;
            nd__alloc_should_fail = allocation_fails;
            nd_status status =
                loads ? nd_load_state(it.state, path) : nd_save_state(it.state, path);
            nd__alloc_should_fail = NULL;
            done = status == ND_OK;
            assert_true(done || status == ND_ERROR_OUT_OF_MEMORY);
            nd_error_clear();
            int64_t step = -1;
            assert_ok(nd_state_get_i64(it.state, "step", &step));
            assert_int_equal(step, done ? 4 : steps[loads]);
            assert_true(done || nd_manager_get_total_objects(NULL) == objects);
            assert_same(&it, loads && done ? &saved : &same);
        }
        assert_same(&it, &saved);
        free_run(&it);
        free_run(&same);
    }
    free_run(&saved);
}

/// A rate that the program has set since the schedule's last step is what the run goes on with, in
/// whichever order the parts were added.
static void test_a_rate_set_beside_a_schedule_is_kept(void **state) {
    (void)state;
    const char *path = nd_test_path("rate.safetensors");
    for (int order = 0; order < 2; order++) {
        double found[2] = {0};
        for (int which = 0; which < 2; which++) {
            nd_auto nd_module *model = nd_linear_module(nd_key_new(1), 2, 2, true);
            nd_sgd_options options = ND_SGD_OPTIONS_INIT;
            options.rate = 0.1;
            nd_auto nd_optimizer *sgd = nd_sgd(model, &options);
            nd_auto nd_schedule *schedule = nd_step_schedule(10, 0.5);
            assert_ok(nd_schedule_start(schedule, sgd));
            nd_auto nd_state *it = nd_state_new();
            if (order)
                assert_ok(nd_state_add_schedule(it, "schedule", schedule));
            assert_ok(nd_state_add_optimizer(it, "optimizer", sgd));
            if (!order)
                assert_ok(nd_state_add_schedule(it, "schedule", schedule));
            if (which) {
                assert_ok(nd_load_state(it, path));
            } else {
                assert_ok(nd_schedule_step(schedule));
                nd_optimizer_set_rate(sgd, 0.7);
                assert_ok(nd_save_state(it, path));
            }
            found[which] = nd_optimizer_get_option(sgd, 0, ND_OPTIMIZER_RATE);
        }
        assert_true(found[0] == 0.7 && found[1] == 0.7);
    }
}

static void test_another_kind_of_optimizer_and_schedule_is_refused(void **state) {
    (void)state;
    const char *path = nd_test_path("kinds.safetensors");
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *adam = adam_of(module, 0.1, 0.9, 0.9, 1e-8, 0);
    nd_auto nd_optimizer *sgd = sgd_of(module, 0.1, 0.9, 0);
    nd_auto nd_schedule *step = nd_step_schedule(2, 0.5);
    nd_auto nd_schedule *line = nd_linear_schedule(0, 1, 5);
    nd_auto nd_state *saved = nd_state_new();
    nd_auto nd_state *other = nd_state_new();
    assert_ok(nd_state_add_optimizer(saved, "optimizer", adam));
    assert_ok(nd_state_add_optimizer(other, "optimizer", sgd));
    assert_ok(nd_save_state(saved, path));
    assert_int_equal(nd_load_state(other, path), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has no 'optimizer.sgd.rate'");
    nd_auto nd_state *steps = nd_state_new();
    nd_auto nd_state *lines = nd_state_new();
    assert_ok(nd_state_add_schedule(steps, "schedule", step));
    assert_ok(nd_state_add_schedule(lines, "schedule", line));
    assert_int_equal(nd_save_state(steps, path), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "'schedule' was not started");
    assert_ok(nd_schedule_start(step, adam));
    assert_ok(nd_schedule_start(line, sgd));
    assert_ok(nd_save_state(steps, path));
    assert_int_equal(nd_load_state(lines, path), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "another kind of schedule");
}

static void test_parts_that_are_refused(void **state) {
    (void)state;
    nd_auto nd_state *it = nd_state_new();
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    assert_ok(nd_state_add_module(it, "model", module));
    assert_int_equal(nd_state_add_tensor(it, "model", x), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has a part 'model' already");
    assert_int_equal(nd_state_add_tensor(it, "a.b", x), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no dot");
    assert_int_equal(nd_state_set_i64(it, "__metadata__", 1), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "it is reserved");
    assert_int_equal(nd_state_add_tensor(it, "\xff", x), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no UTF-8");
    assert_int_equal(nd_state_add_tensor(it, "turned", turned), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "contiguous");
    assert_int_equal(nd_state_add_tensor(it, "w", nd_module_get_parameter(module, "weight")),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "requires a gradient");
    assert_int_equal(nd_state_set_i64(it, "model", 1), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "another kind");
    int64_t value = 5;
    assert_int_equal(nd_state_get_i64(it, "step", &value), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no part 'step'");
    assert_int_equal(value, 5);
    assert_ok(nd_state_set_i64(it, "step", INT64_MIN));
    assert_ok(nd_state_get_i64(it, "step", &value));
    assert_true(value == INT64_MIN);
    assert_int_not_equal(nd_state_add_module(it, "m", NULL), ND_OK);
    assert_int_not_equal(nd_state_add_optimizer(it, "m", NULL), ND_OK);
    assert_int_not_equal(nd_state_add_schedule(it, "m", NULL), ND_OK);
    assert_int_not_equal(nd_state_add_dataset(it, "m", NULL), ND_OK);
    assert_int_not_equal(nd_state_add_tensor(it, "m", NULL), ND_OK);
    assert_int_not_equal(nd_state_add_tensor(it, NULL, x), ND_OK);
    assert_int_not_equal(nd_state_get_f64(it, "step", NULL), ND_OK);
    assert_int_not_equal(nd_state_get_key(NULL, "step", NULL), ND_OK);
    assert_int_not_equal(nd_save_state(NULL, "x"), ND_OK);
    assert_int_not_equal(nd_save_state(it, NULL), ND_OK);
    assert_int_not_equal(nd_load_state(it, NULL), ND_OK);
    assert_ok(nd_close(it));
    assert_int_equal(nd_save_state(it, "x"), ND_ERROR_CLOSED);
    assert_int_equal(nd_state_set_i64(it, "step", 1), ND_ERROR_CLOSED);
    nd_error_clear();
}

static void test_many_parts(void **state) {
    (void)state;
    const char *path = nd_test_path("many.safetensors");
    nd_auto nd_state *it = nd_state_new();
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(nd_state_set_f64(it, name, i == 50 ? INFINITY : i / 3.0));
    }
    assert_ok(nd_save_state(it, path));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(nd_state_set_f64(it, name, 0));
    }
    assert_ok(nd_load_state(it, path));
    for (int i = 0; i < 100; i++) {
        double value;
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(nd_state_get_f64(it, name, &value));
        assert_true(value == (i == 50 ? INFINITY : i / 3.0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_run_goes_on_to_the_same_bits_from_every_step),
        ND_TEST(test_another_number_of_ranks_goes_on_with_the_same_batches),
        ND_TEST(test_a_killed_run_goes_on_to_the_same_bits),
        ND_TEST(test_what_does_not_fit_changes_nothing),
        ND_TEST(test_every_allocation_of_saving_and_loading_fails_once),
        ND_TEST(test_a_rate_set_beside_a_schedule_is_kept),
        ND_TEST(test_another_kind_of_optimizer_and_schedule_is_refused),
        ND_TEST(test_parts_that_are_refused),
        ND_TEST(test_many_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
