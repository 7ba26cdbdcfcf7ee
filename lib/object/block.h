// Blocks: the memory that objects lie in. It is the library's own, and stays it.
//
//   class   a size of blocks; what was ever a block of a class is one for as long as the process lives
//   cache   a thread's free blocks of a class: two batches at most, no lock
//   batch   some 16 KiB of free blocks, handed over between a cache and the depot as one
//   depot   the batches that no thread has, under one lock; threads that end leave theirs here
//   run     16 KiB that blocks of a class are cut from; a thread cuts one at a time
//   slab    256 KiB of runs, from the system; its beginning says what its runs are. Where there are
//           many already, eight come at once, in a huge page
//
// Invariant: a header that was ever handed out stays readable, and where it lies only headers ever
// lie. So whoever retains or releases a dead object finds a count of zero, not somebody else's
// memory, and the program stops with a sentence (nd__checked_tell_dead). Memory goes back to the
// system without its addresses: it reads as zeros then, which is a count of zero as well.
//
// The class is kept in the top bits of the header's flags. Blocks begin on half a cache line, and those
// that are whole lines on a line.
//
// Where a tool watches memory (the address sanitizer, valgrind) blocks are allocated one by one, so
// that it sees each; with ND_CHECK in the environment, and under the address sanitizer, what is
// freed waits in a quarantine before it is used again. Caches are empty then, and everything takes
// the slow path.
#ifndef ND_LIB_OBJECT_BLOCK_H
#define ND_LIB_OBJECT_BLOCK_H
#include "lib/base/alloc.h"
#include "lib/object/object.h"

enum {
    ND__BLOCK_UNIT = 32,
    ND__BLOCK_LINE = 64,
    ND__BLOCK_FINE = 1024, ///< the largest of the classes that are a unit apart
    ND__BLOCK_CACHED_CLASSES =
        ND__BLOCK_FINE / ND__BLOCK_UNIT + 1, ///< and 2,048; beyond: powers of two
};

/// A thread's free blocks of a class.
typedef struct nd__block_cache {
    nd_object *free;     ///< linked by `next`
    uint32_t room;       ///< blocks that `free` takes until it is a batch
    bool begun;          ///< room has been set
    nd_object *spare;    ///< a batch, or NULL
    char *cut, *cut_end; ///< what is left of the thread's run
} nd__block_cache;

#if ND_SHARED // whose thread-local variables are small: allocated, and until then one that stays empty
extern _Thread_local nd__block_cache *nd__block_caches;
#else
extern _Thread_local nd__block_cache nd__block_caches[ND__BLOCK_CACHED_CLASSES];
#endif

/// With an empty cache, or of a class that has none.
void *nd__block_new_slowly(size_t bytes);
void nd__block_free_slowly(nd_object *object);

/// Bytes of the blocks of a class.
static inline size_t nd__block_bytes(uint32_t class) {
    if (class < ND__BLOCK_CACHED_CLASSES - 1)
        return (size_t)(class + 1) * ND__BLOCK_UNIT;
    return (size_t)(2 * ND__BLOCK_FINE) << (class - (ND__BLOCK_CACHED_CLASSES - 1));
}

/// Class of the cached classes for a size up to ND__BLOCK_FINE.
static inline uint32_t nd__block_class(size_t bytes) {
    return (uint32_t)((bytes - 1) / ND__BLOCK_UNIT);
}

/// Uninitialised memory for an object of so many bytes (>= sizeof(nd_object)), but for the class in
/// header.flags; NULL when there is none (no error is set).
static inline void *nd__block_new(size_t bytes) {
#ifndef ND_MODEL
    if (__builtin_expect(bytes <= ND__BLOCK_FINE && !nd__alloc_should_fail, 1)) {
        nd__block_cache *cache = &nd__block_caches[nd__block_class(bytes)];
        nd_object *block = cache->free;
        if (__builtin_expect(block && !(nd__object_flags(block) & ND__NAMED), 1)) {
            cache->free = block->next;
            cache->room++;
            return block;
        }
    }
#endif
    return nd__block_new_slowly(bytes);
}

/// Gives up the memory of an object that nobody refers to any more. Its word becomes that of a dead
/// one, if it is not yet; type, site and name stay readable until the block is used again.
static inline void nd__block_free(nd_object *object) {
#ifndef ND_MODEL
    uint32_t class = nd__object_flags(object) >> ND__CLASS_SHIFT;
    if (__builtin_expect(class < ND__BLOCK_CACHED_CLASSES, 1)) {
        nd__block_cache *cache = &nd__block_caches[class];
        if (__builtin_expect(cache->room != 0, 1)) {
            cache->room--;
            object->next = cache->free;
            cache->free = object;
            return;
        }
    }
#endif
    nd__block_free_slowly(object);
}

/// The same for several objects.
void nd__block_free_all(nd_object *const *objects, size_t count);

/// Bytes of the block of an object, at least as many as were asked for.
size_t nd__block_size(const nd_object *object);

/// The thread ends: what it has cached goes to the depot. It may still come back for more.
void nd__block_thread_end(void);

/// From now on keeps at most so many bytes, as far as what is free is whole runs (but for threads' own
/// caches); UINT64_MAX: 64 MiB, and more for a moment, as at first.
void nd__block_set_limit(uint64_t bytes);
/// For who passes by now and then, such as whoever makes a manager or frees large data: a program that was
/// large and needs no more than its caches from then on gives nothing to the depot that would be seen there.
/// Mostly a load.
void nd__block_look(void);
/// Gives what no object uses back to the system, but for other threads' caches. Returns the bytes.
uint64_t nd__block_trim(void);
/// Bytes of blocks that are kept for reuse: the depot's, and those in quarantine.
uint64_t nd__block_cached_bytes(void);

// For checked.c.
uint32_t nd__block_class_of(size_t bytes);
/// A block comes into use: nothing is left of who was there before.
void nd__block_begin(nd_object *block, uint32_t class);
#endif
