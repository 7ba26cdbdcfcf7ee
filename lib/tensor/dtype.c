// Element types: sizes, names, promotion.
#include "lib/tensor/dtype.h"
#include <nd/tensor.h>

const uint8_t nd__dtype_bytes[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = sizeof(T),
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

const uint8_t nd__dtype_kinds[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = ND__DTYPE_##kind,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

static const char *const names[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = text,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

size_t nd_dtype_get_size(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? nd__dtype_bytes[dtype] : 0;
}

const char *nd_dtype_get_name(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? names[dtype] : "invalid";
}

static nd_dtype wider(nd_dtype a, nd_dtype b) {
    return nd__dtype_bytes[a] >= nd__dtype_bytes[b] ? a : b;
}

/// The least signed integer that holds both; there is none beside u64.
static nd_dtype signed_for(nd_dtype has_sign, nd_dtype has_none) {
    static const nd_dtype above[] = {
        [1] = ND_I16, [2] = ND_I32, [4] = ND_I64, [8] = ND_DTYPE_COUNT};
    if (nd__dtype_bytes[has_sign] > nd__dtype_bytes[has_none])
        return has_sign;
    return above[nd__dtype_bytes[has_none]];
}

nd_dtype nd_promote_dtypes(nd_dtype a, nd_dtype b) {
    if ((unsigned)a >= ND_DTYPE_COUNT || (unsigned)b >= ND_DTYPE_COUNT)
        return ND_DTYPE_COUNT;
    nd__dtype_kind a_kind = nd__dtype_kinds[a], b_kind = nd__dtype_kinds[b];
    if (a == b)
        return a;
    if (a_kind == b_kind) // two floats of 16 bits have different ranges and digits
        return nd__dtype_is_half(a) && nd__dtype_is_half(b) ? ND_F32 : wider(a, b);
    if (a_kind == ND__DTYPE_FLOAT || b_kind == ND__DTYPE_BOOL)
        return a;
    if (b_kind == ND__DTYPE_FLOAT || a_kind == ND__DTYPE_BOOL)
        return b;
    return a_kind == ND__DTYPE_SIGNED ? signed_for(a, b) : signed_for(b, a);
}
