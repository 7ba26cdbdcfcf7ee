// Watched objects: every retain and release of one is handed to lib/debug.
//
// A watched object's count is raised by ND__WATCH_BIAS. Retain and release compare the count they
// found with the largest one there can be anyway, and beyond it lies, besides errors, what is
// watched: nothing is asked on the way that others take. A count of just the bias is a dead
// object's, until whoever released it last has taken the bias off.
#ifndef ND_LIB_OBJECT_WATCH_H
#define ND_LIB_OBJECT_WATCH_H
#include "lib/base/atomics.h"
#include "lib/object/object.h"

#define ND__WATCH_BIAS UINT32_C(0x80000000)

typedef enum nd__watch_kind {
    ND__WATCH_BEGIN,
    ND__WATCH_RETAIN,
    ND__WATCH_RELEASE, ///< count 0: the last one
    ND__WATCH_UPGRADE, ///< a weak reference or a manager's walk took a count
    ND__WATCH_GARBAGE, ///< the collector is about to free it
} nd__watch_kind;

/// Takes note of what has happened to a watched object, which led to this count. The object is
/// touched only when it belongs to the caller alone, after a last release and as garbage: then it
/// is watched no more, and its bias is taken off. Set while anything is watched, and then for good.
extern _Atomic(void (*)(const nd_object *object, nd__watch_kind kind,
                        uint32_t count)) nd__watch_note;

static inline void nd__watch_tell(const nd_object *object, nd__watch_kind kind, uint32_t count) {
    nd__atomic_load(&nd__watch_note, acquire)(object, kind, count);
}

/// True for the low half of a living watched object's word. (A count that has run below zero is far
/// from that.)
static inline bool nd__watch_includes(uint64_t word) {
    return (uint32_t)word - ND__WATCH_BIAS - 1 < ND__WATCH_BIAS / 2;
}

/// Strong count of a word, watched or not.
static inline uint32_t nd__watch_count(uint64_t word) {
    return (uint32_t)word & ~ND__WATCH_BIAS;
}

/// The same for the collector, for which one that has died just now is held by someone.
static inline uint32_t nd__watch_held(uint64_t word) {
    return nd__watch_includes(word) ? nd__watch_count(word) : (uint32_t)word;
}
#endif
