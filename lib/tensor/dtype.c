// Element types: sizes, names, promotion.
#include "lib/tensor/dtype.h"
#include <float.h>
#include <nd/tensor.h>

const uint8_t nd__dtype_bytes[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = sizeof(T),
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

const uint8_t nd__dtype_kinds[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = ND_KIND_##kind,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

static const char *const names[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = text,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
};

/// Where a format of floating-point numbers ends.
typedef struct float_limits {
    double max, epsilon, smallest_normal;
} float_limits;

static const float_limits limits[ND_DTYPE_COUNT] = {
    [ND_F64] = {DBL_MAX, DBL_EPSILON, DBL_MIN},
    [ND_F32] = {FLT_MAX, FLT_EPSILON, FLT_MIN},
    [ND_F16] = {65504, 0x1p-10, 0x1p-14},
    [ND_BF16] = {0x1.fep127, 0x1p-7, 0x1p-126},
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
    nd_dtype_kind a_kind = nd__dtype_kinds[a], b_kind = nd__dtype_kinds[b];
    if (a == b)
        return a;
    if (a_kind == b_kind) // two floats of 16 bits have different ranges and digits
        return nd__dtype_is_half(a) && nd__dtype_is_half(b) ? ND_F32 : wider(a, b);
    if (a_kind == ND_KIND_FLOAT || b_kind == ND_KIND_BOOL)
        return a;
    if (b_kind == ND_KIND_FLOAT || a_kind == ND_KIND_BOOL)
        return b;
    return a_kind == ND_KIND_SIGNED ? signed_for(a, b) : signed_for(b, a);
}

bool nd_can_cast(nd_dtype from, nd_dtype to) {
    return (unsigned)to < ND_DTYPE_COUNT && nd_promote_dtypes(from, to) == to;
}

nd_dtype_kind nd_dtype_get_kind(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? (nd_dtype_kind)nd__dtype_kinds[dtype] : ND_KIND_COUNT;
}

nd_number nd_dtype_get_max(nd_dtype dtype) {
    nd_dtype_kind kind = nd_dtype_get_kind(dtype);
    if (kind == ND_KIND_FLOAT)
        return ND_NUMBER(limits[dtype].max);
    if (kind == ND_KIND_BOOL || kind == ND_KIND_COUNT)
        return ND_NUMBER(kind == ND_KIND_BOOL);
    int bits = 8 * nd__dtype_bytes[dtype];
    return kind == ND_KIND_SIGNED ? ND_NUMBER(INT64_MAX >> (64 - bits))
                                  : ND_NUMBER(UINT64_MAX >> (64 - bits));
}

nd_number nd_dtype_get_min(nd_dtype dtype) {
    nd_dtype_kind kind = nd_dtype_get_kind(dtype);
    if (kind == ND_KIND_FLOAT)
        return ND_NUMBER(-limits[dtype].max);
    return kind == ND_KIND_SIGNED ? ND_NUMBER(-(INT64_MAX >> (64 - 8 * nd__dtype_bytes[dtype])) - 1)
                                  : ND_NUMBER(0);
}

double nd_dtype_get_epsilon(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? limits[dtype].epsilon : 0;
}

double nd_dtype_get_smallest_normal(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? limits[dtype].smallest_normal : 0;
}

int64_t nd__dtype_find_no_bool(const void *data, int64_t count) {
    const uint8_t *byte = data;
    uint8_t all = 0;
    for (int64_t i = 0; i < count; i++)
        all |= byte[i];
    if (all <= 1)
        return -1;
    int64_t i = 0;
    while (byte[i] <= 1)
        i++;
    return i;
}
