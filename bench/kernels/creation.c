// Calls that make tensors of nothing.
#include "bench/kernels/calls.h"

#define CALLS(CALL)                                                                  \
    CALL(zeros, nd_zeros(ND_SHAPE(in->n, in->n), ND_F32))                            \
    CALL(full, nd_full(ND_SHAPE(in->n, in->n), 2.5, ND_F32))                         \
    CALL(arange, nd_arange(0, in->n * in->n, 1, ND_I64))                             \
    CALL(arange_f32, nd_arange(0.0, (double)(in->n * in->n), 1.0, ND_F32))           \
    CALL(linspace, nd_linspace(0, 1, in->n * in->n, ND_F32))                         \
    CALL(rand, nd_rand(nd_key_new(1), ND_SHAPE(in->n, in->n), ND_F32))               \
    CALL(randn, nd_randn(nd_key_new(1), ND_SHAPE(in->n, in->n), ND_F32))             \
    CALL(randint, nd_randint(nd_key_new(1), 0, 100, ND_SHAPE(in->n, in->n), ND_I64)) \
    CALL(randperm, nd_randperm(nd_key_new(1), in->n * in->n))                        \
    CALL(dropout, nd_dropout(in->x, nd_key_new(1), 0.5, true))

CALLS(FORWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_FORWARD)};
const kernel_calls creation_calls = KERNEL_CALLS(rows);
