// What the operations of this package share: checks of operands, dtype rules, and the one way an
// elementwise kernel is run.
//
// Every helper that can fail has set an error when it does. A helper that returns a tensor returns
// it owned. `name` is the operation's name as errors begin with it.
#ifndef ND_LIB_OPS_OPERANDS_H
#define ND_LIB_OPS_OPERANDS_H
#include "lib/tensor/node.h"
#include "lib/tensor/number.h"
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// What dtypes an operation takes and computes in.
typedef enum nd_dtype_rule {
    ND__ANY,     ///< all; operands are promoted
    ND__NUMBER,  ///< all but bool; promoted
    ND__FLOAT,   ///< all but bool; promoted, integers then become f32
    ND__INTEGER, ///< integers only; promoted
    ND__BITS,    ///< integers, or bool only; promoted
    ND__BOOL,    ///< bool only
} nd_dtype_rule;

static inline bool nd__operands_same_device(const nd_tensor *a, const nd_tensor *b) {
    return a->device.kind == b->device.kind && a->device.index == b->device.index;
}
static inline bool nd__operands_same_shape(const nd_tensor *a, const nd_tensor *b) {
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/// Says what is wrong with a pair that nd__operands_check_pair refuses.
__attribute__((cold)) nd_status nd__operands_refuse_pair(const char *name, const char *a_name,
                                                         const nd_tensor *a, const char *b_name,
                                                         const nd_tensor *b);
/// Both usable and on one device.
static inline nd_status nd__operands_check_pair(const char *name, const char *a_name,
                                                const nd_tensor *a, const char *b_name,
                                                const nd_tensor *b) {
    bool fine =
        nd__tensor_is_usable(a) && nd__tensor_is_usable(b) && nd__operands_same_device(a, b);
    return __builtin_expect(fine, 1) ? ND_OK : nd__operands_refuse_pair(name, a_name, a, b_name, b);
}

/// nd_promote_dtypes, or an error.
nd_status nd__operands_promote(const char *name, const nd_tensor *a, const nd_tensor *b,
                               nd_dtype *ret_dtype);

/// dtype that a rule computes in for operands promoted to `dtype`. An error names a's and b's
/// dtypes (b may be NULL).
nd_status nd__operands_apply_rule(const char *name, nd_dtype_rule rule, const nd_tensor *a,
                                  const nd_tensor *b, nd_dtype *ret_dtype);

/// x, retained, or a recorded cast.
static inline nd_tensor *nd__operands_as_dtype(const nd_tensor *x, nd_dtype dtype) {
    return x->dtype == dtype ? nd_retain(x) : nd_cast(x, dtype);
}

/// x, retained, or an unrecorded contiguous copy in `dtype`: for kernels that want dense memory.
/// What is recorded is x itself.
nd_tensor *nd__operands_dense(const char *name, const nd_tensor *x, nd_dtype dtype);

/// x on the host, where what no device has a kernel for is computed: retained, or copied, recorded.
/// NULL gives NULL.
nd_tensor *nd__operands_to_host(const char *name, const nd_tensor *x);
/// x (consumed) on the device of `like`. NULL gives NULL.
nd_tensor *nd__operands_to_device_of(const char *name, const nd_tensor *like, nd_tensor *x);

/// x (consumed), or a copy where it shares memory with `of`: a result that is new whatever the
/// arguments were. NULL gives NULL.
nd_tensor *nd__operands_own(nd_tensor *x, const nd_tensor *of);

/// An error unless nd__number_held.
nd_status nd__operands_check_number(const char *name, nd_dtype dtype, nd_number value);

/// 0-d tensor beside x: its device and manager.
nd_tensor *nd__operands_number_like(const char *name, const nd_tensor *x, nd_dtype dtype,
                                    nd_number value);

/// Bit mask of the axes of a reduction (naxes 0: all); -1 with an error.
int nd__operands_axes_mask(const char *name, const nd_tensor *x, int naxes, const int *axes);

/// 0, 1, ... in row-major order, i64, beside x.
nd_tensor *nd__operands_counted(const char *name, const nd_tensor *x, int ndim,
                                const int64_t *shape);

/// Runs an elementwise op over broadcast inputs that already have the dtypes the kernel wants, into
/// `out` (NULL: a new tensor), and records it. attrs may be NULL.
nd_tensor *nd__operands_elementwise_to(nd_tensor *out, nd_op op, const nd_tensor *const *inputs,
                                       int count, nd_dtype dtype, const nd_op_attrs *attrs);
static inline nd_tensor *nd__operands_elementwise(nd_op op, const nd_tensor *const *inputs,
                                                  int count, nd_dtype dtype,
                                                  const nd_op_attrs *attrs) {
    return nd__operands_elementwise_to(NULL, op, inputs, count, dtype, attrs);
}

/// Axes of x but one as the iteration space, collapsed, then that axis last. The call's first two
/// operands are set: `out` (broadcast over the axis when it lacks it or has size 1) and x.
void nd__operands_call_along_axis(nd_kernel_call *call, nd_op op, const nd_operand *out,
                                  const nd_tensor *x, int axis);
/// The same of any number of operands, which are set already and have x's shape.
void nd__operands_axis_last(nd_kernel_call *call, nd_op op, int noperands, const nd_tensor *x,
                            int axis);

/// Runs the call and records it onto `result`, which it consumes; NULL on error.
nd_tensor *nd__operands_run(const char *name, nd_tensor *result, const nd_kernel_call *call,
                            const nd_tensor *const *inputs, size_t count, const nd_op_attrs *attrs);
#endif
