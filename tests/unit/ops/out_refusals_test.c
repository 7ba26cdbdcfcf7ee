// Results in tensors of the caller's: what is refused, and changes nothing; history; and that a loop
// of these forms allocates nothing.
#include "lib/device/fake/fake.h"
#include "tests/unit/ops/out_bits.h"

#define LISTED(...) ((const nd_tensor *[]){__VA_ARGS__})

// ---------------------------------------------------------------------------------------- overlaps

static nd_tensor *window(const nd_tensor *line, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride, int64_t offset) {
    return nd_as_strided(line, ND_SHAPE(rows, columns), (int64_t[]){row_stride, column_stride},
                         offset);
}

static bool share_elements(const nd_tensor *x, const nd_tensor *y) {
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        for (int64_t j = 0; j < nd_get_numel(y); j++)
            if (element(x, i) == element(y, j))
                return true;
    return false;
}

static bool is_same_window(const nd_tensor *x, const nd_tensor *y) {
    bool same = nd_get_data(x) == nd_get_data(y);
    for (int i = 0; i < 2; i++)
        same = same && (nd_get_shape(x)[i] == 1 || nd_get_strides(x)[i] == nd_get_strides(y)[i]);
    return same;
}

/// A call that must be refused, or done, and in the first case leave every byte and the version.
static void check_refusal(const char *name, bool refused, nd_status status, const nd_tensor *line,
                          const char *before, uint64_t version) {
    if (status != (refused ? ND_ERROR_INVALID_ARGUMENT : ND_OK))
        fail_msg("%s: %s: %s", name, nd_status_get_name(status), nd_error_get_message());
    if (refused) {
        assert_memory_equal(before, nd_get_data(line), nd_get_storage_bytes(line));
        assert_int_equal(nd_get_version(line), version);
    }
}

/// Random windows onto one storage. Elementwise: refused exactly when they share elements and are
/// not the same; others: when they share elements.
static void test_overlaps_are_refused_and_change_nothing(void **state) {
    (void)state;
    srand(7);
    nd_auto nd_tensor *line = random_dense(ND_SHAPE(200), ND_F32, 1, 2);
    nd_auto nd_tensor *apart = nd_ones(ND_SHAPE(4, 4), ND_F32);
    int refused[2] = {0, 0};
    for (int round = 0; round < 10000; round++) {
        int64_t rows = 1 + rand() % 4, columns = 1 + rand() % 4;
        int64_t step = 1 + rand() % 3, row_step = columns * step + rand() % 6;
        nd_auto nd_tensor *out = window(line, rows, columns, row_step, step, rand() % 30);
        nd_auto nd_tensor *x = window(line, rows, columns, rand() % 3 ? row_step : rand() % 8,
                                      rand() % 3 ? step : rand() % 3, rand() % 40);
        nd_auto nd_tensor *wide =
            nd_as_strided(line, ND_SHAPE(3, rows, columns),
                          (int64_t[]){rand() % 30, row_step, step}, rand() % 60);
        char *before = bytes_of(line);
        uint64_t version = nd_get_version(line);
        bool shared = share_elements(out, x), other = shared && !is_same_window(out, x);
        check_refusal("sub", other, nd_sub_out(x, x, out), line, before, version);
        if (other) {
            check_refusal("neg", true, nd_neg_out(x, out), line, before, version);
            refused[0]++;
        }
        memcpy(nd_get_data(line), before, nd_get_storage_bytes(line));
        version = nd_get_version(line);
        nd_status status = rand() % 2 ? nd_cumsum_out(x, 0, out) : nd_softmax_out(x, 1, out);
        check_refusal("cumsum or softmax", shared, status, line, before, version);
        memcpy(nd_get_data(line), before, nd_get_storage_bytes(line));
        version = nd_get_version(line);
        bool reaches = share_elements(out, wide);
        check_refusal("sum", reaches, nd_sum_out(wide, 1, (const int[]){0}, false, out), line,
                      before, version);
        memcpy(nd_get_data(line), before, nd_get_storage_bytes(line));
        version = nd_get_version(line);
        nd_auto nd_tensor *cut = nd_slice(apart, 0, columns, 1, 0);
        nd_auto nd_tensor *square = nd_slice(cut, 0, columns, 1, 1);
        check_refusal("matmul", shared, nd_matmul_out(x, square, out), line, before, version);
        memcpy(nd_get_data(line), before, nd_get_storage_bytes(line));
        refused[1] += shared;
        free(before);
    }
    assert_true(refused[0] > 1000 && refused[1] > 1000);
    nd_error_clear();
}

static void test_other_operands_that_share_memory(void **state) {
    (void)state;
    nd_auto nd_tensor *line = nd_arange(0, 24, 1, ND_I64);
    nd_auto nd_tensor *x = nd_reshape(line, ND_SHAPE(4, 6));
    nd_auto nd_tensor *some = nd_slice(line, 0, 3, 1, 0);
    nd_auto nd_tensor *row = nd_slice(x, 1, 2, 1, 0);
    nd_auto nd_tensor *rows = nd_slice(x, 1, 3, 1, 0);
    nd_auto nd_tensor *three = nd_slice(x, 0, 3, 1, 0);
    nd_auto nd_tensor *stacked = nd_unsqueeze(rows, 0);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(2, 6), ND_I64);
    nd_auto nd_tensor *twice = nd_slice(x, 0, 4, 3, 0);
    nd_auto nd_tensor *turned = nd_transpose(twice, 0, 1);
    nd_auto nd_tensor *two = nd_zeros(ND_SHAPE(2), ND_I64);
    nd_auto nd_tensor *four = nd_reshape(line, ND_SHAPE(6, 4));
    char *before = bytes_of(line);
    const nd_status statuses[] = {
        nd_take_out(x, some, 0, three),
        nd_take_out(x, two, 0, twice),
        nd_take_out(zeros, twice, 1, stacked), // a shape that is none of the result's
        nd_embedding_out(x, two, ND_NO_PADDING, rows),
        nd_gather_out(x, zeros, 0, rows),
        nd_gather_out(zeros, rows, 0, rows),
        nd_concat_out(2, LISTED(row, row), 0, rows),
        nd_stack_out(1, LISTED(rows), 0, stacked),
        nd_prod_out(x, 1, (const int[]){0}, true, row),
        nd_argmax_out(x, 0, true, row),
        nd_linear_out(zeros, x, NULL, turned),
        nd_linear_out(zeros, zeros, some, four),
    };
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        if (statuses[i] != ND_ERROR_INVALID_ARGUMENT && statuses[i] != ND_ERROR_SHAPE)
            fail_msg("call %zu: %s", i, nd_status_get_name(statuses[i]));
    assert_memory_equal(before, nd_get_data(line), nd_get_storage_bytes(line));
    assert_int_equal(nd_get_version(line), 0);
    free(before);
    nd_error_clear();
}

// ---------------------------------------------------------------------------------------- refusals

/// The sentence begins with the operation and holds both parts.
#define assert_says(call, status, first, second)                                        \
    do {                                                                                \
        nd_error_clear();                                                               \
        assert_int_equal(call, status);                                                 \
        const char *said = nd_error_get_message();                                      \
        if (strncmp(said, "add: ", 5) || !strstr(said, first) || !strstr(said, second)) \
            fail_msg("%s", said);                                                       \
        nd_error_clear();                                                               \
    } while (0)

static void test_what_out_must_be(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *column = nd_ones(ND_SHAPE(2, 1), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(1, 2, 3), ND_F32);
    nd_auto nd_tensor *doubles = nd_ones(ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *near = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *there = nd_to(near, (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *spread = nd_expand(row, ND_SHAPE(2, 3));
    assert_says(nd_add_out(a, row, row), ND_ERROR_SHAPE, "out has shape [3]", "[2, 3]");
    assert_says(nd_add_out(column, column, a), ND_ERROR_SHAPE, "out has shape [2, 3]", "[2, 1]");
    assert_says(nd_add_out(a, a, wide), ND_ERROR_SHAPE, "[1, 2, 3]", "[2, 3]");
    assert_says(nd_add_out(a, a, doubles), ND_ERROR_DTYPE, "out is float64", "float32");
    assert_says(nd_add_out(a, doubles, near), ND_ERROR_DTYPE, "out is float32", "float64");
    assert_says(nd_add_out(a, a, there), ND_ERROR_DEVICE, "out is on fake:0", "cpu");
    assert_says(nd_add_out(a, a, spread), ND_ERROR_INVALID_ARGUMENT, "elements of out", "[2, 3]");
    assert_says(nd_add_out(a, there, near), ND_ERROR_DEVICE, "fake:0", "cpu");
    assert_says(nd_add_out(a, a, NULL), ND_ERROR_INVALID_ARGUMENT, "out", "NULL");
    assert_says(nd_add_out(NULL, a, near), ND_ERROR_INVALID_ARGUMENT, "a is", "NULL");
    assert_status(nd_matmul_out(a, a, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_linear_out(a, a, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_take_out(a, a, 0, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_sum_out(a, 0, NULL, false, row), ND_ERROR_SHAPE);
    assert_status(nd_argmax_out(a, 0, false, row), ND_ERROR_DTYPE);
    assert_status(nd_less_out(a, a, near), ND_ERROR_DTYPE);
    assert_status(nd_max_out(a, 1, (const int[]){5}, false, row), ND_ERROR_INVALID_ARGUMENT);
    const nd_tensor *const all[] = {a, row, column, wide, near, spread};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int64_t k = 0; k < nd_get_numel(all[i]); k++)
            assert_true(at_flat(all[i], k) == 1 && nd_get_version(all[i]) == 0);
}

static void test_an_index_out_of_range(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4, 3), ND_F32);
    nd_auto nd_tensor *index = nd_full(ND_SHAPE(2), 4, ND_I64);
    nd_auto nd_tensor *each = nd_full(ND_SHAPE(2, 3), -5, ND_I64);
    nd_auto nd_tensor *out = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    assert_status(nd_take_out(x, index, 0, out), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_gather_out(x, each, 0, out), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_embedding_out(x, index, ND_NO_PADDING, out), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_embedding_out(x, index, 9, out), ND_ERROR_INVALID_ARGUMENT);
    for (int64_t i = 0; i < 6; i++)
        assert_true(at_flat(out, i) == 0);
}

// ------------------------------------------------------------------------------- history and dtype

static void test_gradients_are_refused_while_recording(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(2, 3), ND_F32);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *plain = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *result = nd_mul_scalar(leaf, 2);
    nd_auto nd_tensor *part = nd_select(result, 0, 0);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *integers = nd_cast(plain, ND_I32);
    assert_says(nd_add_out(leaf, plain, plain), ND_ERROR_STATE, "an operand", "nd_no_grad");
    assert_says(nd_add_out(plain, result, plain), ND_ERROR_STATE, "nd_add", "nd_no_grad");
    assert_says(nd_add_out(integers, result, plain), ND_ERROR_STATE, "an operand", "nd_no_grad");
    assert_says(nd_add_out(plain, plain, leaf), ND_ERROR_STATE, "out requires", "nd_no_grad");
    assert_says(nd_add_out(plain, plain, result), ND_ERROR_STATE, "out requires", "nd_no_grad");
    assert_says(nd_add_out(row, row, part), ND_ERROR_STATE, "out requires", "nd_no_grad");
    nd_auto nd_tensor *square = nd_ones(ND_SHAPE(3, 3), ND_F32);
    assert_status(nd_matmul_out(leaf, square, plain), ND_ERROR_STATE);
    assert_true(at_flat(plain, 0) == 1 && nd_get_version(plain) == 0);
    assert_true(at_flat(result, 0) == 2 && at_flat(leaf, 0) == 1);
    // A view that was there before its base got history.
    nd_auto nd_tensor *base = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *view = nd_select(base, 1, 0);
    assert_ok(nd_add_out(row, row, view));
    assert_ok(nd_mul_(base, leaf));
    assert_says(nd_add_out(row, row, view), ND_ERROR_STATE, "out requires", "nd_no_grad");
    nd_no_grad {
        assert_ok(nd_add_out(leaf, plain, plain));
        assert_ok(nd_mul_scalar_out(leaf, 5, leaf));
        assert_ok(nd_add_out(row, row, view));
    }
    assert_true(at_flat(plain, 0) == 2 && !nd_requires_grad(plain) && at_flat(leaf, 0) == 5);
    assert_true(nd_requires_grad(leaf) && nd_requires_grad(base));
    nd_auto nd_tensor *values = nd_detach(result);
    assert_ok(nd_add_out(plain, plain, values));
    assert_true(at_flat(result, 0) == 4);
}

/// A gradient that needs what out held is refused, as behind nd_add_().
static void test_the_version_moves(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *factor = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *product = nd_mul(leaf, factor);
    nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
    assert_ok(nd_neg_out(factor, factor));
    assert_int_equal(nd_get_version(factor), 1);
    assert_status(nd_backward(sum, NULL), ND_ERROR_STATE);
    nd_auto nd_tensor *nothing = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    assert_ok(nd_neg_out(nothing, nothing));
    assert_int_equal(nd_get_version(nothing), 1);
}

static void test_autocast_is_not_looked_at(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_randn((nd_key){3, 4}, ND_SHAPE(5, 5), ND_F32);
    nd_auto nd_tensor *expected = nd_matmul(a, a);
    nd_auto nd_tensor *shares = nd_softmax(a, 0);
    nd_auto nd_tensor *out = nd_zeros(ND_SHAPE(5, 5), ND_F32);
    nd_autocast(ND_BF16) {
        assert_ok(nd_matmul_out(a, a, out));
        assert_same_bits("matmul", out, expected);
        assert_ok(nd_linear_out(a, a, NULL, out));
        assert_ok(nd_softmax_out(a, 0, out));
        assert_same_bits("softmax", out, shares);
    }
}

// -------------------------------------------------------------------------------------- no memory

/// A decoder's step, with a cache of which each row is written once.
static nd_status step(const nd_tensor *table, const nd_tensor *weight, const nd_tensor *bias,
                      const nd_tensor *index, nd_tensor *row, nd_tensor *hidden, nd_tensor *flags,
                      nd_tensor *total, nd_tensor *place) {
    nd_status status = nd_embedding_out(table, index, ND_NO_PADDING, row);
    status = status ? status : nd_linear_out(row, weight, bias, hidden);
    status = status ? status : nd_gelu_out(hidden, hidden);
    status = status ? status : nd_add_out(row, hidden, hidden);
    status = status ? status : nd_matmul_out(hidden, weight, row);
    status = status ? status : nd_softmax_out(row, 1, hidden);
    status = status ? status : nd_clip_out(hidden, 0.25, 0.5, hidden);
    status = status ? status : nd_greater_out(hidden, row, flags);
    status = status ? status : nd_where_out(flags, row, hidden, hidden);
    status = status ? status : nd_sum_out(hidden, 1, (const int[]){0}, true, total);
    status = status ? status : nd_argmax_out(hidden, 1, false, place);
    return status ? status : nd_cumsum_out(hidden, 1, row);
}

static void test_a_loop_allocates_nothing(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "loop");
    nd_with_manager(manager) {
        nd_auto nd_tensor *table = nd_randn((nd_key){1, 1}, ND_SHAPE(50, 80), ND_F32);
        nd_auto nd_tensor *weight = nd_randn((nd_key){1, 2}, ND_SHAPE(80, 80), ND_F32);
        nd_auto nd_tensor *bias = nd_zeros(ND_SHAPE(80), ND_F32);
        nd_auto nd_tensor *index = nd_randint((nd_key){1, 3}, 0, 50, ND_SHAPE(3), ND_I64);
        nd_auto nd_tensor *row = nd_empty(ND_SHAPE(3, 80), ND_F32);
        nd_auto nd_tensor *hidden = nd_empty(ND_SHAPE(3, 80), ND_F32);
        nd_auto nd_tensor *flags = nd_empty(ND_SHAPE(3, 80), ND_BOOL);
        nd_auto nd_tensor *total = nd_empty(ND_SHAPE(1, 80), ND_F32);
        nd_auto nd_tensor *place = nd_empty(ND_SHAPE(3), ND_I64);
        nd_auto nd_tensor *turned_storage = nd_zeros(ND_SHAPE(80, 3), ND_F32);
        nd_auto nd_tensor *turned = nd_transpose(turned_storage, 0, 1);
        nd_auto nd_tensor *cache = nd_zeros(ND_SHAPE(6, 80), ND_F32);
        nd_auto nd_tensor *room = nd_slice(cache, 0, 6, 1, 0);
        assert_ok(step(table, weight, bias, index, row, hidden, flags, total, place));
        nd_manager_stats before = ND_MANAGER_STATS_INIT, after = ND_MANAGER_STATS_INIT;
        assert_ok(nd_manager_get_stats(manager, &before));
        // No further byte, and no further object: what allocates is an error.
        assert_ok(nd_manager_set_quota(manager, ND_CPU, before.subtree_bytes[ND_CPU]));
        assert_ok(nd_manager_set_cap(manager, before.live_objects));
        for (int i = 0; i < 20; i++) {
            assert_ok(step(table, weight, bias, index, row, hidden, flags, total, place));
            assert_ok(nd_concat_out(2, LISTED(row, hidden), 0, room));
            assert_ok(nd_mul_out(row, hidden, turned));
            assert_ok(nd_softmax_out(row, 0, turned));
        }
        assert_ok(nd_manager_get_stats(manager, &after));
        assert_int_equal(after.created_objects, before.created_objects);
        assert_int_equal(after.arrived_objects, before.arrived_objects);
        assert_int_equal(after.peak_bytes[ND_CPU], before.peak_bytes[ND_CPU]);
        // What the header says allocates does, and changes nothing where that is refused.
        nd_auto nd_tensor *model = NULL;
        assert_status((model = nd_add(row, hidden)) ? ND_OK : nd_error_get_status(),
                      ND_ERROR_QUOTA);
        char *bytes = bytes_of(turned_storage);
        assert_status(nd_matmul_out(row, weight, turned), ND_ERROR_QUOTA);
        assert_status(nd_linear_out(row, weight, bias, turned), ND_ERROR_QUOTA);
        assert_status(nd_take_out(table, index, 0, turned), ND_ERROR_QUOTA);
        assert_memory_equal(bytes, nd_get_data(turned_storage), 80 * 3 * sizeof(float));
        free(bytes);
    }
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_overlaps_are_refused_and_change_nothing),
        ND_TEST(test_other_operands_that_share_memory),
        ND_TEST(test_what_out_must_be),
        ND_TEST(test_an_index_out_of_range),
        ND_TEST(test_gradients_are_refused_while_recording),
        ND_TEST(test_the_version_moves),
        ND_TEST(test_autocast_is_not_looked_at),
        ND_TEST(test_a_loop_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
