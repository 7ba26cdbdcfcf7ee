// Inside of tensors and storages, for lib/tensor and the layers above.
//
// A tensor is green (never looked at by the collector) until it gets an edge other than its
// storage: history, gradient, hooks, a base; whoever gives it one calls nd__member_track. A storage
// is always green and is what managers account for.
//
// A small tensor on the host is one block: header, fields, shape, strides, data. It has no storage,
// and is accounted for itself, until something needs one that may outlive it, such as a view
// (nd__tensor_storage). That storage has the bytes then; data and version stay in the tensor's
// block, which the storage keeps (lib/manager/adopt.h). So `storage` of others may be NULL and may
// appear at any time: everybody asks the functions below instead.
#ifndef ND_LIB_TENSOR_TENSOR_H
#define ND_LIB_TENSOR_TENSOR_H
#include "lib/base/error.h"
#include "lib/device/device.h"
#include "lib/device/registry.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/storage.h"
#include <nd/tensor.h>

extern const nd_type nd__tensor_type;
extern const nd_type nd__storage_type;

struct nd_tensor {
    nd_object header;
    uint64_t own_bytes; ///< charged for data in this block (as nd_accounted); zero with a storage
    nd_device device;
    _Atomic(nd_storage *)
        storage; ///< edge; NULL while there is none, and once closed, as a rule (lib/manager/borrow.h)
    void *data; ///< first element, for the device; NULL once closed
    int64_t numel;
    union {
        struct {
            nd_dtype dtype : 8; ///< so that three dimensions fit 192 bytes
            int8_t ndim;
            uint8_t borrowers;         ///< of the storage: lib/manager/borrow.h
            _Atomic uint8_t own_flags; ///< ND__GRAD_REQUIRED and others
            uint32_t output_index;     ///< which output of `node` this is
        };
        uint64_t described; ///< these, as the one word that they begin as
    };
    nd_tensor *grad;  ///< edge
    nd_node *node;    ///< edge: what computed it; NULL for a leaf
    nd_object *hooks; ///< edge: lib/autograd's hook list of a leaf, or NULL
    nd_tensor *base;  ///< edge of a recorded view: whose history is its own as well; else NULL
    _Atomic uint64_t version; ///< of data in this block, also for a storage that keeps that
    int64_t shape[];          ///< ndim sizes, ndim strides (in elements)
};

_Static_assert(offsetof(nd_tensor, own_bytes) == offsetof(nd_accounted, bytes) &&
                   offsetof(nd_tensor, device.kind) == offsetof(nd_accounted, kind) &&
                   offsetof(nd_tensor, device.index) == offsetof(nd_accounted, device_index) &&
                   offsetof(nd_tensor, storage) == offsetof(nd__stored, storage) &&
                   offsetof(nd_tensor, borrowers) == offsetof(nd__stored, borrowers) &&
                   offsetof(nd_tensor, grad) == offsetof(nd__stored, edges) &&
                   offsetof(nd_tensor, node) == offsetof(nd__stored, edges[ND__STORED_HISTORY]) &&
                   offsetof(nd_tensor, base) == offsetof(nd__stored, edges[ND__STORED_BASE]) &&
                   offsetof(nd_tensor, version) ==
                       offsetof(nd__stored, edges) + ND__STORED_EDGES * sizeof(nd_object *),
               "a tensor is stored by its storage");

/// Of a tensor itself, in own_flags.
enum {
    /// Leaf that wants a gradient, or result with history. Not of a view that follows a base: ask
    /// nd__tensor_requires_grad.
    ND__GRAD_REQUIRED = 1,
    ND__GRAD_DIVIDED = 2, ///< leaf whose gradient a loss scaler has divided, as long as it has one
    ND__GRAD_SHARED_OUT = 4, ///< parameter that has a gradient on one rank alone (lib/distributed)
    ND__GRAD_CUT = 8,        ///< view whose base could not learn of a recorded write
    ND__CONTIGUOUS = 16,
};

static inline bool nd__tensor_has_own(const nd_tensor *x, unsigned flag) {
    return atomic_load_explicit(&x->own_flags, memory_order_relaxed) & flag;
}
/// Threads read while one writes; two that write at once are the program's to keep apart.
static inline void nd__tensor_set_own(nd_tensor *x, unsigned flag, bool value) {
    const unsigned others = atomic_load_explicit(&x->own_flags, memory_order_relaxed) & ~flag;
    atomic_store_explicit(&x->own_flags, (uint8_t)(others | (value ? flag : 0)),
                          memory_order_relaxed);
}

/// A fresh tensor's `described`.
static inline uint64_t nd__tensor_described(nd_dtype dtype, int ndim, unsigned own_flags) {
    _Static_assert(offsetof(nd_tensor, ndim) - offsetof(nd_tensor, described) == 1 &&
                       offsetof(nd_tensor, own_flags) - offsetof(nd_tensor, described) == 3 &&
                       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                   "shifted so");
    return (uint64_t)dtype | (uint64_t)ndim << 8 | (uint64_t)own_flags << 24;
}
static inline bool nd__tensor_is_contiguous(const nd_tensor *x) {
    return nd__tensor_has_own(x, ND__CONTIGUOUS);
}
static inline const int64_t *nd__tensor_strides(const nd_tensor *x) {
    return x->shape + x->ndim;
}

/// The storage of x if it has one now, else NULL.
static inline nd_storage *nd__tensor_storage_now(const nd_tensor *x) {
    return atomic_load_explicit(&x->storage, memory_order_acquire);
}

/// Whether two tensors that are not closed are windows onto the same memory.
static inline bool nd__tensor_share_storage(const nd_tensor *x, const nd_tensor *y) {
    const nd_storage *storage = nd__tensor_storage_now(x);
    return x == y || (storage && storage == nd__tensor_storage_now(y));
}
/// The tensor whose history is the history of x as well (rebase.h), or NULL: x has its own. Borrowed.
static inline nd_tensor *nd__tensor_base(const nd_tensor *x) {
    return x->base;
}
/// Whether x is a leaf that wants a gradient, or has history.
static inline bool nd__tensor_requires_grad(const nd_tensor *x) {
    const nd_tensor *base = nd__tensor_base(x);
    return nd__tensor_has_own(base ? base : x, ND__GRAD_REQUIRED);
}

/// The storage of x, which is not closed: made now where there is none. Borrowed. NULL with an
/// error.
static inline nd_storage *nd__tensor_storage(const nd_tensor *x) {
    nd_storage *storage = atomic_load_explicit(&x->storage, memory_order_acquire);
    return storage ? storage : nd__storage_make((nd_tensor *)(uintptr_t)x);
}
/// Bytes of the memory that x is a window onto; 0 once closed.
static inline size_t nd__tensor_storage_bytes(const nd_tensor *x) {
    const nd_storage *storage = nd__tensor_storage_now(x);
    if (!x->data) // a closed one may keep a storage for others
        return 0;
    return storage ? storage->bytes : (size_t)x->numel * nd__dtype_bytes[x->dtype];
}
/// Where x begins in that, in elements.
static inline int64_t nd__tensor_offset(const nd_tensor *x) {
    const nd_storage *storage = nd__tensor_storage_now(x);
    if (!storage || !storage->bytes)
        return 0;
    // Sizes of elements are powers of two, and a division takes longer than the rest of this.
    return ((char *)x->data - (char *)storage->data) >> __builtin_ctz(nd__dtype_bytes[x->dtype]);
}
/// Gives x, which is not closed, the storage of another tensor in place of its own; views of x keep
/// that.
void nd__tensor_replace_storage(nd_tensor *x, const nd_tensor *of);
/// The count of in-place writes to the memory of x, which is not closed.
static inline _Atomic uint64_t *nd__tensor_version_word(const nd_tensor *x) {
    nd_storage *storage = nd__tensor_storage_now(x);
    return !storage        ? &((nd_tensor *)(uintptr_t)x)->version
           : storage->base ? &storage->base->version
                           : &storage->version;
}
static inline uint64_t nd__tensor_version(const nd_tensor *x) {
    return atomic_load_explicit(nd__tensor_version_word(x), memory_order_relaxed);
}

/// Whether so many bytes for the device lie in the tensor's own block.
static inline bool nd__tensor_has_own_data(nd_device device, size_t bytes) {
    enum { LIMIT = 256 };
    return bytes <= LIMIT && nd__registry_backend(device.kind)->host_accessible;
}
/// Contiguous tensor on a private storage charged to `manager`, which it takes over (discarded on
/// error); publishes both. The shape was checked.
nd_tensor *nd__tensor_on(nd_manager *manager, nd_storage *storage, nd_dtype dtype, int ndim,
                         const int64_t *shape, int64_t numel);

/// Contiguous uninitialised tensor at a manager. Runs the quota, the threshold trigger and the
/// ladder: may collect. NULL with an error that starts with `operation`. Does not check that the
/// device exists.
nd_tensor *nd__tensor_new(const char *operation, nd_manager *manager, nd_device device,
                          nd_dtype dtype, int ndim, const int64_t *shape);
/// As above, placed where a result of these operands belongs.
nd_tensor *nd__tensor_result(const char *operation, const nd_tensor *const *operands, size_t count,
                             nd_device device, nd_dtype dtype, int ndim, const int64_t *shape);
/// View of x's storage with another window, placed where a result of x belongs; unrecorded. offset
/// in elements.
nd_tensor *nd__tensor_view(const nd_tensor *x, int ndim, const int64_t *shape,
                           const int64_t *strides, int64_t offset);
/// The same with an edge to `base` (may be NULL), whose history it follows.
nd_tensor *nd__tensor_view_following(nd_tensor *base, const nd_tensor *x, int ndim,
                                     const int64_t *shape, const int64_t *strides, int64_t offset);
/// The same with x's own shape and strides but along one axis: `count` elements that lie `stride`
/// apart, the first of them `first` elements behind x's first.
nd_tensor *nd__tensor_view_along(nd_tensor *base, const nd_tensor *x, int axis, int64_t first,
                                 int64_t count, int64_t stride);

/// ND_ERROR_STATE for an open tensor over memory of others that may not be written.
static inline nd_status nd__tensor_check_writable(const char *operation, const char *argument,
                                                  const nd_tensor *x) {
    const nd_storage *storage = nd__tensor_storage_now(x);
    return __builtin_expect(storage && storage->read_only, 0)
               ? nd__error(ND_ERROR_STATE, "%s: the memory of %s is read-only; use a clone",
                           operation, argument)
               : ND_OK;
}

/// Whether an operand is there and not closed.
static inline bool nd__tensor_is_usable(const nd_tensor *x) {
    return x && !nd__object_is_closed(x);
}
/// Says what an operand that is not usable is: NULL (keeps the first error), closed.
__attribute__((cold)) nd_status nd__tensor_refuse_operand(const char *operation,
                                                          const char *argument, const nd_tensor *x);
/// Status of an operand. ND_OK when usable.
static inline nd_status nd__tensor_check_operand(const char *operation, const char *argument,
                                                 const nd_tensor *x) {
    return __builtin_expect(nd__tensor_is_usable(x), 1)
               ? ND_OK
               : nd__tensor_refuse_operand(operation, argument, x);
}

/// "[2, 3]" into a buffer of ND__SHAPE_TEXT bytes; returns the buffer.
#define ND__SHAPE_TEXT 192

/// Writes row-major strides; a size of zero counts as one.
static inline void nd__tensor_contiguous_strides(int ndim, const int64_t *shape,
                                                 int64_t *ret_strides) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        ret_strides[i] = stride;
        stride *= shape[i] == 0 ? 1 : shape[i];
    }
}

/// x was written in place.
static inline void nd__tensor_bump_version(nd_tensor *x) {
    atomic_fetch_add_explicit(nd__tensor_version_word(x), 1, memory_order_relaxed);
}
#endif
