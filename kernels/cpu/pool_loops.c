// The loops of max_pool: the largest element of each window and where in its plane it stands. NaN
// wins; of equal elements the first.
#include "kernels/cpu/isa.h"
#include "kernels/windows.h"

/// The windows whose place `offset` behind their first is in x.
static inline void windows_with(const nd__pool_axis *axis, int64_t offset, int64_t *ret_begin,
                                int64_t *ret_end) {
    int64_t first = offset - axis->padding, last = first + (axis->out - 1) * axis->stride;
    *ret_begin = first >= 0 ? 0 : (-first - 1) / axis->stride + 1;
    *ret_end = last < axis->size    ? axis->out
               : first < axis->size ? (axis->size - 1 - first) / axis->stride + 1
                                    : 0;
    if (*ret_begin > *ret_end)
        *ret_begin = *ret_end;
}

// A row of results is made place by place of its windows. Each place is compared with all results
// of the row, and what is kept is chosen without a branch: it would be mispredicted, the numbers
// being anything. Steps are literals where they can be.
#define PLACES(step)                                                  \
    for (int64_t i = 0; i < count; i++) {                             \
        int64_t place = at + i * (step);                              \
        if (first) {                                                  \
            out[i] = x[place];                                        \
            positions[i] = place;                                     \
        } else {                                                      \
            bool better = !(x[place] <= out[i]) & (out[i] == out[i]); \
            out[i] = better ? x[place] : out[i];                      \
            positions[i] = better ? place : positions[i];             \
        }                                                             \
    }
#define POOL_PLANES(T)                                                                             \
    /* `first`: these are the first places of their windows. */                                    \
    static inline void pool_place_##T(const T *restrict x, int64_t at, int64_t stride,             \
                                      int64_t count, T *restrict out, int64_t *restrict positions, \
                                      const bool first) {                                          \
        if (stride == 1)                                                                           \
            PLACES(1)                                                                              \
        else if (stride == 2)                                                                      \
            PLACES(2)                                                                              \
        else                                                                                       \
            PLACES(stride)                                                                         \
    }                                                                                              \
    /* `at`: where a line of x begins. One window after the other where they have no common */     \
    /* stride, and where most places of a window are beyond the line. */                           \
    static void pool_line_##T(const T *x, int64_t at, const nd__pool_axis *wide, T *out,           \
                              int64_t *positions) {                                                \
        int64_t begin, end;                                                                        \
        bool singly = wide->kernel == 0 || wide->kernel > wide->size;                              \
        int64_t step = wide->kernel == 0 ? 1 : wide->dilation;                                     \
        for (int64_t i = 0; singly && i < wide->out; i++) {                                        \
            nd__pool_axis_reach(wide, i, &begin, &end);                                            \
            pool_window_##T(x, at + begin, at + end, step, out + i, positions + i);                \
        }                                                                                          \
        for (int64_t place = 0; !singly && place < wide->kernel; place++) {                        \
            int64_t offset = place * wide->dilation;                                               \
            windows_with(wide, offset, &begin, &end);                                              \
            pool_place_##T(x, at + begin * wide->stride + offset - wide->padding, wide->stride,    \
                           end - begin, out + begin, positions + begin, false);                    \
        }                                                                                          \
    }                                                                                              \
    /* The first element of each window, in the line of x that begins at `at`. */                  \
    static void pool_begin_##T(const T *x, int64_t at, const nd__pool_axis *wide, T *out,          \
                               int64_t *positions) {                                               \
        int64_t begin = 0, end = 0, first, last;                                                   \
        if (wide->kernel > 0)                                                                      \
            windows_with(wide, 0, &begin, &end);                                                   \
        pool_place_##T(x, at + begin * wide->stride - wide->padding, wide->stride, end - begin,    \
                       out + begin, positions + begin, true);                                      \
        for (int64_t i = 0; i < wide->out; i++) {                                                  \
            if (i == begin)                                                                        \
                i = end;                                                                           \
            if (i == wide->out)                                                                    \
                break;                                                                             \
            nd__pool_axis_reach(wide, i, &first, &last);                                           \
            positions[i] = at + first;                                                             \
            out[i] = x[at + first];                                                                \
        }                                                                                          \
    }                                                                                              \
    static void pool_row_##T(const T *x, const nd__pool_axis *axes, int64_t row, T *out,           \
                             int64_t *positions) {                                                 \
        const nd__pool_axis *deep = axes, *high = axes + 1, *wide = axes + 2;                      \
        int64_t front, back, top, bottom;                                                          \
        nd__pool_axis_reach(deep, row / high->out, &front, &back);                                 \
        nd__pool_axis_reach(high, row % high->out, &top, &bottom);                                 \
        pool_begin_##T(x, (front * high->size + top) * wide->size, wide, out, positions);          \
        for (int64_t z = front; z < back; z += deep->dilation)                                     \
            for (int64_t y = top; y < bottom; y += high->dilation)                                 \
                pool_line_##T(x, (z * high->size + y) * wide->size, wide, out, positions);         \
    }                                                                                              \
    static void pool_planes_##T(const nd_kernel_call *call, int64_t begin, int64_t end) {          \
        nd__pool_axis axes[ND_WINDOW_AXES];                                                        \
        int64_t block = 1;                                                                         \
        for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {                                        \
            axes[axis] = nd__pool_axis_of(call, axis);                                             \
            block *= axes[axis].size;                                                              \
        }                                                                                          \
        int64_t rows = axes[0].out * axes[1].out, width = axes[2].out, line = axes[2].size;        \
        int64_t many =                                                                             \
            are_pairs(axes) ? (width + PAIRS_##T - 1) / PAIRS_##T * PAIRS_##T : INT64_MAX;         \
        for (int64_t row = begin * rows; row < end * rows; row++) {                                \
            const T *plane = (const T *)call->operand[2].data + row / rows * block;                \
            T *out = (T *)call->operand[0].data + row * width;                                     \
            int64_t *positions = (int64_t *)call->operand[1].data + row * width;                   \
            int64_t top = row % rows * 2 * line;                                                   \
            if (many <= (end * rows - row) * width &&                                              \
                2 * many + line <= (end - row / rows) * block - top)                               \
                for (int64_t i = 0; i < width; i += PAIRS_##T)                                     \
                    pool_pairs_##T(plane + top + 2 * i, top + 2 * i, line, out + i,                \
                                   positions + i);                                                 \
            else                                                                                   \
                pool_row_##T(plane, axes, row % rows, out, positions);                             \
        }                                                                                          \
    }
// The usual windows, 2 x 2 without any between them or beyond the edge, are compared in one pass, so
// many at once. That goes past the end of a row: what is written there the next row, of the same
// thread, writes again, and rows without enough behind them are made as all others.
enum { PAIRS_float = 8, PAIRS_double = 4 };
typedef float float_vector __attribute__((vector_size(32)));
typedef double double_vector __attribute__((vector_size(32)));
typedef int32_t float_places __attribute__((vector_size(32)));
typedef int64_t double_places __attribute__((vector_size(32)));
#define EVEN_float(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD_float(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define EVEN_double(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD_double(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
static const float_places upper_float = {0, 2, 4, 6, 8, 10, 12, 14};
static const double_places upper_double = {0, 2, 4, 6};
static bool are_pairs(const nd__pool_axis *axes) {
    const nd__pool_axis *deep = axes, *high = axes + 1, *wide = axes + 2;
    bool pairs = deep->size == 1 && deep->out == 1 && wide->out >= 4 && wide->size < INT32_MAX / 4;
    for (const nd__pool_axis *axis = high; axis <= wide; axis++)
        pairs = pairs && axis->kernel == 2 && axis->stride == 2 && axis->dilation == 1 &&
                axis->padding == 0 && 2 * axis->out <= axis->size;
    return pairs;
}
// The candidate where it is larger or NaN, unless what there is already is NaN.
#define TAKE_BETTER(T, candidate, its_place)                                                    \
    {                                                                                           \
        T##_places better = ~((candidate) <= most) & (most == most);                            \
        most = (T##_vector)((better & (T##_places)(candidate)) | (~better & (T##_places)most)); \
        place = (better & (its_place)) | (~better & place);                                     \
    }
#define POOL_PAIRS(T)                                                                        \
    /* PAIRS_T results. `x`: the first window, which stands at `at` of its plane. */         \
    static inline void pool_pairs_##T(const T *x, int64_t at, int64_t line, T *out,          \
                                      int64_t *positions) {                                  \
        typedef T##_vector unaligned __attribute__((aligned(sizeof(T)), may_alias));         \
        typedef int64_t integers __attribute__((vector_size(8 * PAIRS_##T)));                \
        typedef integers unaligned_integers __attribute__((aligned(8), may_alias));          \
        T##_vector upper[2], lower[2];                                                       \
        for (int i = 0; i < 2; i++) {                                                        \
            upper[i] = *(const unaligned *)(x + i * PAIRS_##T);                              \
            lower[i] = *(const unaligned *)(x + line + i * PAIRS_##T);                       \
        }                                                                                    \
        T##_vector most = EVEN_##T(upper[0], upper[1]), right = ODD_##T(upper[0], upper[1]); \
        T##_vector below = EVEN_##T(lower[0], lower[1]), last = ODD_##T(lower[0], lower[1]); \
        T##_places place = upper_##T, down = place + (__typeof__(place[0]))line;             \
        TAKE_BETTER(T, right, upper_##T + 1)                                                 \
        TAKE_BETTER(T, below, down)                                                          \
        TAKE_BETTER(T, last, down + 1)                                                       \
        *(unaligned *)out = most;                                                            \
        *(unaligned_integers *)positions = __builtin_convertvector(place, integers) + at;    \
    }
// One window: elements from `at` on, below `end`, `step` apart.
#define POOL_WINDOW(T)                                                                     \
    static void pool_window_##T(const T *x, int64_t at, int64_t end, int64_t step, T *out, \
                                int64_t *position) {                                       \
        for (int64_t i = at; i < end; i += step) {                                         \
            bool better = !(x[i] <= *out) & (*out == *out);                                \
            *out = better ? x[i] : *out;                                                   \
            *position = better ? i : *position;                                            \
        }                                                                                  \
    }
POOL_WINDOW(float)
POOL_WINDOW(double)
POOL_PAIRS(float)
POOL_PAIRS(double)
POOL_PLANES(float)
POOL_PLANES(double)

const nd__pool_planes ND_ISA_NAME(nd__cpu_pool_planes)[2] = {pool_planes_float, pool_planes_double};
