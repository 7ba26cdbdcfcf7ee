// A user type for tests of the core: an object with a number and k edges, whose death is recorded.
//
// Each cell carries the number it was made with; destroying it counts one death of that number, so
// that a test can say of every object whether it died, and that it died once. Callbacks that a test
// sets run from the cell's finalizer and destructor. Everything here belongs to one test at a time:
// cell_begin() starts anew.
#ifndef ND_TESTS_BEHAVIOUR_CELL_H
#define ND_TESTS_BEHAVIOUR_CELL_H
#include <nd/nd.h>
#include <stdatomic.h>

// Sanitizers make everything slower and larger: the shapes stay, the sizes shrink.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ND_TEST_SCALE 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ND_TEST_SCALE 20
#endif
#endif
#ifndef ND_TEST_SCALE
#define ND_TEST_SCALE 1
#endif

typedef struct cell {
    uint32_t number;
    _Atomic uint32_t count; ///< of edges
    nd_object *edges[];
} cell;

/// Plain cells; cells with a finalizer that calls cell_on_finalize; cells whose traverse calls
/// cell_on_traverse first.
extern const nd_type cell_type;
extern const nd_type cell_finalized_type;
extern const nd_type cell_watched_type;

/// Forgets all deaths and callbacks, and makes room for the deaths of numbers below `numbers`.
void cell_begin(uint32_t numbers);
/// Gives back what cell_begin took.
void cell_end(void);

/// Owned cell with room for `edges` edges, in the current manager.
nd_object *cell_new(uint32_t number, uint32_t edges);
nd_object *cell_new_of(const nd_type *type, uint32_t number, uint32_t edges);

cell *cell_of(const nd_object *object);
void cell_link(nd_object *from, uint32_t edge, const void *to);
void cell_unlink(nd_object *from, uint32_t edge);
/// Links cells[i] to cells[i + 1] and the last to the first, all through edge 0.
void cell_ring(nd_object *const *cells, uint32_t count);
/// A ring of new cells with numbers from `first` on, with nobody but itself to hold it; of fewer
/// when their manager takes no more.
void cell_drop_ring(uint32_t first, uint32_t count);

/// How often the cell with this number was destroyed, and all cells together.
uint32_t cell_deaths(uint32_t number);
uint64_t cell_total_deaths(void);
/// Number of the cell that died as the n-th, n below 64.
uint32_t cell_death_at(uint32_t n);

extern void (*cell_on_finalize)(nd_object *self);
extern void (*cell_on_destroy)(nd_object *self);
extern void (*cell_on_traverse)(const nd_object *self);

#endif
