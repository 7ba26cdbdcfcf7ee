// The objects of the programs: cells with two edges, their managers, and what must be true of them
// in the end.
#ifndef ND_TESTS_MODEL_CELLS_H
#define ND_TESTS_MODEL_CELLS_H
#include "lib/object/object.h"
#include <nd/nd.h>

enum { CELLS = 5, MANAGERS = 3 };

typedef struct cell {
    int number;
    nd_object *edges[2];
} cell;

extern nd_object *cells[CELLS]; ///< not handles: who holds them is said by `handles`
extern int handles[CELLS];      ///< on each cell, that finish() releases
extern int deaths[CELLS];
extern nd_manager *managers[MANAGERS];
extern size_t managers_made; ///< whose memory is still there in the end
extern nd_weak *weak;        ///< finish() releases these three
extern nd_object *found;
extern nd_list *list;
extern bool threads_begin_late; ///< set before make_managers: threads register in the program

extern const nd_type cell_type;
/// Cells whose finalizer hands them out once, as `found`.
extern const nd_type reviving_type;

cell *cell_of(const nd_object *object);
/// The next cell, A, B, ..., with `count` handles.
nd_object *make(const nd_manager *manager, int count);
nd_object *make_of(const nd_type *type, const nd_manager *manager, int count);
/// Releases one of its handles.
void give_up(nd_object *object);
/// Two cells that point to each other, with so many handles on each.
void make_ring(const nd_manager *manager, int first_handles, int second_handles);
/// Managers below the root; registers the threads.
void make_managers(int count);
void must_live(const nd_object *object);
/// Releases what is left, collects, and demands that every cell died once and nothing is left.
void finish(void);
#endif
