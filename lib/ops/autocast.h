// Autocast: inside a block, products take their operands in a half, and what needs the range of f32
// takes halves as f32.
//
// Invariant: an operation asks once, at its very beginning, and runs with autocast suspended, so
// that what it is made of is not cast again.
#ifndef ND_LIB_OPS_AUTOCAST_H
#define ND_LIB_OPS_AUTOCAST_H
#include "lib/tensor/tensor.h"
#include <nd/autocast.h>

/// The dtype of the innermost block of this thread; f32 outside.
extern _Thread_local nd_dtype nd__autocast_dtype;

/// x retained, or cast (recorded) to the block's dtype when it is another float of at most 32 bits.
/// NULL gives NULL.
nd_tensor *nd__autocast_lower(const nd_tensor *x);
/// x retained, or cast (recorded) to f32 when it is a half. NULL gives NULL.
nd_tensor *nd__autocast_raise(const nd_tensor *x);

/// The dtype that a result of this dtype gets: f32 inside a block when it is a half. For a
/// composition that computes in f32 anyway.
static inline nd_dtype nd__autocast_result(nd_dtype dtype) {
    return nd__autocast_dtype != ND_F32 && nd__dtype_is_half(dtype) ? ND_F32 : dtype;
}

/// Whether all operands that there are can be used: the operation itself refuses the others.
static inline bool nd__autocast_takes(const nd_tensor *a, const nd_tensor *b, const nd_tensor *c) {
    return nd__tensor_is_usable(a) && (!b || nd__tensor_is_usable(b)) &&
           (!c || nd__tensor_is_usable(c));
}

/// At the beginning of an operation of one to three operands (the third may be NULL): `call` is the
/// operation itself, with x0, x1, x2 for them.
#define ND__AUTOCAST(cast, a, b, c, call)                                                   \
    if (__builtin_expect(nd__autocast_dtype != ND_F32, 0) && nd__autocast_takes(a, b, c)) { \
        nd_auto nd_tensor *x0 = nd__autocast_##cast(a);                                     \
        nd_auto nd_tensor *x1 = nd__autocast_##cast(b);                                     \
        nd_auto nd_tensor *x2 = nd__autocast_##cast(c);                                     \
        if (!x0 || (!x1 && (b)) || (!x2 && (c)))                                            \
            return NULL;                                                                    \
        nd_autocast_block block = nd__autocast_block_begin(ND_F32);                         \
        nd_tensor *result = (call);                                                         \
        nd__autocast_block_end(&block);                                                     \
        return result;                                                                      \
    }
#endif
