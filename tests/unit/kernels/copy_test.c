// Copies and conversions between every pair of dtypes, and copies of transposed memory in tiles.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"
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

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} dtypes[ND_DTYPE_COUNT] = {
#define BOOL_KIND false
#define UNSIGNED_KIND false
#define SIGNED_KIND false
#define FLOAT_KIND true
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) \
    [ND_##ENUMERATOR] = {text, sizeof(T), kind##_KIND},
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

/// Random elements of a dtype: any bits, or such as are next to where a conversion changes its way (ties,
/// subnormal numbers, NaN, the ends of 32 bits); for a block of 64 now and then only small numbers.
static void fill_with_bits(nd_dtype dtype, int64_t n, void *ret_elements) {
    const size_t size = dtypes[dtype].size;
    uint64_t key = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = nd__philox_u64(nd__philox_at(20, (uint64_t)dtype, (uint64_t)i), 0);
        double number = (double)(int32_t)(bits >> 32) * (bits & 1 ? 1 : 0x1p-20);
        key = i % 64 == 0 ? bits >> 60 : key;
        if (dtype == ND_BOOL)
            bits &= 1;
        else if (key < 4 && dtype == ND_F64)
            memcpy(&bits, &number, sizeof bits);
        else if (key < 4 && dtype == ND_F32)
            memcpy(&bits, &(float){(float)number}, sizeof(float));
        else if (key < 4)
            bits = (uint64_t)((int64_t)bits >> (32 + bits % 31));
        else if (dtype == ND_F64 && key < 8) // what is next to a tie of 16 bits, and below f32
            bits = (bits & UINT64_C(0xFFFFF00000000000)) | (uint64_t)(bits % 3) << (41 + bits % 5) |
                   (bits >> 7 & 1);
        else if (dtype == ND_F64 && key < 12)
            bits = (bits & UINT64_C(0x800FFFFFFFFFFFFF)) | (UINT64_C(0x360) + bits % 64) << 52;
        else if (dtype == ND_F32 && key < 8)
            bits = (bits & 0xFFFF0000) | (UINT64_C(0x7FFF) + bits % 3);
        else if (dtype == ND_F32 && key < 10)
            bits &= 0x807FFFFF;
        memcpy((char *)ret_elements + (size_t)i * size, &bits, size);
    }
}

static bool same_element(nd_dtype dtype, const void *a, const void *b) {
    if (memcmp(a, b, dtypes[dtype].size) == 0)
        return true;
    double x = 0, y = 0;
    if (!dtypes[dtype].is_float || copy_row(&x, ND_F64, a, dtype, 1, 1) != ND_OK ||
        copy_row(&y, ND_F64, b, dtype, 1, 1) != ND_OK)
        return false;
    return isnan(x) && isnan(y);
}

static void test_conversions_are_the_same_in_every_instruction_set(void **state) {
    (void)state;
    enum { N = 64 * 200 + 13 };
    static const char *const isas[] = {"x86_64_v3", "x86_64_v4", "x86_64_v4_halves"};
    static double x[N], expected[N], out[N]; // no element is wider
    for (int from = 0; from < ND_DTYPE_COUNT; from++) {
        fill_with_bits((nd_dtype)from, N, x);
        for (int to = 0; to < ND_DTYPE_COUNT; to++) {
            assert_true(nd__cpu_use_isa("baseline"));
            assert_int_equal(copy_row(expected, (nd_dtype)to, x, (nd_dtype)from, N, 1), ND_OK);
            for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
                if (!nd__cpu_use_isa(isas[isa]))
                    continue;
                assert_int_equal(copy_row(out, (nd_dtype)to, x, (nd_dtype)from, N, 1), ND_OK);
                const size_t size = dtypes[to].size;
                for (size_t i = 0; i < N; i++)
                    if (!same_element((nd_dtype)to, (char *)out + i * size,
                                      (char *)expected + i * size))
                        fail_msg("%s to %s, element %zu: %s differs from baseline",
                                 dtypes[from].name, dtypes[to].name, i, isas[isa]);
            }
        }
    }
    nd__cpu_use_isa(NULL);
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

/// `count` runs of elements that lie `apart` from each other on both sides, backwards where that is
/// negative: they are moved, and nothing is written between them.
static void check_runs(nd_dtype dtype, int64_t count, int64_t run, int64_t to_apart,
                       int64_t from_apart) {
    const int64_t size = (int64_t)dtypes[dtype].size;
    const int64_t to_length = ((count - 1) * llabs(to_apart) + run) * size;
    const int64_t from_length = ((count - 1) * llabs(from_apart) + run) * size;
    unsigned char *x = malloc((size_t)from_length), *out = malloc((size_t)to_length);
    unsigned char *expected = malloc((size_t)to_length);
    assert_true(x && out && expected);
    for (int64_t i = 0; i < from_length; i++)
        x[i] = (unsigned char)(i * 31 + i / 251);
    memset(out, 0xA5, (size_t)to_length);
    memset(expected, 0xA5, (size_t)to_length);
    const int64_t to_first = to_apart < 0 ? (1 - count) * to_apart * size : 0;
    const int64_t from_first = from_apart < 0 ? (1 - count) * from_apart * size : 0;
    for (int64_t i = 0; i < count; i++)
        memcpy(expected + to_first + i * to_apart * size, x + from_first + i * from_apart * size,
               (size_t)(run * size));
    nd_kernel_call call = {.op = ND_OP_clone, .noperands = 2, .ndim = run == 1 ? 1 : 2};
    call.shape[0] = count;
    call.operand[0] = (nd_operand){out + to_first, dtype, {to_apart, 1}};
    call.operand[1] = (nd_operand){x + from_first, dtype, {from_apart, 1}};
    if (run > 1)
        call.shape[1] = run;
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    assert_memory_equal(out, expected, (size_t)to_length);
    free(x);
    free(out);
    free(expected);
}

static void test_copies_of_runs_that_lie_apart(void **state) {
    (void)state;
    static const char *const isas[] = {NULL, "baseline", "x86_64_v3"};
    static const nd_dtype widths[] = {ND_U8, ND_BF16, ND_F32, ND_I64};
    static const int64_t counts[] = {1, 15, 100, 300, 700}, rests[] = {0, 1, 2, 5};
    for (size_t isa = 0; isa < 3; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        for (size_t w = 0; w < 4; w++)
            for (size_t c = 0; c < 5; c++)
                for (int64_t run = 1; run <= 36; run += run < 9 ? 1 : 9)
                    for (int i = 0; i < 4 * 4 * 4; i++) {
                        const int64_t to = run + rests[i & 3], from = run + rests[i >> 2 & 3];
                        check_runs(widths[w], counts[c], run, i & 16 ? -to : to,
                                   i & 32 ? -from : from);
                    }
    }
    nd__cpu_use_isa(NULL);
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
        ND_TEST(test_conversions_are_the_same_in_every_instruction_set),
        ND_TEST(test_permuted_copies),
        ND_TEST(test_permuted_copies_of_every_size),
        ND_TEST(test_copies_of_runs_that_lie_apart),
        ND_TEST(test_copies_of_bytes_at_every_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
