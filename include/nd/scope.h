// Scopes own the temporaries handed to them and release them, last in first out, when the block
// ends.
//
// A scope belongs to the thread that opened it. ND_SCOPE { } ends on every exit from its block: the
// closing brace, return, goto, break. (ND_SCOPE is a `for` to the compiler, so `break` inside it
// leaves the scope, not an outer loop; nd_auto_scope opens one for the rest of an ordinary block
// instead.)
#ifndef ND_SCOPE_H
#define ND_SCOPE_H
#include <nd/object.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Opens a scope inside this thread's innermost one. Not counted; ends with nd_scope_end. NULL when
/// out of memory.
ND_API nd_scope *nd_scope_begin(void);

/// Ends a scope: releases what it owns, last in first out; scopes opened inside it that are still
/// open end first. Error (and nothing happens) when it belongs to another thread. NULL is fine.
ND_API nd_status nd_scope_end(nd_scope *scope);

/// Innermost scope of this thread, or NULL.
ND_API nd_scope *nd_scope_current(void);

/// Gives the owned x to the innermost scope of this thread and returns it borrowed. Consumes x
/// always: without a scope, or without memory, x is released and NULL returned with an error. NULL
/// gives NULL. Use nd_tmp().
ND_API const void *nd_object_tmp(void *object);
#define nd_tmp(x) ND__TMP_NUMBERED(__COUNTER__, x)
// Expands x once, so that nested calls do not multiply the text; `n` makes the name unique.
#define ND__TMP_NUMBERED(n, x) ND__TMP(n, x)
#define ND__TMP(n, x)                                               \
    __extension__({                                                 \
        __auto_type nd_tmp_##n = (x);                               \
        (const __typeof__(*nd_tmp_##n) *)nd_object_tmp(nd_tmp_##n); \
    })

/// Gives the owned x to `scope`, which must belong to this thread or be detached. Consumes x
/// always.
ND_API nd_status nd_scope_adopt(nd_scope *scope, void *object);

/// Moves x from the innermost scope that owns it to the enclosing one (for a list or module its
/// members move with it, because they are its edges). Error when no enclosing scope or x is in
/// none.
ND_API nd_status nd_scope_move_out(const void *object);

/// Number of objects a scope owns now.
ND_API size_t nd_scope_size(const nd_scope *scope);

/// Takes an innermost scope off this thread so that another can enter it. Returns the scope.
ND_API nd_status nd_scope_detach(nd_scope *scope);
/// Makes a detached scope the innermost one of the calling thread.
ND_API nd_status nd_scope_enter(nd_scope *scope);

typedef struct nd_scope_block {
    nd_scope *scope;
    bool once;
} nd_scope_block;
static inline nd_scope_block nd__scope_block_begin(void) {
    nd_scope_block block = {nd_scope_begin(), true};
    return block;
}
static inline void nd__scope_block_end(nd_scope_block *block) {
    nd_scope_end(block->scope);
}

/// ND_SCOPE { ... }
#define ND_SCOPE                                                                  \
    for (nd_scope_block nd_scope_                                                 \
         __attribute__((cleanup(nd__scope_block_end))) = nd__scope_block_begin(); \
         nd_scope_.once; nd_scope_.once = false)

/// nd_auto_scope;  opens a scope that ends with the enclosing block.
#define nd_auto_scope                                                                     \
    nd_scope_block nd_scope_rest_ __attribute__((cleanup(nd__scope_block_end), unused)) = \
        nd__scope_block_begin()

#ifdef __cplusplus
}
#endif
#endif
