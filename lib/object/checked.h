// Blocks under observation: one by one from the allocator, kept for a while when they are freed,
// with the places where each object was made and released last.
//
//   ND_CHECK=1, or =MEGABYTES   what is freed is not used again before so much (256 MiB) was freed after
//                               it, and both places are known, whatever was compiled in
//   address sanitizer           a quarantine of 16 MiB, with payloads poisoned; then the sanitizer's own
//   valgrind's memcheck         no quarantine: memcheck sees every use
//
// The mode is decided when the process starts and never changes.
#ifndef ND_LIB_OBJECT_CHECKED_H
#define ND_LIB_OBJECT_CHECKED_H
#include "lib/object/object.h"

typedef struct nd__checked_settings {
    bool decided;
    bool careful; ///< blocks take these paths
    bool places;  ///< records of where objects were made and released
    bool returns; ///< what leaves the quarantine goes to the allocator; else it is used again
    size_t limit; ///< bytes of the quarantine
} nd__checked_settings;

extern nd__checked_settings nd__checked_mode;
void nd__checked_decide(void);

static inline bool nd__checked_is_on(void) {
    if (__builtin_expect(!nd__checked_mode.decided, 0))
        nd__checked_decide();
    return nd__checked_mode.careful;
}

void *nd__checked_new(size_t bytes);
void nd__checked_free(nd_object *object);
/// Bytes in quarantine.
uint64_t nd__checked_bytes(void);
/// Around a fork nobody else has the quarantine.
void nd__checked_before_fork(void);
void nd__checked_after_fork(bool child);

/// For managers, which lie in no block: bytes of memory for the two places of one, zeroed before the
/// first use, or 0 while none are noted;
size_t nd__checked_places_bytes(void);
/// notes in such memory that one is made here;
void nd__checked_note_birth(void *places);
/// and how many of so many bytes wait, dead, before the first of them is used again.
size_t nd__checked_waiting(size_t bytes);

/// The last reference is gone, by this thread's doing.
void nd__checked_note_death(nd_object *object);
static inline void nd__checked_death(nd_object *object) {
    if (__builtin_expect(nd__checked_mode.places, 0))
        nd__checked_note_death(object);
}

/// Stops the program: `what` ("release", "retain") was done to a dead object.
_Noreturn void nd__checked_tell_dead(const char *what, nd_object *object);
#endif
