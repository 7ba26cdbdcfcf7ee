// What the tests of ranks share: a world, the same random numbers on every rank, and tensors whose
// elements every rank can work out for every other one.
#ifndef ND_TESTS_DISTRIBUTED_RANKS_H
#define ND_TESTS_DISTRIBUTED_RANKS_H
#include "tests/elements.h"
#include "tests/testing.h"
#include <nd/distributed.h>

#include <stdlib.h>

/// A main that runs these tests on every rank; only rank 0's are told of, unless one fails.
#define RANKS_MAIN(tests)                                 \
    int main(void) {                                      \
        if (!nd_has_mpi()) {                              \
            puts("SKIPPED: built without MPI");           \
            return 0;                                     \
        }                                                 \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }

static inline nd_communicator *open_world(double timeout) {
    nd_communicator_options options = ND_COMMUNICATOR_OPTIONS_INIT;
    options.timeout = timeout;
    nd_communicator *world = nd_communicator_from_world(&options);
    assert_handle(world);
    // Another MPI's mpirun starts each rank as the only one, of which all holds.
    const char *ranks = getenv("ND_TEST_RANKS");
    if (ranks)
        assert_int_equal(nd_communicator_get_size(world), atoi(ranks));
    return world;
}

/// splitmix64
static inline uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/// A number below `limit`, the same on every rank that has drawn as often.
static inline int64_t draw(uint64_t *state, int64_t limit) {
    return (int64_t)(mix((*state)++) % (uint64_t)limit);
}

/// Element i of rank r's tensor: a small integer, of which every dtype holds the sums exactly; not
/// negative where the dtype cannot be.
static inline double element_of(uint64_t seed, int rank, int64_t i, nd_dtype dtype) {
    uint64_t random = mix(mix(seed + 1000 * (uint64_t)rank) + (uint64_t)i);
    if (dtype == ND_BOOL)
        return (double)(random % 2);
    return is_unsigned(dtype) ? (double)(random % 9) : (double)(random % 17) - 8;
}

/// Address of the i-th element in row-major order.
static inline int64_t offset_of(const nd_tensor *x, int64_t i) {
    int64_t offset = 0;
    for (int axis = nd_get_ndim(x) - 1; axis >= 0; axis--) {
        int64_t size = nd_get_shape(x)[axis];
        offset += i % size * nd_get_strides(x)[axis];
        i /= size;
    }
    return offset;
}

static inline double element_at(const nd_tensor *x, int64_t i) {
    return element_as_double(nd_get_data(x), nd_get_dtype(x), offset_of(x, i));
}

/// A tensor of that shape whose memory is larger, in another order, or neither; rank r's elements.
/// `layout` may differ between ranks.
static inline nd_tensor *make(uint64_t seed, int rank, int layout, int ndim, const int64_t *shape,
                              nd_dtype dtype) {
    int64_t wide[ND_MAX_DIMS] = {0};
    int axes[ND_MAX_DIMS] = {0};
    for (int i = 0; i < ndim; i++) {
        axes[i] = layout & 1 ? ndim - 1 - i : i;
        wide[axes[i]] = shape[i] * (layout & 2 ? 2 : 1);
    }
    nd_tensor *x = nd_zeros(ndim, wide, dtype);
    nd_tensor *ordered = nd_permute(x, ndim, axes);
    nd_release(x);
    for (int i = 0; i < ndim && layout & 2; i++) {
        nd_tensor *every_second = nd_slice(ordered, 0, INT64_MAX, 2, i);
        nd_release(ordered);
        ordered = every_second;
    }
    assert_handle(ordered);
    for (int64_t i = 0; i < nd_get_numel(ordered); i++)
        set_element(nd_get_data(ordered), dtype, offset_of(ordered, i),
                    element_of(seed, rank, i, dtype));
    return ordered;
}
#endif
