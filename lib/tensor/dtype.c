// Element types: sizes, names, promotion.
#include "lib/tensor/tensor.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[ND_DTYPE_COUNT] = {
    [ND_BOOL] = {"bool", 1}, [ND_U8] = {"uint8", 1},    [ND_I32] = {"int32", 4},
    [ND_I64] = {"int64", 8}, [ND_F32] = {"float32", 4}, [ND_F64] = {"float64", 8},
};

size_t nd_dtype_size(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *nd_dtype_name(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? dtypes[dtype].name : "invalid";
}

nd_dtype nd_promote_dtypes(nd_dtype a, nd_dtype b) {
    // The enumerators stand in the order of promotion.
    return a > b ? a : b;
}
