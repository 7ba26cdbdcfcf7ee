// Conversion between all dtypes, in every instruction set, against an oracle that knows nothing of
// the kernels: values are long doubles, which hold each element of each dtype exactly, and 16-bit
// floats are rounded by rintl() on the grid around the value.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define MOST 80000

static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} dtypes[ND_DTYPE_COUNT] = {
#define FLOAT true
#define SIGNED false
#define UNSIGNED false
#define BOOL false
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = {text, sizeof(T), kind},
#include "kernels/dtypes.inc"
};

typedef struct half_format {
    int digits;   ///< of the significand, with the hidden one
    int lowest;   ///< exponent of the smallest subnormal
    int greatest; ///< exponent of the largest finite number's power of two
} half_format;

static const half_format f16 = {11, -24, 15}, bf16 = {8, -133, 127};

static long double value_of_half(half_format format, uint16_t bits) {
    int stored = format.digits - 1, significand = bits & ((1 << stored) - 1);
    int exponent = (bits & 0x7FFF) >> stored, all_ones = 0x7FFF >> stored;
    long double magnitude;
    if (exponent == all_ones)
        magnitude = significand ? (long double)NAN : (long double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexpl(significand, format.lowest);
    else
        magnitude = ldexpl(significand + (1 << stored), format.lowest + exponent - 1);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t half_of_value(half_format format, long double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int stored = format.digits - 1;
    uint16_t infinity = (uint16_t)((0x7FFF >> stored) << stored);
    x = fabsl(x);
    if (isnan(x))
        return (uint16_t)(sign | infinity | 1 << (stored - 1));
    if (isinf(x) || x >= ldexpl(1, format.greatest + 1))
        return sign | infinity;
    if (x == 0)
        return sign;
    int exponent = ilogbl(x) - stored;
    if (exponent < format.lowest)
        exponent = format.lowest;
    // The bits of a positive float count the floats below it, across exponents too.
    long count = lrintl(ldexpl(x, -exponent)) + ((long)(exponent - format.lowest) << stored);
    return (uint16_t)(sign | (count < infinity ? (uint16_t)count : infinity));
}

static long double value_at(nd_dtype dtype, const void *data, int i) {
    switch (dtype) {
#define CASE(DTYPE, T) \
    case DTYPE:        \
        return (long double)((const T *)data)[i];
        CASE(ND_BOOL, uint8_t)
        CASE(ND_U8, uint8_t)
        CASE(ND_U16, uint16_t)
        CASE(ND_U32, uint32_t)
        CASE(ND_U64, uint64_t)
        CASE(ND_I8, int8_t)
        CASE(ND_I16, int16_t)
        CASE(ND_I32, int32_t)
        CASE(ND_I64, int64_t)
        CASE(ND_F32, float)
        CASE(ND_F64, double)
#undef CASE
    case ND_F16:
        return value_of_half(f16, ((const uint16_t *)data)[i]);
    case ND_BF16:
        return value_of_half(bf16, ((const uint16_t *)data)[i]);
    default:
        abort();
    }
}

/// Bits of x, an integer or a float, as an integer of `bits` bits.
static uint64_t integer_bits(long double x, bool from_float, int bits, bool is_signed) {
    if (isnan(x))
        return 0;
    long double below = is_signed ? -ldexpl(1, bits - 1) : 0;
    long double above = ldexpl(1, is_signed ? bits - 1 : bits);
    uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (from_float && x <= below)
        return is_signed ? (UINT64_C(1) << (bits - 1)) : 0;
    if (from_float && x >= above)
        return mask >> is_signed;
    x = truncl(x);
    uint64_t magnitude = (uint64_t)fabsl(x);
    return (x < 0 ? UINT64_C(0) - magnitude : magnitude) & mask;
}

/// The bits that x, of dtype `from`, has in `to`.
static uint64_t expected(nd_dtype to, long double x, nd_dtype from) {
    bool cut = dtypes[from].is_float;
    float f32;
    double f64;
    uint32_t bits32;
    uint64_t bits64;
    switch (to) {
    case ND_BOOL:
        return x != 0;
    case ND_U8:
        return integer_bits(x, cut, 8, false);
    case ND_U16:
        return integer_bits(x, cut, 16, false);
    case ND_U32:
        return integer_bits(x, cut, 32, false);
    case ND_U64:
        return integer_bits(x, cut, 64, false);
    case ND_I8:
        return integer_bits(x, cut, 8, true);
    case ND_I16:
        return integer_bits(x, cut, 16, true);
    case ND_I32:
        return integer_bits(x, cut, 32, true);
    case ND_I64:
        return integer_bits(x, cut, 64, true);
    case ND_F16:
        return half_of_value(f16, x);
    case ND_BF16:
        return half_of_value(bf16, x);
    case ND_F32:
        f32 = (float)x;
        memcpy(&bits32, &f32, sizeof bits32);
        return bits32;
    default:
        f64 = (double)x;
        memcpy(&bits64, &f64, sizeof bits64);
        return bits64;
    }
}

static uint64_t random_word(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t bits_at(const void *data, size_t size, int i) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * size, size); // little-endian
    return bits;
}

/// Element i is x, or its neighbour below (beside < 0) or above.
static void put_beside(nd_dtype dtype, void *data, int i, long double x, int beside) {
    double f64 = (double)x, toward = beside < 0 ? -(double)INFINITY : (double)INFINITY;
    float f32 = (float)x;
    size_t size = dtypes[dtype].size;
    if (dtype == ND_F64) {
        ((double *)data)[i] = beside ? nextafter(f64, toward) : f64;
    } else if (dtype == ND_F32) {
        ((float *)data)[i] = beside ? nextafterf(f32, (float)toward) : f32;
    } else {
        uint64_t word = integer_bits(x, true, (int)(8 * size), true) + (uint64_t)(int64_t)beside;
        memcpy((char *)data + (size_t)i * size, &word, size);
    }
}

/// Elements of a dtype: all there are of up to 16 bits; of others random bits, random magnitudes,
/// and what lies on and beside the ties between neighbouring 16-bit floats.
static int fill_elements(nd_dtype dtype, void *data) {
    size_t size = dtypes[dtype].size;
    if (size <= 2) {
        int count = dtype == ND_BOOL ? 2 : size == 1 ? 256 : 65536;
        for (int i = 0; i < count; i++)
            memcpy((char *)data + (size_t)i * size, &i, size);
        return count;
    }
    int count = 0;
    uint64_t word;
    for (; count < 20000; count++) {
        word = random_word();
        if (!dtypes[dtype].is_float)
            word >>= random_word() % (8 * size);
        memcpy((char *)data + (size_t)count * size, &word, size);
    }
    for (int k = 0; k < 2; k++)
        for (int h = 0; h < 0x7F80; h += 1 + (int)(random_word() % 6)) {
            half_format format = k ? bf16 : f16;
            long double low = value_of_half(format, (uint16_t)h);
            long double high = value_of_half(format, (uint16_t)(h + 1));
            if (!isfinite(low))
                break;
            if (isinf(high))
                high = ldexpl(1, format.greatest + 1);
            long double tie = (low + high) / 2;
            for (int beside = -1; beside <= 1 && count < MOST; beside++, count++) {
                put_beside(dtype, data, count, random_word() % 2 ? -tie : tie, beside);
            }
        }
    return count;
}

static void convert(void *out, nd_dtype to, int64_t out_stride, const void *x, nd_dtype from,
                    int64_t x_stride, int64_t n) {
    nd_kernel_call call = {.op = ND_OP_cast, .noperands = 2, .ndim = 1, .shape = {n}};
    call.operand[0].data = out;
    call.operand[0].dtype = to;
    call.operand[0].strides[0] = out_stride;
    call.operand[1].data = (void *)(uintptr_t)x;
    call.operand[1].dtype = from;
    call.operand[1].strides[0] = x_stride;
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

static bool is_nan_of(nd_dtype dtype, uint64_t bits) {
    return dtypes[dtype].is_float && isnan(value_at(dtype, &bits, 0));
}

static void check_pair(nd_dtype from, nd_dtype to, const void *x, int count, void *out) {
    size_t to_size = dtypes[to].size, from_size = dtypes[from].size;
    convert(out, to, 1, x, from, 1, count);
    for (int i = 0; i < count; i++) {
        long double value = value_at(from, x, i);
        uint64_t is = bits_at(out, to_size, i), be = expected(to, value, from);
        if (is == be || (isnan(value) && is_nan_of(to, is)))
            continue;
        fail_msg("%s: %s 0x%llx (%Lg) becomes %s 0x%llx, not 0x%llx", nd__cpu_isa(),
                 dtypes[from].name, (unsigned long long)bits_at(x, from_size, i), value,
                 dtypes[to].name, (unsigned long long)is, (unsigned long long)be);
    }
    // Rows with steps have loops of their own.
    unsigned char apart[3 * 700 * 8];
    int n = count / 2 < 700 ? count / 2 : 700;
    convert(apart, to, 3, x, from, 2, n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(apart + 3 * (size_t)i * to_size, (char *)out + 2 * (size_t)i * to_size,
                            to_size);
    convert(apart, to, 1, (const char *)x + from_size, from, 0, n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(apart + (size_t)i * to_size, (char *)out + to_size, to_size);
}

static void test_every_pair_of_dtypes_rounds_once(void **state) {
    (void)state;
    void *x = malloc(8 * MOST), *out = malloc(8 * MOST);
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        for (int from = 0; from < ND_DTYPE_COUNT; from++) {
            int count = fill_elements((nd_dtype)from, x);
            assert_true(count >= (from == ND_BOOL ? 2 : 256));
            for (int to = 0; to < ND_DTYPE_COUNT; to++)
                check_pair((nd_dtype)from, (nd_dtype)to, x, count, out);
        }
    }
    nd__cpu_use_isa(NULL);
    free(x);
    free(out);
}

static void test_every_16_bit_float_comes_back(void **state) {
    (void)state;
    uint16_t *half = malloc(65536 * sizeof *half), *back = malloc(65536 * sizeof *back);
    double *wide = malloc(65536 * sizeof *wide);
    for (int i = 0; i < 65536; i++)
        half[i] = (uint16_t)i;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        for (int kind = 0; kind < 4; kind++) {
            nd_dtype dtype = kind & 1 ? ND_BF16 : ND_F16, through = kind & 2 ? ND_F64 : ND_F32;
            convert(wide, through, 1, half, dtype, 1, 65536);
            convert(back, dtype, 1, wide, through, 1, 65536);
            // A signalling NaN becomes quiet; sign and payload are kept.
            uint16_t quiet = dtype == ND_F16 ? 0x200 : 0x40;
            for (int i = 0; i < 65536; i++)
                assert_int_equal(back[i], is_nan_of(dtype, half[i]) ? half[i] | quiet : half[i]);
        }
    }
    nd__cpu_use_isa(NULL);
    free(half);
    free(back);
    free(wide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_pair_of_dtypes_rounds_once),
        ND_TEST(test_every_16_bit_float_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
