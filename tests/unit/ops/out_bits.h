// Bits of tensors that lie in any way, for the tests of results in tensors of the caller's.
#ifndef ND_TESTS_UNIT_OPS_OUT_BITS_H
#define ND_TESTS_UNIT_OPS_OUT_BITS_H
#include "tests/behaviour/views.h"
#include "tests/unit/ops/values.h"

static inline const char *element(const nd_tensor *x, int64_t flat) {
    return (const char *)nd_get_data(x) +
           views_offset(x, flat) * (int64_t)nd_dtype_get_size(nd_get_dtype(x));
}

static inline void assert_same_bits(const char *name, const nd_tensor *got,
                                    const nd_tensor *expected) {
    size_t size = nd_dtype_get_size(nd_get_dtype(expected));
    for (int64_t i = 0; i < nd_get_numel(expected); i++)
        if (memcmp(element(got, i), element(expected, i), size) != 0)
            fail_msg("%s of %s: element %lld is %.17g, and the other form's %.17g", name,
                     nd_dtype_get_name(nd_get_dtype(expected)), (long long)i, views_at(got, i),
                     views_at(expected, i));
}

/// Owned copy of the bytes of a contiguous tensor.
static inline char *bytes_of(const nd_tensor *storage) {
    size_t bytes = nd_get_storage_bytes(storage);
    char *copy = (char *)malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, nd_get_data(storage), bytes);
    return copy;
}
#endif
