// The one way in which a call of linear algebra is run and recorded.
#ifndef ND_LIB_OPS_LINALG_RUN_H
#define ND_LIB_OPS_LINALG_RUN_H
#include "kernels/cpu/linalg.h"
#include "lib/tensor/tensor.h"

/// Computes `call`, of which the operation and its options are set, of inputs with the same batch, and
/// records it: [batch, tail], where the inputs are. By their device, where that has a kernel; else they
/// are brought to the host, recorded, and the result back.
nd_tensor *nd__linalg_run(const char *name, nd__linalg_call *call, const nd_tensor *const *inputs,
                          size_t count, int tail, const int64_t *tail_shape,
                          const nd_op_attrs *attrs);
#endif
