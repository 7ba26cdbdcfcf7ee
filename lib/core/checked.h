// Blocks under observation: one by one from the allocator, kept for a while when they are freed, with the
// places where each object was made and released last.
//
//   ND_CHECK=1, or =MEGABYTES   what is freed is not used again before so much (256 MiB) was freed after
//                               it, and both places are known, whatever was compiled in
//   address sanitizer           a quarantine of 16 MiB, with payloads poisoned; then the sanitizer's own
//   valgrind's memcheck         no quarantine: memcheck sees every use
//
// The mode is decided when the process starts and never changes.
#ifndef ND_LIB_CORE_CHECKED_H
#define ND_LIB_CORE_CHECKED_H
#include "lib/core/object.h"

typedef struct nd__check_mode {
    bool decided;
    bool careful; ///< blocks take these paths
    bool places;  ///< records of where objects were made and released
    bool returns; ///< what leaves the quarantine goes to the allocator; else it is used again
    size_t limit; ///< bytes of the quarantine
} nd__check_mode;

extern nd__check_mode nd__check_mode_now;
void nd__check_decide(void);

static inline bool nd__checking(void) {
    if (__builtin_expect(!nd__check_mode_now.decided, 0))
        nd__check_decide();
    return nd__check_mode_now.careful;
}

void *nd__checked_new(size_t bytes);
void nd__checked_free(nd_object *object);
/// Bytes in quarantine.
uint64_t nd__checked_bytes(void);
/// Around a fork nobody else has the quarantine.
void nd__checked_before_fork(void);
void nd__checked_after_fork(bool child);

/// The last reference is gone, by this thread's doing.
void nd__checked_note_death(nd_object *object);
static inline void nd__note_death(nd_object *object) {
    if (__builtin_expect(nd__check_mode_now.places, 0))
        nd__checked_note_death(object);
}

// Of lib/core/block.c.
size_t nd__block_bytes(uint32_t class);
uint32_t nd__block_class_of(size_t bytes);
/// A block comes into use: nothing is left of who was there before.
void nd__block_begin(nd_object *block, uint32_t class);
#endif
