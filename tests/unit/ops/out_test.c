// Results in tensors of the caller's (<nd/out.h>): every form beside the function that makes its
// result, on random views of every dtype, bit for bit, and what lies around what is written.
#include "tests/elementwise.h"
#include "tests/unit/ops/out_bits.h"
#include <nd/quantization.h>

typedef struct operands {
    nd_tensor *a, *b;                      ///< of one dtype; b broadcasts to a
    nd_tensor *other;                      ///< of a's shape and another dtype
    nd_tensor *condition, *mask;           ///< bool: broadcasts to a, of a's shape
    nd_tensor *index, *rows;               ///< gather's and take's, along the axis
    nd_tensor *left, *right;               ///< a product's
    nd_tensor *bytes, *right_bytes, *zero; ///< of one of integers
    nd_tensor *x, *weight, *bias;          ///< linear's
    nd_tensor *table;                      ///< embedding's
} operands;

enum { OPERANDS = sizeof(operands) / sizeof(nd_tensor *) };

static struct {
    int axis, naxes, axes[ND_MAX_DIMS];
    bool keepdims;
} given;

static nd_tensor *view(int ndim, const int64_t *shape, nd_dtype dtype) {
    return views_random(VIEWS_ANY, ndim, shape, dtype, NULL);
}

static nd_tensor *smaller_view(const nd_tensor *x, nd_dtype dtype) {
    int64_t shape[ND_MAX_DIMS];
    int missing = views_chance(40) ? (int)views_below(nd_get_ndim(x) + 1) : 0;
    for (int i = missing; i < nd_get_ndim(x); i++)
        shape[i - missing] = views_chance(30) ? 1 : nd_get_shape(x)[i];
    return view(nd_get_ndim(x) - missing, shape, dtype);
}

/// A view of indices below `size`, some of which count from the end.
static nd_tensor *indices(int ndim, const int64_t *shape, int64_t size) {
    nd_tensor *x = view(ndim, shape, views_chance(70) ? ND_I64 : ND_I32);
    bool from_end = views_chance(50);
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        int64_t value = views_below(size > 0 ? size : 1);
        set_element(nd_get_data(x), nd_get_dtype(x), views_offset(x, i),
                    (double)(from_end ? value - size : value));
    }
    return x;
}

static operands random_operands(nd_dtype dtype) {
    operands in;
    int64_t shape[ND_MAX_DIMS];
    int ndim = views_shape(0, 4, shape);
    in.a = view(ndim, shape, dtype);
    in.b = smaller_view(in.a, dtype);
    in.other = view(ndim, shape, (nd_dtype)views_below(ND_DTYPE_COUNT));
    in.condition = smaller_view(in.a, ND_BOOL);
    in.mask = view(ndim, shape, ND_BOOL);
    given.axis = ndim ? (int)views_below(ndim) : 0;
    given.keepdims = views_chance(50);
    given.naxes = 0;
    for (int i = 0; i < ndim; i++)
        if (views_chance(40))
            given.axes[given.naxes++] = i;
    int64_t size = ndim ? shape[given.axis] : 1;
    int64_t few = size > 0 ? 1 + views_below(4) : 0;
    in.rows = views_chance(50) ? indices(1, &few, size) : indices(ND_SHAPE(2, few), size);
    for (int i = 0; i < ndim; i++)
        shape[i] = shape[i] ? 1 + views_below(shape[i]) : 0;
    if (ndim)
        shape[given.axis] = few;
    in.index = indices(ndim, shape, size);
    int64_t m = 1 + views_below(5), k = 1 + views_below(40), n = 1 + views_below(6);
    in.left = views_chance(40) ? view(ND_SHAPE(m, k), dtype) : view(ND_SHAPE(few, m, k), dtype);
    in.right = views_chance(60) ? view(ND_SHAPE(k, n), dtype) : view(ND_SHAPE(1, k, n), dtype);
    in.bytes = view(ND_SHAPE(m, k), ND_U8);
    in.right_bytes =
        views_chance(60) ? view(ND_SHAPE(k, n), ND_I8) : view(ND_SHAPE(2, k, n), ND_I8);
    in.zero = view(ND_SHAPE(n), ND_I8);
    in.x = views_chance(50) ? view(ND_SHAPE(m, k), dtype) : view(ND_SHAPE(few, m, k), dtype);
    in.weight = view(ND_SHAPE(n, k), dtype);
    in.bias = view(1, &n, dtype);
    in.table = view(2, (const int64_t[]){size > 0 ? size : 1, m}, dtype);
    return in;
}

static void release_operands(operands *in) {
    for (int i = 0; i < OPERANDS; i++)
        nd_release(((nd_tensor **)in)[i]);
}

// ------------------------------------------------------------------------------------- every form

#define LISTED(...) ((const nd_tensor *[]){__VA_ARGS__})
#define GIVEN_AXES given.naxes, given.axes, given.keepdims

// clang-format off
#define FORMS(CASE) \
    CASE(where, in->condition, in->a, in->b) \
    CASE(sum, in->a, GIVEN_AXES) \
    CASE(mean, in->a, GIVEN_AXES) \
    CASE(max, in->a, GIVEN_AXES) \
    CASE(min, in->a, GIVEN_AXES) \
    CASE(var, in->a, given.naxes, given.axes, 1, given.keepdims) \
    CASE(std, in->a, given.naxes, given.axes, 0, given.keepdims) \
    CASE(prod, in->a, GIVEN_AXES) \
    CASE(any, in->a, GIVEN_AXES) \
    CASE(all, in->a, GIVEN_AXES) \
    CASE(count_nonzero, in->a, GIVEN_AXES) \
    CASE(logsumexp, in->a, GIVEN_AXES) \
    CASE(argmax, in->a, given.axis, given.keepdims) \
    CASE(argmin, in->a, given.axis, given.keepdims) \
    CASE(cumsum, in->a, given.axis) \
    CASE(cumprod, in->a, given.axis) \
    CASE(cummax, in->a, given.axis) \
    CASE(cummin, in->a, given.axis) \
    CASE(matmul, in->left, in->right) \
    CASE(linear, in->x, in->weight, given.keepdims ? in->bias : NULL) \
    CASE(matmul_integer, in->bytes, in->right_bytes, NULL, given.keepdims ? in->zero : NULL) \
    CASE(softmax, in->a, given.axis) \
    CASE(log_softmax, in->a, given.axis) \
    CASE(masked_softmax, in->a, in->condition, given.axis) \
    CASE(take, in->a, in->rows, given.axis) \
    CASE(gather, in->a, in->index, given.axis) \
    CASE(embedding, in->table, in->rows, 0) \
    CASE(concat, 3, LISTED(in->a, in->a, in->a), given.axis) \
    CASE(stack, 2, LISTED(in->a, in->a), given.axis)
// clang-format on

#define DEFINE_FORM(name, ...)                                          \
    static nd_tensor *make_##name(const operands *in) {                 \
        return nd_##name(__VA_ARGS__);                                  \
    }                                                                   \
    static nd_status write_##name(const operands *in, nd_tensor *out) { \
        return nd_##name##_out(__VA_ARGS__, out);                       \
    }
FORMS(DEFINE_FORM)

#define FORM_ROW(name, ...) {#name, make_##name, write_##name},
static const struct {
    const char *name;
    nd_tensor *(*make)(const operands *in);
    nd_status (*write)(const operands *in, nd_tensor *out);
} forms[] = {FORMS(FORM_ROW)};

// A form is a row of `forms` or, behind those, an elementwise one.
enum { ALL_FORMS = COUNT_OF(forms) + ELEMENTWISE_ROWS };

static const char *name_of(size_t k) {
    return k < COUNT_OF(forms) ? forms[k].name : elementwise_rows[k - COUNT_OF(forms)].name;
}

/// Of an elementwise row, what it takes for a and b.
static void chosen(const elementwise_row *row, const operands *in, const nd_tensor **ret_a,
                   const nd_tensor **ret_b) {
    bool logic = row->types == TAKES_BOOL;
    *ret_a = logic ? in->mask : in->a;
    *ret_b = logic ? in->condition : given.naxes == 0 ? in->other : in->b;
}

static nd_tensor *make(size_t k, const operands *in) {
    if (k < COUNT_OF(forms))
        return forms[k].make(in);
    const elementwise_row *row = &elementwise_rows[k - COUNT_OF(forms)];
    const nd_tensor *a, *b;
    chosen(row, in, &a, &b);
    return row->run(a, b, ND_NUMBER(2), ND_NUMBER(3));
}

static nd_status write_to(size_t k, const operands *in, nd_tensor *out) {
    if (k < COUNT_OF(forms))
        return forms[k].write(in, out);
    const elementwise_row *row = &elementwise_rows[k - COUNT_OF(forms)];
    const nd_tensor *a, *b;
    chosen(row, in, &a, &b);
    return row->write(a, b, ND_NUMBER(2), ND_NUMBER(3), out);
}

/// Everything of the storage but what x shows is still `before`; x itself, too, if it was refused.
static void assert_rest_untouched(const char *name, const nd_tensor *x, bool written,
                                  const nd_tensor *storage, char *before) {
    size_t size = nd_dtype_get_size(nd_get_dtype(x));
    const char *data = (const char *)nd_get_data(storage);
    for (int64_t i = 0; i < nd_get_numel(x) && written; i++)
        memcpy(before + (element(x, i) - data), element(x, i), size);
    if (memcmp(before, data, nd_get_storage_bytes(storage)) != 0)
        fail_msg("%s: what is not the result was written", name);
}

/// The window of `storage` that x is of its own.
static nd_tensor *same_window(const nd_tensor *x, const nd_tensor *own, const nd_tensor *storage) {
    int64_t offset = ((const char *)nd_get_data(x) - (const char *)nd_get_data(own)) /
                     (int64_t)nd_dtype_get_size(nd_get_dtype(x));
    nd_tensor *same =
        nd_as_strided(storage, nd_get_ndim(x), nd_get_shape(x), nd_get_strides(x), offset);
    assert_handle(same);
    return same;
}

static void check_form(size_t k, const operands *in, nd_device device) {
    const nd_device cpu = {ND_CPU, 0};
    nd_error_clear();
    nd_auto nd_tensor *expected = make(k, in);
    const nd_tensor *model = expected ? expected : in->a;
    nd_auto nd_tensor *storage = NULL;
    nd_auto nd_tensor *shown = views_random(VIEWS_DISTINCT, nd_get_ndim(model), nd_get_shape(model),
                                            nd_get_dtype(model), &storage);
    nd_auto nd_tensor *storage_there = nd_to(storage, device);
    nd_auto nd_tensor *out = same_window(shown, storage, storage_there);
    char *before = bytes_of(storage);
    uint64_t version = nd_get_version(out);
    nd_error_clear();
    nd_status status = write_to(k, in, out);
    if ((status == ND_OK) != (expected != NULL))
        fail_msg("%s: %s: %s", name_of(k), nd_status_get_name(status), nd_error_get_message());
    assert_int_equal(nd_get_version(out), version + (expected ? 1 : 0));
    nd_auto nd_tensor *after = nd_to(storage_there, cpu);
    nd_auto nd_tensor *got = same_window(shown, storage, after);
    nd_auto nd_tensor *wanted = nd_to(expected, cpu);
    if (wanted)
        assert_same_bits(name_of(k), got, wanted);
    assert_rest_untouched(name_of(k), got, wanted != NULL, after, before);
    free(before);
    nd_error_clear();
}

static void test_every_form_gives_the_other_ones_bits(void **state) {
    (void)state;
    for (int64_t round = 0; round < views_rounds(250); round++) {
        views_begin(round);
        operands in = random_operands((nd_dtype)(round % ND_DTYPE_COUNT));
        for (size_t k = 0; k < ALL_FORMS; k++)
            check_form(k, &in, (nd_device){ND_CPU, 0});
        release_operands(&in);
    }
}

/// The same windows onto storages of the first CUDA device.
static operands operands_there(const operands *in) {
    operands there;
    for (int i = 0; i < OPERANDS; i++) {
        const nd_tensor *x = ((nd_tensor *const *)in)[i];
        int64_t count = (int64_t)(nd_get_storage_bytes(x) / nd_dtype_get_size(nd_get_dtype(x)));
        nd_auto nd_tensor *all = nd_as_strided(x, ND_SHAPE(count), (const int64_t[]){1}, 0);
        assert_handle(all);
        nd_auto nd_tensor *moved = nd_to(all, (nd_device){ND_CUDA, 0});
        ((nd_tensor **)&there)[i] = same_window(x, all, moved);
    }
    return there;
}

// The fake runtime's GPU is one thread that looks at everything.
#ifdef ON_FAKE_RUNTIME
enum { DEVICE_ROUNDS = 13 };
#else
enum { DEVICE_ROUNDS = 52 };
#endif

static void test_every_form_on_a_device(void **state) {
    (void)state;
    if (nd_get_device_count(ND_CUDA) == 0)
        return;
    for (int64_t round = 0; round < views_rounds(DEVICE_ROUNDS); round++) {
        views_begin(round);
        operands in = random_operands((nd_dtype)(round % ND_DTYPE_COUNT));
        operands there = operands_there(&in);
        for (size_t k = 0; k < ALL_FORMS; k++)
            check_form(k, &there, (nd_device){ND_CUDA, 0});
        release_operands(&in);
        release_operands(&there);
    }
}

/// Large enough for the paths of large operands: several threads, stores past the caches.
static void test_large_results(void **state) {
    (void)state;
    int64_t rows = 1500, columns = 1111;
    nd_auto nd_tensor *a = nd_randn((nd_key){1, 2}, ND_SHAPE(rows, columns), ND_F32);
    nd_auto nd_tensor *expected = nd_mul(a, a);
    nd_auto nd_tensor *sums = nd_sum(a, 1, (const int[]){0}, false);
    nd_auto nd_tensor *shares = nd_softmax(a, 1);
    nd_auto nd_tensor *base = nd_zeros(ND_SHAPE(columns + 2, rows), ND_F32);
    nd_auto nd_tensor *inner = nd_slice(base, 1, columns + 1, 1, 0);
    nd_auto nd_tensor *turned = nd_transpose(inner, 0, 1);
    nd_auto nd_tensor *dense = nd_empty(ND_SHAPE(rows, columns), ND_F32);
    nd_auto nd_tensor *column = nd_select(turned, 7, 0);
    nd_tensor *const outs[] = {turned, dense};
    for (int i = 0; i < 2; i++) {
        assert_ok(nd_mul_out(a, a, outs[i]));
        assert_same_bits("mul", outs[i], expected);
        assert_ok(nd_softmax_out(a, 1, outs[i]));
        assert_same_bits("softmax", outs[i], shares);
    }
    assert_ok(nd_sum_out(a, 1, (const int[]){0}, false, column));
    assert_same_bits("sum", column, sums);
    for (int64_t i = 0; i < rows; i++)
        assert_true(at_flat(base, i) == 0 && at_flat(base, (columns + 1) * rows + i) == 0);
}

/// Out is an operand, or another handle of the same window.
static void test_elementwise_over_an_operand(void **state) {
    (void)state;
    for (int64_t round = 0; round < views_rounds(60); round++) {
        views_begin(round);
        nd_dtype dtype = (nd_dtype)views_below(ND_DTYPE_COUNT);
        int64_t shape[ND_MAX_DIMS];
        int ndim = views_shape(0, 3, shape);
        for (int r = 0; r < ELEMENTWISE_ROWS; r++) {
            const elementwise_row *row = &elementwise_rows[r];
            if (!elementwise_takes(row, dtype) || elementwise_result(row, dtype) != dtype)
                continue;
            nd_auto nd_tensor *storage = NULL;
            nd_auto nd_tensor *x = views_random(VIEWS_DISTINCT, ndim, shape, dtype, &storage);
            nd_auto nd_tensor *y = smaller_view(x, dtype);
            nd_auto nd_tensor *same = nd_as_strided(x, ndim, shape, nd_get_strides(x), 0);
            nd_auto nd_tensor *handle = nd_detach(x);
            bool first = views_chance(50);
            const nd_tensor *a = first ? x : y, *b = first ? y : x;
            if (row->operands == 1 || views_chance(20))
                a = b = x;
            nd_auto nd_tensor *expected = row->run(a, b, ND_NUMBER(2), ND_NUMBER(3));
            assert_handle(expected);
            char *before = bytes_of(storage);
            assert_ok(row->write(a, b, ND_NUMBER(2), ND_NUMBER(3), views_chance(50) ? x : handle));
            assert_same_bits(row->name, x, expected);
            assert_rest_untouched(row->name, x, true, storage, before);
            free(before);
        }
    }
    // The three of where.
    nd_auto nd_tensor *condition = random_dense(ND_SHAPE(50), ND_BOOL, 0, 1);
    nd_auto nd_tensor *a = random_dense(ND_SHAPE(50), ND_BOOL, 0, 1);
    nd_auto nd_tensor *b = random_dense(ND_SHAPE(50), ND_BOOL, 0, 1);
    nd_tensor *const operands[] = {condition, a, b};
    for (int i = 0; i < 3; i++) {
        nd_auto nd_tensor *expected = nd_where(condition, a, b);
        assert_ok(nd_where_out(condition, a, b, operands[i]));
        assert_same_bits("where", operands[i], expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_form_gives_the_other_ones_bits),
        ND_TEST(test_every_form_on_a_device),
        ND_TEST(test_large_results),
        ND_TEST(test_elementwise_over_an_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
