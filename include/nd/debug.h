// Questions to a running program: what is alive, where, since when, made at which line.
#ifndef ND_DEBUG_H
#define ND_DEBUG_H
#include <nd/base.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Writes the tree below m to `stream`: name, counts, bytes and the oldest objects of each manager
/// with type, name, count, bytes and creation site. NULL m: the root.
ND_API nd_status nd_debug_dump(const nd_manager *manager, FILE *stream);

/// Writes every live object below m (at most `limit`; 0: all), grouped by creation site where
/// known. Returns how many objects are alive. With ND_LEAK_CHECK=1 in the environment it runs at
/// exit, for the root, to stderr.
ND_API uint64_t nd_debug_report_leaks(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Walks every invariant that can be checked (list links, counters, accounts). ND_OK, or
/// ND_ERROR_STATE with what broke.
ND_API nd_status nd_debug_check(void);

/// Creation sites. They are recorded by calls in translation units compiled with ND_TRACK_SITES
/// (Bazel: --//bazel:track_sites=on for everything), while this switch is on (it is by default).
ND_API void nd_debug_track_sites(bool on);
/// Creation site of x as "file:line", copied into `buffer`; empty when unknown. Returns `buffer`.
ND_API const char *nd_debug_site(const void *object, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
