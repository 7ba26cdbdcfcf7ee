// Element types: sizes, names, promotion.
#include "lib/tensor/tensor.h"

const uint8_t nd__dtype_bytes[ND_DTYPE_COUNT] = {
    [ND_BOOL] = 1, [ND_U8] = 1, [ND_I32] = 4, [ND_I64] = 8, [ND_F32] = 4, [ND_F64] = 8,
};

static const char *const names[ND_DTYPE_COUNT] = {
    [ND_BOOL] = "bool", [ND_U8] = "uint8",    [ND_I32] = "int32",
    [ND_I64] = "int64", [ND_F32] = "float32", [ND_F64] = "float64",
};

size_t nd_dtype_get_size(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? nd__dtype_bytes[dtype] : 0;
}

const char *nd_dtype_get_name(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? names[dtype] : "invalid";
}

nd_dtype nd_promote_dtypes(nd_dtype a, nd_dtype b) {
    // The enumerators stand in the order of promotion.
    return a > b ? a : b;
}
