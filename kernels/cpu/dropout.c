// DROPOUT: random numbers, the factors that they decide on, and their products with x, block by block.
//
// The numbers are those of rand in f32 (kernels/philox.h), so that the elements which are dropped are
// those of every other backend. A block's never leave the nearest cache.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

/// Elements whose numbers are made at once.
#define BLOCK (4 * ND__RANDOM_BLOCKS)

typedef struct dropout_work {
    const char *x; ///< dense
    char *out;
    nd_dtype dtype;
    const nd_op_attrs *attrs;
    int64_t total;
    double scale;
} dropout_work;

/// out = x times factors, which are of `wide`.
static void multiply(nd_dtype dtype, nd_dtype wide, int64_t n, const char *x, const char *factors,
                     char *out) {
    static const int64_t dense[] = {1, 1, 1};
    static const nd_op_attrs no_numbers;
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    float read[BLOCK];
    char *from = (char *)(uintptr_t)x, *to = dtype == wide ? out : (char *)read;
    if (dtype != wide) {
        loops->convert[dtype][wide](n, (char *[]){to, from}, dense, NULL);
        from = to;
    }
    char *const operands[] = {to, from, (char *)(uintptr_t)factors};
    loops->binary[wide][ND_OP_mul](n, operands, dense, &no_numbers);
    if (dtype != wide)
        loops->convert[wide][dtype](n, (char *[]){out, to}, dense, NULL);
}

/// Blocks begin ... end - 1; the tensor's last may be cut.
static void drop_blocks(void *context, int64_t begin, int64_t end) {
    const dropout_work *work = (const dropout_work *)context;
    const nd__create_loops *loops = nd__cpu_loops_now()->create;
    const nd_dtype wide = work->dtype == ND_F64 ? ND_F64 : ND_F32;
    const int64_t bytes = nd__dtype_bytes(work->dtype), *key = work->attrs->i;
    _Alignas(64) float numbers[BLOCK];
    _Alignas(64) char factors[BLOCK * sizeof(double)];
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * BLOCK, left = work->total - first;
        const int64_t n = left < BLOCK ? left : BLOCK;
        loops->uniform_f32((uint64_t)key[0], (uint64_t)key[1], (uint64_t)block * ND__RANDOM_BLOCKS,
                           numbers);
        loops->keep[nd__float_index(wide)](numbers, n, (float)work->attrs->f[0], work->scale,
                                           factors);
        multiply(work->dtype, wide, n, work->x + first * bytes, factors, work->out + first * bytes);
    }
}

nd_status nd__cpu_dropout(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    const double p = call->attrs.f[0];
    if (nd__float_index(out->dtype) < 0 && out->dtype != ND_F16 && out->dtype != ND_BF16)
        return ND_ERROR_UNSUPPORTED;
    dropout_work work = {.x = (const char *)x->data,
                         .out = (char *)out->data,
                         .dtype = out->dtype,
                         .attrs = &call->attrs,
                         .total = nd__call_total(call),
                         // Where all are dropped no number is 1 / 0.
                         .scale = p < 1.0 ? 1.0 / (1.0 - p) : 1.0};
    int64_t dense = 1;
    bool lies_as_out = true;
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        lies_as_out = lies_as_out && (call->shape[axis] == 1 || x->strides[axis] == dense);
        dense *= call->shape[axis];
    }
    if (!lies_as_out) {
        nd_kernel_call copy = *call;
        copy.op = ND_OP_clone;
        nd_status status = nd__cpu_copy(&copy);
        if (status != ND_OK)
            return status;
        work.x = work.out;
    }
    nd__cpu_parallel((work.total + BLOCK - 1) / BLOCK, 3 * BLOCK, 1, drop_blocks, &work);
    return ND_OK;
}
