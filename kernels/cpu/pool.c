// max_pool2d and its kin: shares planes between threads (pool_loops.c says what is computed).
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/windows.h"

typedef struct pool_work {
    const nd_kernel_call *call;
    nd__pool_planes planes;
} pool_work;

static void pool_planes(void *context, int64_t begin, int64_t end) {
    const pool_work *work = (const pool_work *)context;
    work->planes(work->call, begin, end);
}

nd_status nd__cpu_pool(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0 || call->op != ND_OP_max_pool)
        return ND_ERROR_UNSUPPORTED;
    pool_work work = {call, nd__cpu_loops_now()->pool[type]};
    int64_t cost = 1;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        nd__pool_axis of = nd__pool_axis_of(call, axis);
        int64_t reach = of.kernel > 0 ? of.kernel : (of.size - 1) / of.out + 1;
        cost *= of.out * (reach < of.size ? reach : of.size); // what is beyond x costs nothing
    }
    nd__cpu_parallel(call->shape[0], cost, 1, pool_planes, &work);
    return ND_OK;
}
