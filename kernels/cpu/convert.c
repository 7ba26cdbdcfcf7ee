// Copies of a row with conversion, for every pair of dtypes (definitions: convert.h, half.h).
//
// A loop serves every pair that it is right for: an integer that becomes no wider is cut the same
// whatever its sign, and same widths are a copy. What has no loop of its own goes through an exact
// type in blocks that stay in the first-level cache: 16-bit floats and integers meet in f32 or f64.
#include "kernels/cpu/halves.h"
#include "kernels/cpu/rows.h"
#include <string.h>

#define ND__CONVERT_LOOP(name, F, O, expression)                           \
    static void name(int64_t n, char *const *data, const int64_t *strides, \
                     const nd_op_attrs *attrs) {                           \
        (void)attrs;                                                       \
        O *out = (O *)data[0];                                             \
        const F *in = (const F *)data[1];                                  \
        int64_t out_stride = strides[0], in_stride = strides[1];           \
        if (out_stride == 1 && in_stride == 1) {                           \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {              \
                F x = in[i];                                               \
                out[i] = expression;                                       \
            }                                                              \
        } else {                                                           \
            for (int64_t i = 0; i < n; i++) {                              \
                F x = in[i * in_stride];                                   \
                out[i * out_stride] = expression;                          \
            }                                                              \
        }                                                                  \
    }

// ------------------------------------------------------------------------------ integers to integers

// The same width: also backwards, every other one and one for all, in vectors.
#define ND__COPY_LOOP(name, T)                                             \
    static void name(int64_t n, char *const *data, const int64_t *strides, \
                     const nd_op_attrs *attrs) {                           \
        (void)attrs;                                                       \
        T *out = (T *)data[0];                                             \
        const T *in = (const T *)data[1];                                  \
        int64_t out_stride = strides[0], in_stride = strides[1];           \
        if (out_stride != 1) {                                             \
            for (int64_t i = 0; i < n; i++)                                \
                out[i * out_stride] = in[i * in_stride];                   \
        } else if (in_stride == 1) {                                       \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {              \
                out[i] = in[i];                                            \
            }                                                              \
        } else if (in_stride == -1) {                                      \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {              \
                out[i] = in[-i];                                           \
            }                                                              \
        } else if (in_stride == 2) {                                       \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {              \
                out[i] = in[2 * i];                                        \
            }                                                              \
        } else if (in_stride == 0 && n > 0) {                              \
            const T one = in[0];                                           \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {              \
                out[i] = one;                                              \
            }                                                              \
        } else {                                                           \
            for (int64_t i = 0; i < n; i++)                                \
                out[i] = in[i * in_stride];                                \
        }                                                                  \
    }
ND__COPY_LOOP(u8_to_8, uint8_t)
ND__COPY_LOOP(u16_to_16, uint16_t)
ND__COPY_LOOP(u32_to_32, uint32_t)
ND__COPY_LOOP(u64_to_64, uint64_t)

#define ND__CUT_LOOP(from, to) \
    ND__CONVERT_LOOP(u##from##_to_##to, uint##from##_t, uint##to##_t, (uint##to##_t)x)
ND__CUT_LOOP(16, 8)
ND__CUT_LOOP(32, 8)
ND__CUT_LOOP(32, 16)
ND__CUT_LOOP(64, 8)
ND__CUT_LOOP(64, 16)
ND__CUT_LOOP(64, 32)

#define ND__WIDEN_LOOPS(from, to)                                                      \
    ND__CONVERT_LOOP(u##from##_to_##to, uint##from##_t, uint##to##_t, (uint##to##_t)x) \
    ND__CONVERT_LOOP(i##from##_to_##to, int##from##_t, int##to##_t, (int##to##_t)x)
ND__WIDEN_LOOPS(8, 16)
ND__WIDEN_LOOPS(8, 32)
ND__WIDEN_LOOPS(8, 64)
ND__WIDEN_LOOPS(16, 32)
ND__WIDEN_LOOPS(16, 64)
ND__WIDEN_LOOPS(32, 64)

#define ND__BOOL_LOOP(bits) ND__CONVERT_LOOP(any_##bits##_to_b8, uint##bits##_t, uint8_t, x != 0)
ND__BOOL_LOOP(8)
ND__BOOL_LOOP(16)
ND__BOOL_LOOP(32)
ND__BOOL_LOOP(64)

// -------------------------------------------------------------------------------- f32, f64, integers

// Between floats and integers of 64 bits, where the processor has no vectors for it: a block of which
// all fits 32 bits goes by way of those.
#define ND__NARROW_BLOCK 64
#define ND__BY_WAY_OF_32_BITS(name, F, O, FITS)                                \
    static void name(int64_t n, char *const *data, const int64_t *strides,     \
                     const nd_op_attrs *attrs) {                               \
        O *out = (O *)data[0];                                                 \
        const F *in = (const F *)data[1];                                      \
        if (strides[0] != 1 || strides[1] != 1) {                              \
            name##_of_any(n, data, strides, attrs);                            \
            return;                                                            \
        }                                                                      \
        for (int64_t i = 0; i < n; i += ND__NARROW_BLOCK) {                    \
            int64_t run = n - i < ND__NARROW_BLOCK ? n - i : ND__NARROW_BLOCK; \
            int fits = 1;                                                      \
            for (int64_t k = i; k < i + run; k++)                              \
                fits &= FITS(in[k]);                                           \
            char *block[2] = {(char *)(out + i), (char *)(uintptr_t)(in + i)}; \
            if (!fits)                                                         \
                name##_of_any(run, block, strides, attrs);                     \
            else                                                               \
                ND__INDEPENDENT for (int64_t k = i; k < i + run; k++) {        \
                    out[k] = (O)(int32_t)in[k];                                \
                }                                                              \
        }                                                                      \
    }
#define ND__FLOAT_FITS(x) ((x) > -0x1p31f && (x) < 0x1p31f)
#define ND__INTEGER_FITS(x) ((x) == (int32_t)(x))

#define ND__INTEGER_LOOPS(name, T)                                  \
    ND__CONVERT_LOOP(name##_to_f32, T, float, (float)x)             \
    ND__CONVERT_LOOP(name##_to_f64, T, double, (double)x)           \
    ND__CONVERT_LOOP(f32_to_##name, float, T, nd__f32_to_##name(x)) \
    ND__CONVERT_LOOP(f64_to_##name, double, T, nd__f64_to_##name(x))
ND__INTEGER_LOOPS(u8, uint8_t)
ND__INTEGER_LOOPS(u16, uint16_t)
ND__INTEGER_LOOPS(u32, uint32_t)
ND__INTEGER_LOOPS(u64, uint64_t)
ND__INTEGER_LOOPS(i8, int8_t)
ND__INTEGER_LOOPS(i16, int16_t)
ND__INTEGER_LOOPS(i32, int32_t)
#if defined(__AVX512DQ__)
ND__INTEGER_LOOPS(i64, int64_t)
#else
ND__CONVERT_LOOP(i64_to_f32_of_any, int64_t, float, (float)x)
ND__CONVERT_LOOP(i64_to_f64_of_any, int64_t, double, (double)x)
ND__CONVERT_LOOP(f32_to_i64_of_any, float, int64_t, nd__f32_to_i64(x))
ND__CONVERT_LOOP(f64_to_i64_of_any, double, int64_t, nd__f64_to_i64(x))
ND__BY_WAY_OF_32_BITS(i64_to_f32, int64_t, float, ND__INTEGER_FITS)
ND__BY_WAY_OF_32_BITS(i64_to_f64, int64_t, double, ND__INTEGER_FITS)
ND__BY_WAY_OF_32_BITS(f32_to_i64, float, int64_t, ND__FLOAT_FITS)
ND__BY_WAY_OF_32_BITS(f64_to_i64, double, int64_t, ND__FLOAT_FITS)
#endif
ND__CONVERT_LOOP(f32_to_f64, float, double, (double)x)
ND__CONVERT_LOOP(f64_to_f32, double, float, (float)x)
ND__CONVERT_LOOP(f32_to_b8, float, uint8_t, nd__f32_to_b8(x))
ND__CONVERT_LOOP(f64_to_b8, double, uint8_t, nd__f64_to_b8(x))

// --------------------------------------------------------------------------------------- 16-bit floats

ND__CONVERT_LOOP(half_to_b8, uint16_t, uint8_t, (x & 0x7FFF) != 0)
ND__CONVERT_LOOP(bf16_to_f32, uint16_t, float, nd__bf16_to_f32(x))
ND__CONVERT_LOOP(f64_to_f32_odd_always, double, float, nd__f64_to_f32_odd(x))
ND__CONVERT_LOOP(i64_to_f64_odd, int64_t, double, nd__i64_to_f64_odd(x))
ND__CONVERT_LOOP(u64_to_f64_odd, uint64_t, double, nd__u64_to_f64_odd(x))

#define ND__HALF_LOOP(name, F, O, CONVERT, MANY)                           \
    static void name(int64_t n, char *const *data, const int64_t *strides, \
                     const nd_op_attrs *attrs) {                           \
        (void)attrs;                                                       \
        O *out = (O *)data[0];                                             \
        const F *in = (const F *)data[1];                                  \
        if (strides[0] == 1 && strides[1] == 1)                            \
            MANY(n, in, out);                                              \
        else                                                               \
            for (int64_t i = 0; i < n; i++)                                \
                out[i * strides[0]] = CONVERT(in[i * strides[1]]);         \
    }
ND__HALF_LOOP(f16_to_f32, uint16_t, float, nd__f16_to_f32, nd__f16_read)
ND__HALF_LOOP(f32_to_f16, float, uint16_t, nd__f32_to_f16, nd__f16_write)
ND__HALF_LOOP(f32_to_bf16, float, uint16_t, nd__f32_to_bf16, nd__bf16_write)

/// nd__f64_to_f32_odd of a number that is no subnormal f32: without the digits that an f32 does not
/// have, the last of the others odd where one of them was not 0.
static inline float f64_to_normal_f32_odd(double x) {
    uint64_t bits, lost = ((uint64_t)1 << 29) - 1;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & ~lost) | (bits & lost ? lost + 1 : 0);
    memcpy(&x, &bits, sizeof x);
    return (float)x;
}
ND__CONVERT_LOOP(f64_to_f32_odd_normal, double, float, f64_to_normal_f32_odd(x))

static void f64_to_f32_odd(int64_t n, char *const *data, const int64_t *strides,
                           const nd_op_attrs *attrs) {
    const double *in = (const double *)data[1];
    int subnormal = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = in[i * strides[1]], magnitude = x < 0.0 ? -x : x;
        subnormal |= (magnitude < 0x1p-126) & (magnitude > 0.0);
    }
    (subnormal ? f64_to_f32_odd_always : f64_to_f32_odd_normal)(n, data, strides, attrs);
}

/// An integer of 32 bits as an f32 from which 16-bit floats are rounded as from it: where it has
/// more digits than an f32, the lowest are one.
#define ND__ODD_INTEGER(T, name)                                     \
    static inline float name##_as_odd_f32(T x) {                     \
        T odd = (T)((x & ~(T)511) | (x & 511 ? (T)256 : (T)0));      \
        T limit = (T)1 << 24;                                        \
        bool exact = x <= limit && ((T)-1 > (T)0 || x >= (T)-limit); \
        return (float)(exact ? x : odd);                             \
    }                                                                \
    ND__CONVERT_LOOP(name##_to_f32_odd, T, float, name##_as_odd_f32(x))
ND__ODD_INTEGER(int32_t, i32)
ND__ODD_INTEGER(uint32_t, u32)

// ------------------------------------------------------------------------------------ through a block

#define ND__BLOCK 256

/// Runs `first` into a block of elements and `second` out of it.
static void through(int64_t n, char *const *data, const int64_t *strides, nd__loop first,
                    int64_t in_bytes, nd__loop second, int64_t out_bytes) {
    _Alignas(64) double block[ND__BLOCK]; // no element is wider
    const int64_t in_strides[2] = {1, strides[1]}, out_strides[2] = {strides[0], 1};
    char *to_block[2] = {(char *)block, data[1]}, *from_block[2] = {data[0], (char *)block};
    for (int64_t done = 0; done < n; done += ND__BLOCK) {
        if (done > 0) { // the stride of a single element may be any number
            to_block[1] += ND__BLOCK * strides[1] * in_bytes;
            from_block[0] += ND__BLOCK * strides[0] * out_bytes;
        }
        int64_t run = n - done < ND__BLOCK ? n - done : ND__BLOCK;
        first(run, to_block, in_strides, NULL);
        second(run, from_block, out_strides, NULL);
    }
}
#define ND__THROUGH(name, F, first, O, second)                                            \
    static void name(int64_t n, char *const *data, const int64_t *strides,                \
                     const nd_op_attrs *attrs) {                                          \
        (void)attrs;                                                                      \
        through(n, data, strides, first, (int64_t)sizeof(F), second, (int64_t)sizeof(O)); \
    }

// f64 at once, where the instruction set has vectors for it and both sides are dense.
#ifdef ND__WIDE_HALVES_AT_ONCE
#define ND__WIDE_HALF(name, F, first, O, second, MANY)                     \
    ND__THROUGH(name##_in_blocks, F, first, O, second)                     \
    static void name(int64_t n, char *const *data, const int64_t *strides, \
                     const nd_op_attrs *attrs) {                           \
        if (strides[0] == 1 && strides[1] == 1)                            \
            MANY(n, (const F *)data[1], (O *)data[0]);                     \
        else                                                               \
            name##_in_blocks(n, data, strides, attrs);                     \
    }
#else
#define ND__WIDE_HALF(name, F, first, O, second, MANY) ND__THROUGH(name, F, first, O, second)
#endif

#define ND__FROM_HALF(half)                                                   \
    ND__WIDE_HALF(half##_to_f64, uint16_t, half##_to_f32, double, f32_to_f64, \
                  nd__##half##_read_wide)                                     \
    ND__THROUGH(half##_to_u8, uint16_t, half##_to_f32, uint8_t, f32_to_u8)    \
    ND__THROUGH(half##_to_u16, uint16_t, half##_to_f32, uint16_t, f32_to_u16) \
    ND__THROUGH(half##_to_u32, uint16_t, half##_to_f32, uint32_t, f32_to_u32) \
    ND__THROUGH(half##_to_u64, uint16_t, half##_to_f32, uint64_t, f32_to_u64) \
    ND__THROUGH(half##_to_i8, uint16_t, half##_to_f32, int8_t, f32_to_i8)     \
    ND__THROUGH(half##_to_i16, uint16_t, half##_to_f32, int16_t, f32_to_i16)  \
    ND__THROUGH(half##_to_i32, uint16_t, half##_to_f32, int32_t, f32_to_i32)  \
    ND__THROUGH(half##_to_i64, uint16_t, half##_to_f32, int64_t, f32_to_i64)
ND__FROM_HALF(f16)
ND__FROM_HALF(bf16)
ND__THROUGH(f16_to_bf16, uint16_t, f16_to_f32, uint16_t, f32_to_bf16)
ND__THROUGH(bf16_to_f16, uint16_t, bf16_to_f32, uint16_t, f32_to_f16)

// Wider integers than an f32 holds are rounded to odd.
#define ND__TO_HALF(half)                                                         \
    ND__WIDE_HALF(f64_to_##half, double, f64_to_f32_odd, uint16_t, f32_to_##half, \
                  nd__##half##_write_wide)                                        \
    ND__THROUGH(u8_to_##half, uint8_t, u8_to_f32, uint16_t, f32_to_##half)        \
    ND__THROUGH(u16_to_##half, uint16_t, u16_to_f32, uint16_t, f32_to_##half)     \
    ND__THROUGH(u32_to_##half, uint32_t, u32_to_f32_odd, uint16_t, f32_to_##half) \
    ND__THROUGH(u64_to_##half, uint64_t, u64_to_f64_odd, uint16_t, f64_to_##half) \
    ND__THROUGH(i8_to_##half, int8_t, i8_to_f32, uint16_t, f32_to_##half)         \
    ND__THROUGH(i16_to_##half, int16_t, i16_to_f32, uint16_t, f32_to_##half)      \
    ND__THROUGH(i32_to_##half, int32_t, i32_to_f32_odd, uint16_t, f32_to_##half)  \
    ND__THROUGH(i64_to_##half, int64_t, i64_to_f64_odd, uint16_t, f64_to_##half)
ND__TO_HALF(f16)
ND__TO_HALF(bf16)

// ------------------------------------------------------------------------------------------ the table

#define ND__TO_FLOATS(from)                                                         \
    [ND_F16] = from##_to_f16, [ND_BF16] = from##_to_bf16, [ND_F32] = from##_to_f32, \
    [ND_F64] = from##_to_f64
#define ND__FROM_INTEGER(from, bits, to8, to16, to32, to64)                                  \
    {                                                                                        \
        [ND_BOOL] = any_##bits##_to_b8, [ND_U8] = to8, [ND_I8] = to8, [ND_U16] = to16,       \
        [ND_I16] = to16, [ND_U32] = to32, [ND_I32] = to32, [ND_U64] = to64, [ND_I64] = to64, \
        ND__TO_FLOATS(from)                                                                  \
    }
#define ND__TO_INTEGERS(from)                                                   \
    [ND_U8] = from##_to_u8, [ND_U16] = from##_to_u16, [ND_U32] = from##_to_u32, \
    [ND_U64] = from##_to_u64, [ND_I8] = from##_to_i8, [ND_I16] = from##_to_i16, \
    [ND_I32] = from##_to_i32, [ND_I64] = from##_to_i64
// A float to itself is a copy of its bits.
#define f16_to_f16 u16_to_16
#define bf16_to_bf16 u16_to_16
#define f32_to_f32 u32_to_32
#define f64_to_f64 u64_to_64

const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT] = {
    [ND_BOOL] = ND__FROM_INTEGER(u8, 8, u8_to_8, u8_to_16, u8_to_32, u8_to_64),
    [ND_U8] = ND__FROM_INTEGER(u8, 8, u8_to_8, u8_to_16, u8_to_32, u8_to_64),
    [ND_U16] = ND__FROM_INTEGER(u16, 16, u16_to_8, u16_to_16, u16_to_32, u16_to_64),
    [ND_U32] = ND__FROM_INTEGER(u32, 32, u32_to_8, u32_to_16, u32_to_32, u32_to_64),
    [ND_U64] = ND__FROM_INTEGER(u64, 64, u64_to_8, u64_to_16, u64_to_32, u64_to_64),
    [ND_I8] = ND__FROM_INTEGER(i8, 8, u8_to_8, i8_to_16, i8_to_32, i8_to_64),
    [ND_I16] = ND__FROM_INTEGER(i16, 16, u16_to_8, u16_to_16, i16_to_32, i16_to_64),
    [ND_I32] = ND__FROM_INTEGER(i32, 32, u32_to_8, u32_to_16, u32_to_32, i32_to_64),
    [ND_I64] = ND__FROM_INTEGER(i64, 64, u64_to_8, u64_to_16, u64_to_32, u64_to_64),
    [ND_F16] = {[ND_BOOL] = half_to_b8, ND__TO_INTEGERS(f16), ND__TO_FLOATS(f16)},
    [ND_BF16] = {[ND_BOOL] = half_to_b8, ND__TO_INTEGERS(bf16), ND__TO_FLOATS(bf16)},
    [ND_F32] = {[ND_BOOL] = f32_to_b8, ND__TO_INTEGERS(f32), ND__TO_FLOATS(f32)},
    [ND_F64] = {[ND_BOOL] = f64_to_b8, ND__TO_INTEGERS(f64), ND__TO_FLOATS(f64)},
};
