// ATTENTION of few queries with few keys, each query by itself: what would be two dozen operations.
//
// Larger ones are left to lib/ops, whose matrix products are faster than the dots here.
#include "kernels/cpu/families.h"
#include <math.h>

/// Keys, and products in all, up to which the sums here are quicker than operations: 1.9 us for 9.0
/// with 2,048 products on a Zen 4, but 20 for 8 with 16,384.
#define MOST_KEYS 128
#define MOST_PRODUCTS ((int64_t)1 << 12)

/// One batch: its first elements, and sizes and strides as in kernels/kernel.h.
typedef struct attended {
    const nd_kernel_call *call;
    char *data[ND_MAX_OPERANDS];
} attended;

enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK };

#define ATTENTION(T, EXP, LOG)                                                                 \
    /* The score of a key that the mask hides is -infinity. */                                 \
    static T score_##T(const attended *a, int64_t row, int64_t key) {                          \
        const int64_t *i = a->call->attrs.i;                                                   \
        const T *q = (const T *)a->data[QUERY] + row * i[4];                                   \
        const T *k = (const T *)a->data[KEY] + key * i[5];                                     \
        int64_t seen = row * i[8] + key * i[9];                                                \
        T dot = 0;                                                                             \
        for (int64_t e = 0; e < i[2]; e++)                                                     \
            dot += q[e] * k[e];                                                                \
        dot *= (T)a->call->attrs.f[0];                                                         \
        if (i[10] && key > row)                                                                \
            return -(T)INFINITY;                                                               \
        if (!a->data[MASK])                                                                    \
            return dot;                                                                        \
        if (a->call->operand[MASK].dtype == ND_BOOL)                                           \
            return ((const uint8_t *)a->data[MASK])[seen] ? dot : -(T)INFINITY;                \
        return dot + ((const T *)a->data[MASK])[seen];                                         \
    }                                                                                          \
    static void attend_row_##T(const attended *a, int64_t row) {                               \
        const int64_t *i = a->call->attrs.i;                                                   \
        T powers[MOST_KEYS], largest = -(T)INFINITY, sum = 0;                                  \
        T *out = (T *)a->data[OUT] + row * i[7];                                               \
        for (int64_t key = 0; key < i[1]; key++) {                                             \
            powers[key] = score_##T(a, row, key);                                              \
            largest = powers[key] > largest ? powers[key] : largest;                           \
        }                                                                                      \
        T base = largest == -(T)INFINITY ? 0 : largest;                                        \
        for (int64_t key = 0; key < i[1]; key++)                                               \
            sum += powers[key] = EXP(powers[key] - base);                                      \
        for (int64_t column = 0; column < i[3]; column++)                                      \
            out[column] = 0;                                                                   \
        for (int64_t key = 0; key < i[1]; key++)                                               \
            for (int64_t column = 0; column < i[3]; column++)                                  \
                out[column] += powers[key] * ((const T *)a->data[VALUE])[key * i[6] + column]; \
        for (int64_t column = 0; column < i[3]; column++)                                      \
            out[column] /= sum == 0 ? 1 : sum;                                                 \
        T log_sum = LOG(sum) + largest;                                                        \
        ((T *)a->data[LOG_SUMS])[row] = log_sum == -(T)INFINITY ? (T)INFINITY : log_sum;       \
    }

ATTENTION(float, expf, logf)
ATTENTION(double, exp, log)

nd_status nd__cpu_attention(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    nd_dtype dtype = call->operand[OUT].dtype;
    int64_t batches = nd__call_total(call), products = batches * i[0] * i[1] * (i[2] + i[3]);
    if (nd__float_index(dtype) < 0 || i[1] > MOST_KEYS || products > MOST_PRODUCTS)
        return ND_ERROR_UNSUPPORTED;
    for (int64_t batch = 0; batch < batches; batch++) {
        attended a = {.call = call};
        for (int which = 0; which < call->noperands; which++) {
            const nd_operand *operand = &call->operand[which];
            int64_t rest = batch, offset = 0;
            for (int axis = call->ndim - 1; axis >= 0; axis--) {
                offset += rest % call->shape[axis] * operand->strides[axis];
                rest /= call->shape[axis];
            }
            a.data[which] = operand->data
                                ? (char *)operand->data + offset * nd__dtype_bytes(operand->dtype)
                                : NULL;
        }
        for (int64_t row = 0; row < i[0]; row++)
            if (dtype == ND_F32)
                attend_row_float(&a, row);
            else
                attend_row_double(&a, row);
    }
    return ND_OK;
}
