// The edges that a collection cuts between its garbage, and the groups that they connected: a
// forest over the places of the garbage, whose roots are the smallest place of each group.
#ifndef ND_LIB_OBJECT_CUT_H
#define ND_LIB_OBJECT_CUT_H
#include <stdbool.h>
#include <stdint.h>

typedef struct nd_cut {
    uint32_t *group; ///< for each place another one of its group, or itself
    uint32_t root;   ///< of the group of the one whose edges are being cut
    uint64_t groups; ///< there are
} nd_cut;

static inline uint32_t nd__cut_group_of(uint32_t *group, uint32_t index) {
    for (;;) {
        uint32_t above = group[index], top = group[above];
        if (__builtin_expect(above == top, 1))
            return top;
        group[index] = top;
        index = top;
    }
}

/// False when they are one already. The smaller index represents, so that groups come in the order
/// of their oldest member.
static inline bool nd__cut_group_join(uint32_t *group, uint32_t first, uint32_t second) {
    uint32_t a = nd__cut_group_of(group, first), b = nd__cut_group_of(group, second);
    if (a < b)
        group[b] = a;
    else
        group[a] = b;
    return a != b;
}

/// The edges of number `from` are cut next.
static inline void nd__cut_begin(nd_cut *cut, uint32_t from) {
    cut->root = nd__cut_group_of(cut->group, from);
}

/// An edge from there to number `to` has been cut.
static inline void nd__cut_edge(nd_cut *cut, uint32_t to) {
    uint32_t a = cut->root, b = nd__cut_group_of(cut->group, to);
    if (a == b)
        return;
    cut->groups--;
    cut->root = a < b ? a : b;
    cut->group[a < b ? b : a] = cut->root;
}
#endif
