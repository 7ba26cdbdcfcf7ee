// Autocast: the block, and the casts.
#include "lib/ops/autocast.h"

_Thread_local nd_dtype nd__autocast_dtype = ND_F32;

nd_autocast_block nd__autocast_block_begin(nd_dtype dtype) {
    nd_autocast_block block = {.once = true, .previous = nd__autocast_dtype};
    if (dtype == ND_F16 || dtype == ND_BF16 || dtype == ND_F32) {
        nd__autocast_dtype = dtype;
    } else {
        nd__error(ND_ERROR_DTYPE,
                  "autocast: the dtype is %s; it must be bfloat16, float16 or "
                  "float32, and nothing is cast",
                  nd_dtype_get_name(dtype));
        nd__autocast_dtype = ND_F32;
    }
    return block;
}

void nd__autocast_block_end(nd_autocast_block *block) {
    nd__autocast_dtype = block->previous;
}

nd_dtype nd_get_autocast_dtype(void) {
    return nd__autocast_dtype;
}

nd_tensor *nd__autocast_lower(const nd_tensor *x) {
    if (!nd__tensor_is_usable(x))
        return NULL;
    const bool cast =
        (x->dtype == ND_F32 || nd__dtype_is_half(x->dtype)) && x->dtype != nd__autocast_dtype;
    return cast ? nd_cast(x, nd__autocast_dtype) : nd_retain(x);
}

nd_tensor *nd__autocast_raise(const nd_tensor *x) {
    if (!nd__tensor_is_usable(x))
        return NULL;
    return nd__dtype_is_half(x->dtype) ? nd_cast(x, ND_F32) : nd_retain(x);
}
