// The kinds of devices, as far as the core knows them: how many there are and what they are called.
//
// Behind the kinds of <nd/base.h> there is a place for one more, whose number is
// ND_DEVICE_KIND_COUNT: a program may bring a backend of its own, as tests do (nd__registry_add in
// lib/device/registry.h). Arrays by kind have a place for it either way; that kind exists for
// callers where a program has brought it, and only there.
#ifndef ND_LIB_BASE_KIND_H
#define ND_LIB_BASE_KIND_H
#include <nd/base.h>
#include <stdbool.h>
#include <stddef.h>

/// Places of arrays by kind inside the library.
#define ND__KIND_PLACES 3
_Static_assert(ND__KIND_PLACES == (int)ND_DEVICE_KIND_COUNT + 1, "the public kinds and one");
_Static_assert(ND__KIND_PLACES <= ND_MAX_DEVICE_KINDS, "a place in public structs for each");

/// What the program's own kind is called, or NULL. Written before main only.
extern const char *nd__kind_extra;

/// How many kinds exist.
static inline int nd__kind_count(void) {
    return (int)ND_DEVICE_KIND_COUNT + (nd__kind_extra != NULL);
}

static inline bool nd__kind_exists(nd_device_kind kind) {
    return (unsigned)kind < ND_DEVICE_KIND_COUNT ||
           (kind == ND_DEVICE_KIND_COUNT && nd__kind_extra != NULL);
}

/// "cpu", "cuda" and the like; NULL: it does not exist.
const char *nd__kind_name(nd_device_kind kind);
#endif
