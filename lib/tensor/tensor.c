// Tensor objects: how they are made, what they hold, and the checks every operation begins with.
//
// A tensor is filled while private and published last. It is green until it gets an edge other
// than its storage. Closing it gives up its edges, but for a storage that views borrow, and its data
// pointer; shape and dtype stay readable, so that an error can name them.
#include "lib/tensor/tensor.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/manager/borrow.h"
#include "lib/manager/charge.h"
#include "lib/manager/place.h"
#include "lib/manager/publish.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/tensor/node.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/storage.h"
#include <string.h>

static void tensor_traverse(const nd_object *self, nd_visitor *visitor);
static void tensor_clear(nd_object *self);

const nd_type nd__tensor_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "tensor",
    .flags = ND__TYPE_OF_TENSORS,
    .traverse = tensor_traverse,
    .clear = tensor_clear,
};

static void tensor_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_tensor *x = (const nd_tensor *)self;
    if (!nd__borrow_is_borrower((const nd__stored *)self))
        nd_visit(visitor, nd__tensor_storage_now(x), "storage");
    nd_visit(visitor, x->grad, "grad");
    nd_visit(visitor, x->node, "node");
    nd_visit(visitor, x->hooks, "hooks");
    nd_visit(visitor, x->base, "base");
}

static void tensor_clear(nd_object *self) {
    nd_tensor *x = (nd_tensor *)self;
    x->data = NULL;
    if (x->grad)
        nd_edge_clear(&x->grad);
    if (x->node)
        nd_edge_clear(&x->node);
    if (x->hooks)
        nd_edge_clear(&x->hooks);
    nd__borrow_clear((nd__stored *)self);
    if (x->base)
        nd_edge_clear(&x->base);
}

void nd__tensor_replace_storage(nd_tensor *x, const nd_tensor *of) {
    nd__borrow_settle((nd__stored *)x);
    nd__borrow_replace((nd__stored *)x, &nd__tensor_storage_now(of)->accounted.header);
}

static bool is_contiguous(int ndim, const int64_t *shape, const int64_t *strides, int64_t numel) {
    if (numel <= 1)
        return true;
    int64_t expected = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 1)
            continue;
        if (strides[i] != expected)
            return false;
        expected *= shape[i];
    }
    return true;
}

/// Bytes of a tensor without data.
static inline size_t tensor_size(int ndim) {
    return sizeof(nd_tensor) + 2 * (size_t)ndim * sizeof(int64_t);
}

/// Where data behind that begin: aligned as blocks are. On a cache line, as data elsewhere, 16 floats
/// would be a block of 256 bytes instead of 224, for the sake of loads that are four at most.
static inline size_t data_offset(int ndim) {
    return (tensor_size(ndim) + ND__BLOCK_UNIT - 1) & ~(size_t)(ND__BLOCK_UNIT - 1);
}

/// What lies between header and shape, but for what all begin with.
typedef struct fields {
    uint64_t own_bytes;
    nd_device device;
    nd_storage *storage;
    void *data;
    int64_t numel;
    nd_dtype dtype;
    int ndim;
    bool contiguous;
    nd_tensor *base;
} fields;

/// Writes that, each word once: a locked instruction waits for every store before it.
static inline __attribute__((always_inline)) nd_tensor *describe(nd_object *object, fields f) {
    nd_tensor *x = (nd_tensor *)object;
    x->own_bytes = f.own_bytes;
    x->device = f.device;
    atomic_init(&x->storage, f.storage);
    x->data = f.data;
    x->numel = f.numel;
    x->described = nd__tensor_described(f.dtype, f.ndim, f.contiguous ? ND__CONTIGUOUS : 0);
    x->grad = NULL;
    x->node = NULL;
    x->hooks = NULL;
    x->base = f.base;
    atomic_init(&x->version, 0);
    return x;
}

/// What becomes a tensor without data of its own: a header alone, with the flags of objects that it
/// begins with. NULL with an error.
static inline __attribute__((always_inline)) nd_object *new_bare(int ndim, uint32_t flags) {
    // A block that is at hand is taken inline.
    void *block = nd__block_new(tensor_size(ndim));
    if (__builtin_expect(block != NULL, 1))
        return nd__object_begin_as(&nd__tensor_type, flags, block);
    nd_object *object = nd__object_new_bare(&nd__tensor_type, tensor_size(ndim));
    if (object)
        nd__atomic_store(&object->flags, nd__object_flags(object) | flags, relaxed);
    return object;
}

static inline nd_device device_of(const nd_storage *storage) {
    return (nd_device){storage->accounted.kind, storage->accounted.device_index};
}

static inline void shape_contiguous(nd_tensor *x, int ndim, const int64_t *shape) {
    for (int i = 0; i < ndim; i++)
        x->shape[i] = shape[i];
    nd__tensor_contiguous_strides(ndim, shape, x->shape + ndim);
}

nd_tensor *nd__tensor_on(nd_manager *manager, nd_storage *storage, nd_dtype dtype, int ndim,
                         const int64_t *shape, int64_t numel) {
    nd_object *object = new_bare(ndim, 0);
    if (__builtin_expect(!object, 0)) {
        nd__storage_discard(storage, manager);
        return NULL;
    }
    nd_tensor *x = describe(object, (fields){
                                        .device = device_of(storage),
                                        .storage = storage,
                                        .data = storage->data,
                                        .numel = numel,
                                        .dtype = dtype,
                                        .ndim = ndim,
                                        .contiguous = true,
                                    });
    shape_contiguous(x, ndim, shape);
    if (__builtin_expect(nd__publish_both(&x->header, &storage->accounted.header, manager) == ND_OK,
                         1))
        return x;
    nd__object_discard(x);
    nd__storage_discard(storage, manager);
    return NULL;
}

/// The tensor and its data in one block.
static nd_tensor *new_with_data(const char *operation, nd_manager *manager, nd_device device,
                                nd_dtype dtype, int ndim, const int64_t *shape, int64_t numel) {
    size_t bytes = (size_t)numel * nd__dtype_bytes[dtype], offset = data_offset(ndim);
    void *block = nd__storage_block(operation, manager, device, offset + bytes, bytes);
    if (__builtin_expect(!block, 0))
        return NULL;
    nd_tensor *x =
        describe(nd__object_begin(&nd__tensor_type, block), (fields){
                                                                .own_bytes = bytes,
                                                                .device = device,
                                                                .data = (char *)block + offset,
                                                                .numel = numel,
                                                                .dtype = dtype,
                                                                .ndim = ndim,
                                                                .contiguous = true,
                                                            });
    shape_contiguous(x, ndim, shape);
    if (__builtin_expect(nd__publish(&x->header, manager) == ND_OK, 1))
        return x;
    nd__charge_return(manager, device.kind, bytes);
    nd__object_discard(x);
    return NULL;
}

nd_tensor *nd__tensor_new(const char *operation, nd_manager *manager, nd_device device,
                          nd_dtype dtype, int ndim, const int64_t *shape) {
    int64_t numel;
    if (nd__shape_check(operation, ndim, shape, dtype, &numel) != ND_OK)
        return NULL;
    if (nd__publish_expect(&nd__tensor_type, manager) != ND_OK)
        return NULL;
    size_t bytes = (size_t)numel * nd__dtype_bytes[dtype];
    if (nd__tensor_has_own_data(device, bytes))
        return new_with_data(operation, manager, device, dtype, ndim, shape, numel);
    nd_storage *storage = nd__storage_new(operation, manager, device, bytes);
    return storage ? nd__tensor_on(manager, storage, dtype, ndim, shape, numel) : NULL;
}

nd_tensor *nd__tensor_result(const char *operation, const nd_tensor *const *operands, size_t count,
                             nd_device device, nd_dtype dtype, int ndim, const int64_t *shape) {
    nd_place place = nd__place_begin((const nd_object *const *)(const void *)operands, count);
    nd_tensor *result = nd__tensor_new(operation, place.manager, device, dtype, ndim, shape);
    nd__place_end(place);
    return result;
}

nd_tensor *nd__tensor_view(const nd_tensor *x, int ndim, const int64_t *shape,
                           const int64_t *strides, int64_t offset) {
    return nd__tensor_view_following(NULL, x, ndim, shape, strides, offset);
}

/// The storage of x, which has none yet, for a view that a manager will not refuse as far as one knows:
/// what is refused leaves none behind. NULL with an error.
__attribute__((cold, noinline)) static nd_storage *first_storage(const nd_tensor *x,
                                                                 nd_manager *of_view) {
    return nd__publish_check(&nd__tensor_type, of_view) == ND_OK ? nd__tensor_storage(x) : NULL;
}

/// What becomes a view of x, and where it belongs. It is to hold `base` (may be NULL), which is kept
/// for it and has the collector see it, and the storage of x, which is not: no user code may run before view_end() follows. NULL
/// with an error.
static inline __attribute__((always_inline)) nd_tensor *
view_begin(const nd_tensor *x, int ndim, nd_tensor *base, nd_place *ret_place) {
    const nd_object *operand = &x->header;
    if (base)
        nd__object_keep(base); // what runs below may part it from x
    *ret_place = nd__place_begin(&operand, 1);
    nd_storage *storage = nd__tensor_storage_now(x);
    if (__builtin_expect(!storage, 0))
        storage = first_storage(x, ret_place->manager);
    nd_object *object = storage ? new_bare(ndim, base ? ND__TRACKED : 0) : NULL;
    if (__builtin_expect(object && !nd__object_is_closing(x), 1))
        return (nd_tensor *)object;
    if (object) {
        nd__object_discard(object);
        nd__tensor_refuse_operand("view", "x", x);
    }
    nd__place_end(*ret_place);
    nd_object_release(base);
    return NULL;
}

/// That with its shape and strides, and data, becomes a view; `here`: inline to the end. Consumes it;
/// returns it, or NULL with an error.
static inline __attribute__((always_inline)) nd_tensor *
view_end(nd_tensor *view, const nd_tensor *x, int ndim, int64_t numel, bool contiguous, void *data,
         nd_tensor *base, nd_place place, bool here) {
    nd_storage *storage = nd__tensor_storage_now(x);
    describe(&view->header, (fields){
                                .device = device_of(storage),
                                .storage = storage,
                                .data = data,
                                .numel = numel,
                                .dtype = x->dtype,
                                .ndim = ndim,
                                .contiguous = contiguous,
                                .base = base,
                            });
    nd_status status = here ? nd__publish_view_here((nd__stored *)view, place.manager)
                            : nd__publish_view((nd__stored *)view, place.manager);
    nd__place_end(place);
    if (__builtin_expect(status == ND_OK, 1))
        return view;
    atomic_store_explicit(&view->storage, NULL, memory_order_relaxed);
    if (view->base)
        nd_edge_clear(&view->base); // a private object is green again
    nd_object_release(view);
    return NULL;
}

nd_tensor *nd__tensor_view_following(nd_tensor *base, const nd_tensor *x, int ndim,
                                     const int64_t *shape, const int64_t *strides, int64_t offset) {
    nd_place place;
    nd_tensor *view = view_begin(x, ndim, base, &place);
    if (__builtin_expect(!view, 0))
        return NULL;
    int64_t numel = 1;
    for (int i = 0; i < ndim; i++) {
        view->shape[i] = shape[i];
        view->shape[ndim + i] = strides[i];
        numel *= shape[i];
    }
    char *data = nd__tensor_storage_now(x)->data;
    bool contiguous = is_contiguous(ndim, view->shape, view->shape + ndim, numel);
    data += offset * nd__dtype_bytes[x->dtype];
    return view_end(view, x, ndim, numel, contiguous, data, base, place, false);
}

nd_tensor *nd__tensor_view_along(nd_tensor *base, const nd_tensor *x, int axis, int64_t first,
                                 int64_t count, int64_t stride) {
    const int ndim = x->ndim;
    nd_place place;
    nd_tensor *view = view_begin(x, ndim, base, &place);
    if (__builtin_expect(!view, 0))
        return NULL;
    // From the last axis on, so that one walk finds out whether the elements lie one behind the other.
    int64_t numel = 1;
    bool contiguous = true;
    for (int i = ndim - 1; i >= 0; i--) {
        int64_t size = i == axis ? count : x->shape[i];
        int64_t step = i == axis ? stride : x->shape[ndim + i];
        view->shape[i] = size;
        view->shape[ndim + i] = step;
        contiguous &= size == 1 || step == numel;
        numel *= size;
    }
    contiguous |= numel <= 1;
    char *data = (char *)x->data + first * nd__dtype_bytes[x->dtype];
    return view_end(view, x, ndim, numel, contiguous, data, base, place, true);
}

nd_status nd__tensor_refuse_operand(const char *operation, const char *argument,
                                    const nd_tensor *x) {
    if (!x)
        return nd__error_null(operation, argument);
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_CLOSED, "%s: %s, a tensor of shape %s and %s, was closed", operation,
                     argument, nd__shape_text(text, x->ndim, x->shape),
                     nd_dtype_get_name(x->dtype));
}
