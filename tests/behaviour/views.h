// Random views for tests that hold an operation on a view against the same on a compact copy.
//
// Invariant: a view's storage ends (or begins) at a page that may not be touched, and what of it
// the view does not show is poison; so a read that strays stops the program or changes a result.
// Copies are made here element by element, from shape and strides alone, and the stride of an axis
// of size 1 is never looked at.
#ifndef ND_TESTS_BEHAVIOUR_VIEWS_H
#define ND_TESTS_BEHAVIOUR_VIEWS_H
#include "tests/elements.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/// Numbers of the tests: the same in every run.
static uint64_t views_state;

static inline int64_t views_below(int64_t limit) {
    views_state ^= views_state << 13;
    views_state ^= views_state >> 7;
    views_state ^= views_state << 17;
    return (int64_t)(views_state % (uint64_t)limit);
}

static inline bool views_chance(int percent) {
    return views_below(100) < percent;
}

// ---------------------------------------------------------------------------------------- elements

/// Where the element with a row-major number lies, in elements from x's first.
static inline int64_t views_offset(const nd_tensor *x, int64_t flat) {
    int64_t offset = 0;
    for (int i = nd_get_ndim(x) - 1; i >= 0; i--) {
        int64_t size = nd_get_shape(x)[i];
        if (size > 1)
            offset += flat % size * nd_get_strides(x)[i];
        flat /= size;
    }
    return offset;
}

static inline double views_at(const nd_tensor *x, int64_t flat) {
    return element_as_double(nd_get_data(x), nd_get_dtype(x), views_offset(x, flat));
}

/// A value that no view shows: far from all that it does.
static inline double views_poison(nd_dtype dtype) {
    if (is_float(dtype))
        return (double)NAN;
    switch (nd_dtype_get_size(dtype)) {
    case 1:
        return dtype == ND_BOOL ? 1 : dtype == ND_U8 ? 255 : 127;
    case 2:
        return 30003;
    default:
        return 1e6 + 3;
    }
}

/// Whole numbers, so that sums and products of floats are exact in any order.
static inline double views_value(nd_dtype dtype) {
    if (dtype == ND_BOOL)
        return (double)views_below(2);
    return is_unsigned(dtype) ? (double)views_below(12) : (double)(views_below(25) - 12);
}

/// Rounds of a test; ND_VIEW_ROUNDS overrides.
static inline int64_t views_rounds(int64_t usual) {
    const char *text = getenv("ND_VIEW_ROUNDS");
    return text && atoll(text) > 0 ? atoll(text) : usual;
}

/// The numbers of a round follow from its own number, so that one can be repeated alone.
static inline void views_begin(int64_t round) {
    views_state = ((uint64_t)round + 1) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 8; i++)
        views_below(2);
}

static inline int64_t views_size(void) {
    static const int64_t sizes[] = {1, 1, 1, 1, 2, 2, 3, 4, 5, 8};
    if (views_chance(2))
        return 0;
    return views_chance(6) ? 16 + views_below(60) : sizes[views_below(10)];
}

/// A shape of some 4,000 elements at most, but once in a while enough for the paths of large
/// operands; returns its number of axes.
static inline int views_shape(int least, int most, int64_t *ret_shape) {
    int ndim = least + (int)views_below(most - least + 1);
    bool large = views_chance(1);
    int64_t numel = 1;
    for (int i = 0; i < ndim; i++) {
        ret_shape[i] = large && views_chance(50) ? 1 + views_below(700) : views_size();
        if (numel * ret_shape[i] > (large ? 150000 : 4000))
            ret_shape[i] = 1;
        numel *= ret_shape[i] ? ret_shape[i] : 1;
    }
    return ndim;
}

// ----------------------------------------------------------------------------------------- storage

static inline void views_unmap(void *pointer, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *middle = (char *)((uintptr_t)pointer / page * page);
    munmap(middle - page, (bytes + page - 1) / page * page + 2 * page);
}

/// Owned tensor of `count` elements, all poison, whose memory touches a forbidden page.
static inline nd_tensor *views_storage(int64_t count, nd_dtype dtype) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)count * nd_dtype_get_size(dtype);
    size_t room = (bytes + page - 1) / page * page;
    char *low = (char *)mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(low != MAP_FAILED);
    assert_int_equal(mprotect(low + page, room, PROT_READ | PROT_WRITE), 0);
    char *data = low + page + (views_chance(75) ? room - bytes : 0);
    for (int64_t i = 0; i < count; i++)
        set_element(data, dtype, i, views_poison(dtype));
    nd_tensor *x = nd_wrap(data, ND_SHAPE(count), dtype, views_unmap);
    assert_handle(x);
    return x;
}

// ----------------------------------------------------------------------------------------- layouts

/// A stride that nobody may use.
static inline int64_t views_odd_stride(void) {
    static const int64_t odd[] = {0, 1, 2, 3, 7, 64, 1000003, (int64_t)1 << 40, INT64_MAX};
    return odd[views_below(sizeof odd / sizeof *odd)];
}

typedef enum views_kind {
    VIEWS_ANY,      ///< also expanded, and windows that share elements
    VIEWS_DISTINCT, ///< every element has a place of its own
} views_kind;

/// Strides for a shape without a size of 0; returns how many elements of storage they reach over.
static inline int64_t views_strides(views_kind kind, int ndim, const int64_t *shape,
                                    int64_t *ret_strides) {
    int order[ND_MAX_DIMS];
    bool dense = views_chance(30), row_major = dense || views_chance(30);
    for (int i = 0; i < ndim; i++) { // innermost first
        int at = row_major ? i : (int)views_below(i + 1);
        order[i] = i == at ? ndim - 1 - i : order[at];
        order[at] = ndim - 1 - i;
    }
    int64_t span = 1;
    for (int i = 0; i < ndim; i++) {
        int64_t size = shape[order[i]], *stride = &ret_strides[order[i]];
        if (size == 1) {
            *stride = views_odd_stride();
            continue;
        }
        *stride = span;
        int64_t how = dense ? 9 : views_below(10);
        if (how == 0 && kind == VIEWS_ANY)
            *stride = 0;
        else if (how == 1 && kind == VIEWS_ANY)
            *stride = 1 + views_below(span);
        else if (how == 2)
            *stride = span + 1 + views_below(5);
        else if (how == 3)
            *stride = span * 2;
        span += (size - 1) * *stride;
    }
    return span;
}

static inline void views_fill(nd_tensor *x) {
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        set_element(nd_get_data(x), nd_get_dtype(x), views_offset(x, i),
                    views_value(nd_get_dtype(x)));
}

/// Owned view of random layout and values. With `ret_storage` that gets the whole storage, owned.
static inline nd_tensor *views_random(views_kind kind, int ndim, const int64_t *shape,
                                      nd_dtype dtype, nd_tensor **ret_storage) {
    int64_t full[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        full[i] = shape[i] == 0 ? 1 : shape[i];
    int64_t span = views_strides(kind, ndim, full, strides);
    int64_t offset = views_chance(50) ? 0 : views_below(9), behind = views_chance(70) ? 0 : 5;
    nd_auto nd_tensor *storage = views_storage(offset + span + behind, dtype);
    nd_tensor *x = nd_as_strided(storage, ndim, full, strides, offset);
    assert_handle(x);
    views_fill(x);
    for (int i = 0; i < ndim; i++)
        if (shape[i] == 0) {
            nd_tensor *cut = nd_slice(x, 0, 0, 1, i);
            nd_release(x);
            assert_handle(cut);
            x = cut;
        }
    if (ret_storage)
        *ret_storage = nd_steal(&storage);
    return x;
}

/// Owned contiguous tensor of x's values, in memory of its own.
static inline nd_tensor *views_compact(const nd_tensor *x) {
    nd_tensor *copy = nd_empty(nd_get_ndim(x), nd_get_shape(x), nd_get_dtype(x));
    assert_handle(copy);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        set_element(nd_get_data(copy), nd_get_dtype(x), i, views_at(x, i));
    return copy;
}

/// The same window onto a copy of the whole storage on a device. Owned.
static inline nd_tensor *views_moved(const nd_tensor *x, nd_device device) {
    size_t size = nd_dtype_get_size(nd_get_dtype(x));
    int64_t count = (int64_t)(nd_get_storage_bytes(x) / size);
    nd_auto nd_tensor *all = nd_as_strided(x, ND_SHAPE(count), (const int64_t[]){1}, 0);
    assert_handle(all);
    int64_t offset =
        ((const char *)nd_get_data(x) - (const char *)nd_get_data(all)) / (int64_t)size;
    nd_auto nd_tensor *moved = nd_to(all, device);
    nd_tensor *window =
        nd_as_strided(moved, nd_get_ndim(x), nd_get_shape(x), nd_get_strides(x), offset);
    assert_handle(window);
    return window;
}

// --------------------------------------------------------------------------------------- comparing

static inline bool views_close(nd_dtype dtype, double got, double expected) {
    if (isnan(got) || isnan(expected))
        return isnan(got) && isnan(expected);
    if (got == expected)
        return true;
    static const double within_of[ND_DTYPE_COUNT] = {
        [ND_F64] = 1e-12, [ND_F32] = 2e-5, [ND_F16] = 4e-3, [ND_BF16] = 4e-2};
    double within = within_of[dtype];
    return fabs(got - expected) <= within * fabs(expected) + within;
}

/// Fails unless the two agree in dtype, shape and every element. `what` and `round` name them.
static inline void views_assert_same(const char *what, int64_t round, const nd_tensor *got,
                                     const nd_tensor *expected) {
    nd_dtype dtype = nd_get_dtype(expected);
    bool same = nd_get_dtype(got) == dtype && nd_get_ndim(got) == nd_get_ndim(expected);
    for (int i = 0; same && i < nd_get_ndim(got); i++)
        same = nd_get_shape(got)[i] == nd_get_shape(expected)[i];
    if (!same)
        fail_msg("%s, round %lld: dtype or shape differ", what, (long long)round);
    for (int64_t i = 0; i < nd_get_numel(got); i++)
        if (!views_close(dtype, views_at(got, i), views_at(expected, i)))
            fail_msg("%s, round %lld: element %lld is %.9g on the view and %.9g on the copy", what,
                     (long long)round, (long long)i, views_at(got, i), views_at(expected, i));
}
#endif
