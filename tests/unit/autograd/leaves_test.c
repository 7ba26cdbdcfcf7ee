// Passes that are watched: each leaf is handed over once, with the gradient that nd_backward()
// gives, and as soon as nothing can add to it any more.
#include "lib/autograd/backward.h"
#include "tests/unit/autograd/support.h"

enum { MOST = 64 };

/// What a watch has seen, in order: leaves, and what hooks of results have noted.
typedef struct record {
    const nd_tensor *unwanted; ///< a leaf that is let be; or NULL
    const void *events[MOST];
    nd_tensor *gradients[MOST]; ///< owned; NULL of a hook
    int count;
    int finished;
    nd_status status, answer; ///< what finish was told, and says
} record;

static record seen;

static void note(const void *what, nd_tensor *gradient) {
    assert_true(seen.count < MOST);
    seen.events[seen.count] = what;
    seen.gradients[seen.count++] = gradient;
}

static bool wants(void *data, const nd_tensor *leaf) {
    return leaf != ((record *)data)->unwanted;
}

static nd_status complete(void *data, nd_tensor *leaf, nd_tensor *gradient) {
    assert_ptr_equal(data, &seen);
    assert_int_equal(seen.finished, 0);
    note(leaf, gradient);
    return ND_OK;
}

static nd_status finish(void *data, nd_status status) {
    assert_ptr_equal(data, &seen);
    seen.finished++;
    seen.status = status;
    return status != ND_OK ? status : seen.answer;
}

static const nd_leaf_watch watch = {wants, complete, finish, &seen};

static void forget(void) {
    for (int i = 0; i < seen.count; i++)
        nd_release(seen.gradients[i]);
    seen = (record){0};
}

static nd_tensor *mark(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    note(context, NULL);
    return NULL;
}

static nd_tensor *leaf(double value) {
    nd_tensor *x = nd_full(ND_SHAPE(3), value, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

static int place_of(const void *event) {
    for (int i = 0; i < seen.count; i++)
        if (seen.events[i] == event)
            return i;
    return -1;
}

/// y = tanh(tanh(a) * b) * c, with a hook between the layers: c and b are there before it is
/// called, a behind.
static void test_a_leaf_comes_before_what_is_below_it(void **state) {
    (void)state;
    nd_auto nd_tensor *a = leaf(0.3), *b = leaf(0.5), *c = leaf(0.7);
    nd_auto nd_tensor *first = nd_tanh(a);
    nd_auto nd_tensor *product = nd_mul(first, b);
    nd_auto nd_tensor *second = nd_tanh(product);
    nd_auto nd_tensor *last = nd_mul(second, c);
    nd_auto nd_tensor *loss = nd_sum(last, 0, NULL, false);
    nd_auto nd_list *marker = nd_list_new();
    assert_ok(nd_register_hook(first, mark, marker));
    assert_ok(nd__backward_watched("test", loss, NULL, &watch));
    assert_int_equal(seen.count, 4);
    assert_int_equal(place_of(c), 0);
    assert_int_equal(place_of(b), 1);
    assert_int_equal(place_of(marker), 2);
    assert_int_equal(place_of(a), 3);
    assert_int_equal(seen.finished, 1);
    assert_null(nd_get_grad(a));
    forget();
}

/// Used at the top and at the bottom: complete at the bottom, with both.
static void test_a_leaf_that_is_used_twice_comes_once(void **state) {
    (void)state;
    nd_auto nd_tensor *a = leaf(2), *b = leaf(3);
    nd_auto nd_tensor *low = nd_mul(a, b);
    nd_auto nd_tensor *middle = nd_square(low);
    nd_auto nd_tensor *top = nd_mul(middle, a);
    nd_auto nd_tensor *loss = nd_sum(top, 0, NULL, false);
    assert_ok(nd__backward_watched("test", loss, NULL, &watch));
    assert_int_equal(seen.count, 2);
    nd_tensor *gradient = seen.gradients[place_of(a)]; // of a^3 b^2: 3 a^2 b^2
    assert_true(((const double *)nd_get_data(gradient))[1] == 3 * 4 * 9);
    forget();
}

/// Leaves that nobody wants get their gradients as ever; hooks of leaves run first.
static nd_tensor *tenfold(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    return nd_mul_scalar(grad, 10);
}

static void test_others_get_their_gradients_as_ever(void **state) {
    (void)state;
    nd_auto nd_tensor *a = leaf(2), *b = leaf(3);
    nd_auto nd_tensor *product = nd_mul(a, b);
    nd_auto nd_tensor *loss = nd_sum(product, 0, NULL, false);
    assert_ok(nd_register_hook(a, tenfold, NULL));
    assert_ok(nd_register_hook(b, tenfold, NULL));
    seen.unwanted = b;
    assert_ok(nd__backward_watched("test", loss, NULL, &watch));
    assert_int_equal(seen.count, 1);
    assert_true(((const double *)nd_get_data(seen.gradients[0]))[0] == 30);
    assert_true(((const double *)nd_get_data(nd_get_grad(b)))[0] == 20);
    forget();
}

static void test_a_watch_that_refuses_leaves_everything_as_it_was(void **state) {
    (void)state;
    nd_auto nd_tensor *a = leaf(2), *b = leaf(3);
    nd_auto nd_tensor *product = nd_mul(a, b);
    nd_auto nd_tensor *loss = nd_sum(product, 0, NULL, false);
    seen.unwanted = b;
    seen.answer = ND_ERROR_IO;
    assert_int_equal(nd__backward_watched("test", loss, NULL, &watch), ND_ERROR_IO);
    assert_null(nd_get_grad(a));
    assert_null(nd_get_grad(b));
    forget();
    // Told of what goes wrong, too, once.
    assert_int_equal(nd__backward_watched("test", product, NULL, &watch), ND_ERROR_SHAPE);
    assert_int_equal(seen.finished, 1);
    assert_int_equal(seen.status, ND_ERROR_SHAPE);
    forget();
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_int_equal(nd__backward_watched("test", loss, &options, &watch), ND_ERROR_UNSUPPORTED);
    assert_int_equal(seen.finished, 1);
    forget();
    nd_auto nd_tensor *alone = leaf(1);
    nd_auto nd_tensor *one = nd_sum(alone, 0, NULL, false);
    assert_ok(nd__backward_watched("test", one, NULL, &watch));
    assert_int_equal(place_of(alone), 0);
    forget();
}

static uint64_t random_state = 1;

static int draw(int limit) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)limit);
}

/// Random graphs over a few leaves, each twice: with a watch, and with nd_backward().
static void test_random_graphs(void **state) {
    (void)state;
    enum { LEAVES = 6, RESULTS = 20 };
    for (int n = 0; n < 100; n++) {
        nd_tensor *x[LEAVES + RESULTS];
        for (int i = 0; i < LEAVES; i++)
            x[i] = leaf(0.1 * (i + 1));
        for (int i = LEAVES; i < LEAVES + RESULTS; i++) {
            const nd_tensor *a = x[draw(i)], *b = x[draw(i)];
            x[i] = draw(3) == 0 ? nd_tanh(a) : draw(2) == 0 ? nd_mul(a, b) : nd_add(a, b);
        }
        nd_auto nd_tensor *loss = nd_sum(x[LEAVES + RESULTS - 1], 0, NULL, false);
        assert_ok(nd__backward_watched("test", loss, NULL, &watch));
        assert_ok(nd_backward(loss, NULL));
        for (int i = 0; i < LEAVES; i++) {
            int place = place_of(x[i]);
            const nd_tensor *expected = nd_get_grad(x[i]);
            assert_int_equal(place >= 0, expected != NULL);
            double watched[3]; // handed over as it is, perhaps one number three times
            if (!expected)
                continue;
            assert_ok(nd_copy_to_host(seen.gradients[place], watched, sizeof watched));
            assert_memory_equal(watched, nd_get_data(expected), sizeof watched);
        }
        forget();
        for (int i = 0; i < LEAVES + RESULTS; i++)
            nd_release(x[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_leaf_comes_before_what_is_below_it),
        ND_TEST(test_a_leaf_that_is_used_twice_comes_once),
        ND_TEST(test_others_get_their_gradients_as_ever),
        ND_TEST(test_a_watch_that_refuses_leaves_everything_as_it_was),
        ND_TEST(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
