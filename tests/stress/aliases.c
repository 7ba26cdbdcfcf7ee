// Tensors that share their data, and which cycles, closes and collections take away one after the
// other: what is left has the numbers that were written last. Each thread makes and writes its own
// in managers that all share, and the collector runs beside them.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 200 / ND_TEST_SCALE + 1, STEPS = 2000, SLOTS = 24, MANAGERS = 3 };

static nd_manager *managers[MANAGERS];
static atomic_bool over;

typedef struct slot {
    nd_tensor *x; ///< owned, or NULL
    int family;   ///< who share data
    bool whole;   ///< all of them, with no history
} slot;

typedef struct worker {
    uint32_t random;
    slot slots[SLOTS];
    double values[STEPS]; ///< of each family: what all of its elements are
    int families;
} worker;

static uint32_t draw(worker *me, uint32_t below) {
    me->random = me->random * 1664525 + 1013904223;
    return (me->random >> 8) % below;
}

/// What a view is of was closed, or was written since.
static void refused(void) {
    assert_true(nd_error_get_status() == ND_ERROR_CLOSED ||
                nd_error_get_status() == ND_ERROR_STATE);
    nd_error_clear();
}

static slot *draw_slot(worker *me) {
    return &me->slots[draw(me, SLOTS)];
}

static void put(slot *slot, nd_tensor *x, int family, bool whole) {
    assert_handle(x);
    nd_release(slot->x);
    slot->x = x;
    slot->family = family;
    slot->whole = whole;
}

static void must_hold(const worker *me, const slot *slot) {
    enum { MOST = 300 };
    double data[MOST];
    int64_t count = nd_get_numel(slot->x);
    assert_ok(nd_copy_to_host(slot->x, data, (size_t)count * sizeof data[0]));
    for (int64_t i = 0; i < count; i++)
        assert_true(data[i] == me->values[slot->family]);
}

/// In the tensor's own block, or not.
static void make(worker *me, slot *slot) {
    static const int64_t counts[] = {1, 2, 8, 16, 32, 33, 300};
    double value = (double)draw(me, 1000);
    me->values[me->families] = value;
    nd_with_manager(managers[draw(me, MANAGERS)]) {
        put(slot, nd_full(ND_SHAPE(counts[draw(me, 7)]), value, ND_F64), me->families++, false);
    }
    assert_ok(nd_set_requires_grad(slot->x, true));
}

static void share(worker *me, slot *from, slot *to) {
    uint32_t how = draw(me, 4);
    nd_tensor *alias = how == 0   ? nd_detach(from->x)
                       : how == 1 ? nd_slice(from->x, 0, 1, 1, 0)
                       : how == 2 ? nd_reshape(from->x, ND_SHAPE(-1))
                                  : nd_unsqueeze(from->x, -1);
    if (!alias)
        refused();
    else
        put(to, alias, from->family, how == 0 && nd_is_contiguous(from->x) && from->whole);
    if (how == 0 && alias && nd_is_leaf(from->x) && nd_requires_grad(from->x))
        to->whole = true;
}

static nd_tensor *keep_gradient(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    return NULL;
}

/// Garbage once nobody else has x: itself, its gradient's graph, or a list that has both.
static void bind(worker *me, const slot *slot) {
    uint32_t how = draw(me, 3);
    if (how == 0 && nd_requires_grad(slot->x)) {
        if (nd_register_hook(slot->x, keep_gradient, slot->x) != ND_OK)
            refused();
    } else if (how == 1 && nd_requires_grad(slot->x)) {
        nd_auto nd_tensor *square = nd_mul(slot->x, slot->x);
        nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        if (nd_backward(sum, &options) != ND_OK)
            refused();
    } else {
        nd_auto nd_list *list = nd_list_new();
        assert_ok(nd_list_append(list, list));
        assert_ok(nd_list_append(list, slot->x));
    }
}

static void write(worker *me, const slot *slot) {
    double value = (double)draw(me, 1000);
    nd_no_grad assert_ok(nd_fill_(slot->x, value));
    me->values[slot->family] = value;
}

static void step(worker *me) {
    slot *slot = draw_slot(me);
    uint32_t what = draw(me, 10);
    if (!slot->x || what == 0) {
        make(me, slot);
    } else if (what < 4) {
        share(me, slot, draw_slot(me));
    } else if (what == 4) {
        bind(me, slot);
    } else if (what == 5 && slot->whole) {
        write(me, slot);
    } else if (what == 6 && draw(me, 8) == 0) {
        nd_gc_collect(managers[draw(me, MANAGERS)], NULL);
    } else if (what < 9) {
        must_hold(me, slot);
        if (what == 7 && draw(me, 4) == 0)
            nd_close(slot->x);
        if (what != 6) {
            nd_release(slot->x);
            slot->x = NULL;
        }
    } else {
        must_hold(me, slot);
    }
}

static void *work(void *data) {
    worker *me = data;
    for (int i = 0; i < STEPS; i++)
        step(me);
    for (int i = 0; i < SLOTS; i++)
        if (me->slots[i].x)
            must_hold(me, &me->slots[i]);
    for (int i = 0; i < SLOTS; i++)
        nd_release(me->slots[i].x);
    return NULL;
}

/// Closes what others are filling: what they hold, and make from then on, goes to the root.
static void *collect_meanwhile(void *data) {
    while (!atomic_load(&over)) {
        nd_gc_collect(NULL, NULL);
        nd_manager_close(managers[MANAGERS - 1], NULL);
    }
    return data;
}

static void test_stress_data_outlive_collected_tensors(void **state) {
    (void)state;
    static worker workers[THREADS];
    for (int round = 0; round < stress_rounds(ROUNDS); round++) {
        pthread_t threads[THREADS], collecting;
        memset(workers, 0, sizeof workers);
        for (int i = 0; i < MANAGERS; i++)
            managers[i] = manager_new(i == 1 ? managers[0] : NULL, "m");
        atomic_store(&over, false);
        assert_int_equal(pthread_create(&collecting, NULL, collect_meanwhile, NULL), 0);
        for (int i = 0; i < THREADS; i++) {
            workers[i].random = (uint32_t)(round * THREADS + i) * 7919;
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        atomic_store(&over, true);
        pthread_join(collecting, NULL);
        assert_ok(nd_debug_check());
        nd_gc_collect(NULL, NULL);
        for (int i = MANAGERS; i-- > 0;)
            nd_release(managers[i]);
        assert_int_equal(nd_manager_get_total_bytes(NULL), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_data_outlive_collected_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
