// Pairs of a key and a position, and their stable sort (digits.c).
#ifndef ND_KERNELS_CPU_DIGITS_H
#define ND_KERNELS_CPU_DIGITS_H
#include <stdint.h>

/// The key of an element (kernels/sorting.h) and where it stands in its row.
typedef struct nd__pair {
    uint64_t key;
    int64_t position;
} nd__pair;

/// Sorts pairs stably by their keys, with room for as many.
void nd__digits_sort(nd__pair *pairs, nd__pair *room, int64_t n);
#endif
