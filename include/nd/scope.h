/// @file
/// Scopes own the temporaries handed to them and release them, last in first out, when the block
/// ends.
///
/// A scope belongs to the thread that opened it. ND_SCOPE { } ends on every exit from its block:
/// the closing brace, return, goto, break. (ND_SCOPE is a `for` to the compiler, so `break` inside
/// it leaves the scope, not an outer loop, and a function that returns its value inside wants a
/// return behind it too; nd_auto_scope opens one for the rest of an ordinary block instead.) A
/// thread that ends with open scopes has them ended for it.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_SCOPE_H
#define ND_SCOPE_H
#include <nd/object.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Opens a scope inside this thread's innermost one. Use ND_SCOPE or nd_auto_scope, which end it,
/// too.
///
/// @return the scope, not counted: it ends with nd_scope_end(). NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY
/// @threads any; the scope belongs to the calling one
ND_API nd_scope *nd_scope_begin(void);

/// Ends a scope: releases what it owns, last in first out. Scopes opened inside it that are still
/// open end first. What dies there may run code that ends the scope as well; the one that is being
/// emptied cannot be ended once more.
///
/// @param scope the scope, which is gone afterwards; NULL is fine
/// @return ND_OK, or the error; then nothing happened, but where what died in a scope inside it has
/// left it
/// @errors ND_ERROR_STATE (it belongs to another thread, or to none; it is being ended)
/// @threads the one it belongs to
ND_API nd_status nd_scope_end(nd_scope *scope);

/// Innermost scope of this thread.
///
/// @return borrowed: valid until it ends. NULL when none is open
/// @errors none
/// @threads any; each has its own
ND_API nd_scope *nd_scope_get_current(void);

/// Hands an object to the innermost scope of this thread. Use nd_tmp(), which keeps the type.
///
/// @param object owned; consumed always: on error it is released. NULL gives NULL
/// @return the same object, borrowed from the scope; NULL on error
/// @errors ND_ERROR_STATE (no scope is open), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API const void *nd_object_tmp(void *object);

/// nd_tmp(x): hands the owned x to the innermost scope of this thread.
///
/// @param x an owned handle of any type; consumed always: on error it is released. Evaluated once
/// @return `const T *` for a `T *`, borrowed from the scope; NULL for NULL and on error
/// @errors as nd_object_tmp()
/// @threads any
#ifdef __cplusplus
#define nd_tmp(x) nd__tmp_handle(x)
#else
#define nd_tmp(x) ND__TMP_NUMBERED(__COUNTER__, x)
#endif
// Expands x once, so that nested calls do not multiply the text; `n` makes the name unique.
#define ND__TMP_NUMBERED(n, x) ND__TMP(n, x)
#define ND__TMP(n, x)                                               \
    __extension__({                                                 \
        __auto_type nd_tmp_##n = (x);                               \
        (const __typeof__(*nd_tmp_##n) *)nd_object_tmp(nd_tmp_##n); \
    })
#ifdef __cplusplus
extern "C++" {
template <typename T> inline const T *nd__tmp_handle(T *owned) {
    return static_cast<const T *>(nd_object_tmp(owned));
}
}
#endif

/// Hands an object to a certain scope.
///
/// @param scope one of this thread, or one that no thread is in
/// @param object owned; consumed always: on error it is released
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (the scope belongs to another thread), ND_ERROR_OUT_OF_MEMORY
/// @threads the one the scope belongs to; of one that no thread is in any, one at a time
ND_API nd_status nd_scope_adopt(nd_scope *scope, void *object);

/// Moves an object from the innermost scope that owns it to the enclosing one. Members of a list or
/// a module go with it, because they are its edges.
///
/// @param object borrowed from a scope of this thread
/// @return ND_OK, or the error; then it is where it was
/// @errors ND_ERROR_STATE (no scope of this thread owns it, or none encloses that),
///         ND_ERROR_OUT_OF_MEMORY
/// @threads any; it is this thread's scopes that are searched
ND_API nd_status nd_scope_move_out(const void *object);

/// Number of objects a scope owns now.
///
/// @param scope the scope; NULL is fine
/// @return 0 for NULL
/// @errors none
/// @threads the one the scope belongs to
ND_API size_t nd_scope_get_size(const nd_scope *scope);

/// Takes the innermost scope off this thread, so that another can enter it.
///
/// @param scope the innermost scope of this thread
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (it is not)
/// @threads the one it belongs to
ND_API nd_status nd_scope_leave(nd_scope *scope);

/// Makes a scope that was left the innermost one of the calling thread.
///
/// @param scope one that no thread is in
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (a thread has it)
/// @threads any; handing the scope from one to another is the user's to order
ND_API nd_status nd_scope_enter(nd_scope *scope);

/// What ND_SCOPE and nd_auto_scope keep. Not for users to touch.
typedef struct nd_scope_block {
    nd_scope *scope; ///< the open scope
    bool once;       ///< whether the block is still to run
} nd_scope_block;
static inline nd_scope_block nd__scope_block_begin(void) {
    nd_scope_block block = {nd_scope_begin(), true};
    return block;
}
static inline void nd__scope_block_end(nd_scope_block *block) {
    nd_scope_end(block->scope);
}

/// ND_SCOPE { ... }: opens a scope that ends on every exit from the block.
///
/// @errors as nd_scope_begin(); the block runs nevertheless, and what it hands over goes to the
///         enclosing scope
/// @threads any
#define ND_SCOPE ND__FOR_BLOCK(nd_scope_block, nd__scope_block_begin(), nd__scope_block_end)

/// nd_auto_scope; opens a scope that ends with the enclosing block. Several in a block nest.
///
/// @errors as nd_scope_begin(); what is handed over then goes to the enclosing scope
/// @threads any
#define nd_auto_scope ND__AUTO_SCOPE_NUMBERED(__COUNTER__)
#define ND__AUTO_SCOPE_NUMBERED(n) ND__AUTO_SCOPE(n)
#define ND__AUTO_SCOPE(n)            \
    nd_scope_block nd_scope_rest_##n \
        __attribute__((__cleanup__(nd__scope_block_end), __unused__)) = nd__scope_block_begin()

#ifdef __cplusplus
}
#endif
#endif
