// Views borrow the storage of the base that they hold (lib/manager/borrow.h): nobody may see a
// difference from views that count it. A storage lives exactly as long as a tensor that is not
// closed is a window onto it.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/manager/borrow.h"
#include "lib/tensor/tensor.h"
#include "tests/testing.h"

static uint64_t bytes_now(void) {
    return nd_manager_get_total_bytes(NULL);
}

static bool borrows(const nd_tensor *x) {
    return nd__borrow_is_borrower((const nd__stored *)x);
}

static void must_be_full_of(const nd_tensor *x, float number) {
    static float data[4096];
    assert_ok(nd_copy_to_host(x, data, (size_t)nd_get_numel(x) * sizeof *data));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_true(data[i] == number);
}

static void test_closed_base_keeps_what_its_views_show(void **state) {
    (void)state;
    for (int64_t floats = 16; floats <= 4096; floats *= 256) { // in the tensor's block, and not
        const uint64_t before = bytes_now();
        nd_tensor *x = nd_full(ND_SHAPE(floats), 7, ND_F32);
        nd_tensor *view = nd_slice(x, 1, 9, 1, 0);
        nd_tensor *again = nd_slice(view, 2, 6, 1, 0);
        assert_true(borrows(view) && borrows(again) && !borrows(x));
        assert_ok(nd_close(x));
        assert_int_equal(nd_get_storage_bytes(x), 0);
        assert_int_equal(bytes_now() - before, (uint64_t)floats * sizeof(float));
        nd_release(view);
        must_be_full_of(again, 7);
        nd_tensor *later = nd_slice(again, 0, 2, 1, 0); // of a base that is closed
        nd_release(again);
        must_be_full_of(later, 7);
        nd_release(later);
        assert_int_equal(bytes_now(), before); // though the handle of x is still there
        nd_release(x);
    }
}

static void test_more_views_than_a_base_lends_to(void **state) {
    (void)state;
    enum { VIEWS = 3 * ND__BORROWERS_MOST };
    const uint64_t before = bytes_now();
    nd_tensor *x = nd_full(ND_SHAPE(400), 3, ND_F32), *views[VIEWS];
    int borrowers = 0;
    for (int i = 0; i < VIEWS; i++) {
        views[i] = nd_slice(x, i, i + 1, 1, 0);
        assert_handle(views[i]);
        borrowers += borrows(views[i]);
    }
    assert_int_equal(borrowers, ND__BORROWERS_MOST);
    assert_ok(nd_close(x));
    for (int i = 0; i < VIEWS; i++) {
        assert_int_equal(bytes_now() - before, 1600);
        must_be_full_of(views[i * 11 % VIEWS], 3);
        nd_release(views[i * 11 % VIEWS]);
    }
    assert_int_equal(bytes_now(), before);
    nd_release(x);
}

static void test_view_that_becomes_a_leaf_outlives_its_base(void **state) {
    (void)state;
    nd_tensor *x = nd_full(ND_SHAPE(100), 5, ND_F32);
    nd_tensor *view = nd_slice(x, 0, 50, 1, 0);
    assert_true(borrows(view));
    assert_ok(nd_set_requires_grad(view, true));
    assert_false(borrows(view));
    nd_release(x);
    must_be_full_of(view, 5);
    nd_release(view);
}

static void test_view_of_what_moves_to_another_storage(void **state) {
    (void)state;
    const uint64_t before = bytes_now();
    nd_module *norm = nd_batch_norm_module(8, NULL);
    const nd_tensor *mean = nd_module_get_buffer(norm, "running_mean");
    assert_handle(norm);
    nd_tensor *view = nd_slice(mean, 2, 4, 1, 0);
    assert_true(borrows(view));
    const uint64_t small = bytes_now() - before;
    assert_ok(nd_module_cast(norm, ND_F16));
    must_be_full_of(view, 0);
    nd_tensor *other = nd_slice(mean, 2, 4, 1, 0);
    assert_true(nd_get_dtype(other) == ND_F16 && !nd_is_view_of(other, view));
    assert_ok(nd_module_cast(norm, ND_F32));
    must_be_full_of(view, 0);
    nd_release(view);
    nd_release(other);
    nd_tensor *last = nd_slice(mean, 2, 4, 1, 0); // nobody has an older one any more
    assert_true(borrows(last));
    nd_release(last);
    assert_int_equal(bytes_now() - before, small);
    nd_release(norm);
    assert_int_equal(bytes_now(), before);
}

typedef struct liar {
    nd_object *self, *edge;
} liar;
static void liar_traverse(const nd_object *self, nd_visitor *visitor) {
    const liar *of = nd_object_get_data(self);
    nd_visit(visitor, of->self, "self");
    nd_visit(visitor, of->edge, "edge");
    nd_visit(visitor, of->edge, "the same");
}
static void liar_clear(nd_object *self) {
    liar *of = nd_object_get_data(self);
    nd_edge_clear(&of->self);
    nd_edge_clear(&of->edge);
}

/// The collector takes a base for garbage whose view is in use, because an edge is reported twice:
/// it is cleared, and closed after that.
static void test_base_that_is_cleared_twice_keeps_what_its_view_shows(void **state) {
    (void)state;
    static const nd_type type = {.size = sizeof type,
                                 .version = 1,
                                 .name = "liar",
                                 .traverse = liar_traverse,
                                 .clear = liar_clear};
    nd_manager *m = nd_manager_new(NULL, "m"), *n = nd_manager_new(NULL, "n");
    nd_tensor *view = NULL;
    nd_with_manager(m) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(400), 9, ND_F32);
        view = nd_slice(x, 0, 300, 1, 0);
        nd_auto nd_object *object = nd_object_new(&type, sizeof(liar));
        liar *of = nd_object_get_data(object);
        nd_edge_set(&of->self, object);
        nd_edge_set(&of->edge, x);
    }
    assert_true(borrows(view));
    assert_ok(nd_manager_attach(n, view));
    assert_ok(nd_gc_collect(m, NULL));
    nd_error_clear();
    must_be_full_of(view, 9);
    nd_release(view);
    nd_release(n);
    nd_release(m);
}

// ------------------------------------------------------------------------------------------------
// any order

enum { SLOTS = 40, STORAGES = 4000, MANAGERS = 5, STEPS = 20000 };

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static struct {
    nd_tensor *tensor;
    int storage;
} slots[SLOTS];
static uint64_t storage_bytes[STORAGES];
static int storage_count;
static nd_manager *managers[MANAGERS];

/// A slot with a tensor that is not closed; -1 if what was drawn has none.
static int any_open(void) {
    int i = (int)draw(SLOTS);
    return slots[i].tensor && !nd_is_closed(slots[i].tensor) ? i : -1;
}

static void fill_slot(nd_tensor *tensor, int storage) {
    assert_handle(tensor);
    int i = (int)draw(SLOTS);
    nd_release(slots[i].tensor);
    slots[i].tensor = tensor;
    slots[i].storage = storage;
}

static void make_tensor(void) {
    static const int64_t sizes[] = {4, 8, 48, 1024};
    const int64_t rows = sizes[draw(4)];
    const int number = storage_count++;
    storage_bytes[number] = (uint64_t)rows * 2 * sizeof(float);
    fill_slot(nd_full(ND_SHAPE(rows, 2), number, ND_F32), number);
}

static void make_view(int of) {
    const nd_tensor *x = slots[of].tensor;
    nd_tensor *view = NULL;
    switch (draw(6)) {
    case 0:
        view = nd_detach(x);
        break;
    case 1:
        view = nd_transpose(x, 0, 1);
        break;
    case 2:
        view = nd_slice(x, 0, 1, 1, 0);
        break;
    case 3:
        view = nd_unsqueeze(x, 0);
        break;
    case 4:
        nd_no_grad view = nd_transpose(x, 0, 1);
        break;
    default:
        view = nd_slice(x, 0, nd_get_size(x, 1), 1, 1);
        break;
    }
    if (!view) { // its base had history and was closed
        assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
        nd_error_clear();
        return;
    }
    if (nd_get_ndim(view) > 4) {
        nd_release(view);
        return;
    }
    fill_slot(view, slots[of].storage);
}

static void step(void) {
    const uint32_t what = draw(100);
    const int at = any_open();
    nd_manager *manager = managers[draw(MANAGERS)];
    if (what < 8) {
        nd_with_manager(manager) make_tensor();
    } else if (what < 50 && at >= 0) {
        if (draw(3))
            make_view(at);
        else
            nd_with_manager(manager) make_view(at);
    } else if (what < 60 && at >= 0) {
        assert_ok(nd_close(slots[at].tensor));
    } else if (what < 66 && at >= 0) {
        assert_ok(nd_manager_attach(manager, slots[at].tensor));
    } else if (what < 72 && at >= 0) {
        assert_ok(nd_manager_lend(manager, slots[at].tensor));
    } else if (what < 76 && at >= 0) {
        if (nd_is_leaf(slots[at].tensor))
            assert_ok(nd_set_requires_grad(slots[at].tensor, draw(2)));
    } else if (what < 78) {
        int i = (int)draw(MANAGERS);
        if (draw(4) == 0)
            assert_ok(nd_manager_dispose(managers[i], NULL));
        nd_release(managers[i]);
        managers[i] = nd_manager_new(NULL, "m");
        assert_non_null(managers[i]);
    } else if (what < 80) {
        // A ring that holds a base and a view, or one of them, and is garbage.
        nd_list *ring = nd_list_new();
        assert_ok(nd_list_append(ring, ring));
        for (int i = 0; i < 3; i++) {
            int slot = (int)draw(SLOTS);
            if (!slots[slot].tensor)
                continue;
            assert_ok(nd_list_append(ring, slots[slot].tensor));
            nd_release(slots[slot].tensor);
            slots[slot].tensor = NULL;
        }
        nd_release(ring);
        assert_ok(nd_gc_collect(NULL, NULL));
    } else {
        int i = (int)draw(SLOTS);
        nd_release(slots[i].tensor);
        slots[i].tensor = NULL;
    }
}

static void check(uint64_t before) {
    static bool open[STORAGES];
    memset(open, 0, sizeof open);
    uint64_t expected = before;
    for (int i = 0; i < SLOTS; i++) {
        if (!slots[i].tensor || nd_is_closed(slots[i].tensor))
            continue;
        const int number = slots[i].storage;
        if (nd_get_numel(slots[i].tensor))
            must_be_full_of(slots[i].tensor, (float)number);
        expected += open[number] ? 0 : storage_bytes[number];
        open[number] = true;
    }
    assert_int_equal(bytes_now(), expected);
}

static void test_storages_live_as_long_as_any_window_in_any_order(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        const uint64_t before = bytes_now();
        random_state = seed;
        storage_count = 0;
        for (int i = 0; i < MANAGERS; i++)
            managers[i] = nd_manager_new(NULL, "m");
        for (int i = 0; i < STEPS; i++) {
            step();
            if (i % 8 == 0)
                check(before);
        }
        assert_ok(nd_debug_check());
        for (int i = 0; i < SLOTS; i++) {
            nd_release(slots[i].tensor);
            slots[i].tensor = NULL;
        }
        assert_int_equal(bytes_now(), before);
        for (int i = MANAGERS; i-- > 0;)
            nd_release(managers[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_closed_base_keeps_what_its_views_show),
        ND_TEST(test_more_views_than_a_base_lends_to),
        ND_TEST(test_view_that_becomes_a_leaf_outlives_its_base),
        ND_TEST(test_view_of_what_moves_to_another_storage),
        ND_TEST(test_base_that_is_cleared_twice_keeps_what_its_view_shows),
        ND_TEST(test_storages_live_as_long_as_any_window_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
