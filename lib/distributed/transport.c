// Memory that outlives the calls it was used in.
//
// A call that MPI has begun cannot be taken back. When its deadline has passed the other ranks may
// still come, and MPI then reads and writes what the call was given. Invariant: such memory stays
// reachable from here, so that it is neither used for something else nor taken for a leak.
#include "lib/distributed/transport.h"
#include "lib/base/fork.h"

#include <stdlib.h>

typedef struct kept {
    struct kept *next;
    void *memory;
} kept;

static kept *list;
static nd_lock lock;
ND__FORK_LOCK(ND__FORK_SINGLE, lock);

void nd__transport_keep(void *memory) {
    kept *entry = malloc(sizeof *entry);
    if (!entry)
        return; // then only the sanitizers do not see that it is kept
    entry->memory = memory;
    nd__lock_acquire(&lock);
    entry->next = list;
    list = entry;
    nd__lock_release(&lock);
}
