// The program's own code in the middle of a collective call, which takes memory and so may collect,
// or ask for some: weak callbacks and memory callbacks that communicate themselves, wait for a
// thread that does, or close the communicator. No lock is held while they run, so nothing waits
// for itself.
#include "tests/distributed/ranks.h"

#include <nd/nd.h>
#include <pthread.h>
#include <unistd.h>

/// Bytes of x, of what a callback gives up, and of the manager they are in: without the one there
/// is room for a copy of the other, or for one for each rank.
enum {
    COUNT = 1200,
    MOST_RANKS = 4,
    SPARE = 4 * COUNT * (MOST_RANKS + 1),
    QUOTA = SPARE + 4 * COUNT
};

typedef struct scene {
    nd_communicator *world;
    nd_manager *manager;
    nd_tensor *x; ///< this rank's number + 1
    int rank, ranks;
    void (*act)(struct scene *s); ///< what a callback does
    int calls;
    nd_status answer; ///< of that
    nd_tensor *given_up;
    nd_data_parallel *parallel; ///< whose step is under way
    nd_status of_step;          ///< what a call of that answered meanwhile
} scene;

static scene open_scene(void (*act)(scene *s)) {
    alarm(300); // of what waits for itself only that is an end
    scene s = {.world = open_world(60), .act = act, .answer = ND_OK};
    s.rank = nd_communicator_get_rank(s.world);
    s.ranks = nd_communicator_get_size(s.world);
    s.manager = nd_manager_new(NULL, "tight");
    assert_ok(nd_manager_set_gc_mode(s.manager, ND_GC_ON));
    nd_with_manager(s.manager) {
        s.x = nd_full(ND_SHAPE(COUNT), s.rank + 1, ND_F32);
    }
    assert_handle(s.x);
    assert_ok(nd_manager_set_quota(s.manager, ND_CPU, QUOTA));
    return s;
}

static void close_scene(scene *s) {
    nd_release(s->x);
    assert_ok(nd_manager_close(s->manager, NULL));
    nd_release(s->manager);
    nd_release(s->world);
    alarm(0);
}

// -------------------------------------------------------------------------------------------------
// the calls, each of which takes memory where x is

static nd_tensor *reduce(scene *s) {
    return nd_all_reduce(s->x, s->world, ND_COLLECTIVE_SUM);
}

static nd_tensor *reduce_in_place(scene *s) {
    return nd_all_reduce_(s->x, s->world, ND_COLLECTIVE_SUM) == ND_OK ? nd_retain(s->x) : NULL;
}

static nd_tensor *scatter(scene *s) {
    return nd_reduce_scatter(s->x, s->world, ND_COLLECTIVE_SUM);
}

static nd_tensor *gather(scene *s) {
    return nd_all_gather(s->x, s->world);
}

static nd_tensor *broadcast(scene *s) {
    return nd_broadcast_(s->x, s->world, 0) == ND_OK ? nd_retain(s->x) : NULL;
}

static nd_tensor *exchange(scene *s) {
    nd_status status = s->rank == 0 ? nd_send(s->x, s->world, 1) : nd_receive_(s->x, s->world, 0);
    return status == ND_OK ? nd_retain(s->x) : NULL;
}

typedef nd_tensor *call(scene *s);
static call *const calls[] = {reduce, reduce_in_place, scatter, gather, broadcast, exchange};
enum { CALLS = sizeof calls / sizeof *calls };

/// The first element that a call gives.
static double expected_of(const scene *s, call *called) {
    return called == gather || called == broadcast || called == exchange
               ? 1
               : s->ranks * (s->ranks + 1) / 2;
}

/// A message is between two ranks.
static bool suits(const scene *s, call *called) {
    return called != exchange || s->ranks == 2;
}

// -------------------------------------------------------------------------------------------------
// what callbacks do

static void communicate(scene *s) {
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1), ND_I32);
    s->answer = nd_all_reduce_(one, s->world, ND_COLLECTIVE_SUM);
    if (s->answer == ND_OK && element_at(one, 0) != s->ranks)
        s->answer = ND_ERROR_STATE;
}

static void *communicate_there(void *data) {
    communicate(data);
    return NULL;
}

static void wait_for_a_thread(scene *s) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, communicate_there, s), 0);
    pthread_join(thread, NULL);
}

static void close_the_communicator(scene *s) {
    s->answer = nd_close(s->world);
}

/// Called when garbage goes.
static void gone(void *data) {
    scene *s = data;
    s->calls++;
    s->act(s);
}

/// Called when memory is short.
static bool give_up(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    scene *s = data;
    nd_release(nd_steal(&s->given_up));
    gone(s);
    return true;
}

/// A list that holds itself and what takes the room that the call wants. Its weak reference.
static nd_weak *drop_garbage(const scene *s, const void *held) {
    nd_weak *weak = NULL;
    nd_with_manager(s->manager) {
        nd_auto nd_list *list = nd_list_new();
        nd_auto nd_tensor *spare = nd_zeros(ND_SHAPE(SPARE), ND_U8);
        assert_ok(nd_list_append(list, spare));
        assert_ok(nd_list_append(list, list));
        if (held)
            assert_ok(nd_list_append(list, held));
        weak = nd_weak_new(list);
    }
    assert_handle(weak);
    return weak;
}

// -------------------------------------------------------------------------------------------------
// tests

static void assert_called(scene *s, call *called) {
    nd_auto nd_tensor *result = called(s);
    assert_handle(result);
    assert_true(element_at(result, 0) == expected_of(s, called));
    assert_int_equal(s->calls, 1);
    assert_ok(s->answer);
}

static void collect_during(call *called, void (*act)(scene *s)) {
    scene s = open_scene(act);
    if (suits(&s, called)) {
        nd_weak *weak = drop_garbage(&s, NULL);
        assert_ok(nd_weak_set_callback(weak, gone, &s));
        assert_called(&s, called);
        nd_release(weak);
    }
    close_scene(&s);
}

static void test_a_weak_callback_communicates(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++)
        collect_during(calls[i], communicate);
}

static void test_a_weak_callback_waits_for_a_thread_that_communicates(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++)
        collect_during(calls[i], wait_for_a_thread);
}

static void test_a_memory_callback_communicates(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        scene s = open_scene(i % 2 ? communicate : wait_for_a_thread);
        nd_with_manager(s.manager) {
            s.given_up = nd_zeros(ND_SHAPE(SPARE), ND_U8);
        }
        assert_handle(s.given_up);
        nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
        callback.give_up = give_up;
        callback.data = &s;
        assert_ok(nd_memory_set_callback(s.manager, &callback));
        if (suits(&s, calls[i]))
            assert_called(&s, calls[i]);
        assert_ok(nd_memory_set_callback(s.manager, NULL));
        nd_release(s.given_up);
        close_scene(&s);
    }
}

/// On all ranks: one that closes it alone leaves the others to their deadline.
static void test_a_weak_callback_closes_the_communicator(void **state) {
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        scene s = open_scene(close_the_communicator);
        if (!suits(&s, calls[i])) {
            close_scene(&s);
            continue;
        }
        nd_weak *weak = drop_garbage(&s, NULL);
        assert_ok(nd_weak_set_callback(weak, gone, &s));
        nd_tensor *result = calls[i](&s);
        assert_null(result);
        assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
        assert_ok(s.answer);
        assert_true(element_at(s.x, 0) == s.rank + 1);
        nd_error_clear();
        nd_release(weak);
        close_scene(&s);
    }
}

/// Its last reference is in garbage, which goes in the middle of another one's call: at other times
/// on each rank, or on one alone.
static void test_a_communicator_ends_in_a_collection(void **state) {
    (void)state;
    for (int i = 0; i < 2 * CALLS; i++) {
        call *called = calls[i % CALLS];
        scene s = open_scene(communicate);
        nd_communicator *other = nd_communicator_duplicate(s.world, NULL);
        assert_handle(other);
        const bool here = i < CALLS || s.rank == 1;
        nd_weak *weak = here ? drop_garbage(&s, other) : NULL;
        nd_weak *of_other = nd_weak_new(other);
        nd_release(other);
        if (suits(&s, called)) {
            nd_auto nd_tensor *result = called(&s);
            assert_handle(result);
            assert_true(element_at(result, 0) == expected_of(&s, called));
            assert_null(nd_weak_get(of_other));
        }
        nd_release(of_other);
        nd_release(weak);
        assert_ok(nd_barrier(s.world));
        close_scene(&s);
    }
}

static void communicate_in_a_step(scene *s) {
    communicate(s);
    s->of_step = nd_data_parallel_clip_grad_norm(s->parallel, 1, NULL);
}

/// A pass takes memory for gradients while buckets are on their way; what is due then goes through a
/// communicator of the program's, and a step inside the step is refused.
static void test_a_weak_callback_communicates_in_a_backward_pass(void **state) {
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        scene s = open_scene(communicate_in_a_step);
        assert_ok(nd_manager_set_quota(s.manager, ND_CPU, 0));
        nd_auto nd_module *module = NULL;
        nd_with_manager(s.manager) {
            module = nd_linear_module(nd_key_new(1), 20, COUNT / 20, false);
        }
        nd_data_parallel_options options = ND_DATA_PARALLEL_OPTIONS_INIT;
        options.shard_optimizer = sharded;
        s.parallel = nd_data_parallel_new(module, s.world, &options);
        assert_handle(s.parallel);
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(1, 20), s.rank + 1, ND_F32);
        nd_auto nd_tensor *y = nd_module_forward(module, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        nd_weak *weak = drop_garbage(&s, NULL);
        assert_ok(nd_weak_set_callback(weak, gone, &s));
        assert_ok(nd_manager_set_quota(s.manager, ND_CPU, nd_manager_get_total_bytes(s.manager)));
        assert_ok(nd_data_parallel_backward(s.parallel, loss, NULL));
        const nd_tensor *grad = nd_get_grad(nd_module_get_parameter(module, "weight"));
        assert_true(sharded || grad); // of one parameter there is one owner
        if (grad)
            assert_true(element_at(grad, COUNT - 1) == (s.ranks + 1) / 2.0);
        assert_int_equal(s.calls, 1);
        assert_ok(s.answer);
        assert_int_equal(s.of_step, ND_ERROR_STATE);
        nd_release(weak);
        nd_release(s.parallel);
        nd_release(nd_steal(&loss));
        nd_release(nd_steal(&y));
        nd_release(nd_steal(&module));
        close_scene(&s);
    }
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_a_weak_callback_communicates),
    ND_TEST(test_a_weak_callback_waits_for_a_thread_that_communicates),
    ND_TEST(test_a_memory_callback_communicates),
    ND_TEST(test_a_weak_callback_closes_the_communicator),
    ND_TEST(test_a_communicator_ends_in_a_collection),
    ND_TEST(test_a_weak_callback_communicates_in_a_backward_pass),
};
RANKS_MAIN(tests)
