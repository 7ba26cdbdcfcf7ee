// Writes through views: the base and its other views learn of them, what cannot be is refused, and
// no cycle is made that only the collector would free. tests/reference compares random programs
// with PyTorch; the rules are checked in rules_test.c.
#include "tests/unit/autograd/support.h"

#include <pthread.h>
#include <stdatomic.h>

/// [2, 3] of 1 ... 6 times 1, with the history of a leaf that it writes.
static nd_tensor *computed(nd_tensor **ret_leaf) {
    *ret_leaf = make_leaf(VALUES(1, 2, 3, 4, 5, 6));
    nd_auto nd_tensor *flat = nd_mul_scalar(*ret_leaf, 1.0);
    return nd_reshape(flat, ND_SHAPE(2, 3));
}

static void test_the_base_and_other_views_follow_a_write(void **state) {
    (void)state;
    nd_tensor *leaf;
    nd_auto nd_tensor *x = computed(&leaf);
    nd_auto nd_tensor *row = nd_select(x, 1, 0), *column = nd_select(x, 0, 1);
    nd_auto nd_tensor *factor = make_leaf(VALUES(10, 20, 30));
    assert_ok(nd_mul_(row, factor));
    assert_values(column, VALUES(1, 40));
    nd_auto nd_tensor *square = nd_square(column);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    // 1^2 + (4 * 10)^2
    assert_values(nd_get_grad(leaf), VALUES(2, 0, 0, 800, 0, 0));
    assert_values(nd_get_grad(factor), VALUES(320, 0, 0));
    nd_release(leaf);
}

/// What had no history gets one: rows of a buffer.
static void test_a_buffer_filled_row_by_row(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *all = nd_zeros(ND_SHAPE(3, 2), ND_F64);
    nd_auto nd_tensor *before = nd_flatten(all, 0);
    assert_false(nd_requires_grad(before));
    for (int i = 0; i < 3; i++) {
        nd_auto nd_tensor *row = nd_select(all, i, 0);
        nd_auto nd_tensor *value = nd_mul_scalar(leaf, i + 1);
        assert_ok(nd_copy_(row, value));
    }
    assert_true(nd_requires_grad(all) && nd_requires_grad(before) && !nd_is_leaf(before));
    nd_auto nd_tensor *loss = total(before);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(leaf), VALUES(6, 6));
}

/// x[0:2] += x[2:4] * c, and the handles go: nothing is left, without a collection.
static void test_no_cycle_is_made(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2, 3, 4));
    nd_auto nd_tensor *c = make_vector(VALUES(5, 6));
    nd_manager *manager = nd_manager_new(NULL, "views");
    nd_with_manager(manager) {
        nd_auto nd_tensor *x = nd_mul_scalar(leaf, 1.0);
        nd_auto nd_tensor *low = nd_slice(x, 0, 2, 1, 0), *high = nd_slice(x, 2, 4, 1, 0);
        nd_auto nd_tensor *product = nd_mul(high, c);
        assert_ok(nd_add_(low, product));
        assert_values(x, VALUES(16, 26, 3, 4));
        nd_auto nd_tensor *again = nd_square(low);
        assert_ok(nd_sub_(high, again));
    }
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    nd_release(manager);
}

static void test_what_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *one = make_vector(VALUES(1));
    nd_auto nd_tensor *part = nd_slice(leaf, 0, 2, 1, 0);
    assert_int_equal(nd_add_(part, one), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "add_: x is a view (slice) of a leaf that requires a gradient");
    nd_no_grad assert_ok(nd_add_(part, one));
    assert_values(leaf, VALUES(2, 3, 3));
    // It became one after the view was made.
    nd_auto nd_tensor *later = make_vector(VALUES(1, 2));
    nd_auto nd_tensor *flat = nd_flatten(later, 0);
    assert_ok(nd_set_requires_grad(later, true));
    assert_true(nd_requires_grad(flat));
    assert_int_equal(nd_fill_(flat, 0), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "a view of a leaf that requires a gradient");
    // It was made where nothing is recorded.
    nd_auto nd_tensor *plain = make_vector(VALUES(1, 2)), *cut = NULL;
    nd_no_grad cut = nd_flatten(plain, 0);
    assert_ok(nd_add_(cut, one));
    assert_int_equal(nd_mul_(cut, part), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "made inside nd_no_grad");
    // Its elements share memory.
    nd_auto nd_tensor *y = nd_square(leaf), *wide = nd_expand(y, ND_SHAPE(2, 3));
    assert_int_equal(nd_add_(wide, one), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "share memory");
    assert_values(plain, VALUES(2, 3));
}

static void test_a_saved_tensor_that_a_view_changed_is_noticed(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *x = nd_mul_scalar(leaf, 2.0), *square = nd_square(x);
    nd_auto nd_tensor *first = nd_slice(x, 0, 1, 1, 0);
    assert_ok(nd_fill_(first, 9));
    nd_auto nd_tensor *loss = total(square);
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "square: a saved tensor of shape [3] was changed in place");
    nd_auto nd_tensor *now = total(x);
    assert_ok(nd_backward(now, NULL));
    assert_values(nd_get_grad(leaf), VALUES(0, 2, 2));
}

static void test_a_closed_base(void **state) {
    (void)state;
    nd_tensor *leaf;
    nd_auto nd_tensor *x = computed(&leaf), *row = nd_select(x, 0, 0), *flat = nd_flatten(x, 0);
    nd_auto nd_tensor *one = make_vector(VALUES(1));
    assert_ok(nd_add_(row, one));
    // x is a view itself; what they follow is below it.
    assert_ok(nd_close(x));
    assert_values(flat, VALUES(2, 3, 4, 4, 5, 6));
    nd_auto nd_tensor *y = nd_mul_scalar(leaf, 1.0), *part = nd_slice(y, 0, 2, 1, 0);
    assert_ok(nd_mul_(part, one));
    assert_ok(nd_close(y));
    nd_tensor *lost = nd_square(part);
    assert_null(lost);
    assert_error(ND_ERROR_CLOSED, "the tensor that a view of shape [2] was made of was closed");
    assert_int_equal(nd_add_(part, one), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_release(leaf);
}

/// A view that becomes a leaf goes its own way.
static void test_a_view_as_a_leaf(void **state) {
    (void)state;
    nd_auto nd_tensor *all = make_vector(VALUES(1, 2, 3)), *part = nd_slice(all, 1, 3, 1, 0);
    assert_ok(nd_set_requires_grad(part, true));
    assert_true(nd_is_leaf(part) && nd_requires_grad(part) && !nd_requires_grad(all));
    nd_auto nd_tensor *square = nd_square(part), *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(part), VALUES(4, 6));
    assert_int_equal(nd_get_count(all), 1);
}

static void *use(void *data) {
    const nd_tensor *view = data;
    nd_tensor *square = nd_square(view);
    if (square && !nd_requires_grad(square)) {
        nd_release(square);
        square = NULL;
    }
    return square;
}

/// Readers of a stale view all bring it up to date, at once.
static void test_threads_use_a_stale_view(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *one = make_vector(VALUES(1));
    for (int round = 0; round < 50; round++) {
        nd_auto nd_tensor *x = nd_mul_scalar(leaf, 2.0), *view = nd_slice(x, 1, 3, 1, 0);
        assert_ok(nd_add_(x, one));
        pthread_t threads[3];
        nd_tensor *results[4];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, use, view), 0);
        results[3] = use(view);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(threads[i], (void **)&results[i]), 0);
        for (int i = 0; i < 4; i++) {
            assert_values(results[i], VALUES(25, 49));
            const nd_tensor *input = view;
            nd_auto nd_tensor *loss = total(results[i]);
            nd_tensor *grad = NULL;
            assert_ok(nd_grad(loss, 1, &input, NULL, &grad)); // all have the view's one node
            assert_values(grad, VALUES(10, 14));
            nd_release(grad);
            nd_release(results[i]);
        }
    }
}

static atomic_int makers;

/// Makes views that nobody else has and lets go of them in all orders: with a base that goes first,
/// with history, and as the last that holds a chain of it.
static void *make_and_free(void *leaf) {
    for (int round = 0; round < 2000; round++) {
        nd_tensor *base = nd_zeros(ND_SHAPE(4, 3), ND_F64);
        nd_tensor *view = nd_slice(base, 1, 3, 1, 0), *column = nd_select(view, 0, 1);
        nd_release(view);
        nd_release(base);
        nd_tensor *x = nd_mul_scalar(leaf, 2.0), *part = nd_slice(x, 1, 3, 1, 0);
        nd_release(x);
        if (nd_copy_(column, part) !=
            ND_OK) // column now holds the history of a base without a handle
            return NULL;
        nd_release(part);
        nd_tensor *flat = nd_reshape(column, ND_SHAPE(2, 1));
        nd_release(column);
        nd_release(flat);
    }
    atomic_fetch_sub(&makers, 1);
    return leaf;
}

static void test_views_die_beside_collections(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = make_leaf(VALUES(1, 2, 3));
    pthread_t threads[3];
    atomic_store(&makers, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_free, leaf), 0);
    while (atomic_load(&makers) > 0) {
        nd_gc_report report = ND_GC_REPORT_INIT;
        assert_ok(nd_gc_collect(NULL, &report));
        assert_int_equal(report.broken_objects, 0);
    }
    for (int i = 0; i < 3; i++) {
        void *done;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, leaf);
    }
}

/// What lies between a view and its leaf is closed: nothing is followed there.
static void test_a_view_of_a_view_whose_history_is_closed(void **state) {
    (void)state;
    for (int writes = 0; writes < 2; writes++)
        for (int disposes = 0; disposes < 2; disposes++) {
            nd_auto nd_manager *m = nd_manager_new(NULL, "m");
            nd_tensor *x = NULL, *v = NULL, *u = NULL;
            nd_with_manager(m) {
                x = make_leaf(VALUES(1, 2, 3, 4));
                v = nd_slice(x, 0, 3, 1, 0);
                u = nd_slice(v, 0, 2, 1, 0);
            }
            assert_ok(nd_manager_attach(nd_manager_get_root(), u));
            if (writes)
                nd_no_grad assert_ok(nd_mul_scalar_(x, 2));
            if (disposes)
                assert_ok(nd_manager_dispose(m, NULL));
            else
                assert_ok(nd_close((nd_object *)(uintptr_t)nd_get_node(u)));
            nd_auto nd_tensor *square = nd_square(u);
            assert_int_equal(square == NULL, writes);
            assert_int_equal(nd_mul_scalar_(u, 2), ND_ERROR_STATE);
            nd_error_clear();
            nd_no_grad assert_ok(nd_mul_scalar_(u, 2));
            nd_release(x);
            nd_release(v);
            nd_release(u);
        }
}

/// A constant whose view is a leaf gets no history, which the leaf would miss.
static void test_a_write_below_a_view_that_is_a_leaf_is_refused(void **state) {
    (void)state;
    for (int unrecorded = 0; unrecorded < 2; unrecorded++) {
        nd_auto nd_tensor *c = nd_ones(ND_SHAPE(4), ND_F64);
        nd_tensor *v = NULL;
        if (unrecorded)
            nd_no_grad v = nd_slice(c, 0, 2, 1, 0);
        else
            v = nd_slice(c, 0, 2, 1, 0);
        nd_auto nd_tensor *sibling = nd_slice(c, 2, 4, 1, 0);
        nd_auto nd_tensor *w = make_leaf(VALUES(3, 3, 3, 3)), *few = make_leaf(VALUES(3, 3));
        assert_ok(nd_set_requires_grad(v, true));
        assert_int_equal(nd_mul_(c, w), ND_ERROR_STATE);
        assert_int_equal(nd_mul_(sibling, few), ND_ERROR_STATE);
        nd_error_clear();
        assert_values(c, VALUES(1, 1, 1, 1));
        nd_no_grad assert_ok(nd_mul_(c, w));
        nd_auto nd_tensor *square = nd_square(v), *loss = total(square);
        assert_ok(nd_backward(loss, NULL));
        assert_values(nd_get_grad(v), VALUES(6, 6));
        nd_release(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_base_and_other_views_follow_a_write),
        ND_TEST(test_a_buffer_filled_row_by_row),
        ND_TEST(test_no_cycle_is_made),
        ND_TEST(test_what_is_refused),
        ND_TEST(test_a_saved_tensor_that_a_view_changed_is_noticed),
        ND_TEST(test_a_closed_base),
        ND_TEST(test_a_view_as_a_leaf),
        ND_TEST(test_threads_use_a_stale_view),
        ND_TEST(test_views_die_beside_collections),
        ND_TEST(test_a_view_of_a_view_whose_history_is_closed),
        ND_TEST(test_a_write_below_a_view_that_is_a_leaf_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
