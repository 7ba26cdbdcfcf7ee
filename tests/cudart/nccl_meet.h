// Where the ranks of the fake NCCL meet: a file that all map, named by the unique id.
//
// Each rank has two places for what it brings, for meetings in turn: who comes to a meeting has taken
// what it wanted from the one before, and all have come to that one, so nobody wants anything of the
// one before that. Between two ranks, each way, there is one place for messages.
#ifndef ND_TESTS_CUDART_NCCL_MEET_H
#define ND_TESTS_CUDART_NCCL_MEET_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEET_RANKS = 8, MEET_BYTES = 1 << 16, MEET_PATH = 120 };

/// What a rank has come for: the same on all.
typedef struct meet_purpose {
    int kind, type, reduction, root;
    uint64_t count;
} meet_purpose;

typedef struct meet_rank {
    _Atomic int joined;
    _Atomic uint64_t came; ///< to so many meetings
    meet_purpose purpose[2];
    _Atomic uint64_t sent[MEET_RANKS], received[MEET_RANKS]; ///< to, from
} meet_rank;

typedef struct meet {
    meet_rank rank[MEET_RANKS];
    char brought[MEET_RANKS][2][MEET_BYTES];
    char message[MEET_RANKS][MEET_RANKS][MEET_BYTES]; ///< from, to
} meet;

/// Makes the file and writes its path; false: it cannot be made.
bool meet_make(char path[MEET_PATH]);
/// NULL: there is no such file.
meet *meet_open(const char *path);
bool meet_all_joined(const meet *at, int ranks);
/// Whether all have come to a meeting.
bool meet_all_came(const meet *at, int ranks, uint64_t meeting);

/// into = into and from, of NCCL's types and reductions but the mean.
void meet_combine(int type, int reduction, void *into, const void *from, size_t count);
/// Multiplies by 1 / ranks, as NCCL does with what goes into a mean.
void meet_scale(int type, void *data, size_t count, int ranks);
/// Bytes of an element; 0: there is no such type.
size_t meet_size(int type);
#endif
