// max_pool2d: the largest element of each window and where in its plane it stands. NaN wins; of equal
// elements the first.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

typedef struct pool_work {
    const nd_kernel_call *call;
} pool_work;

#define POOL_PLANES(T)                                                                     \
    static void pool_planes_##T(void *context, int64_t begin, int64_t end) {               \
        const nd_kernel_call *call = ((const pool_work *)context)->call;                   \
        const int64_t *attrs = call->attrs.i;                                              \
        int64_t h = attrs[2], w = attrs[3], kernel = attrs[4], stride = attrs[5];          \
        int64_t out_h = attrs[6], out_w = attrs[7];                                        \
        T *out = (T *)call->operand[0].data + begin * out_h * out_w;                       \
        int64_t *positions = (int64_t *)call->operand[1].data + begin * out_h * out_w;     \
        for (int64_t plane = begin; plane < end; plane++) {                                \
            const T *x = (const T *)call->operand[2].data + plane * h * w;                 \
            for (int64_t row = 0; row < out_h; row++)                                      \
                for (int64_t column = 0; column < out_w; column++) {                       \
                    int64_t first = row * stride * w + column * stride, best = first;      \
                    T largest = x[first];                                                  \
                    for (int64_t y = 0; y < kernel; y++)                                   \
                        for (int64_t i = 0; i < kernel; i++) {                             \
                            int64_t at = first + y * w + i;                                \
                            T value = x[at];                                               \
                            bool better =                                                  \
                                value > largest || (value != value && largest == largest); \
                            best = better ? at : best;                                     \
                            largest = better ? value : largest;                            \
                        }                                                                  \
                    *out++ = largest;                                                      \
                    *positions++ = best;                                                   \
                }                                                                          \
        }                                                                                  \
    }
POOL_PLANES(float)
POOL_PLANES(double)

nd_status nd__cpu_max_pool2d(const nd_kernel_call *call) {
    const int64_t *attrs = call->attrs.i;
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    pool_work work = {call};
    int64_t cost = attrs[6] * attrs[7] * attrs[4] * attrs[4];
    nd__cpu_parallel(attrs[0] * attrs[1], cost, 1,
                     type == 0 ? pool_planes_float : pool_planes_double, &work);
    return ND_OK;
}
