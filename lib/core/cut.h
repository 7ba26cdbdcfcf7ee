// The edges that a collection cuts between its garbage, and the groups that they connected: a forest
// over the places of the garbage, whose roots are the smallest place of each group.
#ifndef ND_LIB_CORE_CUT_H
#define ND_LIB_CORE_CUT_H
#include <stdbool.h>
#include <stdint.h>

typedef struct nd_cut {
    uint32_t *group;     ///< for each place another one of its group, or itself
    uint32_t from;       ///< whose edges are being cut; those of all before it are
    uint64_t references; ///< left to objects up to this one
    uint64_t groups;     ///< there are
} nd_cut;

/// The edges of number `from` are cut next; `count` references to it are left.
static inline void nd__cut_begin(nd_cut *cut, uint32_t from, uint32_t count) {
    cut->from = from;
    cut->references += count;
}

static inline uint32_t nd__group_of(uint32_t *group, uint32_t index) {
    while (group[index] != index) {
        group[index] = group[group[index]];
        index = group[index];
    }
    return index;
}

/// False when they are one already. The smaller index represents, so that groups come in the order of
/// their oldest member.
static inline bool nd__group_join(uint32_t *group, uint32_t first, uint32_t second) {
    uint32_t a = nd__group_of(group, first), b = nd__group_of(group, second);
    if (a < b)
        group[b] = a;
    else
        group[a] = b;
    return a != b;
}

/// An edge from there to number `to` has been cut.
static inline void nd__cut_edge(nd_cut *cut, uint32_t to) {
    cut->references -= to <= cut->from;
    cut->groups -= nd__group_join(cut->group, cut->from, to);
}
#endif
