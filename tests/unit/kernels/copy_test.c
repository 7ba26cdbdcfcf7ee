// Copies and conversions between every pair of dtypes, and copies of transposed memory in tiles.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>

static nd_status copy_row(void *out, nd_dtype out_dtype, const void *x, nd_dtype x_dtype, int64_t n,
                          int64_t stride) {
    nd_kernel_call call = {.op = ND_OP_cast, .noperands = 2, .ndim = 1, .shape = {n}};
    call.operand[0].data = out;
    call.operand[0].dtype = out_dtype;
    call.operand[0].strides[0] = 1;
    call.operand[1].data = (void *)(uintptr_t)x;
    call.operand[1].dtype = x_dtype;
    call.operand[1].strides[0] = stride;
    return nd__cpu_launch(&call);
}

static void test_floats_become_the_nearest_integer_that_there_is(void **state) {
    (void)state;
    const double x[] = {0.9,       -0.9,  255.9,        256,           -1,
                        1e10,      -1e10, 1e30,         -1e30,         INFINITY,
                        -INFINITY, NAN,   2147483647.0, -2147483648.0, 9.2233720368547748e18};
    enum { N = sizeof x / sizeof *x };
    const uint8_t bytes[] = {0, 0, 255, 255, 0, 255, 0, 255, 0, 255, 0, 0, 255, 0, 255};
    const int32_t ints[] = {0,         0,         255,       256,       -1,
                            INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX,
                            INT32_MIN, 0,         INT32_MAX, INT32_MIN, INT32_MAX};
    const int64_t longs[] = {0,
                             0,
                             255,
                             256,
                             -1,
                             10000000000,
                             -10000000000,
                             INT64_MAX,
                             INT64_MIN,
                             INT64_MAX,
                             INT64_MIN,
                             0,
                             INT32_MAX,
                             INT32_MIN,
                             INT64_C(9223372036854774784)};
    uint8_t u8[N], flags[N];
    int32_t i32[N];
    int64_t i64[N];
    assert_int_equal(copy_row(u8, ND_U8, x, ND_F64, N, 1), ND_OK);
    assert_int_equal(copy_row(flags, ND_BOOL, x, ND_F64, N, 1), ND_OK);
    assert_int_equal(copy_row(i32, ND_I32, x, ND_F64, N, 1), ND_OK);
    assert_int_equal(copy_row(i64, ND_I64, x, ND_F64, N, 1), ND_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(u8[i], bytes[i]);
        assert_int_equal(flags[i], x[i] != 0);
        assert_int_equal(i32[i], ints[i]);
        assert_int_equal(i64[i], longs[i]);
    }
    float narrow[N];
    for (int i = 0; i < N; i++)
        narrow[i] = (float)x[i];
    assert_int_equal(copy_row(i32, ND_I32, narrow, ND_F32, N, 1), ND_OK);
    for (int i = 0; i < N - 3; i++)
        assert_int_equal(i32[i], ints[i]);
}

static void test_every_pair_of_dtypes(void **state) {
    (void)state;
    enum { N = 133 };
    double start[2 * N];
    for (int i = 0; i < 2 * N; i++)
        start[i] = rand() % 2;
    for (int from = 0; from < ND_DTYPE_COUNT; from++)
        for (int to = 0; to < ND_DTYPE_COUNT; to++)
            for (int64_t stride = 1; stride <= 2; stride++) {
                double first[2 * N], second[N], back[N];
                copy_row(first, (nd_dtype)from, start, ND_F64, 2 * N, 1);
                copy_row(second, (nd_dtype)to, first, (nd_dtype)from, N, stride);
                copy_row(back, ND_F64, second, (nd_dtype)to, N, 1);
                for (int i = 0; i < N; i++)
                    assert_true(back[i] == start[i * stride]);
            }
}

/// A copy with axes turned, against a loop.
static void check_permuted(const int64_t *shape, const int *axes, nd_dtype dtype, size_t size) {
    int64_t strides[3] = {shape[1] * shape[2], shape[2], 1}, total = shape[0] * strides[0];
    unsigned char *x = malloc((size_t)total * size), *out = malloc((size_t)total * size);
    for (int64_t i = 0; i < total * (int64_t)size; i++)
        x[i] = (unsigned char)rand();
    nd_kernel_call call = {.op = ND_OP_clone, .noperands = 2, .ndim = 3};
    int64_t stride = 1;
    for (int i = 2; i >= 0; i--) {
        call.shape[i] = shape[axes[i]];
        call.operand[0].strides[i] = stride;
        call.operand[1].strides[i] = strides[axes[i]];
        stride *= call.shape[i];
    }
    call.operand[0].data = out;
    call.operand[1].data = x;
    call.operand[0].dtype = call.operand[1].dtype = dtype;
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    for (int64_t flat = 0; flat < total; flat++) {
        int64_t rest = flat, from = 0;
        for (int i = 2; i >= 0; i--) {
            from += rest % call.shape[i] * call.operand[1].strides[i];
            rest /= call.shape[i];
        }
        assert_memory_equal(out + flat * (int64_t)size, x + from * (int64_t)size, size);
    }
    free(x);
    free(out);
}

static void test_permuted_copies(void **state) {
    (void)state;
    static const int axes[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int64_t shapes[][3] = {{1, 33, 65}, {7, 8, 9}, {40, 3, 70}, {5, 200, 33}};
    for (size_t s = 0; s < 4; s++)
        for (size_t a = 0; a < 6; a++) {
            check_permuted(shapes[s], axes[a], ND_U8, 1);
            check_permuted(shapes[s], axes[a], ND_BF16, 2);
            check_permuted(shapes[s], axes[a], ND_F32, 4);
            check_permuted(shapes[s], axes[a], ND_I64, 8);
        }
}

/// Long copies to every distance behind the source's place in its page, some of which go by pieces:
/// all bytes, and none beside them.
/// Around the sides of blocks and of tiles, one side of which is not like the other.
static void test_permuted_copies_of_every_size(void **state) {
    (void)state;
    static const int axes[][3] = {{0, 2, 1}, {2, 1, 0}, {1, 2, 0}};
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_I64};
    static const size_t sizes[] = {1, 2, 4, 8};
    for (int64_t rows = 1; rows <= 150; rows += rows < 20 ? 1 : 7)
        for (int64_t columns = 1; columns <= 150; columns += columns < 20 ? 1 : 11)
            for (int i = 0; i < 3; i++)
                for (int dtype = 0; dtype < 4; dtype++)
                    check_permuted((int64_t[]){2, rows, columns}, axes[i], dtypes[dtype],
                                   sizes[dtype]);
}

static void test_copies_of_bytes_at_every_distance(void **state) {
    (void)state;
    enum { PAGE = 4096, MOST = 3 * PAGE };
    static const size_t sizes[] = {0, 1, 255, 256, 257, 600, 2047, 2048, 2049, 4096, 4097, 10000};
    unsigned char *from = aligned_alloc(PAGE, MOST), *to = aligned_alloc(PAGE, MOST);
    assert_true(from && to);
    for (size_t i = 0; i < MOST; i++)
        from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t behind = 0; behind < 80; behind++)
            for (size_t start = 0; start < 2; start++) {
                memset(to, 0xA5, MOST);
                nd__bytes_copy(to + start + behind, from + start, sizes[s]);
                assert_memory_equal(to + start + behind, from + start, sizes[s]);
                for (size_t i = 0; i < start + behind; i++)
                    assert_int_equal(to[i], 0xA5);
                assert_int_equal(to[start + behind + sizes[s]], 0xA5);
            }
    free(from);
    free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_floats_become_the_nearest_integer_that_there_is),
        ND_TEST(test_every_pair_of_dtypes),
        ND_TEST(test_permuted_copies),
        ND_TEST(test_permuted_copies_of_every_size),
        ND_TEST(test_copies_of_bytes_at_every_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
