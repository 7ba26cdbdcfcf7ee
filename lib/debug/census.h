// A copy of the graph of objects below a manager: what every explanation is made from.
//
//   object   one entry per object in a manager's list; its address is an identity, never followed:
//            when the copy is looked at the object may be dead
//   edge     a strong reference that an object reported; `to` is NO_OBJECT when its target lies in
//            a manager that was not looked at
//   handles  count minus edges found: what the program holds in variables, scopes and memory that
//            no `traverse` reports
//   text     what an object is called, its name, the file of its site, the label of an edge: copied.
//            Who owns the text may be gone when the gate has opened: the label of a module's member
//            is the module's, a file's name belongs to a library that may be unloaded
//
// The copy is taken with the collector's gate closed, so its edges are those of one instant. Counts
// are not: retain and release never wait. Memory is reserved before the gate closes.
#ifndef ND_LIB_DEBUG_CENSUS_H
#define ND_LIB_DEBUG_CENSUS_H
#include "lib/manager/manager.h"
#include <stdio.h>

#define NO_OBJECT UINT32_MAX

typedef struct census_object {
    const nd_object *object; ///< identity only
    const char *what;        ///< what reports call it; memory of the census
    const char *name;        ///< "" without one; memory of the census
    const char *file;        ///< of its creation site, or NULL; memory of the census
    uint32_t line;
    uint64_t bytes;
    uint32_t count;
    uint32_t edges_in;              ///< found to it
    uint32_t first_edge, edges_out; ///< in `edges`
    uint32_t manager;               ///< in `managers`
    bool tracked, closed, dying, accounted;
} census_object;

typedef struct census_edge {
    const nd_object *target;
    const char *label; ///< memory of the census
    uint32_t from, to;
} census_edge;

typedef struct census {
    nd__manager_array managers; ///< each retained; items[0] is the top
    census_object
        *objects;       ///< by manager; of what a thread made there the tracked ones first, then
                        ///< the others, oldest first
    census_edge *edges; ///< by object
    char *text;
    uint32_t *index; ///< open addressing by address: 1 + place in objects; 0: empty
    size_t count, edge_count, text_size;
    size_t capacity, edge_capacity, text_capacity, index_size;
    bool full;
} census;

/// Copies everything below `top` (NULL: the root). False: no memory, nothing to free.
bool nd__census_take(census *result, const nd_manager *top);
void nd__census_free(census *result);

/// Place of an object, or NO_OBJECT.
uint32_t nd__census_find(const census *result, const void *object);

/// Count minus edges found; 0 when the edges are more (a count may fall while edges are read).
static inline uint32_t nd__census_handles(const census_object *object) {
    return object->count > object->edges_in ? object->count - object->edges_in : 0;
}

/// "tensor(w1)".
void nd__census_write_object(FILE *stream, const census_object *object);
/// "; made at main.c:12" behind `before`; nothing when the site is not known.
void nd__census_write_site(FILE *stream, const char *before, const census_object *object);
#endif
