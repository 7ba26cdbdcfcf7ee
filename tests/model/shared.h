// Setups and threads that programs of more than one subject have.
#ifndef ND_TESTS_MODEL_SHARED_H
#define ND_TESTS_MODEL_SHARED_H
#include <nd/object.h>

/// The first manager, and what is below it.
void collect(void);
/// A ring; a thread holds the second cell, and ends on the first.
void setup_hop(void);
/// Retains the one, releases the other.
void hop(nd_object *from, nd_object *to);
void hop_thrice(void);
/// Takes the edge to the first cell out of the second, which is let go.
void take_edge(void);
/// A cell with two handles that threads release; it holds the second cell.
void setup_releasers(void);
void release_first(void);
/// The same with one handle.
void setup_release(void);
/// A ring with a handle on the first cell.
void setup_rewire(void);
/// Moves the edge of the first cell to its other place.
void rewire(void);
/// A dead ring with a weak reference to the first cell.
void setup_weak_ring(void);
/// Keeps what the weak reference gives, if anything, as `found`.
void upgrade(void);
/// A ring with a handle on the first cell that a thread releases.
void setup_ring_held(void);
/// Two managers; a cell with two handles that threads release.
void setup_attach(void);
/// Everything.
void collect_all(void);
/// A new cell takes over the thread's handle on the ring, and is let go.
void bear(void);
void close_cell(void);
/// Moves the first cell to the second manager.
void attach_first(void);
/// Two managers; a ring in the first, with a handle on the first cell.
void setup_attach_ring(void);
#endif
