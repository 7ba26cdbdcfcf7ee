// Counted objects: retain and release, edges, user-defined types, weak references, lists,
// resources.
//
// Invariant that every type keeps: an *edge* is a strong reference held inside an object; each
// owned edge is reported by the type's `traverse` exactly once, and edges of a published object
// change only through nd_edge_* (they pass the collector's gate). Retain and release are safe from
// any thread and never wait for the collector.
#ifndef ND_OBJECT_H
#define ND_OBJECT_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------- retain, release

/// Adds a strong count and returns the object; the caller owes one release. NULL gives NULL. Use
/// nd_retain().
ND_API void *nd_object_retain(const void *object) ND_OWNED;

// One association per handle type: owned (T *) and borrowed (const T *) map to what `owned(T)` and
// `borrowed(T)` say.
// clang-format off
#define ND__FOR_HANDLES(x, owned, borrowed)                                                  \
    nd_object *: owned(nd_object, x), const nd_object *: borrowed(nd_object, x),             \
    nd_tensor *: owned(nd_tensor, x), const nd_tensor *: borrowed(nd_tensor, x),             \
    nd_manager *: owned(nd_manager, x), const nd_manager *: borrowed(nd_manager, x),         \
    nd_weak *: owned(nd_weak, x), const nd_weak *: borrowed(nd_weak, x),                     \
    nd_list *: owned(nd_list, x), const nd_list *: borrowed(nd_list, x),                     \
    nd_resource *: owned(nd_resource, x), const nd_resource *: borrowed(nd_resource, x),     \
    nd_node *: owned(nd_node, x), const nd_node *: borrowed(nd_node, x),                     \
    nd_module *: owned(nd_module, x), const nd_module *: borrowed(nd_module, x),             \
    nd_optimizer *: owned(nd_optimizer, x), const nd_optimizer *: borrowed(nd_optimizer, x), \
    nd_dataset *: owned(nd_dataset, x), const nd_dataset *: borrowed(nd_dataset, x)
// clang-format on

#define ND__NULL_OF(T, x) ((T *)0)
#define ND__OWNED_TYPE(x) __typeof__(_Generic((x), ND__FOR_HANDLES(x, ND__NULL_OF, ND__NULL_OF)))

/// nd_retain(x): an owned handle of x's type, also from a borrowed x. NULL gives NULL. Any thread.
#define nd_retain(x) ((ND__OWNED_TYPE(x))nd_object_retain(x))

/// nd_release(x): gives up an owned handle; the last one destroys the object. Accepts NULL. A
/// borrowed (const) handle does not compile under -Werror=discarded-qualifiers. Any thread; never
/// waits for the collector.
#define nd_release(x) nd_object_release(x)

/// nd_auto: a variable whose handle is released when it goes out of scope: `nd_auto nd_tensor *t =
/// nd_add(a, b);`
#define nd_auto __attribute__((cleanup(nd__auto_release)))
static inline void nd__auto_release(void *variable) {
    void *object = *(void **)variable;
    if (object)
        nd_object_release(object);
}

/// nd_steal(&x): returns x and leaves NULL, so that an nd_auto variable can be returned.
#define nd_steal(pointer)                                  \
    (__extension__({                                       \
        __typeof__(pointer) nd_pointer_ = (pointer);       \
        __typeof__(*nd_pointer_) nd_value_ = *nd_pointer_; \
        *nd_pointer_ = NULL;                               \
        nd_value_;                                         \
    }))

/// Strong count of x right now; 0 for NULL. For tests and reports: other threads may change it at
/// once.
ND_API uint32_t nd_get_count(const void *object);

/// Name of the object's type, such as "tensor". "NULL" for NULL. Static storage.
ND_API const char *nd_get_type_name(const void *object);

/// Gives x a name for reports (dump, cycle paths, leak report); copied. NULL removes it.
ND_API nd_status nd_set_name(void *object, const char *name);

/// Copies the object's name into `buffer` (terminated, cut to `size`), empty when it has none.
/// Returns `buffer`.
ND_API const char *nd_get_name(const void *object, char *buffer, size_t size);

/// Gives up payload and edges of x now, whoever holds it. The handle stays valid memory while
/// counted; every later use answers ND_ERROR_CLOSED; storage that a live view shares stays with the
/// view. Idempotent. Must not run at the same time as an operation on the same handle. Closing a
/// manager closes it as nd_manager_close(x, NULL) does.
ND_API nd_status nd_close(void *object);

/// True when x was closed.
ND_API bool nd_is_closed(const void *object);

// ------------------------------------------------------------------------------ user-defined types

/// Passed to `traverse`, which hands every owned edge to nd_visit once.
typedef struct nd_visitor nd_visitor;
struct nd_visitor {
    void (*visit)(nd_visitor *visitor, nd_object *target, const char *label);
};

/// Reports one owned edge; NULL edges are skipped. `label` names the edge in reports ("grad",
/// "saved"); static storage.
static inline void nd_visit(nd_visitor *visitor, const void *target, const char *label) {
    if (target)
        visitor->visit(visitor, (nd_object *)(uintptr_t)target, label);
}

/// Type is never part of a cycle: it has no edges, or only to green objects. The collector does not
/// look at it.
#define ND_TYPE_GREEN 1u

/// What the library must know about a type. Set `size = sizeof(nd_type)` and `version = 1`. Must
/// outlive its objects.
typedef struct nd_type {
    uint32_t size;
    uint32_t version;
    const char *name;
    uint32_t flags;
    /// Calls nd_visit for every owned edge, once per reference held. Runs inside the gate: must not
    /// allocate, lock, retain, release, or change anything. NULL: no edges.
    void (*traverse)(const nd_object *self, nd_visitor *visitor);
    /// Gives up every edge with nd_edge_clear(), leaving NULL. Must be safe to call twice. Must not
    /// run other user code. NULL: no edges.
    void (*clear)(nd_object *self);
    /// Runs at most once in an object's life, before anything is cleared, with all of its edges in
    /// place. May retain `self` or what it reaches somewhere, which revives them. NULL: none.
    void (*finalize)(nd_object *self);
    /// Frees the payload's own resources; edges are already cleared. May run any code. NULL:
    /// nothing to free.
    void (*destroy)(nd_object *self);
    /// What reports call this object, such as the operation of a graph node; valid while `self` is.
    /// NULL: `name`.
    const char *(*describe)(const nd_object *self);
} nd_type;

/// New object with `size` zeroed payload bytes (its alignment is that of max_align_t), placed in
/// the current manager. The payload must be valid with all-zero bytes (no edges). Returns owned, or
/// NULL.
ND_API nd_object *nd_object_new(const nd_type *type, size_t size) ND_OWNED;

/// Payload of an object made by nd_object_new(). Borrowed. NULL for NULL, a closed object, or one
/// of a library type.
ND_API void *nd_object_data(const nd_object *object);

/// Type of an object made by nd_object_new(), to check before casting its payload. NULL for NULL.
ND_API const nd_type *nd_object_type(const void *object);

// Edges of a published object. Each passes the gate: it waits while the collector looks at edges
// (microseconds). `slot` is the address of a pointer field inside `owner`.

/// Makes *slot an edge to `target` (retained; NULL allowed) and releases what it held.
ND_API void nd_edge_set(void *slot, const void *target);
/// Takes the reference out of *slot, leaving NULL; the caller owes its release.
ND_API void *nd_edge_take(void *slot) ND_OWNED;
/// Drops the reference in *slot, leaving NULL. What `clear` and `nd_close` use.
ND_API void nd_edge_clear(void *slot);

// --------------------------------------------------------------------------------- weak references

/// Weak reference to x: does not keep it alive. Owned. NULL on error.
ND_API nd_weak *nd_weak_new(const void *object) ND_OWNED;

/// Owned handle of the target, or NULL when it is dead or being collected (not an error). Any
/// thread; passes the gate.
ND_API nd_object *nd_weak_get(const nd_weak *weak) ND_OWNED;

/// nd_weak_get() for a tensor; NULL also when the target is no tensor.
ND_API nd_tensor *nd_weak_get_tensor(const nd_weak *weak) ND_OWNED;

/// Calls `callback(data)` once when the target dies: after weak references were cleared, before any
/// edge is cut, so no callback ever sees a half-cleared object. Not called if the weak reference is
/// released first.
ND_API nd_status nd_weak_set_callback(nd_weak *weak, void (*callback)(void *data), void *data);

// ------------------------------------------------------------------------------------------- lists

/// Empty list. Items are edges: a list keeps them alive, and cycles through it are found.
ND_API nd_list *nd_list_new(void) ND_OWNED;
/// Appends (retains) an object of any type. One writer at a time.
ND_API nd_status nd_list_append(nd_list *list, const void *object);
/// Item at `index`, borrowed; NULL with an error when out of range.
ND_API const nd_object *nd_list_get(const nd_list *list, size_t index);
/// Number of items; 0 for NULL.
ND_API size_t nd_list_size(const nd_list *list);
/// Drops all items.
ND_API nd_status nd_list_clear(nd_list *list);

// --------------------------------------------------------------------------------------- resources

/// Callbacks of a resource; set `size = sizeof` and `version = 1`. `free` is called once, from any
/// thread.
typedef struct nd_resource_callbacks {
    uint32_t size;
    uint32_t version;
    void (*free)(void *pointer, size_t bytes);
    /// Reports edges held by the resource's memory; NULL: none (then the resource is green). See
    /// nd_type.traverse.
    void (*traverse)(const void *pointer, nd_visitor *visitor);
    /// Drops those edges with nd_edge_clear(). Needed with traverse.
    void (*clear)(void *pointer);
} nd_resource_callbacks;

/// Puts `pointer` of `bytes` host bytes under management: counted against managers and quotas,
/// freed by `free` when the last handle goes. `type_name` has static storage. On error returns NULL
/// and the caller still owns `pointer`.
ND_API nd_resource *nd_resource_new(const char *type_name, void *pointer, size_t bytes,
                                    const nd_resource_callbacks *callbacks) ND_OWNED;
/// The pointer; NULL when closed.
ND_API void *nd_resource_get(const nd_resource *resource);

#ifdef __cplusplus
}
#endif
#endif
