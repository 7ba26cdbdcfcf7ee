// Ranks over the memory of node.h alone, without MPI: what its tests share. Elements are int64_t,
// and pieces so short that a few hundred of them are several pieces.
#ifndef ND_TESTS_DISTRIBUTED_NODE_RANKS_H
#define ND_TESTS_DISTRIBUTED_NODE_RANKS_H
#include "lib/distributed/node.h"
#include "lib/distributed/transport.h"
#include "tests/testing.h"

enum {
    NODE_SHARE = 64,
    NODE_PIECES = 6,
    /// of a rank in a piece
    NODE_SHARE_COUNT = NODE_SHARE / (int)sizeof(int64_t),
};

/// Mappings of ranks' memory in this process.
static inline int count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/memfd:nd-") != NULL;
    if (maps)
        fclose(maps);
    return maps ? count : -1;
}

/// Element i of a rank in a call.
static inline int64_t node_element(int rank, int64_t call, int64_t i) {
    return (rank + 1) * 1000003 + call * 7919 + i * (rank + 3);
}

static inline int64_t node_sum(int ranks, int64_t call, int64_t i) {
    int64_t sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += node_element(rank, call, i);
    return sum;
}

static inline void node_add(const void *from, void *into, int64_t count) {
    const int64_t *a = from;
    int64_t *b = into;
    for (int64_t i = 0; i < count; i++)
        b[i] += a[i];
}
#endif
