// Objects that have died and that no thread has destroyed yet, because one died while the gate was
// closed (gate.c) or in a callback of a device (callback.c): how many there are.
//
// Their edges still count where they lead. So a collection that is to find all that is garbage now
// must know of them, and of what another thread has taken to destroy it: a count that nothing in
// the set explains may be an edge of theirs.
#ifndef ND_LIB_OBJECT_DEAD_H
#define ND_LIB_OBJECT_DEAD_H
#include "lib/base/thread.h"

/// One more. Before others can find it.
void nd__dead_add(void);
/// It can be found, by whoever looks: nobody does so by himself.
void nd__dead_tell(void);
/// This thread has taken a list of them, and is about to destroy it.
void nd__dead_take(nd_thread *thread, const nd_object *list);
/// All that this thread had taken is destroyed.
__attribute__((cold)) void nd__dead_settle(nd_thread *thread);
/// These are no longer among them.
void nd__dead_forget(const nd_object *list);
/// In a child of fork(): other threads, and what they had taken, are not there.
void nd__dead_begin_child(const nd_thread *thread);

/// Whether there are any, of which another thread may have taken some. Always false inside what a
/// destruction on this thread calls: it could not destroy them, and others may wait for it.
bool nd__dead_elsewhere(const nd_thread *thread);

/// Nobody is waited for any longer than this: it may run a destructor that waits for this thread.
#define ND__DEAD_PATIENCE_NS UINT64_C(1000000000)
/// Destroys them, and waits while other threads do, but not beyond the time `until`. True: there were
/// none for a moment. Runs user code, so no lock may be held; not where nd__dead_elsewhere is false.
bool nd__dead_await(uint64_t until);
#endif
