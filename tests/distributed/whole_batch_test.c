// The proof of training on several ranks: nets of the workloads' kinds (an MLP, LeNet, GPT-2's
// architecture) learn for some steps from a data set that is cut by rank, and beside that in this
// process alone: from the same shares one behind the other, which two ranks equal bit by bit, and
// from the whole batch at once, within rounding. With the collector off and on, the optimizer's
// state whole and sharded, and a loss that has a gradient of a gradient inside.
#include "bench/workloads/gpt.h"
#include "tests/distributed/ranks.h"
#include "tests/training.h"

#include <math.h>

enum { BATCH = 4, SIDE = 12, CLASSES = 10, CONTEXT = 9, MOST_RANKS = 8, EPOCHS = 2 };

/// A net, its samples, and the mean of its loss over a batch.
typedef struct kind {
    const char *name;
    nd_module *(*make)(nd_key key);
    nd_tensor *(*samples)(int64_t count);
    nd_tensor *(*loss)(const nd_module *model, const nd_tensor *x, const nd_tensor *y);
} kind;

static nd_tensor *pictures(int64_t count) {
    return nd_randint(nd_key_new(31), 0, 256, ND_SHAPE(count, 1, SIDE, SIDE), ND_U8);
}

static nd_tensor *loss_of_logits(const nd_module *model, const nd_tensor *x, const nd_tensor *y) {
    nd_auto nd_tensor *logits = nd_module_forward(model, x);
    return nd_cross_entropy(logits, y);
}

static nd_module *make_mlp(nd_key key) {
    return ND_SEQUENTIAL(
        nd_flatten_module(), nd_linear_module(nd_key_fold(key, 0), SIDE * SIDE, 64, true),
        nd_relu_module(), nd_linear_module(nd_key_fold(key, 1), 64, 32, true), nd_relu_module(),
        nd_linear_module(nd_key_fold(key, 2), 32, CLASSES, true));
}

static nd_module *make_cnn(nd_key key) {
    nd_conv2d_options padded = ND_CONV2D_OPTIONS_INIT;
    padded.padding[0] = padded.padding[1] = 2;
    nd_max_pool2d_options halves = ND_MAX_POOL2D_OPTIONS_INIT;
    halves.kernel[0] = halves.kernel[1] = 2;
    return ND_SEQUENTIAL(nd_conv2d_module(nd_key_fold(key, 0), 1, 4, 5, 5, true, &padded),
                         nd_relu_module(), nd_max_pool2d_module(&halves),
                         nd_conv2d_module(nd_key_fold(key, 1), 4, 8, 5, 5, true, NULL),
                         nd_relu_module(), nd_max_pool2d_module(&halves), nd_flatten_module(),
                         nd_linear_module(nd_key_fold(key, 2), 8, 32, true), nd_relu_module(),
                         nd_linear_module(nd_key_fold(key, 3), 32, CLASSES, true));
}

static nd_tensor *texts(int64_t count) {
    return nd_randint(nd_key_new(32), 0, 29, ND_SHAPE(count, CONTEXT), ND_I64);
}

static nd_module *make_gpt(nd_key key) {
    const gpt_sizes sizes = {29, CONTEXT, 16, 2, 2};
    return gpt_new(&sizes, key);
}

static nd_tensor *loss_of_text(const nd_module *model, const nd_tensor *x, const nd_tensor *y) {
    (void)y;
    nd_auto nd_tensor *read = nd_slice(x, 0, CONTEXT - 1, 1, 1);
    nd_auto nd_tensor *next = nd_slice(x, 1, CONTEXT, 1, 1);
    return gpt_loss(model, read, next, false);
}

/// The MLP's loss and the square of its gradient by the pictures, as a critic of Wasserstein GANs
/// has it: differentiated twice.
static nd_tensor *loss_with_penalty(const nd_module *model, const nd_tensor *x,
                                    const nd_tensor *y) {
    nd_auto nd_tensor *point = nd_clone(x);
    assert_ok(nd_set_requires_grad(point, true));
    nd_auto nd_tensor *flat = nd_reshape(point, ND_SHAPE(nd_get_size(point, 0), SIDE * SIDE));
    nd_auto nd_tensor *hidden = nd_module_forward(nd_module_get_child(model, 1), flat);
    nd_auto nd_tensor *bent = nd_tanh(hidden);
    nd_auto nd_tensor *second = nd_module_forward(nd_module_get_child(model, 3), bent);
    nd_auto nd_tensor *bent_again = nd_tanh(second);
    nd_auto nd_tensor *logits = nd_module_forward(nd_module_get_child(model, 5), bent_again);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, y);
    nd_auto nd_tensor *sum = nd_sum(logits, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    const nd_tensor *of[] = {point};
    nd_tensor *slope = NULL;
    assert_ok(nd_grad(sum, 1, of, &options, &slope));
    nd_auto nd_tensor *square = nd_square(slope);
    nd_auto nd_tensor *penalty = nd_mean(square, 0, NULL, false);
    nd_release(slope);
    return nd_add(loss, penalty);
}

static const kind kinds[] = {
    {"MLP", make_mlp, pictures, loss_of_logits},
    {"CNN", make_cnn, pictures, loss_of_logits},
    {"transformer", make_gpt, texts, loss_of_text},
    {"second order", make_mlp, pictures, loss_with_penalty},
};

/// A net and what it learns from: the share of a rank of `ranks`, in batches of `batch`.
typedef struct learner {
    const kind *kind;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_dataset *data[MOST_RANKS]; ///< one, or those of all ranks
    int shares;
} learner;

/// So many samples that the last step has more than one for each rank, and not the same number.
static int64_t sample_count(int ranks) {
    return 3 * BATCH * ranks + ranks + ranks / 2;
}

static learner new_learner(const kind *k, int shares, int ranks, int64_t batch) {
    learner it = {.kind = k, .shares = shares};
    it.model = k->make(nd_key_new(7));
    assert_handle(it.model);
    // No Adam: it makes of a gradient's last bit a whole step where the gradient is next to none.
    it.optimizer = sgd_of(it.model, 0.05, 0.9, 0.01);
    int64_t count = sample_count(ranks);
    nd_auto nd_tensor *samples = k->samples(count);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(33), 0, CLASSES, ND_SHAPE(count), ND_I64);
    for (int r = 0; r < shares; r++) {
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = batch;
        options.key = nd_key_new(34);
        options.shuffle = true;
        options.rank = r;
        options.ranks = shares;
        it.data[r] = nd_dataset_new(samples, labels, &options);
        assert_handle(it.data[r]);
    }
    return it;
}

static void free_learner(learner *it) {
    for (int r = 0; r < it->shares; r++)
        nd_release(it->data[r]);
    nd_release(it->optimizer);
    nd_release(it->model);
}

static void start(learner *it, uint64_t epoch) {
    for (int r = 0; r < it->shares; r++)
        assert_ok(nd_dataset_start(it->data[r], epoch));
}

/// The weighted loss of the next batch of a share; NULL at the end of the epoch.
static nd_tensor *next_loss(learner *it, int share) {
    nd_auto nd_tensor *x = NULL, *y = NULL;
    if (!next_batch(it->data[share], &x, &y))
        return NULL;
    nd_auto nd_tensor *mean = it->kind->loss(it->model, x, y);
    assert_handle(mean);
    return nd_mul_scalar(mean, nd_dataset_get_weight(it->data[share]));
}

/// A step of one process: the mean of its shares' gradients, summed in the order of ranks.
static void step_alone(learner *it) {
    for (int r = 0; r < it->shares; r++) {
        nd_auto nd_tensor *loss = next_loss(it, r);
        assert_handle(loss);
        assert_ok(nd_backward(loss, NULL));
    }
    for (size_t i = 0; it->shares > 1 && i < nd_module_get_parameter_count(it->model); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(it->model, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), it->shares);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
    assert_ok(nd_optimizer_step(it->optimizer));
    assert_ok(nd_module_zero_grad(it->model));
}

static void assert_near(const learner *a, const learner *b, double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a->model); i++) {
        const char *name;
        const nd_tensor *x = nd_module_get_parameter_at(a->model, i, &name);
        const nd_tensor *y = nd_module_get_parameter_at(b->model, i, NULL);
        for (int64_t n = 0; n < nd_get_numel(x); n++)
            if (!(fabs(element_at(x, n) - element_at(y, n)) <= tolerance))
                fail_msg("%s: %s[%lld]: %.9g and %.9g", a->kind->name, name, (long long)n,
                         element_at(x, n), element_at(y, n));
    }
}

static void learn(const kind *k, const nd_communicator *world, bool sharded) {
    int ranks = nd_communicator_get_size(world);
    learner here = new_learner(k, 1, ranks, BATCH);          // with the others
    learner shares = new_learner(k, ranks, ranks, BATCH);    // all shares by turns
    learner whole = new_learner(k, 1, ranks, BATCH * ranks); // at once
    assert_ok(nd_dataset_shard(here.data[0], world));
    assert_int_equal(nd_dataset_get_batches(here.data[0]), nd_dataset_get_batches(whole.data[0]));
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 4000;
    options.shard_optimizer = sharded;
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(here.model, world, &options);
    assert_handle(parallel);
    int steps = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        start(&here, epoch);
        start(&shares, epoch);
        start(&whole, epoch);
        for (;; steps++) {
            nd_auto nd_tensor *loss = next_loss(&here, 0);
            if (!loss)
                break;
            assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
            assert_ok(nd_data_parallel_step(parallel, here.optimizer));
            assert_ok(nd_module_zero_grad(here.model));
            step_alone(&shares);
            step_alone(&whole);
            assert_near(&here, &shares, ranks <= 2 ? 0 : 1e-6);
            assert_near(&here, &whole, 1e-5);
        }
    }
    assert_int_equal(steps, EPOCHS * 4);
    free_learner(&here);
    free_learner(&shares);
    free_learner(&whole);
}

static void learn_all(void) {
    nd_auto nd_communicator *world = open_world(60);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int sharded = 0; sharded < 2; sharded++)
            learn(&kinds[i], world, sharded);
}

static void test_ranks_learn_what_one_process_does(void **state) {
    (void)state;
    learn_all();
    assert_ok(nd_gc_collect(NULL, NULL)); // of the graph of second order
}

static void test_with_the_collector_on_they_learn_the_same(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    learn_all();
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_gc_set_mode(ND_GC_OFF);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_ranks_learn_what_one_process_does),
    ND_TEST(test_with_the_collector_on_they_learn_the_same),
};
RANKS_MAIN(tests)
