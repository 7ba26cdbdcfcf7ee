/// @file
/// Counted objects: retain and release, edges, user-defined types, weak references, lists,
/// resources.
///
/// Invariant that every type keeps: an *edge* is a strong reference held inside an object; each
/// owned edge is reported by the type's `traverse` exactly once, and edges of a published object
/// change only through nd_edge_* (they pass the collector's gate). Retain and release are safe from
/// any thread and never wait for the collector.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_OBJECT_H
#define ND_OBJECT_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------- retain, release

/// Adds a strong count. Use nd_retain(), which keeps the type.
///
/// @param object any object, owned or borrowed; NULL is fine
/// @return the same object, owned: the caller owes one release. NULL for NULL
/// @errors none. A count that would overflow, and an object that is dead, stop the program
/// @threads any, beside everything; never waits
ND_API void *nd_object_retain(const void *object) ND_OWNED;

// One association per handle type: owned (T *) and borrowed (const T *) map to what `owned(T)` and
// `borrowed(T)` say.
#ifndef __cplusplus
// clang-format off
#define ND__FOR_HANDLES(x, owned, borrowed)                                                  \
    nd_object *: owned(nd_object, x), const nd_object *: borrowed(nd_object, x),             \
    nd_tensor *: owned(nd_tensor, x), const nd_tensor *: borrowed(nd_tensor, x),             \
    nd_manager *: owned(nd_manager, x), const nd_manager *: borrowed(nd_manager, x),         \
    nd_weak *: owned(nd_weak, x), const nd_weak *: borrowed(nd_weak, x),                     \
    nd_list *: owned(nd_list, x), const nd_list *: borrowed(nd_list, x),                     \
    nd_map *: owned(nd_map, x), const nd_map *: borrowed(nd_map, x),                         \
    nd_resource *: owned(nd_resource, x), const nd_resource *: borrowed(nd_resource, x),     \
    nd_node *: owned(nd_node, x), const nd_node *: borrowed(nd_node, x),                     \
    nd_module *: owned(nd_module, x), const nd_module *: borrowed(nd_module, x),             \
    nd_optimizer *: owned(nd_optimizer, x), const nd_optimizer *: borrowed(nd_optimizer, x), \
    nd_schedule *: owned(nd_schedule, x), const nd_schedule *: borrowed(nd_schedule, x), \
    nd_ema *: owned(nd_ema, x), const nd_ema *: borrowed(nd_ema, x), \
    nd_loss_scaler *: owned(nd_loss_scaler, x), const nd_loss_scaler *: borrowed(nd_loss_scaler, x), \
    nd_stream *: owned(nd_stream, x), const nd_stream *: borrowed(nd_stream, x), \
    nd_event *: owned(nd_event, x), const nd_event *: borrowed(nd_event, x), \
    nd_communicator *: owned(nd_communicator, x), const nd_communicator *: borrowed(nd_communicator, x), \
    nd_data_parallel *: owned(nd_data_parallel, x), const nd_data_parallel *: borrowed(nd_data_parallel, x), \
    nd_graph *: owned(nd_graph, x), const nd_graph *: borrowed(nd_graph, x), \
    nd_state *: owned(nd_state, x), const nd_state *: borrowed(nd_state, x), \
    nd_dataset *: owned(nd_dataset, x), const nd_dataset *: borrowed(nd_dataset, x), \
    nd_gguf *: owned(nd_gguf, x), const nd_gguf *: borrowed(nd_gguf, x)
// clang-format on
#define ND__NULL_OF(T, x) ((T *)0)
#define ND__OWNED_TYPE(x) __typeof__(_Generic((x), ND__FOR_HANDLES(x, ND__NULL_OF, ND__NULL_OF)))
#endif

#ifdef ND_INLINE_COUNTS
#include <nd/detail/counts.h>
#define ND__RETAIN nd__retain_inline
#define ND__RELEASE nd__release_inline
#else
#define ND__RETAIN nd_object_retain
#define ND__RELEASE nd_object_release
#endif

/// nd_retain(x): an owned handle of x's type, also from a borrowed x.
///
/// @param x a handle of any type; NULL gives NULL. Evaluated once
/// @return owned: `T *` for a `T *` and for a `const T *`
/// @errors as nd_object_retain()
/// @threads any, beside everything; never waits. Where ND_INLINE_COUNTS is defined before the first
///          header of ndarc, retain and release cost no call while the process has one thread
///          (<nd/detail/counts.h>, which says what that is in exchange for)
#ifdef __cplusplus
#define nd_retain(x) nd__retain_handle(x)
#else
#define nd_retain(x) ((ND__OWNED_TYPE(x))ND__RETAIN(x))
#endif

/// nd_release(x): gives up an owned handle; the last one destroys the object.
///
/// What the object held is released in turn, by a list and not by recursion, however long the
/// chain.
///
/// @param x an owned handle; NULL is fine. A borrowed (const) one does not compile under
///        -Werror=discarded-qualifiers
/// @errors none. A release too many stops the program
/// @threads any, beside everything; never waits for the collector. Finalizers, destructors and weak
///          callbacks of what dies run here; if the gate is closed just then, on the collecting
///          thread
#define nd_release(x) ND__RELEASE(x)

/// nd_auto: a variable whose handle is released when it goes out of scope, as in
/// `nd_auto nd_tensor *t = nd_add(a, b);`. Initialise it, with NULL if with nothing else.
#define nd_auto __attribute__((__cleanup__(nd__auto_release), __unused__))
static inline void nd__auto_release(void *variable) {
    void *object = *ND__CAST(void **, variable);
    if (object)
        ND__RELEASE(object);
}

/// nd_steal(&x): takes the handle out of a variable, so that an nd_auto one can be returned.
///
/// @param pointer address of the variable, which is NULL afterwards. Evaluated once
/// @return what the variable held, owned if it was
/// @errors none
/// @threads as the variable: one at a time
#ifdef __cplusplus
#define nd_steal(pointer) nd__steal_handle(pointer)
#else
#define nd_steal(pointer) ND__STEAL_NUMBERED(__COUNTER__, pointer)
#endif
#define ND__STEAL_NUMBERED(n, pointer) ND__STEAL(n, pointer)
#define ND__STEAL(n, pointer)                                       \
    (__extension__({                                                \
        __typeof__(pointer) nd_pointer_##n = (pointer);             \
        __typeof__(*nd_pointer_##n) nd_value_##n = *nd_pointer_##n; \
        *nd_pointer_##n = NULL;                                     \
        nd_value_##n;                                               \
    }))

#ifdef __cplusplus
// What _Generic and __auto_type do in C. One function for each handle type: anything else is
// refused.
extern "C++" {
#define ND__RETAIN_HANDLE(T)                                                                 \
    __attribute__((__warn_unused_result__)) inline T *nd__retain_handle(const T *borrowed) { \
        return static_cast<T *>(ND__RETAIN(borrowed));                                       \
    }
ND__RETAIN_HANDLE(nd_object)
ND__RETAIN_HANDLE(nd_tensor)
ND__RETAIN_HANDLE(nd_manager)
ND__RETAIN_HANDLE(nd_weak)
ND__RETAIN_HANDLE(nd_list)
ND__RETAIN_HANDLE(nd_map)
ND__RETAIN_HANDLE(nd_resource)
ND__RETAIN_HANDLE(nd_node)
ND__RETAIN_HANDLE(nd_module)
ND__RETAIN_HANDLE(nd_optimizer)
ND__RETAIN_HANDLE(nd_schedule)
ND__RETAIN_HANDLE(nd_ema)
ND__RETAIN_HANDLE(nd_loss_scaler)
ND__RETAIN_HANDLE(nd_stream)
ND__RETAIN_HANDLE(nd_event)
ND__RETAIN_HANDLE(nd_graph)
ND__RETAIN_HANDLE(nd_state)
ND__RETAIN_HANDLE(nd_dataset)
ND__RETAIN_HANDLE(nd_gguf)
ND__RETAIN_HANDLE(nd_communicator)
ND__RETAIN_HANDLE(nd_data_parallel)
#undef ND__RETAIN_HANDLE

template <typename T> inline T *nd__steal_handle(T **variable) {
    T *value = *variable;
    *variable = nullptr;
    return value;
}
}
#endif

/// Strong count of an object right now: handles and edges. For tests and reports.
///
/// @param object any object; NULL is fine
/// @return the count; 0 for NULL
/// @errors none
/// @threads any; others may have changed the count before this returns
ND_API uint32_t nd_get_count(const void *object);

/// Name of the object's type, such as "tensor".
///
/// @param object any object; NULL is fine
/// @return static storage; "NULL" for NULL. A user's type: the `name` it gave
/// @errors none
/// @threads any
ND_API const char *nd_get_type_name(const void *object);

/// Names an object for reports: dump, cycle paths, leak report.
///
/// @param object any object
/// @param name copied, of any length; NULL removes the name
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_status nd_set_name(void *object, const char *name);

/// Copies the name that nd_set_name() gave.
///
/// @param object any object; NULL is fine
/// @param buffer written and terminated; the name is cut to fit
/// @param size bytes of `buffer`
/// @return `buffer`, empty when the object has no name; "" when there is no buffer
/// @errors none
/// @threads any
ND_API const char *nd_get_name(const void *object, char *buffer, size_t size);

/// Closes an object: it gives up its payload and its edges now, whoever holds it.
///
/// Handles stay valid memory until they are released; every later use of them answers
/// ND_ERROR_CLOSED. Storage that a live view shares stays with the view. A second call does
/// nothing. Closing a manager is nd_manager_close(x, NULL).
///
/// @param object any object; still the caller's to release
/// @return ND_OK, or the error
/// @errors those of nd_manager_close() for a manager, else none
/// @threads any, but not at the same time as an operation on the same handle; waits for the gate
ND_API nd_status nd_close(void *object);

/// Whether an object was closed.
///
/// @param object any object; NULL is fine
/// @return true when it was closed; false for NULL. A manager: true when it is not open
/// @errors none
/// @threads any
ND_API bool nd_is_closed(const void *object);

// ------------------------------------------------------------------------------ user-defined types

typedef struct nd_visitor nd_visitor; ///< what `traverse` is given
/// Passed to `traverse`, which hands every owned edge to nd_visit() once.
struct nd_visitor {
    /// What nd_visit() calls. Not for users to call or set.
    void (*visit)(nd_visitor *visitor, nd_object *target, const char *label);
};

/// Reports one owned edge. For `traverse` only.
///
/// @param visitor what `traverse` was given
/// @param target what the edge points to; NULL is skipped
/// @param label names the edge in reports ("grad", "saved"), which copy it; valid while `self` is
///        and holds the edge: free one of your own after nd_edge_clear() or nd_edge_take(), or in
///        `destroy`. NULL is fine
/// @errors none
/// @threads that of the `traverse` it is called from
static inline void nd_visit(nd_visitor *visitor, const void *target, const char *label) {
#ifdef __cplusplus
    nd_object *edge = const_cast<nd_object *>(static_cast<const nd_object *>(target));
#else
    nd_object *edge = (nd_object *)(uintptr_t)target;
#endif
    if (target)
        visitor->visit(visitor, edge, label);
}

/// Flag of a type that is never part of a cycle: it has no edges, or only to objects of such types.
/// The collector does not examine it.
#define ND_TYPE_GREEN 1u

/// What the library must know about a type. Must outlive its objects.
typedef struct nd_type {
    uint32_t size;    ///< sizeof(nd_type)
    uint32_t version; ///< 1
    const char *name; ///< in reports and errors; outlives the type's objects
    uint32_t flags;   ///< 0 or ND_TYPE_GREEN
    /// Calls nd_visit() for every owned edge, once per reference held. Runs inside the gate: must
    /// not allocate, lock, retain, release, or change anything. NULL: no edges.
    void (*traverse)(const nd_object *self, nd_visitor *visitor);
    /// Gives up every edge with nd_edge_clear(), leaving NULL. Must be safe to call twice. Must not
    /// run other user code. NULL: no edges.
    void (*clear)(nd_object *self);
    /// Runs at most once in an object's life, before anything is cleared, with all of its edges in
    /// place; so not at all for an object that was closed. May retain `self` or what it reaches
    /// somewhere, which revives them. NULL: none.
    void (*finalize)(nd_object *self);
    /// Frees the payload's own resources; edges are already cleared, and none may be set in it any
    /// more. May run any code. NULL: nothing to free.
    void (*destroy)(nd_object *self);
    /// What reports call this object, such as the operation of a graph node; they copy it. May be
    /// asked from any thread, under locks, from when the object is published until `destroy`: must
    /// not allocate, lock, or follow edges, and what it returns must not change until `destroy`.
    /// NULL: `name`.
    const char *(*describe)(const nd_object *self);
} nd_type;

/// ND_TYPE_EDGES(cell, CELL_EDGES) defines `cell_traverse` and `cell_clear` for a payload that is a
/// `cell`, from a list of those fields that are edges. No edge can be forgotten in one of the two,
/// or reported and not cleared; each is labelled with its field's name.
///
///     typedef struct cell { nd_tensor *weight; nd_list *cells; size_t count; nd_object **parts; }
///     cell; #define CELL_EDGES(ONE, MANY) ONE(weight) ONE(cells) MANY(parts, self->count)
///     ND_TYPE_EDGES(cell, CELL_EDGES)
///
/// ONE: a field that is an owned handle; in C anything else does not compile. MANY: an array of
/// them and how many there are, in which `self` is the payload. Such an array must not move, nor
/// its count change, once others see the object: what grows is for nd_list and nd_map. Not for
/// objects of nd_resource_new().
#define ND_TYPE_EDGES(type, FIELDS)                                                     \
    static void type##_traverse(const nd_object *nd_object_, nd_visitor *nd_visitor_) { \
        const type *self = ND__CAST(const type *, nd_object_get_data(nd_object_));      \
        (void)nd_visitor_;                                                              \
        if (self) {                                                                     \
            FIELDS(ND__VISIT_EDGE, ND__VISIT_EDGES)                                     \
        }                                                                               \
    }                                                                                   \
    static void type##_clear(nd_object *nd_object_) {                                   \
        type *self = ND__CAST(type *, nd_object_get_data(nd_object_));                  \
        if (self) {                                                                     \
            FIELDS(ND__CLEAR_EDGE, ND__CLEAR_EDGES)                                     \
        }                                                                               \
    }
#ifdef __cplusplus
#define ND__CHECK_EDGE(handle)
#else
#define ND__IS_OWNED(T, x) 1
#define ND__IS_BORROWED(T, x) 0
#define ND__CHECK_EDGE(handle)                                                                 \
    _Static_assert(_Generic((handle), ND__FOR_HANDLES(handle, ND__IS_OWNED, ND__IS_BORROWED)), \
                   "an edge is an owned handle");
#endif
#define ND__VISIT_EDGE(field)   \
    ND__CHECK_EDGE(self->field) \
    nd_visit(nd_visitor_, self->field, #field);
#define ND__VISIT_EDGES(field, count)                                \
    ND__CHECK_EDGE(self->field[0])                                   \
    for (size_t nd_i_ = 0; nd_i_ < ND__CAST(size_t, count); nd_i_++) \
        nd_visit(nd_visitor_, self->field[nd_i_], #field);
#define ND__CLEAR_EDGE(field) nd_edge_clear(&self->field);
#define ND__CLEAR_EDGES(field, count)                                \
    for (size_t nd_i_ = 0; nd_i_ < ND__CAST(size_t, count); nd_i_++) \
        nd_edge_clear(&self->field[nd_i_]);

/// New object of a user's type, in the current manager (nd_manager_get_current()).
///
/// @param type says what it is; must outlive it
/// @param size bytes of the payload, which begins zeroed, aligned as max_align_t (of 8 bytes or
///        less: to 8). All zero must be a valid payload without edges: the collector may examine
///        it before the caller has written any. Where that is not so, use nd_object_new_with()
/// @return owned; NULL on error
/// @errors ND_ERROR_INVALID_ARGUMENT (type of another size or version, without a name, or with flags
///         that are not known), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_QUOTA (the manager's cap)
/// @threads any
ND_API nd_object *nd_object_new(const nd_type *type, size_t size) ND_OWNED;

/// Fills the payload of a new object that nobody else has seen: neither managers nor the collector,
/// nor reports. It begins zeroed; fields that are edges may be written plainly, with owned handles.
/// What is not ND_OK is the answer of nd_object_new_with(): then `clear` and `destroy` run, and
/// must cope with a payload that is half filled, and `finalize` does not. Must not hand `self` to
/// anybody.
typedef nd_status (*nd_object_init)(nd_object *self, void *data);

/// New object of a user's type, in the current manager, that is filled before anybody sees it.
///
/// @param type says what it is; must outlive it
/// @param size bytes of the payload, aligned as max_align_t (of 8 bytes or less: to 8)
/// @param init fills the payload; may run any code
/// @param data handed to `init`
/// @return owned; NULL on error, and then nothing is left of it
/// @errors those of nd_object_new(), and that of `init`: its status, with its sentence where it set
///        one
/// @threads any
ND_API nd_object *nd_object_new_with(const nd_type *type, size_t size, nd_object_init init,
                                     void *data) ND_OWNED;

/// Payload of an object that nd_object_new() or nd_object_new_with() made.
///
/// @param object the object; NULL is fine
/// @return borrowed, valid while the object is and until it is closed. NULL for NULL, a closed
///         object, or one of a library type
/// @errors ND_ERROR_CLOSED
/// @threads any; what is in it is the user's to guard
ND_API void *nd_object_get_data(const nd_object *object);

/// Type of an object, to compare before its payload is cast.
///
/// @param object any object; NULL is fine
/// @return what nd_object_new() was given, or a type of the library; NULL for NULL
/// @errors none
/// @threads any
ND_API const nd_type *nd_object_get_type(const void *object);

// Edges of a published object. Each passes the gate: it waits while the collector reads edges
// (microseconds). Two writers of one slot are the user's to keep apart.

/// Makes a slot an edge to another object, and releases what it held.
///
/// @param slot address of a pointer field inside an object
/// @param target retained; NULL empties the slot
/// @errors ND_ERROR_CLOSED (the slot is in the payload of the object whose `destroy` calls this,
///         which nobody clears any more); then nothing has changed
/// @threads any, one writer of a slot at a time; waits for the gate. What dies by it dies here
ND_API void nd_edge_set(void *slot, const void *target);

/// Takes the reference out of a slot, leaving NULL.
///
/// @param slot address of a pointer field inside an object
/// @return what the slot held, now owned by the caller; NULL when it was empty
/// @errors none
/// @threads any, one writer of a slot at a time; waits for the gate
ND_API void *nd_edge_take(void *slot) ND_OWNED;

/// Drops the reference in a slot, leaving NULL. What `clear` uses.
///
/// @param slot address of a pointer field inside an object
/// @errors none
/// @threads any, one writer of a slot at a time; waits for the gate. What dies by it dies here
ND_API void nd_edge_clear(void *slot);

// --------------------------------------------------------------------------------- weak references

/// Weak reference to an object, which it does not keep alive. In the current manager.
///
/// @param object any object the caller holds
/// @return owned; NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_QUOTA (the manager's cap)
/// @threads any
ND_API nd_weak *nd_weak_new(const void *object) ND_OWNED;

/// The target of a weak reference, if it is still alive.
///
/// @param weak the reference
/// @return owned; NULL when the target is dead or is being collected, which is no error
/// @errors ND_ERROR_CLOSED
/// @threads any, beside the target's last release; waits for the gate
ND_API nd_object *nd_weak_get(const nd_weak *weak) ND_OWNED;

/// nd_weak_get() for a tensor.
///
/// @param weak the reference
/// @return owned; NULL also when the target is no tensor, which is no error
/// @errors ND_ERROR_CLOSED
/// @threads any, beside the target's last release; waits for the gate
ND_API nd_tensor *nd_weak_get_tensor(const nd_weak *weak) ND_OWNED;

/// Asks to be told, once, when the target dies.
///
/// The call comes after weak references to it were cleared and before any edge is cut, so no
/// callback ever sees a half-cleared object. It does not come when the weak reference goes before it
/// begins, which on another thread may be after nd_weak_get() gave NULL; one that has begun may still
/// run when the weak reference is released.
///
/// @param weak the reference
/// @param callback called with `data` on the thread that released or collected the target, without
///        a lock held; may run any code. Replaces an earlier one; NULL: none
/// @param data handed to `callback`
/// @return ND_OK, or the error
/// @errors ND_ERROR_CLOSED, ND_ERROR_STATE (the target is dead already)
/// @threads any
ND_API nd_status nd_weak_set_callback(nd_weak *weak, void (*callback)(void *data), void *data);

// ------------------------------------------------------------------------------------------- lists

/// Empty list, in the current manager. Items are edges: a list keeps them alive, and cycles through
/// it are found.
///
/// @return owned; NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_QUOTA (the manager's cap)
/// @threads any
ND_API nd_list *nd_list_new(void) ND_OWNED;

/// Appends an object of any type.
///
/// @param list the list
/// @param object retained
/// @return ND_OK, or the error; then the list is as before
/// @errors ND_ERROR_CLOSED, ND_ERROR_OUT_OF_MEMORY
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate
ND_API nd_status nd_list_append(nd_list *list, const void *object);

/// Puts an object between others: those from there on move up by one.
///
/// @param list the list
/// @param index of the new item: from 0 to the size
/// @param object retained
/// @return ND_OK, or the error; then the list is as before
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (out of range), ND_ERROR_OUT_OF_MEMORY
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate
ND_API nd_status nd_list_insert(nd_list *list, size_t index, const void *object);

/// Puts an object in the place of an item, which is released.
///
/// @param list the list
/// @param index from 0
/// @param object retained
/// @return ND_OK, or the error; then the list is as before
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (out of range)
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate. What dies
///          by it dies here
ND_API nd_status nd_list_set(nd_list *list, size_t index, const void *object);

/// Takes an item out: those behind it move down by one.
///
/// @param list the list
/// @param index from 0
/// @return owned: what the list held is the caller's now; NULL on error
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (out of range)
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate
ND_API nd_object *nd_list_remove(nd_list *list, size_t index) ND_OWNED;

/// Takes the last item out.
///
/// @param list the list
/// @return owned: what the list held is the caller's now; NULL on error
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (the list is empty)
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate
ND_API nd_object *nd_list_pop(nd_list *list) ND_OWNED;

/// One item. A cast makes it a handle of its own type again, which nd_get_type_name() says:
///
///     const nd_tensor *x = (const nd_tensor *)nd_list_get(list, 0);
///
/// @param list the list
/// @param index from 0
/// @return borrowed: valid while the list holds it; NULL on error
/// @errors ND_ERROR_CLOSED, ND_ERROR_INVALID_ARGUMENT (out of range)
/// @threads any, not beside a writer of the list
ND_API const nd_object *nd_list_get(const nd_list *list, size_t index);

/// Number of items.
///
/// @param list the list; NULL is fine
/// @return 0 for NULL and for a closed list
/// @errors none
/// @threads any, not beside a writer of the list
ND_API size_t nd_list_get_size(const nd_list *list);

/// Drops all items, the last one first.
///
/// @param list the list
/// @return ND_OK, or the error
/// @errors ND_ERROR_CLOSED
/// @threads one writer of a list at a time, and no reader beside it; waits for the gate
ND_API nd_status nd_list_clear(nd_list *list);

// --------------------------------------------------------------------------------------- resources

/// What the library must know about a resource; copied.
typedef struct nd_resource_callbacks {
    uint32_t size;    ///< sizeof(nd_resource_callbacks)
    uint32_t version; ///< 1
    /// Frees the memory. Called once, on whichever thread releases, collects or closes. NULL: none.
    void (*free)(void *pointer, size_t bytes);
    /// Reports edges held by the resource's memory; NULL: none (then the resource is green). See
    /// nd_type.traverse.
    void (*traverse)(const void *pointer, nd_visitor *visitor);
    /// Drops those edges with nd_edge_clear(). Needed with traverse.
    void (*clear)(void *pointer);
} nd_resource_callbacks;

/// Puts memory, or a handle of something else, under management: counted against managers and
/// quotas, freed when the last handle goes. In the current manager.
///
/// @param type_name what reports call it; static storage
/// @param pointer the memory; the resource's from now on, on error still the caller's
/// @param bytes host bytes it stands for
/// @param callbacks copied
/// @return owned; NULL on error
/// @errors ND_ERROR_INVALID_ARGUMENT (callbacks of another size or version, or traverse without
///         clear), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_QUOTA (bytes or cap)
/// @threads any
ND_API nd_resource *nd_resource_new(const char *type_name, void *pointer, size_t bytes,
                                    const nd_resource_callbacks *callbacks) ND_OWNED;

/// The pointer of a resource.
///
/// @param resource the resource
/// @return borrowed, valid while the resource is; NULL on error
/// @errors ND_ERROR_CLOSED
/// @threads any; what it points to is the user's to guard
ND_API void *nd_resource_get(const nd_resource *resource);

#ifdef __cplusplus
}
#endif
#endif
