// What the core keeps per thread: its side of the gate, its dead objects, its current manager and
// scope.
//
// A record registers itself on first use, so that the collector can look at every thread's
// `writing` flag, and leaves the registry when its thread ends (after ending the thread's open
// scopes). A record is part of its thread's memory, so one that nobody would take out again must
// never be put in: the record of a thread that is ending, or whose end the library will not hear
// of, stays out for good (`unlisted`), and its thread passes the gate in another way (gate.c).
#ifndef ND_LIB_BASE_THREAD_H
#define ND_LIB_BASE_THREAD_H
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/kind.h"
#include <nd/object.h>
#include <nd/scope.h>

/// What a thread counts for the collector's triggers: bytes of each device kind, and objects that
/// became tracked.
enum { ND__MADE_TRACKED = ND__KIND_PLACES, ND__MADE_COUNT };

typedef struct nd_thread nd_thread;
struct nd_thread {
    _Atomic uint32_t writing; ///< 1 while inside the gate; the collector waits for 0
    _Atomic uint32_t fences;  ///< 1: was seen to fence for itself at the gate, as it always will
    union {
        struct {
            bool registered;    ///< in the registry
            bool owns_gate;     ///< this thread has closed the gate
            bool is_destroying; ///< a loop further up destroys the objects on `dead`
            bool cutting;       ///< its collection frees garbage: what dies now counts as collected
            uint32_t gate_depth; ///< of nd__gate_enter, nested
        };
        uint64_t state; ///< these, as the one word that they are (nd__thread_is_idle)
    };
    uint32_t number; ///< counts up from the first thread's 0
    uint32_t
        lock_id;   ///< whom locks are biased to (biased_lock.h), no other thread's ever; 0: none is
    bool unlisted; ///< never to be registered (again)
    bool end_awaited;        ///< the key is set: thread_exit will run
    uint8_t nested_code;     ///< code of the program's that such loops run, nested (user_code.h)
    bool collecting;         ///< a collection runs on this thread: further requests are deferred
    struct nd_cut *cut;      ///< while it is cutting the edges of its garbage; else NULL
    bool in_memory_callback; ///< a callback for memory under pressure runs: no other is called
    bool in_callback; ///< a callback that a device runs (then also destroying): what dies is left
    uint32_t dead_taken; ///< of what others left to destroy: so many are not destroyed yet (dead.h)
    struct nd_error_state *error;           ///< of the callback that runs (error.h); else NULL
    const struct nd_destroying *destroying; ///< the innermost `destroy` of a user's object (edge.h)
    nd_object *dead;                        ///< objects whose count reached zero, linked by `next`
    nd_manager *requested; ///< owned: manager to collect when the running collection is done
    nd_manager *deferred;  ///< the same for a boundary's sake, so only where the mode is not off
    uint64_t collected_objects, collected_bytes; ///< while cutting
    uint32_t collections_ended;                  ///< on this thread (lib/gc/running.c)
    const nd_manager *current;                   ///< innermost nd_with_manager, or NULL
    nd_scope *scope;                             ///< innermost scope
    struct nd_scope_ending *scopes_ending;       ///< that calls on this thread end (scope.c)
    nd_manager *crowded;                         ///< found so (shard.c); perhaps closed since
    uint64_t made[ND__MADE_COUNT];               ///< not yet told to lib/gc/policy.c
    struct nd_capture *capture;                  ///< that it is in (lib/device/capture.h), or NULL
    int uncancelled, cancel_state;               ///< cancel.h
    uint32_t walks;                              ///< of the ladder for memory, nested
    bool forking;                                ///< has taken all locks for that
    char *name;                 ///< memory for a name that is handed out for a while, or NULL
    nd_thread *previous, *next; ///< registry
};

#ifdef ND_MODEL
/// The record of the simulated thread that runs.
nd_thread *nd__model_thread_record(void);
#define nd__thread_record (*nd__model_thread_record())
#else
extern _Thread_local nd_thread nd__thread_record;
#endif
/// Registers a record, unless it is or becomes `unlisted`.
void nd__thread_register(nd_thread *thread);

static inline nd_thread *nd__thread(void) {
    nd_thread *thread = &nd__thread_record;
    if (__builtin_expect(!thread->registered, 0))
        nd__thread_register(thread);
    return thread;
}

/// Whether a thread is registered, and neither destroys objects, nor cuts garbage, nor is inside the
/// gate, nor has closed it: as almost every release finds it, which asks this at once.
static inline bool nd__thread_is_idle(const nd_thread *thread) {
    _Static_assert(offsetof(nd_thread, registered) == offsetof(nd_thread, state) &&
                       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                   "the lowest byte");
    return thread->state == 1;
}

/// Has what the thread keeps given back when it ends, in the next round of its keys' destructors.
/// False: it will not be. Takes no lock.
bool nd__thread_await_end(void);

/// So many bytes of memory that the thread keeps for such a name, always the same; NULL with no error
/// set: there is none.
char *nd__thread_name(size_t bytes);

/// Calls visit for every registered thread, holding the registry's lock.
void nd__thread_each(void (*visit)(nd_thread *thread, void *data), void *data);
#endif
