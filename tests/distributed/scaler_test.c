// Loss scaling over ranks, with gradients everywhere and shared out: all ranks step or none does, and
// all have the scale that one process has that sees every gradient.
#include "tests/distributed/nets.h"

enum { STEPS = 24 };

/// Of a step: its number, this rank and how many there are.
typedef struct place {
    uint64_t step;
    int rank, ranks;
} place;

/// Which rank's loss is infinite in a step; -1: none is.
static int infinite_rank(uint64_t step, int ranks) {
    static const int8_t struck[STEPS] = {[3] = 1, [4] = 2, [9] = 4, [10] = 1, [17] = 3, [23] = 2};
    return struck[step] ? (struck[step] - 1) % ranks : -1;
}

static nd_tensor *scaled_loss(const kind *k, const nd_module *module, const nd_loss_scaler *scaler,
                              place at, int rank) {
    nd_auto nd_tensor *loss = loss_of(k, module, at.step, rank);
    nd_auto nd_tensor *given =
        nd_mul_scalar(loss, infinite_rank(at.step, at.ranks) == rank ? INFINITY : 1);
    nd_tensor *scaled = nd_loss_scaler_scale(scaler, given);
    assert_handle(scaled);
    return scaled;
}

/// The same step in one process, which has the losses of all ranks. Whether it was made.
static bool step_alone(const kind *k, const nd_module *module, nd_optimizer *optimizer,
                       nd_loss_scaler *scaler, place at, double *ret_norm) {
    for (int r = 0; r < at.ranks; r++) {
        nd_auto nd_tensor *loss = scaled_loss(k, module, scaler, at, r);
        nd_auto nd_tensor *share = nd_div_scalar(loss, at.ranks);
        assert_ok(nd_backward(share, NULL));
    }
    bool stepped = false;
    if (at.step % 2 == 0) {
        assert_ok(nd_loss_scaler_unscale(scaler, optimizer));
        assert_ok(nd_clip_grad_norm(module, 0.5, ret_norm));
    }
    assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
    assert_ok(nd_module_zero_grad(module));
    return stepped;
}

static bool step_together(const kind *k, nd_module *module, nd_data_parallel *parallel,
                          nd_optimizer *optimizer, nd_loss_scaler *scaler, place at,
                          double *ret_norm) {
    nd_auto nd_tensor *loss = scaled_loss(k, module, scaler, at, at.rank);
    assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
    bool stepped = false;
    if (at.step % 2 == 0) {
        assert_ok(nd_data_parallel_unscale(parallel, scaler, optimizer));
        assert_ok(nd_data_parallel_clip_grad_norm(parallel, 0.5, ret_norm));
    }
    assert_ok(nd_data_parallel_step_scaled(parallel, scaler, optimizer, &stepped));
    assert_ok(nd_module_zero_grad(module));
    return stepped;
}

static nd_loss_scaler *scaler_new(void) {
    nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
    options.interval = 3; // so that the scale grows, too
    nd_loss_scaler *scaler = nd_loss_scaler_new(&options);
    assert_handle(scaler);
    return scaler;
}

/// The gradient of the keys' bias is rounding alone; with the usual epsilon a step of Adam makes it as
/// large as any other.
static nd_optimizer *optimizer_new(const nd_module *module) {
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    options.eps = 1e-4;
    nd_optimizer *optimizer = nd_adam(module, &options);
    assert_handle(optimizer);
    return optimizer;
}

static nd_data_parallel *parallel_new(const nd_module *module, const nd_communicator *world,
                                      bool sharded) {
    nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
    options.bucket_bytes = options.first_bucket_bytes = 3000;
    options.shard_optimizer = sharded;
    nd_data_parallel *parallel = nd_data_parallel_new(module, world, &options);
    assert_handle(parallel);
    return parallel;
}

static void train(const kind *k, const nd_communicator *world, bool sharded) {
    place at = {.rank = nd_communicator_get_rank(world), .ranks = nd_communicator_get_size(world)};
    nd_auto nd_module *module = k->make(100 + (uint64_t)at.rank);
    nd_auto nd_data_parallel *parallel = parallel_new(module, world, sharded);
    nd_auto nd_optimizer *optimizer = optimizer_new(module);
    nd_auto nd_loss_scaler *scaler = scaler_new();
    nd_auto nd_module *alone = k->make(100);
    nd_auto nd_optimizer *optimizer_alone = optimizer_new(alone);
    nd_auto nd_loss_scaler *scaler_alone = scaler_new();
    for (; at.step < STEPS; at.step++) {
        double norm = 0, norm_alone = 0;
        bool expected = step_alone(k, alone, optimizer_alone, scaler_alone, at, &norm_alone);
        bool stepped = step_together(k, module, parallel, optimizer, scaler, at, &norm);
        assert_int_equal(expected, infinite_rank(at.step, at.ranks) < 0);
        assert_int_equal(stepped, expected);
        assert_true(nd_loss_scaler_get_scale(scaler) == nd_loss_scaler_get_scale(scaler_alone));
        assert_true(expected ? fabs(norm - norm_alone) <= 1e-5 : at.step % 2 || !isfinite(norm));
        assert_same_parameters(module, alone, 1e-4);
    }
}

static void test_all_ranks_step_or_none_does(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int sharded = 0; sharded < 2; sharded++)
            train(&kinds[i], world, sharded);
}

static void expect(nd_status status, nd_status expected, const char *message) {
    assert_int_equal(status, expected);
    if (!strstr(nd_error_get_message(), message))
        fail_msg("'%s' is not in '%s'", message, nd_error_get_message());
    nd_error_clear();
}

/// What one rank does wrong is an error on all, and the step that is right follows.
static void test_a_rank_that_does_not_fit_is_named(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    if (ranks < 2)
        return;
    for (int sharded = 0; sharded < 2; sharded++) {
        nd_auto nd_module *module = make_mlp(1);
        nd_auto nd_data_parallel *parallel = parallel_new(module, world, sharded);
        nd_auto nd_optimizer *optimizer = nd_adam(module, NULL);
        nd_auto nd_loss_scaler *scaler = scaler_new();
        nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
        options.scale = 1024;
        nd_auto nd_loss_scaler *another = nd_loss_scaler_new(&options);
        nd_auto nd_tensor *loss = loss_of(&kinds[0], module, 5, rank);
        nd_auto nd_tensor *scaled = nd_loss_scaler_scale(scaler, loss);
        assert_ok(nd_data_parallel_backward(parallel, scaled, NULL));

        bool stepped = true;
        nd_status status =
            nd_data_parallel_step_scaled(parallel, rank == 1 ? NULL : scaler, optimizer, &stepped);
        expect(status, ND_ERROR_INVALID_ARGUMENT,
               rank == 1 ? "scaler is NULL" : "rank 1 does not take part");
        status = nd_data_parallel_unscale(parallel, scaler, rank == 1 ? NULL : optimizer);
        expect(status, ND_ERROR_INVALID_ARGUMENT,
               rank == 1 ? "optimizer is NULL" : "rank 1 does not take part");
        // Those that had begun have divided, and do not divide again.
        assert_ok(nd_data_parallel_step_scaled(parallel, scaler, optimizer, &stepped));
        assert_true(stepped);
        nd_auto nd_module *alone = make_mlp(1);
        nd_auto nd_optimizer *optimizer_alone = nd_adam(alone, NULL);
        mean_of_shares(&kinds[0], alone, 5, ranks);
        assert_ok(nd_optimizer_step(optimizer_alone));
        assert_same_parameters(module, alone, 1e-4);

        assert_ok(nd_module_zero_grad(module));
        nd_auto nd_tensor *next = loss_of(&kinds[0], module, 6, rank);
        assert_ok(nd_data_parallel_backward(parallel, next, NULL));
        status = nd_data_parallel_unscale(parallel, rank == 1 ? another : scaler, optimizer);
        expect(status, ND_ERROR_INVALID_ARGUMENT,
               "data_parallel_unscale: the scale is 65536 on rank 0 and 1024 on rank 1");
        assert_ok(nd_module_zero_grad(module));
        nd_auto nd_tensor *last = loss_of(&kinds[0], module, 7, rank);
        assert_ok(nd_data_parallel_backward(parallel, last, NULL));
        assert_ok(nd_data_parallel_unscale(parallel, scaler, optimizer));
        double norm, again;
        assert_ok(nd_data_parallel_clip_grad_norm(parallel, INFINITY, &norm));
        assert_ok(nd_data_parallel_unscale(parallel, scaler, optimizer));
        assert_ok(nd_data_parallel_clip_grad_norm(parallel, INFINITY, &again));
        assert_true(norm == again);
        assert_ok(nd_data_parallel_step_scaled(parallel, scaler, optimizer, NULL));
    }
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_all_ranks_step_or_none_does),
    ND_TEST(test_a_rank_that_does_not_fit_is_named),
};

RANKS_MAIN(tests)
