// The header every counted object begins with, and how it lives and dies.
//
// Count word: low 32 bits strong count, high 32 bits a version that every retain increments (retain
// adds 2^32 + 1, release subtracts 1). The collector compares whole words, so a retain between its
// two looks is never missed.
//
// Life: nd__object_new (count 1, private) -> fields and edges are filled freely ->
// nd__publish (attached to a manager, seen by the collector when tracked; from here on edges
// change only inside the gate, nd_edge_*) -> last release -> unlinked from its manager, weak
// references cleared, `clear`, `destroy`, freed. Death is iterative. Objects lie in blocks
// (block.h).
//
// Nothing may touch an object after a release that was not its own last one.
#ifndef ND_LIB_OBJECT_OBJECT_H
#define ND_LIB_OBJECT_OBJECT_H
#include "lib/base/atomics.h"
#include <nd/detail/counts.h>
#include <nd/object.h>
#include <string.h>

// Bits of nd_object.flags.
enum {
    ND__TRACKED = 1u << 0, ///< on its manager's tracked list; set at publish or by nd__member_track
    ND__CLOSED = 1u << 1,  ///< payload and edges given up; handle still counted
    ND__DYING = 1u << 2,   ///< found to be garbage by the collection in progress
    ND__FINALIZED = 1u << 3,  ///< finalizer has run
    ND__NAMED = 1u << 4,      ///< has an entry in the table of names
    ND__TEMP = 1u << 5,       ///< temp-attached: has a chain of origins
    ND__USER = 1u << 6,       ///< made by nd_object_new: payload follows the header
    ND__HAS_WEAK = 1u << 7,   ///< had a weak reference at some time
    ND__CLOSING = 1u << 8,    ///< somebody has begun nd_close
    ND__GONE = 1u << 9,       ///< closed, and `destroy` has run
    ND__SUSPECT = 1u << 10,   ///< about to be found garbage by a collection in steps (steps.c)
    ND__REVIVABLE = 1u << 11, ///< dying, but others may be getting references to it
    ND__LENT = 1u << 12,      ///< its storage keeps what lies in its block (adopt.h)
    ND__ENDED = 1u << 13,     ///< of the object and that storage, one has ended
    ND__SMALL = 1u << 14,     ///< of a user's object: its payload lies in the header's cache line
    ND__HOMED = 1u << 15,     ///< dead, not finalized: `previous` is the manager it goes back to
    ND__MOVED = 1u << 16,     ///< and that is another one than it was in
    ND__CLASS_SHIFT = 24, ///< the bits from here on are the class of its block (block.h); constant
};
#define ND__CLASS_BITS (~UINT32_C(0) << ND__CLASS_SHIFT)

// Library bits of nd_type.flags, beside the public ND_TYPE_GREEN.
enum {
    ND__TYPE_TENSOR = 1u << 8,    ///< object begins with struct nd__stored
    ND__TYPE_ACCOUNTED = 1u << 9, ///< object begins with struct nd_accounted
    ND__TYPE_MANAGER = 1u << 10,
    /// A cap does not count it, and a dispose does not close it: a tensor's storage (the tensor is
    /// counted), a graph's arena.
    ND__TYPE_UNCAPPED = 1u << 12,
    ND__TYPE_UNTRACKED = 1u << 11, ///< can be tracked, but starts green until nd__member_track
    ND__TYPE_DROPS = 1u << 13,     ///< the type is an nd__dropping_type
    /// All that the type of tensors has.
    ND__TYPE_OF_TENSORS = ND__TYPE_TENSOR | ND__TYPE_ACCOUNTED | ND__TYPE_UNTRACKED,
};

/// One version of the count word. A retain adds one, together with the count.
#define ND__VERSION_STEP (UINT64_C(1) << 32)

/// A part of a manager's objects (lib/manager/manager.h).
typedef struct nd_shard nd_shard;

struct nd_object {
    _Atomic uint64_t word;
    const nd_type *type;
    _Atomic(nd_shard *)
        shard; ///< the part of a manager it is in; NULL while private or dead. Changes under locks
    nd_object *previous,
        *next;           ///< links of its shard's list (its lock); of the dead list after unlinking
    const nd_site *site; ///< creation site, or NULL
    _Atomic uint32_t flags;
    uint32_t
        gc_index; ///< position in the running collection's candidate array; meaningless outside it
};
_Static_assert(sizeof(nd_object) == 56, "with a pointer behind it, one cache line");

/// From a user's object to its payload. What is small (ND__SMALL) lies right behind the header.
enum { ND__PAYLOAD = 64, ND__PAYLOAD_SMALL = sizeof(nd_object) };

/// An object with memory that managers account for (storage, resource, tensor).
typedef struct nd_accounted {
    nd_object header;
    uint64_t bytes; ///< of which its manager's account has so many
    nd_device_kind kind;
    int32_t device_index;
} nd_accounted;

/// A type of ND__TYPE_DROPS: it has no finalizer and no `destroy`. Of an object of it that is in no
/// manager, and that nobody can find, its death need not clear the edges one by one (destroy.c).
typedef struct nd__dropping_type {
    nd_type type;
    void (*drop)(nd_object *object); ///< releases what all its edges lead to, and clears none
} nd__dropping_type;

/// Edges that an object of ND__TYPE_TENSOR may have beside its storage. One leads to what computed
/// it; the last to the object of that kind whose storage it may borrow (lib/manager/borrow.h).
enum { ND__STORED_EDGES = 4, ND__STORED_HISTORY = 1, ND__STORED_BASE = ND__STORED_EDGES - 1 };

/// What a type of ND__TYPE_TENSOR begins with. Its bytes are those of data that lie in its own
/// block, while it has no storage; else the storage has them. It has no finalizer and no `destroy`,
/// and `traverse` and `clear` know of no other edges than these, so that its death needs neither
/// (destroy.c).
typedef struct nd__stored {
    nd_accounted accounted;
    /// Edge to a green nd_accounted without edges (the storage): made with it, or later
    /// (nd__adopt_storage); dies with it as a rule. NULL before, and once closed, unless others
    /// borrow it, in whom it is not counted (lib/manager/borrow.h). While the object is green this is
    /// its only edge.
    _Atomic(nd_object *) storage;
    uint8_t own[18];   ///< the type's
    uint8_t borrowers; ///< lib/manager/borrow.h
    uint8_t own_others[5];
    nd_object *edges[ND__STORED_EDGES];
} nd__stored;

/// Whether reports say how many bytes an object has: not of a tensor whose storage has them.
static inline bool nd__object_shows_bytes(const nd_object *object) {
    uint32_t flags = object->type->flags;
    return (flags & ND__TYPE_ACCOUNTED) &&
           (!(flags & ND__TYPE_TENSOR) || ((const nd_accounted *)object)->bytes);
}

/// The storage, or NULL. It may appear at any time, beside whoever asks.
static inline nd_object *nd__object_storage(const nd_object *object) {
    return nd__atomic_load(&((nd__stored *)(uintptr_t)object)->storage, acquire);
}

/// Tells the visitor of the edges of an object, inside the gate. One that is closed has none but the
/// storage that it may keep for who has borrowed it (lib/manager/borrow.h).
static inline void nd__object_traverse(const nd_object *object, nd_visitor *visitor);

/// The shard that an object is in; NULL when it is in none.
static inline nd_shard *nd__object_shard(const nd_object *object) {
    return nd__atomic_load(&((nd_object *)(uintptr_t)object)->shard, acquire);
}

/// The account of an object whose bytes managers account for; else NULL.
static inline nd_accounted *nd__object_accounted(nd_object *object) {
    return (object->type->flags & ND__TYPE_ACCOUNTED) ? (nd_accounted *)object : NULL;
}

/// Memory of `size` bytes (>= sizeof(nd_object)) zeroed, with header filled, count 1, in no
/// manager. NULL with an error. Walks the ladder when there is no memory (pressure.h), so the
/// caller must own what it uses and hold no lock.
nd_object *nd__object_new(const nd_type *type, size_t size);
/// The same for who writes every field behind the header: they are not zeroed.
nd_object *nd__object_new_bare(const nd_type *type, size_t size);

/// What a retain does that found a count which ordinary objects do not have: of a dead or watched
/// object, or one beyond all bounds. Returns the object, or stops the program.
void *nd__object_retained_beyond(nd_object *object, uint32_t count);
/// A release that found a count beyond those of ordinary objects. True when it was the last one.
bool nd__object_released_beyond(nd_object *object, uint32_t count);

/// The last step of a constructor: publishes in the current manager, with the object's bytes
/// charged to it. The object, or NULL with an error (cap, quota), and then it is discarded.
void *nd__object_publish_or_discard(const char *operation, void *object);

/// Frees an object that was never published and holds nothing.
void nd__object_discard(void *object);

/// False: new objects get no creation site even where calls record one.
extern bool nd__object_sites_enabled;

/// Whether two sites are one line of the program. Each call there has a site of its own, and again in
/// each file that includes it.
static inline bool nd__object_same_site(const nd_site *a, const nd_site *b) {
    return a == b || (a && b && a->line == b->line && strcmp(a->file, b->file) == 0);
}

/// "file:line" in `room` bytes, which are at least 32. Of a file that is too long the end is kept,
/// behind "...".
void nd__object_print_site(char *ret_text, size_t room, const nd_site *site);

/// Fills the header in memory from nd__block_new, with these flags (of which one may be
/// ND__TRACKED); cannot fail.
static inline nd_object *nd__object_begin_as(const nd_type *type, uint32_t flags, void *memory) {
    nd_object *object = memory;
    uint32_t class; // plainly: nobody else has it
    memcpy(&class, &object->flags, sizeof class);
    atomic_init(&object->word, ND__VERSION_STEP + 1);
    object->type = type;
    atomic_init(&object->shard, NULL);
    object->previous = NULL;
    object->next = NULL;
    object->site = nd__object_sites_enabled ? nd__site : NULL;
    const uint64_t flags_and_index = (class & ND__CLASS_BITS) | flags;
    _Static_assert(offsetof(nd_object, gc_index) == offsetof(nd_object, flags) + sizeof flags,
                   "as one word");
    memcpy((char *)object + offsetof(nd_object, flags), &flags_and_index, sizeof flags_and_index);
    return object;
}
static inline nd_object *nd__object_begin(const nd_type *type, void *memory) {
    return nd__object_begin_as(type, 0, memory);
}

static inline uint32_t nd__object_flags(const nd_object *object) {
    return nd__atomic_load(&((nd_object *)(uintptr_t)object)->flags, relaxed);
}
/// The same by a collection before it makes an object its candidate: one that was let live is no
/// longer looked at by the collection that had found it to be garbage.
static inline uint32_t nd__object_flags_to_join(const nd_object *object) {
    return nd__atomic_load(&((nd_object *)(uintptr_t)object)->flags, acquire);
}
static inline bool nd__object_is_closed(const void *object) {
    return (nd__object_flags(object) & ND__CLOSED) != 0;
}
static inline void nd__object_traverse(const nd_object *object, nd_visitor *visitor) {
    const nd_type *type = object->type;
    if (__builtin_expect(!nd__object_is_closed(object), 1)) {
        if (type->traverse)
            type->traverse(object, visitor);
    } else if (type->flags & ND__TYPE_TENSOR) {
        nd_visit(visitor, nd__object_storage(object), "storage");
    }
}
/// True from when nd_close has begun: whoever sets an edge now leaves it for ever, as nobody clears
/// it any more. To be asked after the last call that may run user code, which may close what it
/// finds.
static inline bool nd__object_is_closing(const void *object) {
    return (nd__object_flags(object) & ND__CLOSING) != 0;
}
/// On a thread that cuts or explains garbage: whether an object that it meets there is some of it.
/// What a finalizer of another thread's collection has handed out is not.
static inline bool nd__object_is_own_garbage(const nd_object *object) {
    return (nd__object_flags(object) & (ND__DYING | ND__REVIVABLE)) == ND__DYING;
}

/// What reports call an object, which must be held, or its manager locked. A closed one has given
/// up what `describe` may tell.
static inline const char *nd__object_text(const nd_object *object) {
    const nd_type *type = object->type;
    return type->describe && !nd__object_is_closed(object) ? type->describe(object) : type->name;
}

/// Takes a count whose release is owed by the structure it is kept in, not by a returned handle:
/// nd_object_retain, inline.
static inline void nd__object_keep(void *handle) {
    nd_object *object = handle;
    if (!object)
        return;
    uint32_t count = (uint32_t)nd__atomic_add_relaxed(&object->word, ND__RETAIN_STEP);
    if (__builtin_expect(count - 1 >= ND__COUNT_LIMIT - 2, 0))
        nd__object_retained_beyond(object, count);
}

/// Inside the gate: the reference to `target` (or NULL) leaves an edge without being released, so
/// its count stays. The version says that it moved: a collection in steps may have seen it where it
/// was.
static inline void nd__object_note_moved(nd_object *target) {
    if (target)
        nd__atomic_add_relaxed(&target->word, ND__VERSION_STEP);
}

/// Takes a count of an object that may be dying; false when it is dead, or garbage of a collection
/// on whatever thread. A CAS from a non-zero count that bumps the version. Only inside the gate
/// (nd__gate_enter) and with something that keeps the memory valid (a manager's or weak lock).
bool nd__object_try_retain(nd_object *object);
#endif
