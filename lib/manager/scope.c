// Scopes: per-thread stack of owners of temporaries.
//
// Invariant: a scope is in exactly one thread's stack, or in none (owner NULL). Only its owner
// touches its array.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include <nd/scope.h>

enum { INLINE_ITEMS = 24 };

struct nd_scope {
    nd_scope *outer;
    nd_thread *owner; ///< NULL while no thread is in it
    bool ending;      ///< what it holds is being released; it is in no stack any more
    nd_object **items;
    size_t size, capacity;
    nd_object *inline_items[INLINE_ITEMS];
};

/// A call that ends a scope and all within it. What dies of that may run code that ends the scope,
/// too, or leaves it.
typedef struct nd_scope_ending {
    const nd_scope *scope; ///< NULL: it has ended, or was left, and may be another thread's by now
    bool left;
    struct nd_scope_ending *outer;
} nd_scope_ending;

nd_scope *nd_scope_begin(void) {
    nd_scope *scope = nd__seam_alloc(sizeof *scope);
    if (!scope) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "scope_begin: no memory for a scope");
        return NULL;
    }
    nd_thread *thread = nd__thread();
    scope->outer = thread->scope;
    scope->owner = thread;
    scope->ending = false;
    scope->items = scope->inline_items;
    scope->size = 0;
    scope->capacity = INLINE_ITEMS;
    thread->scope = scope;
    return scope;
}

/// That a scope has ended, or was left.
static void tell_endings(nd_thread *thread, const nd_scope *scope, bool left) {
    for (nd_scope_ending *call = thread->scopes_ending; call; call = call->outer)
        if (call->scope == scope) {
            call->scope = NULL;
            call->left = left;
        }
}

static void end_innermost(nd_thread *thread) {
    nd_scope *scope = thread->scope;
    // What dies here may run user code that opens scopes of its own; it must find this one gone.
    thread->scope = scope->outer;
    scope->ending = true;
    while (scope->size)
        nd_object_release(scope->items[--scope->size]);
    tell_endings(thread, scope, false);
    if (scope->items != scope->inline_items)
        nd__alloc_free(scope->items);
    nd__alloc_free(scope);
}

nd_status nd_scope_end(nd_scope *scope) {
    if (!scope)
        return ND_OK;
    nd_thread *thread = nd__thread();
    if (!scope->owner)
        return nd__error(ND_ERROR_STATE,
                         "scope_end: the scope is detached; enter it on a thread first");
    if (scope->owner != thread)
        return nd__error(ND_ERROR_STATE, "scope_end: the scope belongs to another thread");
    if (scope->ending)
        return nd__error(ND_ERROR_STATE, "scope_end: the scope is being ended");
    nd_scope_ending call = {scope, false, thread->scopes_ending};
    thread->scopes_ending = &call;
    while (call.scope)
        end_innermost(thread);
    thread->scopes_ending = call.outer;
    if (call.left)
        return nd__error(ND_ERROR_STATE, "scope_end: what died there has left the scope");
    return ND_OK;
}

nd_scope *nd_scope_get_current(void) {
    return nd__thread()->scope;
}

/// Room for one more; the array doubles. What runs when memory is short may use the scope, too.
static bool reserve(nd_scope *scope) {
    while (scope->size == scope->capacity) {
        size_t capacity = 2 * scope->capacity;
        nd_object **items = nd__seam_alloc(capacity * sizeof *items);
        if (!items)
            return false;
        nd_object **before = items;
        if (capacity > scope->capacity) {
            __builtin_memcpy(items, scope->items, scope->size * sizeof *items);
            before = scope->items;
            scope->items = items;
            scope->capacity = capacity;
        }
        if (before != scope->inline_items)
            nd__alloc_free(before);
    }
    return true;
}

static nd_status adopt(const char *operation, nd_scope *scope, nd_object *object) {
    nd_status status = ND_OK;
    if (!scope)
        status =
            nd__error(ND_ERROR_STATE,
                      "%s: this thread has no open scope, which nd_tmp() and every function of "
                      "<nd/scoped.h> needs",
                      operation);
    else if (scope->owner && scope->owner != nd__thread())
        status = nd__error(ND_ERROR_STATE, "%s: the scope belongs to another thread", operation);
    else if (!reserve(scope))
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for one more object in the scope",
                           operation);
    if (status == ND_OK)
        scope->items[scope->size++] = object;
    else
        nd_object_release(object);
    return status;
}

const void *nd_object_tmp(void *object) {
    if (!object)
        return NULL;
    return adopt("tmp", nd__thread()->scope, object) == ND_OK ? object : NULL;
}

nd_status nd_scope_adopt(nd_scope *scope, void *object) {
    if (!object)
        return nd__error_null("scope_adopt", "object");
    if (!scope) {
        nd_object_release(object);
        return nd__error_null("scope_adopt", "scope");
    }
    return adopt("scope_adopt", scope, object);
}

nd_status nd_scope_move_out(const void *object) {
    if (!object)
        return nd__error_null("scope_move_out", "object");
    for (nd_scope *scope = nd__thread()->scope; scope; scope = scope->outer) {
        for (size_t i = scope->size; i-- > 0;) {
            if (scope->items[i] != object)
                continue;
            if (!scope->outer)
                return nd__error(ND_ERROR_STATE,
                                 "scope_move_out: there is no enclosing scope; retain the object");
            if (!reserve(scope->outer))
                return nd__error(ND_ERROR_OUT_OF_MEMORY,
                                 "scope_move_out: no memory in the enclosing scope");
            nd_object *moved = scope->items[i];
            for (size_t k = i + 1; k < scope->size; k++)
                scope->items[k - 1] = scope->items[k];
            scope->size--;
            scope->outer->items[scope->outer->size++] = moved;
            return ND_OK;
        }
    }
    return nd__error(ND_ERROR_STATE, "scope_move_out: no scope of this thread owns the %s",
                     nd_get_type_name(object));
}

size_t nd_scope_get_size(const nd_scope *scope) {
    return scope ? scope->size : 0;
}

nd_status nd_scope_leave(nd_scope *scope) {
    if (!scope)
        return nd__error_null("scope_leave", "scope");
    nd_thread *thread = nd__thread();
    if (thread->scope != scope)
        return nd__error(ND_ERROR_STATE,
                         "scope_leave: the scope is not the innermost one of this thread");
    tell_endings(thread, scope, true);
    thread->scope = scope->outer;
    scope->outer = NULL;
    scope->owner = NULL;
    return ND_OK;
}

nd_status nd_scope_enter(nd_scope *scope) {
    if (!scope)
        return nd__error_null("scope_enter", "scope");
    if (scope->owner)
        return nd__error(ND_ERROR_STATE, "scope_enter: the scope is in use; detach it first");
    nd_thread *thread = nd__thread();
    scope->outer = thread->scope;
    scope->owner = thread;
    thread->scope = scope;
    return ND_OK;
}
