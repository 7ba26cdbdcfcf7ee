// The table of one instruction set's loops.
#include "kernels/cpu/isa.h"

extern const nd__loop *const ND_ISA_NAME(nd__cpu_unary)[ND_DTYPE_COUNT];
extern const nd__loop *const ND_ISA_NAME(nd__cpu_binary)[ND_DTYPE_COUNT];
extern const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT];
extern const nd__reducer *const ND_ISA_NAME(nd__cpu_reducers)[ND__FOLDS][ND_DTYPE_COUNT];
extern const nd__argreducer ND_ISA_NAME(nd__cpu_argreducers)[ND_DTYPE_COUNT][2];
extern const nd__softmax_loops ND_ISA_NAME(nd__cpu_softmax)[2];
extern const nd__quantized_loops ND_ISA_NAME(nd__cpu_quantized_loops)[2];
extern const nd__matmul ND_ISA_NAME(nd__cpu_matmul)[ND_DTYPE_COUNT];

void ND_ISA_NAME(nd__cpu_stream)(void *to, const void *from, int64_t bytes);

#define ND__TEXT_(name) #name
#define ND__TEXT(name) ND__TEXT_(name)

const nd__cpu_loops ND_ISA_NAME(nd__cpu_loops) = {
    .name = ND__TEXT(ND_ISA),
    .unary = ND_ISA_NAME(nd__cpu_unary),
    .binary = ND_ISA_NAME(nd__cpu_binary),
    .convert = ND_ISA_NAME(nd__cpu_convert),
    .reducers = ND_ISA_NAME(nd__cpu_reducers),
    .argreducers = ND_ISA_NAME(nd__cpu_argreducers),
    .softmax = ND_ISA_NAME(nd__cpu_softmax),
    .quantized = ND_ISA_NAME(nd__cpu_quantized_loops),
    .matmul = ND_ISA_NAME(nd__cpu_matmul),
    .stream = ND_ISA_NAME(nd__cpu_stream),
};
