// Tensors to and from other libraries, as DLPack describes them.
//
// Invariant: memory has one owner. What is lent is held by a reference to its storage, which the
// deleter of the loan gives back; what is taken in is a storage whose end calls the other library's
// deleter. A description becomes the library's with the last step that can fail, so that after an
// error its owner is who it was.
#include "third_party/dlpack/dlpack.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/object/callback.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/storage.h"
#include "lib/tensor/tensor.h"
#include <nd/dlpack.h>

static const DLDataType dtypes[ND_DTYPE_COUNT] = {
    [ND_BOOL] = {kDLBool, 8, 1},    [ND_U8] = {kDLUInt, 8, 1},    [ND_I32] = {kDLInt, 32, 1},
    [ND_I64] = {kDLInt, 64, 1},     [ND_F32] = {kDLFloat, 32, 1}, [ND_F64] = {kDLFloat, 64, 1},
    [ND_I8] = {kDLInt, 8, 1},       [ND_I16] = {kDLInt, 16, 1},   [ND_U16] = {kDLUInt, 16, 1},
    [ND_U32] = {kDLUInt, 32, 1},    [ND_U64] = {kDLUInt, 64, 1},  [ND_F16] = {kDLFloat, 16, 1},
    [ND_BF16] = {kDLBfloat, 16, 1},
};

// -------------------------------------------------------------------------------------------------
// lending

typedef struct loan {
    union {
        DLManagedTensorVersioned versioned;
        DLManagedTensor unversioned;
    } managed; ///< first, since a deleter gets no more than its address
    nd_storage *storage;
    int64_t sizes[]; ///< shape, strides
} loan;

static void end_loan(void *managed) {
    loan *of = managed;
    nd_object_release(of->storage);
    nd__alloc_free(of);
}

static void delete_versioned(DLManagedTensorVersioned *managed) {
    end_loan(managed);
}

static void delete_unversioned(DLManagedTensor *managed) {
    end_loan(managed);
}

static nd_status check_lendable(const char *operation, const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK)
        status = nd__callback_check(operation);
    if (status != ND_OK)
        return status;
    if (nd__tensor_requires_grad(x))
        return nd__error(ND_ERROR_STATE,
                         "%s: x requires a gradient, which DLPack does not carry; use nd_detach(x)",
                         operation);
    if (x->device.kind != ND_CPU && x->device.kind != ND_CUDA)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: DLPack knows no device like %s", operation,
                         nd__registry_device_text(x->device));
    return nd__registry_synchronize(operation, x->device);
}

/// Describes x, in the sizes of the loan. Strides that address nothing are those of a contiguous
/// tensor: consumers compare them.
static void describe(const nd_tensor *x, loan *of, DLTensor *ret_described) {
    int64_t *shape = of->sizes, *strides = of->sizes + x->ndim, next = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        shape[i] = x->shape[i];
        strides[i] = shape[i] > 1 && x->numel > 0 ? nd__tensor_strides(x)[i] : next;
        next *= shape[i] > 1 ? shape[i] : 1;
    }
    *ret_described = (DLTensor){
        .data = x->numel > 0 ? x->data : NULL,
        .device = {x->device.kind == ND_CPU ? kDLCPU : kDLCUDA, x->device.index},
        .ndim = x->ndim,
        .dtype = dtypes[x->dtype],
        .shape = shape,
        .strides = strides,
    };
}

/// A loan of the memory of x without its description, or NULL with an error.
static loan *begin_loan(const char *operation, const nd_tensor *x) {
    if (check_lendable(operation, x) != ND_OK)
        return NULL;
    nd_storage *storage = nd__tensor_storage(x);
    if (!storage)
        return NULL;
    nd__object_keep(storage); // first: a callback for memory may close x, or move its module
    loan *of = nd__pressure_alloc(sizeof *of + 2 * (size_t)x->ndim * sizeof(int64_t));
    const bool moved = of && nd__tensor_storage_now(x) != storage;
    if (!of || moved || nd__object_is_closing(x)) {
        if (!of)
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a description of x", operation);
        else if (nd__object_is_closing(x))
            nd__tensor_refuse_operand(operation, "x", x);
        else
            nd__error(ND_ERROR_STATE, "%s: a callback for memory moved x to other memory",
                      operation);
        nd__alloc_free(of);
        nd_object_release(storage);
        return NULL;
    }
    of->storage = storage;
    return of;
}

DLManagedTensorVersioned *nd_to_dlpack(const nd_tensor *x) {
    loan *of = begin_loan("to_dlpack", x);
    if (!of)
        return NULL;
    DLManagedTensorVersioned *managed = &of->managed.versioned;
    managed->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed->manager_ctx = of;
    managed->deleter = delete_versioned;
    managed->flags = of->storage->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    describe(x, of, &managed->dl_tensor);
    return managed;
}

DLManagedTensor *nd_to_dlpack_unversioned(const nd_tensor *x) {
    const char *operation = "to_dlpack_unversioned";
    if (nd__tensor_check_operand(operation, "x", x) != ND_OK ||
        nd__tensor_check_writable(operation, "x", x) != ND_OK)
        return NULL;
    loan *of = begin_loan(operation, x);
    if (!of)
        return NULL;
    DLManagedTensor *managed = &of->managed.unversioned;
    managed->manager_ctx = of;
    managed->deleter = delete_unversioned;
    describe(x, of, &managed->dl_tensor);
    return managed;
}

// -------------------------------------------------------------------------------------------------
// taking in

/// A window onto memory of another library.
typedef struct window {
    char *first; ///< the lowest element
    size_t bytes;
    int64_t offset; ///< of the element with all indices 0 from the lowest, in elements
    nd_device device;
    nd_dtype dtype;
    int64_t numel;
    bool contiguous;
    int64_t strides[ND_MAX_DIMS];
} window;

static nd_status find_dtype(const char *operation, DLDataType from, nd_dtype *ret_dtype) {
    for (int i = 0; i < ND_DTYPE_COUNT; i++) {
        if (dtypes[i].code != from.code || dtypes[i].bits != from.bits || from.lanes != 1)
            continue;
        *ret_dtype = (nd_dtype)i;
        return ND_OK;
    }
    return nd__error(ND_ERROR_UNSUPPORTED,
                     "%s: no dtype has DLPack's type code %d with %d bits and %d lanes", operation,
                     from.code, from.bits, from.lanes);
}

static nd_status find_device(const char *operation, DLDevice from, nd_device *ret_device) {
    bool host = from.device_type == kDLCPU || from.device_type == kDLCUDAHost;
    if (!host && from.device_type != kDLCUDA && from.device_type != kDLCUDAManaged)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: memory of a device of DLPack's type %d",
                         operation, (int)from.device_type);
    // There is one host, whichever device its memory is locked for.
    *ret_device = (nd_device){host ? ND_CPU : ND_CUDA, host ? 0 : from.device_id};
    return nd__registry_device_check(operation, *ret_device);
}

/// Strides and extents, of a shape that was checked.
static nd_status find_extents(const char *operation, const DLTensor *from, window *to) {
    int64_t low = 0, high = 0, next = 1, bytes, width = (int64_t)nd__dtype_bytes[to->dtype];
    bool wrong = false;
    to->contiguous = true;
    for (int i = from->ndim - 1; i >= 0; i--) {
        int64_t size = from->shape[i], reach;
        bool addresses = size > 1 && to->numel > 0;
        to->strides[i] = from->strides && addresses ? from->strides[i] : next;
        to->contiguous = to->contiguous && to->strides[i] == next;
        next *= size > 1 ? size : 1;
        if (!addresses)
            continue;
        wrong |= __builtin_mul_overflow(to->strides[i], size - 1, &reach);
        wrong |= reach < 0 ? __builtin_add_overflow(low, reach, &low)
                           : __builtin_add_overflow(high, reach, &high);
    }
    wrong |= __builtin_sub_overflow(high, low, &bytes) ||
             __builtin_add_overflow(bytes, 1, &bytes) ||
             __builtin_mul_overflow(bytes, width, &bytes);
    uintptr_t first = (uintptr_t)from->data, last;
    wrong |= __builtin_add_overflow(first, from->byte_offset, &first);
    if (to->numel == 0)
        bytes = low = 0;
    // Below the first element there are -low elements, which address space must have.
    wrong = wrong || (uintptr_t)(-low) > first / (uintptr_t)width;
    if (!wrong)
        first -= (uintptr_t)(-low) * (uintptr_t)width;
    if (wrong || __builtin_add_overflow(first, (uintptr_t)bytes, &last))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: shape, strides and offset reach beyond the address space", operation);
    if (first % (uintptr_t)width != 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the data at %p are not aligned for %s",
                         operation, (void *)first, nd_dtype_get_name(to->dtype));
    to->first = (char *)first;
    to->bytes = (size_t)bytes;
    to->offset = -low;
    return ND_OK;
}

static bool only_bools(const uint8_t *at, int ndim, const int64_t *shape, const int64_t *strides) {
    if (ndim == 0)
        return *at <= 1;
    if (ndim == 1 && strides[0] == 1)
        return nd__dtype_find_no_bool(at, shape[0]) < 0;
    for (int64_t i = 0; i < shape[0]; i++) {
        if (!only_bools(at + i * strides[0], ndim - 1, shape + 1, strides + 1))
            return false;
    }
    return true;
}

/// Of more elements than bytes: some lie in one place, and to look at each could take for ever. So each
/// place is looked at that a sum of strides may lead to.
static bool only_bools_of_many(const DLTensor *from, const window *of) {
    uint64_t step = 0; // the largest that divides all strides
    for (int i = 0; i < from->ndim; i++) {
        uint64_t stride = from->shape[i] < 2 ? 0 : (uint64_t)of->strides[i];
        for (stride = (int64_t)stride < 0 ? -stride : stride; stride != 0;) {
            uint64_t rest = step % stride;
            step = stride;
            stride = rest;
        }
    }
    const uint8_t *at = (const uint8_t *)of->first;
    for (size_t i = 0; i < of->bytes; i += step ? step : of->bytes)
        if (at[i] > 1)
            return false;
    return true;
}

/// On the host; a device's memory is taken as it is.
static nd_status check_bools(const char *operation, const DLTensor *from, const window *of) {
    if (of->dtype != ND_BOOL || of->numel == 0 || of->device.kind != ND_CPU)
        return ND_OK;
    const uint8_t *first = (const uint8_t *)of->first + of->offset;
    const bool many = (uint64_t)of->numel > of->bytes;
    return (many ? only_bools_of_many(from, of)
                 : only_bools(first, from->ndim, from->shape, of->strides))
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a bool is neither 0 nor 1", operation);
}

static nd_status find_window(const char *operation, const DLTensor *from, window *to) {
    nd_status status = find_dtype(operation, from->dtype, &to->dtype);
    if (status == ND_OK)
        status = find_device(operation, from->device, &to->device);
    if (status != ND_OK)
        return status;
    if (from->ndim > ND_MAX_DIMS)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %d dimensions, and at most %d are possible",
                         operation, from->ndim, ND_MAX_DIMS);
    if (from->ndim > 0 && !from->shape)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %d dimensions, but the shape is NULL",
                         operation, from->ndim);
    status = nd__shape_check(operation, from->ndim, from->shape, to->dtype, &to->numel);
    if (status != ND_OK)
        return status;
    if (!from->data && to->numel > 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the data are NULL", operation);
    status = find_extents(operation, from, to);
    return status == ND_OK ? check_bools(operation, from, to) : status;
}

/// A tensor over the window, of which the caller is the owner still. NULL with an error.
static nd_tensor *show(const char *operation, const DLTensor *from, const window *of) {
    nd_place place = nd__place_begin(NULL, 0);
    nd_storage *storage =
        nd__storage_wrap(operation, place.manager, of->device, of->first, of->bytes);
    int64_t elements = (int64_t)(of->bytes / nd__dtype_bytes[of->dtype]);
    nd_tensor *x = NULL;
    if (storage)
        x = of->contiguous
                ? nd__tensor_on(place.manager, storage, of->dtype, from->ndim, from->shape,
                                of->numel)
                : nd__tensor_on(place.manager, storage, of->dtype, 1, &elements, elements);
    nd__place_end(place);
    if (!x || of->contiguous)
        return x;
    nd_tensor *view = nd__tensor_view(x, from->ndim, from->shape, of->strides, of->offset);
    nd_object_release(x);
    return view;
}

/// What both forms share: `end` gives `managed` back.
static nd_tensor *take_in(const char *operation, const DLTensor *from, bool read_only,
                          void *managed, void (*end)(void *managed, size_t bytes)) {
    window of;
    if (nd__callback_check(operation) != ND_OK || find_window(operation, from, &of) != ND_OK)
        return NULL;
    nd_tensor *x = show(operation, from, &of);
    if (!x)
        return NULL;
    // Nothing can fail any more.
    nd_storage *storage = nd__tensor_storage_now(x);
    storage->read_only = read_only;
    storage->owner = managed;
    storage->free = end;
    storage->borrowed = false;
    return x;
}

static void end_versioned(void *pointer, size_t bytes) {
    (void)bytes;
    DLManagedTensorVersioned *managed = pointer;
    if (managed->deleter)
        managed->deleter(managed);
}

static void end_unversioned(void *pointer, size_t bytes) {
    (void)bytes;
    DLManagedTensor *managed = pointer;
    if (managed->deleter)
        managed->deleter(managed);
}

nd_tensor *nd_from_dlpack(DLManagedTensorVersioned *managed) {
    const char *operation = "from_dlpack";
    if (!managed) {
        nd__error_null(operation, "managed");
        return NULL;
    }
    // Of another major version, only what stands before the flags is known.
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
        nd__error(ND_ERROR_UNSUPPORTED, "%s: DLPack's version %u.%u, and %d.x is read", operation,
                  managed->version.major, managed->version.minor, DLPACK_MAJOR_VERSION);
        return NULL;
    }
    bool read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    return take_in(operation, &managed->dl_tensor, read_only, managed, end_versioned);
}

nd_tensor *nd_from_dlpack_unversioned(DLManagedTensor *managed) {
    const char *operation = "from_dlpack_unversioned";
    if (!managed) {
        nd__error_null(operation, "managed");
        return NULL;
    }
    return take_in(operation, &managed->dl_tensor, false, managed, end_unversioned);
}
