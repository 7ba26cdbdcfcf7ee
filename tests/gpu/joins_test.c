// Joining on CUDA: 1 to 100 pieces of odd sizes, empty ones among them, along the first, a middle and the
// last axis, in every dtype; from any place in memory on, as rows of something larger, or in another order
// of axes; into a new tensor and between others' elements.
//
// The result is, bit for bit, what the pieces were cut from. On the fake runtime: up to nine pieces that are
// rows are one launch.
#include "tests/gpu/gpu.h"
#include <nd/out.h>
#ifdef ON_FAKE_RUNTIME
#include "tests/cudart/control.h"
#endif

enum { MOST_PIECES = 100, AXES = 3, ROOM = 5 };

static uint64_t random_state = 7;
static int64_t pick(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/// Of any bits: on the host, and on the device.
typedef struct whole {
    unsigned char *bytes;
    nd_tensor *there;
} whole;

static whole random_whole(nd_dtype dtype, const int64_t *shape) {
    const size_t size = (size_t)(shape[0] * shape[1] * shape[2]) * nd_dtype_get_size(dtype);
    whole made = {.bytes = malloc(size + 1)};
    assert_non_null(made.bytes);
    for (size_t i = 0; i < size; i++)
        made.bytes[i] = (unsigned char)pick(dtype == ND_BOOL ? 2 : 256);
    made.there = nd_from_data(made.bytes, AXES, shape, dtype);
    assert_handle(made.there);
    return made;
}

/// The same elements as a view, in memory of their own, `before` elements behind its begin, or with the
/// first axis as the innermost one.
static nd_tensor *laid(nd_tensor *piece, int64_t before, int how) {
    if (how == 0)
        return piece;
    nd_tensor *result = NULL;
    if (how == 1) {
        nd_auto nd_tensor *room =
            nd_zeros(ND_SHAPE(before + nd_get_numel(piece)), nd_get_dtype(piece));
        nd_auto nd_tensor *flat = nd_slice(room, before, INT64_MAX, 1, 0);
        result = nd_reshape(flat, AXES, nd_get_shape(piece));
        assert_ok(nd_copy_(result, piece));
    } else {
        nd_auto nd_tensor *turned = nd_transpose(piece, 0, 2);
        nd_auto nd_tensor *dense = nd_contiguous(turned);
        result = nd_transpose(dense, 0, 2);
    }
    nd_release(piece);
    return result;
}

/// The whole between `ROOM` places along the axis, of which two lie before it.
static void assert_in_room(const nd_tensor *room, const whole *of, const int64_t *shape, int axis,
                           size_t element) {
    size_t rows = 1, run = element;
    for (int i = 0; i < AXES; i++) {
        rows *= i < axis ? (size_t)shape[i] : 1;
        run *= i > axis ? (size_t)shape[i] : 1;
    }
    const size_t columns = (size_t)shape[axis] * run, apart = columns + ROOM * run;
    unsigned char *found = malloc(rows * apart + 1), *expected = calloc(rows * apart + 1, 1);
    assert_non_null(found);
    assert_non_null(expected);
    for (size_t row = 0; row < rows; row++)
        memcpy(expected + row * apart + 2 * run, of->bytes + row * columns, columns);
    assert_ok(nd_copy_to_host(room, found, rows * apart));
    assert_memory_equal(found, expected, rows * apart);
    free(found);
    free(expected);
}

static void check_join(nd_dtype dtype, int axis, size_t count, int64_t most) {
    int64_t shape[AXES], size[MOST_PIECES];
    for (int i = 0; i < AXES; i++)
        shape[i] = 1 + pick(7);
    shape[axis] = 0;
    for (size_t k = 0; k < count; k++) {
        size[k] = pick(6) ? 1 + pick(most) : 0;
        shape[axis] += size[k];
    }
    whole of = random_whole(dtype, shape);
    nd_tensor *pieces[MOST_PIECES];
    const bool turned = pick(3) == 0;
    for (int64_t k = 0, begin = 0; k < (int64_t)count; begin += size[k], k++)
        pieces[k] = laid(nd_slice(of.there, begin, begin + size[k], 1, axis), pick(9),
                         (int)pick(turned ? 3 : 2));
    const nd_tensor *const *inputs = (const nd_tensor *const *)pieces;
    const size_t element = nd_dtype_get_size(dtype);
    const size_t bytes = (size_t)nd_get_numel(of.there) * element;

    nd_auto nd_tensor *joined = nd_concat(count, inputs, axis);
    assert_handle(joined);
    unsigned char *found = malloc(bytes + 1);
    assert_non_null(found);
    assert_ok(nd_copy_to_host(joined, found, bytes));
    assert_memory_equal(found, of.bytes, bytes);
    free(found);

    int64_t wider[AXES] = {shape[0], shape[1], shape[2]};
    wider[axis] += ROOM;
    nd_auto nd_tensor *room = nd_zeros(AXES, wider, dtype);
    nd_auto nd_tensor *out = nd_slice(room, 2, 2 + shape[axis], 1, axis);
    assert_ok(nd_concat_out(count, inputs, axis, out));
    assert_in_room(room, &of, shape, axis, element);
    for (size_t k = 0; k < count; k++)
        nd_release(pieces[k]);
    nd_release(of.there);
    free(of.bytes);
}

static void test_pieces_are_whole_again(void **state) {
    (void)state;
    static const size_t counts[] = {1, 2, 3, 9, 10, 100};
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int axis = 0; axis < AXES; axis++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_join((nd_dtype)dtype, axis, counts[i], 9);
    for (int axis = 0; axis < AXES; axis++)
        check_join(ND_F32, axis, 9, 5000);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
}

#ifdef ON_FAKE_RUNTIME
static uint64_t launches_of_join(size_t count) {
    nd_tensor *pieces[MOST_PIECES];
    for (size_t k = 0; k < count; k++)
        pieces[k] = nd_ones(ND_SHAPE(3, 5), ND_F32);
    cudart_statistics before, after;
    cudart_get_statistics(&before);
    nd_auto nd_tensor *joined = nd_concat(count, (const nd_tensor *const *)pieces, 1);
    assert_handle(joined);
    cudart_get_statistics(&after);
    for (size_t k = 0; k < count; k++)
        nd_release(pieces[k]);
    return after.kernels - before.kernels;
}

static void test_nine_pieces_are_one_launch(void **state) {
    (void)state;
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    assert_int_equal(launches_of_join(2), 1);
    assert_int_equal(launches_of_join(9), 1);
    assert_int_equal(launches_of_join(18), 2);
    assert_int_equal(launches_of_join(100), 12); // the last one is a copy into the rows
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
}
#endif

int main(void) {
    int skipped;
    if (!gpu_present(&skipped))
        return skipped;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_pieces_are_whole_again),
#ifdef ON_FAKE_RUNTIME
        ND_TEST(test_nine_pieces_are_one_launch),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
