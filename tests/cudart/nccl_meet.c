// See nccl_meet.h.
#include "tests/cudart/nccl_meet.h"
#include "kernels/half.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16 };
enum { SUM = 0, MAX = 2, MIN = 3, MEAN = 4 };

bool meet_make(char path[MEET_PATH]) {
    const char *folder = getenv("TEST_TMPDIR");
    folder = folder && strlen(folder) < MEET_PATH - 20 ? folder : "/tmp";
    snprintf(path, MEET_PATH, "%s/nccl-XXXXXX", folder);
    int file = mkstemp(path);
    if (file < 0)
        return false;
    bool well = ftruncate(file, sizeof(meet)) == 0;
    close(file);
    return well;
}

meet *meet_open(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    void *at = mmap(NULL, sizeof(meet), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

bool meet_all_joined(const meet *at, int ranks) {
    for (int rank = 0; rank < ranks; rank++)
        if (!atomic_load(&at->rank[rank].joined))
            return false;
    return true;
}

bool meet_all_came(const meet *at, int ranks, uint64_t meeting) {
    for (int rank = 0; rank < ranks; rank++)
        if (atomic_load(&at->rank[rank].came) <= meeting)
            return false;
    return true;
}

// ------------------------------------------------------------------------------------------------
// numbers

static float f16(uint16_t x) {
    return nd__f16_to_f32(x);
}
static uint16_t to_f16(float x) {
    return nd__f64_to_f16((double)x);
}
static float bf16(uint16_t x) {
    return nd__bf16_to_f32(x);
}
static uint16_t to_bf16(float x) {
    return nd__f64_to_bf16((double)x);
}
#define SAME(x) (x)

/// For each type: its number, its C type, the one that is computed in, and both ways between them.
/// Integers are added without their signs, so that they wrap around.
#define TYPES(ONE)                           \
    ONE(I8, int8_t, uint8_t, SAME, SAME)     \
    ONE(U8, uint8_t, uint8_t, SAME, SAME)    \
    ONE(I32, int32_t, uint32_t, SAME, SAME)  \
    ONE(U32, uint32_t, uint32_t, SAME, SAME) \
    ONE(I64, int64_t, uint64_t, SAME, SAME)  \
    ONE(U64, uint64_t, uint64_t, SAME, SAME) \
    ONE(F16, uint16_t, float, f16, to_f16)   \
    ONE(F32, float, float, SAME, SAME)       \
    ONE(F64, double, double, SAME, SAME)     \
    ONE(BF16, uint16_t, float, bf16, to_bf16)

#define COMBINE(number, ctype, sum_type, widen, narrow)                                          \
    static void combine_##number(int reduction, void *into, const void *from, size_t count) {    \
        ctype *a = into;                                                                         \
        const ctype *b = from;                                                                   \
        for (size_t i = 0; i < count; i++) {                                                     \
            if (reduction == MAX)                                                                \
                a[i] = widen(a[i]) >= widen(b[i]) ? a[i] : b[i];                                 \
            else if (reduction == MIN)                                                           \
                a[i] = widen(a[i]) <= widen(b[i]) ? a[i] : b[i];                                 \
            else                                                                                 \
                a[i] = (ctype)narrow((sum_type)((sum_type)widen(a[i]) + (sum_type)widen(b[i]))); \
        }                                                                                        \
    }
TYPES(COMBINE)

void meet_combine(int type, int reduction, void *into, const void *from, size_t count) {
#define CASE(number, ctype, sum_type, widen, narrow)    \
    case number:                                        \
        combine_##number(reduction, into, from, count); \
        break;
    switch (type) { TYPES(CASE) }
#undef CASE
}

void meet_scale(int type, void *data, size_t count, int ranks) {
    for (size_t i = 0; i < count; i++) {
        if (type == F64)
            ((double *)data)[i] *= 1.0 / ranks;
        else if (type == F32)
            ((float *)data)[i] *= 1.0F / (float)ranks;
        else if (type == F16)
            ((uint16_t *)data)[i] = to_f16(f16(((uint16_t *)data)[i]) / (float)ranks);
        else if (type == BF16)
            ((uint16_t *)data)[i] = to_bf16(bf16(((uint16_t *)data)[i]) / (float)ranks);
    }
}

size_t meet_size(int type) {
#define CASE(number, ctype, sum_type, widen, narrow) \
    case number:                                     \
        return sizeof(ctype);
    switch (type) {
        TYPES(CASE)
    default:
        return 0;
    }
#undef CASE
}
