// Copies of a row with conversion, one loop per pair of dtypes (definitions: convert.h).
#include "kernels/cpu/rows.h"

#define ND__CONVERT_LOOP(from, F, to, O)                                                       \
    static void convert_##from##_to_##to(int64_t n, char *const *data, const int64_t *strides, \
                                         const nd_op_attrs *attrs) {                           \
        (void)attrs;                                                                           \
        O *out = (O *)data[0];                                                                 \
        const F *x = (const F *)data[1];                                                       \
        if (strides[0] == 1 && strides[1] == 1) {                                              \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {                                  \
                out[i] = nd__##from##_to_##to(x[i]);                                           \
            }                                                                                  \
        } else {                                                                               \
            for (int64_t i = 0; i < n; i++)                                                    \
                out[i * strides[0]] = nd__##from##_to_##to(x[i * strides[1]]);                 \
        }                                                                                      \
    }
#define ND__CONVERT_LOOPS(from, F)          \
    ND__CONVERT_LOOP(from, F, b8, uint8_t)  \
    ND__CONVERT_LOOP(from, F, u8, uint8_t)  \
    ND__CONVERT_LOOP(from, F, i32, int32_t) \
    ND__CONVERT_LOOP(from, F, i64, int64_t) \
    ND__CONVERT_LOOP(from, F, f32, float)   \
    ND__CONVERT_LOOP(from, F, f64, double)
ND__CONVERT_LOOPS(b8, uint8_t)
ND__CONVERT_LOOPS(u8, uint8_t)
ND__CONVERT_LOOPS(i32, int32_t)
ND__CONVERT_LOOPS(i64, int64_t)
ND__CONVERT_LOOPS(f32, float)
ND__CONVERT_LOOPS(f64, double)

#define ND__CONVERT_ROW(from)                                                   \
    {                                                                           \
        [ND_BOOL] = convert_##from##_to_b8, [ND_U8] = convert_##from##_to_u8,   \
        [ND_I32] = convert_##from##_to_i32, [ND_I64] = convert_##from##_to_i64, \
        [ND_F32] = convert_##from##_to_f32, [ND_F64] = convert_##from##_to_f64, \
    }
const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT] = {
    [ND_BOOL] = ND__CONVERT_ROW(b8), [ND_U8] = ND__CONVERT_ROW(u8),
    [ND_I32] = ND__CONVERT_ROW(i32), [ND_I64] = ND__CONVERT_ROW(i64),
    [ND_F32] = ND__CONVERT_ROW(f32), [ND_F64] = ND__CONVERT_ROW(f64),
};
