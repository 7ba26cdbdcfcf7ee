// matmul and linear: a product per batch entry.
//
// f32 goes to oneDNN's sgemm unless it is so small that the call costs more than the work; the rest to
// the portable product. Threads share the batch when there are many small products, else each product is
// shared.
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"

/// Multiplications up to which the portable product beats a library call.
#define SMALL_PRODUCT 16384
/// And up to which waking other threads costs the library more than they give.
#define SERIAL_PRODUCT ((int64_t)1 << 20)

typedef struct matmul_work {
    const nd_kernel_call *call;
    int64_t bytes;
    nd__matmul portable;
    bool library;
} matmul_work;

static void products(void *context, int64_t begin, int64_t end) {
    const matmul_work *work = (const matmul_work *)context;
    const nd_kernel_call *call = work->call;
    const int64_t *attrs = call->attrs.i;
    for (int64_t entry = begin; entry < end; entry++) {
        int64_t offset[3] = {0, 0, 0}, rest = entry;
        for (int axis = call->ndim - 1; axis >= 0; axis--) {
            int64_t index = rest % call->shape[axis];
            rest /= call->shape[axis];
            for (int i = 0; i < 3; i++)
                offset[i] += index * call->operand[i].strides[axis];
        }
        char *data[3];
        for (int i = 0; i < 3; i++)
            data[i] = (char *)call->operand[i].data + offset[i] * work->bytes;
        nd__product product = {.m = attrs[0],
                               .n = attrs[1],
                               .k = attrs[2],
                               .a = {data[1], attrs[3], attrs[4]},
                               .b = {data[2], attrs[5], attrs[6]},
                               .out = {data[0], attrs[7], attrs[8]},
                               .accumulate = call->attrs.f[0] != 0.0};
        if (!work->library || !nd__onednn_product(&product))
            work->portable(&product);
    }
}

nd_status nd__cpu_matmul(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    int64_t m = call->attrs.i[0], n = call->attrs.i[1], k = call->attrs.i[2];
    int64_t batch = nd__call_total(call), size = m * n * k;
    if (m == 0 || n == 0)
        return ND_OK;
    matmul_work work = {call, nd__dtype_bytes(call->operand[0].dtype),
                        nd__cpu_loops_now()->matmul[type], type == 0 && size > SMALL_PRODUCT};
    if (batch >= 4 && size < (int64_t)1 << 22)
        nd__cpu_parallel(batch, size / 16 + 16, 1, products, &work);
    else
        nd__cpu_with_threads(size <= SERIAL_PRODUCT ? 1 : 0, products, &work, batch);
    return ND_OK;
}
