// A storage on demand, and the block that it shares with its object.
//
// An object of ND__TYPE_TENSOR may be made without a storage: its data lie in its own block, and it
// is itself what managers account for. Whoever needs something that outlives the object (a view of
// it) makes a storage then, which takes over the bytes. The data stay where they are, so from then
// on the block is kept by two: the object (ND__LENT), and the storage, which says when it ends. The
// later one frees it.
//
// Invariant: at every moment one of the two has the bytes, and both changes are seen at once by
// whoever holds the lock of the object's shard. An object gets a storage at most once.
#ifndef ND_LIB_MANAGER_ADOPT_H
#define ND_LIB_MANAGER_ADOPT_H
#include "lib/base/atomics.h"
#include "lib/object/block.h"
#include "lib/object/object.h"

/// Gives an object, which the caller holds, a private storage: that is published where the object
/// is, lent as that is, and takes over the object's bytes; no quota or cap is asked. *ret_first:
/// false when there was a storage already, from another thread, and nothing has happened. The
/// storage's count is the object's edge. Errors: closed; no memory for the origins of one that is
/// lent. The storage is still private then.
nd_status nd__adopt_storage(const char *operation, nd_object *object, nd_accounted *storage,
                            bool *ret_first);

/// Of an object that is ND__LENT, or its storage, each at its end: frees the object's block when
/// the other one has ended. Nobody may look at the object afterwards, but to find it dead.
static inline void nd__adopt_end(nd_object *object) {
    if (nd__atomic_set_flags(&object->flags, ND__ENDED) & ND__ENDED)
        nd__block_free(object);
}
#endif
