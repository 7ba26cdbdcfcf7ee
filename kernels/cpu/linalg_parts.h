// What all linear algebra on matrices of f32 and f64 does with its memory: cut a block, read and write
// one number, turn rows into columns. `element`: bytes of a number, 4 or 8.
#ifndef ND_KERNELS_CPU_LINALG_PARTS_H
#define ND_KERNELS_CPU_LINALG_PARTS_H
#include <stddef.h>
#include <stdint.h>

/// Rows and columns that are turned together, while their lines are in the nearest cache.
enum { TURNED = 16 };

/// The next `bytes` of a block, at an address that every type may have.
static inline void *carved(char *block, size_t *offset, size_t bytes) {
    void *part = block ? block + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return part;
}

static inline void put(size_t element, void *x, int64_t i, double value) {
    if (element == 4)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

#define DEFINE_TURN(T)                                                                  \
    static inline void turn_##T(T *to, int64_t to_row, const T *from, int64_t from_row, \
                                const int64_t *order, int64_t rows, int64_t columns) {  \
        for (int64_t top = 0; top < rows; top += TURNED)                                \
            for (int64_t left = 0; left < columns; left += TURNED)                      \
                for (int64_t i = top; i < rows && i < top + TURNED; i++) {              \
                    const T *line = from + (order ? order[i] : i) * from_row;           \
                    for (int64_t j = left; j < columns && j < left + TURNED; j++)       \
                        to[j * to_row + i] = line[j];                                   \
                }                                                                       \
    }
DEFINE_TURN(float)
DEFINE_TURN(double)
#undef DEFINE_TURN

/// Writes `rows` rows of `columns`, in this order (NULL: theirs), as columns; *_row is how far one is
/// behind the other.
static inline void turn(size_t element, void *to, int64_t to_row, const void *from,
                        int64_t from_row, const int64_t *order, int64_t rows, int64_t columns) {
    if (element == 4)
        turn_float(to, to_row, from, from_row, order, rows, columns);
    else
        turn_double(to, to_row, from, from_row, order, rows, columns);
}
#endif
