// Copies a box of elements that lies in the nearest caches from any strides to any others.
//
// Where elements lie behind each other along one axis on one side and along another on the other,
// square blocks are turned round in vectors; how far apart their rows and columns lie stands in two
// tables, so that several axes are one row of a block. Runs of elements that lie behind each other
// on both sides are moved as one: where they have the width of a larger element, as such.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/rows.h"
#include <string.h>

/// Rows and columns of what is turned at a time.
#define TABLE 256
/// Axes are joined until rows and columns have so many elements.
#define LONG_ENOUGH 16
#define UNROLL _Pragma("GCC unroll 16")

// Elements that may stand at any address: two small ones are moved as one.
typedef uint8_t bits_8 __attribute__((may_alias));
typedef uint16_t bits_16 __attribute__((aligned(1), may_alias));
typedef uint32_t bits_32 __attribute__((aligned(1), may_alias));
typedef uint64_t bits_64 __attribute__((aligned(1), may_alias));

/// Element [row, column] of the result stands at to + down[row] + column elements, and is that at
/// from + across[column] + row elements. All other numbers are bytes. A step is that of a table
/// whose entries are multiples of it, or 0.
typedef struct turn {
    int64_t rows, columns;
    const int64_t *down, *across;
    int64_t down_step, across_step;
} turn;

// Blocks of n x n elements are turned in n vectors: interleaving the vectors i and i + n / 2, whose
// lower halves become the vector 2 i and whose upper halves 2 i + 1, moves the highest bit of a
// vector's number to the end of the element's; after log2(n) times the two have changed places.
// LOWER and UPPER say which elements of two vectors are interleaved. What is left at the end is
// turned together with some that was turned before.
#define TURN(name, T, N, LOWER, UPPER)                                                             \
    typedef T name##_vector __attribute__((vector_size(N * sizeof(T)), aligned(1), may_alias));    \
    static inline void name##_block(char *to, const int64_t *down, const char *from,               \
                                    const int64_t *across) {                                       \
        name##_vector row[N], turned[N];                                                           \
        UNROLL for (int i = 0; i < N; i++) {                                                       \
            row[i] = *(const name##_vector *)(const void *)(from + across[i]);                     \
        }                                                                                          \
        UNROLL for (int step = 1; step < N; step *= 2) {                                           \
            UNROLL for (int i = 0; i < N / 2; i++) {                                               \
                turned[2 * i] = __builtin_shufflevector(row[i], row[i + N / 2], LOWER);            \
                turned[2 * i + 1] = __builtin_shufflevector(row[i], row[i + N / 2], UPPER);        \
            }                                                                                      \
            UNROLL for (int i = 0; i < N; i++) { /* not memcpy(), which would go through memory */ \
                row[i] = turned[i];                                                                \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < N; i++) {                                                       \
            *(name##_vector *)(void *)(to + down[i]) = row[i];                                     \
        }                                                                                          \
    }                                                                                              \
    static void name(const turn *t, char *to, const char *from) {                                  \
        for (int64_t column = 0; column < t->columns; column += N) {                               \
            const int64_t j = column + N <= t->columns ? column : t->columns - N;                  \
            for (int64_t row = 0; row < t->rows; row += N) {                                       \
                const int64_t i = row + N <= t->rows ? row : t->rows - N;                          \
                name##_block(to + j * (int64_t)sizeof(T), t->down + i,                             \
                             from + i * (int64_t)sizeof(T), t->across + j);                        \
            }                                                                                      \
        }                                                                                          \
    }

#define LOWER_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOWER_8 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_8 4, 12, 5, 13, 6, 14, 7, 15
#define LOWER_4 0, 4, 1, 5
#define UPPER_4 2, 6, 3, 7
#define LOWER_2 0, 2
#define UPPER_2 1, 3
TURN(turn_16_of_1, uint8_t, 16, LOWER_16, UPPER_16)
TURN(turn_8_of_1, uint8_t, 8, LOWER_8, UPPER_8)
TURN(turn_4_of_1, uint8_t, 4, LOWER_4, UPPER_4)
TURN(turn_8_of_2, uint16_t, 8, LOWER_8, UPPER_8)
TURN(turn_4_of_2, uint16_t, 4, LOWER_4, UPPER_4)
TURN(turn_4_of_4, uint32_t, 4, LOWER_4, UPPER_4)
TURN(turn_2_of_4, uint32_t, 2, LOWER_2, UPPER_2)
TURN(turn_2_of_8, uint64_t, 2, LOWER_2, UPPER_2)
#if defined(__AVX512F__)
// An instruction takes any elements of two vectors, so that those of 64 bytes cost as little each.
TURN(turn_16_of_4, uint32_t, 16, LOWER_16, UPPER_16)
TURN(turn_8_of_4, uint32_t, 8, LOWER_8, UPPER_8)
TURN(turn_8_of_8, uint64_t, 8, LOWER_8, UPPER_8)
TURN(turn_4_of_8, uint64_t, 4, LOWER_4, UPPER_4)
TURN(turn_16_of_2, uint16_t, 16, LOWER_16, UPPER_16)

/// Blocks of 16, whose ends overlap, where there are many of them.
static void turn_many_of_4(const turn *t, char *to, const char *from) {
    const int64_t least = t->rows < t->columns ? t->rows : t->columns;
    (least >= 48 ? turn_16_of_4 : turn_8_of_4)(t, to, from);
}
#endif

// Two or three rows, or columns, whose elements take turns on the other side.
#define ZIP(T, N)                                                             \
    static void zip_##N##_##T(const turn *t, char *to_, const char *from) {   \
        T *to = (T *)(void *)to_;                                             \
        const T *x[N];                                                        \
        UNROLL for (int k = 0; k < N; k++) {                                  \
            x[k] = (const T *)(const void *)(from + t->across[k]);            \
        }                                                                     \
        ND__INDEPENDENT for (int64_t i = 0; i < t->rows; i++) {               \
            UNROLL for (int k = 0; k < N; k++) {                              \
                to[N * i + k] = x[k][i];                                      \
            }                                                                 \
        }                                                                     \
    }                                                                         \
    static void unzip_##N##_##T(const turn *t, char *to_, const char *from) { \
        const T *x = (const T *)(const void *)from;                           \
        T *to[N];                                                             \
        UNROLL for (int k = 0; k < N; k++) {                                  \
            to[k] = (T *)(void *)(to_ + t->down[k]);                          \
        }                                                                     \
        ND__INDEPENDENT for (int64_t i = 0; i < t->columns; i++) {            \
            UNROLL for (int k = 0; k < N; k++) {                              \
                to[k][i] = x[N * i + k];                                      \
            }                                                                 \
        }                                                                     \
    }

/// Any rows and columns, element by element.
#define TURN_SINGLE(T)                                                           \
    static void turn_single_##T(const turn *t, char *to, const char *from) {     \
        for (int64_t row = 0; row < t->rows; row++) {                            \
            T *out = (T *)(void *)(to + t->down[row]);                           \
            const char *x = from + row * (int64_t)sizeof(T);                     \
            for (int64_t column = 0; column < t->columns; column++)              \
                out[column] = *(const T *)(const void *)(x + t->across[column]); \
        }                                                                        \
    }

#define TURN_ANY(T, LARGE, LARGE_N, MIDDLE, MIDDLE_N, SMALL, SMALL_N)      \
    ZIP(T, 2)                                                              \
    ZIP(T, 3)                                                              \
    TURN_SINGLE(T)                                                         \
    static void turn_##T(const turn *t, char *to, const char *from) {      \
        const int64_t width = (int64_t)sizeof(T);                          \
        const int64_t least = t->rows < t->columns ? t->rows : t->columns; \
        if (t->columns == 2 && t->down_step == 2 * width)                  \
            zip_2_##T(t, to, from);                                        \
        else if (t->columns == 3 && t->down_step == 3 * width)             \
            zip_3_##T(t, to, from);                                        \
        else if (t->rows == 2 && t->across_step == 2 * width)              \
            unzip_2_##T(t, to, from);                                      \
        else if (t->rows == 3 && t->across_step == 3 * width)              \
            unzip_3_##T(t, to, from);                                      \
        else if (least >= LARGE_N)                                         \
            LARGE(t, to, from);                                            \
        else if (least >= MIDDLE_N)                                        \
            MIDDLE(t, to, from);                                           \
        else if (least >= SMALL_N)                                         \
            SMALL(t, to, from);                                            \
        else                                                               \
            turn_single_##T(t, to, from);                                  \
    }
TURN_ANY(bits_8, turn_16_of_1, 16, turn_8_of_1, 8, turn_4_of_1, 4)
#if defined(__AVX512F__)
TURN_ANY(bits_16, turn_16_of_2, 16, turn_8_of_2, 8, turn_4_of_2, 4)
TURN_ANY(bits_32, turn_many_of_4, 8, turn_4_of_4, 4, turn_2_of_4, 2)
TURN_ANY(bits_64, turn_8_of_8, 8, turn_4_of_8, 4, turn_2_of_8, 2)
#else
TURN_ANY(bits_16, turn_8_of_2, 8, turn_4_of_2, 4, turn_4_of_2, 4)
TURN_ANY(bits_32, turn_4_of_4, 4, turn_2_of_4, 2, turn_2_of_4, 2)
TURN_ANY(bits_64, turn_2_of_8, 2, turn_2_of_8, 2, turn_2_of_8, 2)
#endif

// ------------------------------------------------------------------------- runs that lie together

/// `count` elements, whose steps are literals where that makes vectors.
#define MOVE_ELEMENTS(T)                                                                   \
    static void move_##T(char *to_, int64_t to_step, const char *from_, int64_t from_step, \
                         int64_t count) {                                                  \
        const int64_t width = (int64_t)sizeof(T);                                          \
        T *to = (T *)(void *)to_;                                                          \
        const T *from = (const T *)(const void *)from_;                                    \
        if (to_step == width && from_step == 2 * width)                                    \
            ND__INDEPENDENT for (int64_t i = 0; i < count; i++) {                          \
                to[i] = from[2 * i];                                                       \
            }                                                                              \
        else if (to_step == -width && from_step == width)                                  \
            ND__INDEPENDENT for (int64_t i = 0; i < count; i++) {                          \
                to[-i] = from[i];                                                          \
            }                                                                              \
        else if (to_step == 2 * width && from_step == width)                               \
            for (int64_t i = 0; i < count; i++)                                            \
                to[2 * i] = from[i];                                                       \
        else                                                                               \
            for (int64_t i = 0; i < count; i++)                                            \
                *(T *)(void *)(to_ + i * to_step) =                                        \
                    *(const T *)(const void *)(from_ + i * from_step);                     \
    }
MOVE_ELEMENTS(bits_8)
MOVE_ELEMENTS(bits_16)
MOVE_ELEMENTS(bits_32)
MOVE_ELEMENTS(bits_64)

// `count` runs of so many bytes, by their first and last that make it up.
#define MOVE_RUNS(half)                                                   \
    for (int64_t i = 0; i < count; i++, to += to_step, from += from_step) \
        nd__bytes_ends_##half(to, from, (size_t)bytes);

static void move_runs(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                      int64_t bytes) {
    if (bytes == 4)
        move_bits_32(to, to_step, from, from_step, count);
    else if (bytes == 8)
        move_bits_64(to, to_step, from, from_step, count);
    else if (bytes == 1)
        move_bits_8(to, to_step, from, from_step, count);
    else if (bytes == 2)
        move_bits_16(to, to_step, from, from_step, count);
    else if (bytes == 3)
        MOVE_RUNS(2)
    else if (bytes < 8)
        MOVE_RUNS(4)
    else if (bytes <= 16)
        MOVE_RUNS(8)
    else if (bytes <= 32)
        MOVE_RUNS(16)
    else if (bytes <= 64)
        MOVE_RUNS(32)
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * to_step, from + i * from_step, (size_t)bytes);
}

// ------------------------------------------------------------------------------------------- boxes

static void drop_axis(nd__box *box, int axis) {
    box->ndim--;
    for (int i = axis; i < box->ndim; i++) {
        box->shape[i] = box->shape[i + 1];
        box->to[i] = box->to[i + 1];
        box->from[i] = box->from[i + 1];
    }
}

/// Without axes of one element, and with those as one that are one on both sides.
static void simplify(const nd__box *given, nd__box *box) {
    int kept = 0;
    for (int i = 0; i < given->ndim; i++) {
        const int64_t size = given->shape[i], to = given->to[i], from = given->from[i];
        if (size == 1)
            continue;
        const int last = kept - 1;
        if (kept > 0 && box->to[last] == size * to && box->from[last] == size * from) {
            box->shape[last] *= size;
        } else {
            kept++;
            box->shape[kept - 1] = size;
        }
        box->to[kept - 1] = to;
        box->from[kept - 1] = from;
    }
    box->ndim = kept;
}

static int find_axis(const nd__box *box, const int64_t *strides, int64_t step) {
    for (int i = box->ndim - 1; i >= 0; i--)
        if (strides[i] == step)
            return i;
    return -1;
}

/// Moves on to the next place of the axes; false behind the last.
static inline bool next_place(const nd__box *box, int64_t *index, char **to, const char **from) {
    for (int i = box->ndim - 1; i >= 0; i--) {
        *to += box->to[i];
        *from += box->from[i];
        if (++index[i] < box->shape[i])
            return true;
        *to -= box->shape[i] * box->to[i];
        *from -= box->shape[i] * box->from[i];
        index[i] = 0;
    }
    return false;
}

/// Elements of a row, or of a column, and where they stand on the side on which they are not one
/// behind the other. A long axis is walked in parts of TABLE elements.
typedef struct line {
    int64_t count;   ///< of the whole axis
    int64_t step;    ///< of the table, or 0
    int64_t entries; ///< of the table
    int64_t table[TABLE];
} line;

/// Takes `axis` out of the box, and those that continue it. `own`: strides on the side on which
/// elements lie behind each other; `other`: on the other side. `spared`: an axis that stays; -1: none.
static void take_line(nd__box *box, int axis, const int64_t *own, const int64_t *other,
                      int64_t width, int *spared, line *l) {
    l->count = box->shape[axis];
    l->step = other[axis];
    l->entries = l->count < TABLE ? l->count : TABLE;
    for (int64_t i = 0; i < l->entries; i++)
        l->table[i] = i * l->step;
    for (;;) {
        drop_axis(box, axis);
        *spared -= axis < *spared;
        axis = l->count < LONG_ENOUGH ? find_axis(box, own, width * l->count) : -1;
        if (axis < 0 || axis == *spared || l->count * box->shape[axis] > TABLE)
            return;
        const int64_t step = other[axis];
        if (l->step * l->count != step)
            l->step = 0;
        for (int64_t i = 1; i < box->shape[axis]; i++)
            for (int64_t k = 0; k < l->count; k++)
                l->table[i * l->count + k] = l->table[k] + i * step;
        l->count *= box->shape[axis];
        l->entries = l->count;
    }
}

static void one_element(line *l) {
    l->count = l->entries = 1;
    l->step = 0;
    l->table[0] = 0;
}

static void turn_place(int64_t width, const line *down, const line *across, char *to,
                       const char *from) {
    turn t = {.down = down->table,
              .across = across->table,
              .down_step = down->step,
              .across_step = across->step};
    for (int64_t row = 0; row < down->count; row += TABLE)
        for (int64_t column = 0; column < across->count; column += TABLE) {
            t.rows = down->count - row < TABLE ? down->count - row : TABLE;
            t.columns = across->count - column < TABLE ? across->count - column : TABLE;
            char *out = to + (row > 0 ? row * down->step : 0) + column * width;
            const char *x = from + (column > 0 ? column * across->step : 0) + row * width;
            (width == 4   ? turn_bits_32
             : width == 8 ? turn_bits_64
             : width == 2 ? turn_bits_16
                          : turn_bits_8)(&t, out, x);
        }
}

/// Runs of `bytes` bytes along the axes of the box, those along `axis` together.
static void copy_runs(nd__box *box, int axis, int64_t bytes, char *to, const char *from) {
    int64_t count = 1, to_step = 0, from_step = 0, index[ND_MAX_DIMS] = {0};
    if (box->ndim > 0) {
        count = box->shape[axis], to_step = box->to[axis], from_step = box->from[axis];
        drop_axis(box, axis);
    }
    do
        move_runs(to, to_step, from, from_step, count, bytes);
    while (next_place(box, index, &to, &from));
}

static int longest_axis(const nd__box *box) {
    int longest = 0;
    for (int i = 1; i < box->ndim; i++)
        if (box->shape[i] > box->shape[longest])
            longest = i;
    return longest;
}

/// Walks the axis in the direction in which x ascends.
static void ascend(nd__box *box, int axis, char **to, const char **from) {
    const int64_t last = box->shape[axis] - 1;
    *to += last * box->to[axis];
    *from += last * box->from[axis];
    box->to[axis] = -box->to[axis];
    box->from[axis] = -box->from[axis];
}

void ND_ISA_NAME(nd__cpu_box_copy)(const nd__box *given, int64_t width, char *to,
                                   const char *from) {
    nd__box box;
    simplify(given, &box);
    int across = find_axis(&box, box.to, width), down = find_axis(&box, box.from, width);
    if (across >= 0 && across == down) {
        const int64_t run = box.shape[across] * width;
        drop_axis(&box, across);
        if (box.ndim == 0 || (run != 2 && run != 4 && run != 8)) {
            copy_runs(&box, longest_axis(&box), run, to, from);
            return;
        }
        width = run;
        across = find_axis(&box, box.to, width), down = find_axis(&box, box.from, width);
    }
    if (down < 0 && (down = find_axis(&box, box.from, -width)) >= 0)
        ascend(&box, down, &to, &from);
    if (down == across)
        across = -1;              // of none, or of one that was turned round
    if (across < 0 || down < 0) { // nothing is turned: single elements along an axis that is long
        int along = across < 0 ? down : across;
        along = along < 0 || box.shape[along] < LONG_ENOUGH ? longest_axis(&box) : along;
        if ((across < 0 && down < 0) || box.shape[along] >= LONG_ENOUGH) {
            copy_runs(&box, along, width, to, from);
            return;
        }
    }
    line rows, columns;
    if (across < 0)
        one_element(&columns);
    else
        take_line(&box, across, box.to, box.from, width, &down, &columns);
    across = -1;
    if (down < 0)
        one_element(&rows);
    else
        take_line(&box, down, box.from, box.to, width, &across, &rows);
    int64_t index[ND_MAX_DIMS] = {0};
    do
        turn_place(width, &rows, &columns, to, from);
    while (next_place(&box, index, &to, &from));
}
