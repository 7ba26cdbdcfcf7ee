/// @file
/// Maps from names to objects.
///
/// A map remembers the order in which its names came, keeps its objects alive, and shows them in
/// reports under their names: `map -weights-> tensor`. Names are bytes that end with a zero; the
/// map has copies of its own.
///
/// Beside a collection and reports on other threads a map may be used freely. Between threads of
/// the program it is as a list is: one writer at a time, and no reader beside it.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_MAP_H
#define ND_MAP_H
#include <nd/object.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Empty map, in the current manager. Its objects are edges: cycles through it are found.
///
/// @return owned; NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_QUOTA (the manager's cap)
/// @threads any
ND_API nd_map *nd_map_new(void) ND_OWNED;

/// Gives a name an object. A name that is there keeps its place in the order, and its old object is
/// released; a new one comes last.
///
/// @param map the map
/// @param name copied, of any length, also empty
/// @param object of any type; retained
/// @return ND_OK, or the error; then the map is as before
/// @errors ND_ERROR_CLOSED, ND_ERROR_OUT_OF_MEMORY
/// @threads one writer of a map at a time, and no reader beside it; waits for the gate. What dies
///          by it dies here
ND_API nd_status nd_map_set(nd_map *map, const char *name, const void *object);

/// The object of a name. Ask nd_map_contains() first where it may be missing.
///
/// @param map the map
/// @param name the name
/// @return borrowed: valid while the map holds it; NULL on error
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (the map has no such name)
/// @threads any, not beside a writer of the map
ND_API const nd_object *nd_map_get(const nd_map *map, const char *name);

/// Takes a name and its object out.
///
/// @param map the map
/// @param name the name
/// @return owned: what the map held is the caller's now; NULL on error
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (the map has no such name)
/// @threads one writer of a map at a time, and no reader beside it; waits for the gate
ND_API nd_object *nd_map_remove(nd_map *map, const char *name) ND_OWNED;

/// Whether there is an object of that name.
///
/// @param map the map; NULL is fine
/// @param name the name; NULL is fine
/// @return false for NULL and for a closed map
/// @errors none
/// @threads any, not beside a writer of the map
ND_API bool nd_map_contains(const nd_map *map, const char *name);

/// Number of names.
///
/// @param map the map; NULL is fine
/// @return 0 for NULL and for a closed map
/// @errors none
/// @threads any, not beside a writer of the map
ND_API size_t nd_map_get_size(const nd_map *map);

/// Walks over a map in the order in which its names came:
///
///     const char *name;
///     const nd_object *object;
///     for (size_t at = 0; nd_map_next(map, &at, &name, &object);)
///         ...
///
/// Names may be removed on the way, and objects replaced. A new name ends the order that the walk
/// knows: begin again after it.
///
/// @param map the map; NULL is fine, and is empty
/// @param at where the walk is: 0 at its beginning, else what the last call left
/// @param ret_name the name, borrowed: valid until it is removed. May be NULL
/// @param ret_object its object, borrowed: valid while the map holds it. May be NULL
/// @return false at the end, and for a closed map; then nothing was written
/// @errors none
/// @threads any, not beside a writer of the map
ND_API bool nd_map_next(const nd_map *map, size_t *at, const char **ret_name,
                        const nd_object **ret_object);

/// Drops all names and objects, the last one first.
///
/// @param map the map
/// @return ND_OK, or the error
/// @errors ND_ERROR_CLOSED
/// @threads one writer of a map at a time, and no reader beside it; waits for the gate
ND_API nd_status nd_map_clear(nd_map *map);

#ifdef __cplusplus
}
#endif
#endif
