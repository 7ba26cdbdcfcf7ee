// Mistakes: what one rank does wrong every rank hears of, in words, before anything was sent.
// Nothing has changed, and the communicator goes on.
#include "lib/base/alloc.h"
#include "lib/device/capture.h"
#include "lib/distributed/communicator.h"
#include "tests/distributed/ranks.h"
#include <nd/memory.h>

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

/// The world, with a deadline that a hang would miss.
typedef struct setting {
    nd_communicator *world;
    int rank, ranks;
} setting;

static setting begin(void) {
    setting s = {.world = open_world(30)};
    s.rank = nd_communicator_get_rank(s.world);
    s.ranks = nd_communicator_get_size(s.world);
    return s;
}

/// The communicator is as good as before.
static void end(setting *s) {
    assert_false(nd_communicator_is_broken(s->world));
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1), ND_I32);
    assert_ok(nd_all_reduce_(one, s->world, ND_COLLECTIVE_SUM));
    assert_true(element_at(one, 0) == s->ranks);
    nd_release(s->world);
}

static void assert_message(nd_status status, nd_status expected, const char *part) {
    if (status != expected || !strstr(nd_error_get_message(), part))
        fail_msg("%s: '%s', not %s with '%s'", nd_status_get_name(status), nd_error_get_message(),
                 nd_status_get_name(expected), part);
}

static void test_shapes_that_differ_are_named(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, s.rank == 1 ? 4 : 3), ND_F32);
    assert_message(nd_all_reduce_(x, s.world, ND_COLLECTIVE_SUM), ND_ERROR_SHAPE,
                   "all_reduce_: rank 0 has float32 [2, 3] and rank 1 float32 [2, 4]");
    assert_null(nd_all_reduce(x, s.world, ND_COLLECTIVE_SUM));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "rank 1 float32 [2, 4]");
    assert_null(nd_all_gather(x, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "all_gather: rank 0 has");
    assert_message(nd_broadcast_(x, s.world, 0), ND_ERROR_SHAPE, "broadcast_: rank 0 has");
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_true(element_at(x, i) == 1);
    nd_auto nd_tensor *flat = nd_ones(s.rank == 1 ? 2 : 1, (const int64_t[]){4, 1}, ND_F32);
    assert_message(nd_all_reduce_(flat, s.world, ND_COLLECTIVE_SUM), ND_ERROR_SHAPE,
                   "rank 0 has float32 [4] and rank 1 float32 [4, 1]");
    end(&s);
}

static void test_dtypes_roots_and_reductions_that_differ_are_named(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), s.rank == 1 ? ND_BF16 : ND_F16);
    assert_message(nd_all_reduce_(x, s.world, ND_COLLECTIVE_SUM), ND_ERROR_DTYPE,
                   "rank 0 has float16 [4] and rank 1 bfloat16 [4]");
    nd_auto nd_tensor *y = nd_ones(ND_SHAPE(4), ND_F32);
    assert_message(nd_broadcast_(y, s.world, s.rank == 1 ? 1 : 0), ND_ERROR_INVALID_ARGUMENT,
                   "rank 0 says root 0 and rank 1 root 1");
    assert_message(nd_all_reduce_(y, s.world, s.rank == 1 ? ND_COLLECTIVE_MAX : ND_COLLECTIVE_MEAN),
                   ND_ERROR_INVALID_ARGUMENT, "rank 0 wants the mean and rank 1 the max");
    end(&s);
}

static void test_calls_that_differ_are_named(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32);
    nd_status status = s.rank == 1 ? nd_broadcast_(x, s.world, 0) : nd_barrier(s.world);
    assert_message(status, ND_ERROR_STATE, "rank 0 calls barrier and rank 1 broadcast_");
    end(&s);
}

/// What only one rank knows.
static void test_a_rank_that_cannot_take_part_says_why(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1000), ND_F32);
    nd_auto nd_tensor *closed = nd_ones(ND_SHAPE(1000), ND_F32);
    assert_ok(nd_close(closed));
    nd_status status = nd_all_reduce_(s.rank == 1 ? closed : x, s.world, ND_COLLECTIVE_SUM);
    assert_message(status, ND_ERROR_CLOSED,
                   s.rank == 1 ? "closed"
                               : "all_reduce_: rank 1 does not take part: all_reduce_: ");
    nd_error_clear();
    assert_null(nd_all_gather(s.rank == 1 ? NULL : x, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT,
                   s.rank == 1 ? "all_gather: x is NULL" : "rank 1 does not take part: ");
    assert_true(element_at(x, 999) == 1);
    end(&s);
}

static void test_a_quota_refuses_before_anything_is_sent(void **state) {
    (void)state;
    setting s = begin();
    nd_manager *manager = nd_manager_new(NULL, "small");
    nd_tensor *x = NULL;
    nd_with_manager(manager) {
        x = nd_ones(ND_SHAPE(1000), ND_F32);
    }
    if (s.rank == 1)
        assert_ok(nd_manager_set_quota(manager, ND_CPU, 5000));
    assert_null(nd_all_reduce(x, s.world, ND_COLLECTIVE_SUM));
    assert_message(nd_error_get_status(), ND_ERROR_QUOTA, s.rank == 1 ? "small" : "rank 1");
    assert_message(nd_all_reduce_(x, s.world, ND_COLLECTIVE_SUM), ND_ERROR_QUOTA, "quota");
    assert_true(element_at(x, 7) == 1);
    nd_release(x);
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
    end(&s);
}

/// The last rank alone has no room for what a call takes beside x: no rank gets anything, and all can
/// go on.
static void test_a_quota_of_one_rank_refuses_every_call(void **state) {
    (void)state;
    setting s = begin();
    const bool here = s.rank == s.ranks - 1;
    nd_manager *manager = nd_manager_new(NULL, "small");
    nd_tensor *x = NULL;
    nd_with_manager(manager) {
        x = nd_full(ND_SHAPE(1200), s.rank, ND_F32);
    }
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    assert_ok(nd_manager_set_quota(manager, ND_CPU, here ? 4800 : 0));
    const uint64_t bytes = nd_manager_get_total_bytes(manager);
    assert_null(nd_all_gather(x, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_QUOTA, here ? "small" : "does not take part");
    assert_null(nd_reduce_scatter(x, s.world, ND_COLLECTIVE_SUM));
    assert_message(nd_error_get_status(), ND_ERROR_QUOTA, here ? "small" : "does not take part");
    assert_int_equal(nd_broadcast_(x, s.world, 0), ND_ERROR_QUOTA);
    assert_int_equal(nd_broadcast_(x, s.world, s.ranks - 1), ND_ERROR_QUOTA);
    if (here || s.rank == 0) {
        const int other = here ? 0 : s.ranks - 1;
        assert_int_equal(s.rank == 0 ? nd_send(x, s.world, other) : nd_receive_(x, s.world, other),
                         ND_ERROR_QUOTA);
        assert_int_equal(s.rank == 0 ? nd_receive_(x, s.world, other) : nd_send(x, s.world, other),
                         ND_ERROR_QUOTA);
    }
    nd_error_clear();
    assert_true(element_at(x, 1199) == s.rank);
    assert_int_equal(nd_manager_get_total_bytes(manager), bytes);
    nd_release(x);
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
    end(&s);
}

/// Views of one element, or without any, whose results no memory holds and no number counts.
static void test_sizes_that_nothing_holds(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1, 1), ND_F32);
    nd_auto nd_tensor *wide = nd_expand(one, ND_SHAPE(INT64_C(1) << 31, INT64_C(1) << 29));
    assert_handle(wide);
    assert_null(nd_all_reduce(wide, s.world, ND_COLLECTIVE_SUM));
    assert_message(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY, "all_reduce");
    assert_null(nd_all_gather(wide, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "all_gather: ");
    if (s.rank == 0)
        assert_int_equal(nd_send(wide, s.world, 1), ND_ERROR_OUT_OF_MEMORY);
    if (s.rank == 1) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
        assert_message(nd_receive_(x, s.world, 0), ND_ERROR_OUT_OF_MEMORY, "does not take part");
        assert_true(element_at(x, 2) == 1);
    }
    nd_error_clear();
    // No elements, but more rows than there are numbers for.
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(INT64_C(1) << 62, 0), ND_U8);
    assert_handle(none);
    assert_null(nd_all_gather(none, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "all_gather: ");
    nd_auto nd_tensor *sum = nd_all_reduce(none, s.world, ND_COLLECTIVE_SUM);
    assert_handle(sum);
    assert_int_equal(nd_get_shape(sum)[0], INT64_C(1) << 62);
    nd_error_clear();
    end(&s);
}

static bool refuse_large(size_t bytes) {
    return bytes >= 4000;
}

static void test_a_rank_without_memory_says_so(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1000), ND_F32);
    nd__alloc_should_fail = s.rank == 1 ? refuse_large : NULL;
    nd_auto nd_tensor *sum = nd_all_reduce(x, s.world, ND_COLLECTIVE_SUM);
    nd__alloc_should_fail = NULL;
    assert_null(sum);
    assert_message(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY,
                   s.rank == 1 ? "4000 bytes" : "rank 1 does not take part");
    end(&s);
}

static void test_what_no_rank_may_ask_for(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *integers = nd_ones(ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *bools = nd_ones(ND_SHAPE(4), ND_BOOL);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *repeated = nd_expand(one, ND_SHAPE(5));
    nd_auto nd_tensor *odd = nd_ones(ND_SHAPE(2 * s.ranks + 1), ND_F32);
    assert_message(nd_all_reduce_(integers, s.world, ND_COLLECTIVE_MEAN), ND_ERROR_DTYPE, "int32");
    assert_message(nd_all_reduce_(bools, s.world, ND_COLLECTIVE_SUM), ND_ERROR_DTYPE, "bools");
    assert_message(nd_all_reduce_(one, s.world, (nd_collective)9), ND_ERROR_INVALID_ARGUMENT,
                   "op is 9");
    assert_message(nd_all_reduce_(repeated, s.world, ND_COLLECTIVE_SUM), ND_ERROR_INVALID_ARGUMENT,
                   "share memory");
    assert_null(nd_all_gather(scalar, s.world));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "no axis");
    assert_null(nd_reduce_scatter(odd, s.world, ND_COLLECTIVE_SUM));
    assert_message(nd_error_get_status(), ND_ERROR_SHAPE, "not divisible");
    assert_message(nd_broadcast_(one, s.world, s.ranks), ND_ERROR_INVALID_ARGUMENT, "root is");
    assert_message(nd_send(one, s.world, s.rank), ND_ERROR_INVALID_ARGUMENT, "is this one");
    assert_message(nd_receive_(one, s.world, -1), ND_ERROR_INVALID_ARGUMENT, "rank is -1");
    end(&s);
}

static void test_messages_that_do_not_fit_are_named_on_both_sides(void **state) {
    (void)state;
    setting s = begin();
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(2 + s.rank), s.rank, ND_F32);
    if (s.rank < 2) {
        nd_status status = s.rank == 0 ? nd_send(x, s.world, 1) : nd_receive_(x, s.world, 0);
        assert_message(status, ND_ERROR_SHAPE, "rank 0 has float32 [2] and rank 1 float32 [3]");
        assert_true(element_at(x, 0) == s.rank);
        assert_message(nd_send(x, s.world, 1 - s.rank), ND_ERROR_STATE,
                       "rank 0 and rank 1 both call send");
        nd_error_clear();
        status = s.rank == 0 ? nd_send(NULL, s.world, 1) : nd_receive_(x, s.world, 0);
        assert_message(status, ND_ERROR_INVALID_ARGUMENT,
                       s.rank == 0 ? "x is NULL" : "rank 0 does not take part: send: x is NULL");
    }
    end(&s);
}

/// What the ranks of one nd_data_parallel must have in common beside the module.
static void test_options_that_differ_are_named(void **state) {
    (void)state;
    setting s = begin();
    for (int what = 0; what < 3; what++) {
        nd_auto nd_module *module = nd_linear_module(nd_key_new((uint64_t)s.rank), 4, 3, true);
        nd_auto nd_tensor *before = nd_clone(nd_module_get_parameter(module, "weight"));
        nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
        bool other = s.rank == 1;
        options.shard_optimizer = what == 0 && other;
        options.bucket_bytes = what == 1 && other ? 100 : 200;
        options.first_bucket_bytes = what == 2 && other ? 100 : 200;
        nd_data_parallel *parallel = nd_data_parallel_new(module, s.world, &options);
        assert_null(parallel);
        assert_message(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT,
                       what == 0   ? "data_parallel_new: shard_optimizer is false on rank 0 and "
                                     "true on rank 1"
                       : what == 1 ? "200 and 200 on rank 0 and 100 and 200 on rank 1"
                                   : "200 and 200 on rank 0 and 200 and 100 on rank 1");
        assert_memory_equal(nd_get_data(nd_module_get_parameter(module, "weight")),
                            nd_get_data(before), 12 * sizeof(float));
        nd_error_clear();
    }
    end(&s);
}

/// A parameter that one rank has lost, when all are to have rank 0's values.
static void test_values_of_rank_0_name_what_was_called(void **state) {
    (void)state;
    static const char called[] = "data_parallel_synchronize: ";
    setting s = begin();
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 4, 3, true);
    nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, s.world, NULL);
    assert_handle(parallel);
    if (s.rank == 1)
        assert_ok(nd_close((nd_tensor *)(uintptr_t)nd_module_get_parameter(module, "weight")));
    nd_status status = nd_data_parallel_synchronize(parallel);
    assert_message(status, ND_ERROR_CLOSED, s.rank == 1 ? called : "rank 1 does not take part: ");
    assert_memory_equal(nd_error_get_message(), called, sizeof called - 1);
    end(&s);
}

static void test_limits_that_differ_are_named(void **state) {
    (void)state;
    setting s = begin();
    for (int sharded = 0; sharded < 2; sharded++) {
        nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 4, 3, true);
        nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
        options.shard_optimizer = sharded;
        nd_auto nd_data_parallel *parallel = nd_data_parallel_new(module, s.world, &options);
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 4), ND_F32);
        nd_auto nd_tensor *y = nd_module_forward(module, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_data_parallel_backward(parallel, loss, NULL));
        double norm = -1;
        assert_message(nd_data_parallel_clip_grad_norm(parallel, s.rank == 1 ? 0.5 : 1, &norm),
                       ND_ERROR_INVALID_ARGUMENT,
                       "data_parallel_clip_grad_norm: the limit is 1 on rank 0 and 0.5 on rank 1");
        assert_true(norm == -1);
        for (size_t i = 0; i < nd_module_get_parameter_count(module); i++) {
            const nd_tensor *grad = nd_get_grad(nd_module_get_parameter_at(module, i, NULL));
            assert_true(!grad || element_at(grad, 0) == 2);
        }
        nd_error_clear();
        nd_status status = nd_data_parallel_clip_grad_norm(parallel, s.rank == 1 ? -1 : 1, &norm);
        assert_message(status, ND_ERROR_INVALID_ARGUMENT,
                       s.rank == 1 ? "data_parallel_clip_grad_norm: the limit is -1"
                                   : "data_parallel_clip_grad_norm: rank 1 does not take part: ");
        assert_ok(nd_data_parallel_clip_grad_norm(parallel, s.rank == 1 ? -0.0 : 0.0, &norm));
        assert_true(fabs(norm - sqrt(12 * 4 + 3 * 4)) < 1e-5);
    }
    end(&s);
}

static void test_a_communicator_wants_sensible_options(void **state) {
    (void)state;
    nd_communicator_options options = ND_COMMUNICATOR_OPTIONS_INIT;
    options.timeout = 0;
    assert_null(nd_communicator_from_world(&options));
    assert_message(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT, "timeout of 0 s");
    options.size = 0;
    assert_null(nd_communicator_from_world(&options));
    assert_null(nd_communicator_from_mpi(NULL, NULL));
    assert_int_equal(nd_barrier(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_null(nd_communicator_duplicate(NULL, NULL));
    setting s = begin();
    assert_int_equal(nd_communicator_set_timeout(s.world, -1), ND_ERROR_INVALID_ARGUMENT);
    assert_true(nd_communicator_get_timeout(s.world) == 30);
    assert_ok(nd_communicator_set_timeout(s.world, 0.25));
    assert_true(nd_communicator_get_timeout(s.world) == 0.25);
    assert_ok(nd_communicator_set_timeout(s.world, 30));
    end(&s);
}

static bool refuse_memory(size_t bytes) {
    return bytes >= 100;
}

/// Options, memory, or a manager that one rank alone has trouble with.
static void test_a_duplicate_is_made_on_all_ranks_or_on_none(void **state) {
    (void)state;
    setting s = begin();
    const bool here = s.rank == s.ranks - 1;
    nd_communicator_options options = ND_COMMUNICATOR_OPTIONS_INIT;
    options.timeout = here ? -1 : 5;
    assert_null(nd_communicator_duplicate(s.world, &options));
    assert_message(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT,
                   here ? "duplicate: a timeout of -1 s" : "does not take part: communicator_dupl");
    nd__alloc_should_fail = here ? refuse_memory : NULL;
    nd_communicator *made = nd_communicator_duplicate(s.world, NULL);
    nd__alloc_should_fail = NULL;
    assert_null(made);
    assert_message(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY,
                   here ? "no memory for a communicator" : "does not take part");
    nd_manager *manager = nd_manager_new(NULL, "full");
    assert_ok(nd_manager_set_cap(manager, here ? 1 : 10));
    nd_with_manager(manager) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
        assert_null(nd_communicator_duplicate(s.world, NULL));
        assert_message(nd_error_get_status(), ND_ERROR_QUOTA, here ? "full" : "does not take part");
    }
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
    nd_error_clear();
    nd_auto nd_communicator *again = nd_communicator_duplicate(s.world, NULL);
    assert_handle(again);
    assert_ok(nd_barrier(again));
    end(&s);
}

static void test_nccl_wants_a_device_and_a_library(void **state) {
    (void)state;
    setting s = begin();
    const nd_device cpu = {ND_CPU, 0}, gpu = {ND_CUDA, s.rank};
    assert_null(nd_communicator_from_nccl(s.world, cpu, NULL));
    assert_message(nd_error_get_status(), ND_ERROR_DEVICE, "cpu:0 is none");
    if (nd_get_device_count(ND_CUDA) == 0) {
        assert_null(nd_communicator_from_nccl(s.world, gpu, NULL));
        assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
        assert_null(nd_communicator_from_nccl_file("id", s.rank, s.ranks, gpu, NULL));
        assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
    }
    assert_null(nd_communicator_from_nccl_file(NULL, s.rank, s.ranks, gpu, NULL));
    assert_null(nd_communicator_from_nccl_file("id", s.ranks, s.ranks, gpu, NULL));
    assert_message(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT, "communicator_from_nccl_file");
    end(&s);
}

static nd_status always(nd_transport *transport, const char *operation) {
    (void)transport;
    (void)operation;
    return ND_OK;
}

static int agreements;

static nd_status count_agreement(nd_transport *transport, const nd_transport_call *call,
                                 uint64_t *values, int count) {
    (void)transport;
    (void)call;
    (void)values;
    (void)count;
    agreements++;
    return ND_OK;
}

static void leave_alone(nd_transport *transport, bool broken) {
    (void)transport;
    (void)broken;
}

/// A transport of a device's memory, as NCCL's, copies to and from it in every call, which no graph
/// can hold: the call is refused before the transport is asked for anything.
static void test_a_thread_that_captures_calls_no_device(void **state) {
    (void)state;
    setting s = begin();
    static const nd_transport_functions functions = {
        .name = "counting", .check = always, .agree = count_agreement, .free = leave_alone};
    nd_transport transport = {.functions = &functions, .size = 1, .device = {ND_CUDA, 0}};
    const nd_transport_call call = {.operation = "errors_test", .seconds = 30};
    nd_communicator *comm = nd__communicator_on(&call, &transport);
    assert_handle(comm);
    assert_ok(nd_barrier(comm));
    const int before = agreements;
    assert_true(before > 0);
    nd_capture capture = {.device = {ND_CUDA, 0}};
    nd__thread_record.capture = &capture;
    nd_status status = nd_barrier(comm), of_the_host = nd_barrier(s.world);
    nd__thread_record.capture = NULL;
    assert_message(status, ND_ERROR_STATE, "barrier: this thread captures a graph");
    assert_int_equal(agreements, before);
    assert_ok(of_the_host);
    assert_false(nd_communicator_is_broken(comm));
    assert_ok(nd_barrier(comm));
    nd_release(comm);
    end(&s);
}

static void test_a_forked_child_is_no_rank(void **state) {
    (void)state;
    setting s = begin();
    pid_t child = fork();
    if (child == 0) {
        bool refused = nd_barrier(s.world) == ND_ERROR_STATE &&
                       strstr(nd_error_get_message(), "forked") &&
                       !nd_communicator_from_world(NULL);
        nd_release(s.world);
        _exit(refused ? 0 : 1);
    }
    int answer = -1;
    assert_int_equal(waitpid(child, &answer, 0), child);
    assert_int_equal(answer, 0);
    end(&s);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_shapes_that_differ_are_named),
    ND_TEST(test_dtypes_roots_and_reductions_that_differ_are_named),
    ND_TEST(test_calls_that_differ_are_named),
    ND_TEST(test_a_rank_that_cannot_take_part_says_why),
    ND_TEST(test_a_quota_refuses_before_anything_is_sent),
    ND_TEST(test_a_quota_of_one_rank_refuses_every_call),
    ND_TEST(test_sizes_that_nothing_holds),
    ND_TEST(test_a_rank_without_memory_says_so),
    ND_TEST(test_what_no_rank_may_ask_for),
    ND_TEST(test_messages_that_do_not_fit_are_named_on_both_sides),
    ND_TEST(test_options_that_differ_are_named),
    ND_TEST(test_values_of_rank_0_name_what_was_called),
    ND_TEST(test_limits_that_differ_are_named),
    ND_TEST(test_a_communicator_wants_sensible_options),
    ND_TEST(test_a_duplicate_is_made_on_all_ranks_or_on_none),
    ND_TEST(test_nccl_wants_a_device_and_a_library),
    ND_TEST(test_a_thread_that_captures_calls_no_device),
    ND_TEST(test_a_forked_child_is_no_rank),
};

RANKS_MAIN(tests)
