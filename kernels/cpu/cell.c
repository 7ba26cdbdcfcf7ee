// Steps of recurrent nets and their gradients: hands rows to the loops, on several threads.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

typedef struct cell_work {
    const nd_kernel_call *call;
    nd__cell_loop loop;
} cell_work;

static void some_rows(void *context, int64_t begin, int64_t end) {
    const cell_work *work = (const cell_work *)context;
    work->loop(work->call, begin, end);
}

nd_status nd__cpu_cell(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    const nd__cell_loops *loops = &nd__cpu_loops_now()->cell[type];
    bool forward = call->op == ND_OP_recurrent_cell;
    cell_work work = {call, forward ? loops->forward : loops->backward};
    // Three exponentials of an element, in additions of floats.
    int64_t cost = type == 0 ? 16 : 48;
    nd__cpu_parallel(call->attrs.i[1], call->attrs.i[2] * cost, 1, some_rows, &work);
    return ND_OK;
}
