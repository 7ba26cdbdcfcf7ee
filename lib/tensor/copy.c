// Copies: between layouts, dtypes, devices and the host; clone, contiguous, cast, to.
//
// Data crosses devices in the destination's dtype and in row-major order, through host memory where
// the two cannot do it by themselves.
// Temporaries live at the manager of the tensor they stand in for and are gone on return.
#include "lib/tensor/copy.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/node.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <string.h>

static const nd_device host = {ND_CPU, 0};

// Above this the kernel's threads pay off.
#define PLAIN_COPY_LIMIT ((size_t)256 << 10)

static bool same_device(nd_device a, nd_device b) {
    return a.kind == b.kind && a.index == b.index;
}

static size_t data_bytes(const nd_tensor *x) {
    return (size_t)x->numel * nd__dtype_bytes[x->dtype];
}

static nd_status backend_failed(const char *operation, nd_status status, nd_device device,
                                const char *what) {
    return nd__error(status, "%s: %s %s failed with %s", operation, what,
                     nd__registry_device_text(device), nd__registry_answer_text(status));
}

/// True when a collapsed call moves one unbroken block of one dtype.
static bool is_block(const nd_kernel_call *call) {
    return call->op == ND_OP_clone &&
           (call->ndim == 0 || (call->ndim == 1 && call->operand[0].strides[0] == 1 &&
                                call->operand[1].strides[0] == 1));
}

nd_status nd__copy_to_operand(const char *operation, const nd_operand *destination,
                              const nd_tensor *x) {
    if (x->numel == 0)
        return ND_OK;
    nd_kernel_call call;
    call.op = destination->dtype == x->dtype ? ND_OP_clone : ND_OP_cast;
    call.noperands = 2;
    call.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = *destination;
    call.operand[1] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    nd__shape_collapse(&call);
    size_t bytes = data_bytes(x);
    if (bytes <= PLAIN_COPY_LIMIT && is_block(&call) &&
        nd__registry_backend(x->device.kind)->host_accessible) {
        memmove(destination->data, x->data, bytes);
        return ND_OK;
    }
    return nd__launch(operation, x->device, &call);
}

/// On one device.
static nd_status copy_locally(const char *operation, nd_tensor *y, const nd_tensor *x) {
    nd_operand destination = nd__shape_broadcast_operand(y, y->ndim, y->shape);
    return nd__copy_to_operand(operation, &destination, x);
}

/// Owned contiguous tensor on x's device with x's values in another dtype; x itself when it is one.
static nd_tensor *packed(const char *operation, const nd_tensor *x, nd_dtype dtype) {
    if (nd__tensor_is_contiguous(x) && x->dtype == dtype)
        return nd_retain(x);
    nd_place place = nd__place_of(&x->header);
    nd_tensor *copy = nd__tensor_new(operation, place.manager, x->device, dtype, x->ndim, x->shape);
    nd__place_end(place);
    if (copy && copy_locally(operation, copy, x) != ND_OK) {
        nd_object_release(copy);
        return NULL;
    }
    return copy;
}

nd_status nd__copy_to_host(const char *operation, const nd_tensor *x, void *destination) {
    if (x->numel == 0)
        return ND_OK;
    if (nd__capture_check(operation, x->device) != ND_OK)
        return ND_ERROR_STATE;
    const nd_backend *backend = nd__registry_backend(x->device.kind);
    if (backend->host_accessible && !nd__tensor_is_contiguous(x)) {
        nd_operand operand = {.data = destination, .dtype = x->dtype};
        nd__tensor_contiguous_strides(x->ndim, x->shape, operand.strides);
        return nd__copy_to_operand(operation, &operand, x);
    }
    nd_tensor *source = packed(operation, x, x->dtype);
    if (!source)
        return nd_error_get_status();
    nd_status status =
        backend->copy_to_host(x->device.index, destination, source->data, data_bytes(x));
    nd_object_release(source);
    return status == ND_OK ? ND_OK : backend_failed(operation, status, x->device, "copying from");
}

/// Owned contiguous tensor like y, on its device: y itself when it is one.
static nd_tensor *contiguous_for(const char *operation, nd_tensor *y) {
    if (nd__tensor_is_contiguous(y))
        return nd_retain(y);
    nd_place place = nd__place_of(&y->header);
    nd_tensor *target =
        nd__tensor_new(operation, place.manager, y->device, y->dtype, y->ndim, y->shape);
    nd__place_end(place);
    return target;
}

/// Contiguous host data into y, which is on a device.
static nd_status write_from_host(const char *operation, nd_tensor *y, const void *source) {
    const nd_backend *backend = nd__registry_backend(y->device.kind);
    if (nd__capture_check(operation, y->device) != ND_OK)
        return ND_ERROR_STATE;
    nd_tensor *target = contiguous_for(operation, y);
    if (!target)
        return nd_error_get_status();
    nd_status status =
        backend->copy_from_host(y->device.index, target->data, source, data_bytes(y));
    if (status != ND_OK)
        backend_failed(operation, status, y->device, "copying to");
    else if (target != y)
        status = copy_locally(operation, y, target);
    nd_object_release(target);
    return status;
}

/// Owned tensor on the host with x's values, in x's dtype.
static nd_tensor *fetch(const char *operation, const nd_tensor *x) {
    if (same_device(x->device, host))
        return nd_retain(x);
    nd_place place = nd__place_of(&x->header);
    nd_tensor *copy = nd__tensor_new(operation, place.manager, host, x->dtype, x->ndim, x->shape);
    nd__place_end(place);
    if (copy && nd__copy_to_host(operation, x, copy->data) != ND_OK) {
        nd_object_release(copy);
        return NULL;
    }
    return copy;
}

/// Between two devices of a kind that copy by themselves.
static nd_status copy_to_peer(const char *operation, nd_tensor *y, const nd_tensor *x) {
    if (nd__capture_running())
        return nd__capture_refused(
            operation, nd__capture_is_of(x->device.kind, x->device.index) ? y->device : x->device);
    nd_tensor *source = packed(operation, x, y->dtype);
    if (!source)
        return nd_error_get_status();
    nd_tensor *target = contiguous_for(operation, y);
    nd_status status = target ? nd__registry_backend(y->device.kind)
                                    ->copy_peer(y->device.index, target->data, x->device.index,
                                                source->data, data_bytes(y))
                              : nd_error_get_status();
    if (target && status != ND_OK)
        backend_failed(operation, status, y->device, "copying to");
    else if (target && target != y)
        status = copy_locally(operation, y, target);
    nd_object_release(target);
    nd_object_release(source);
    return status;
}

nd_status nd__copy_into(const char *operation, nd_tensor *y, const nd_tensor *x) {
    if (x->numel == 0)
        return ND_OK;
    if (same_device(x->device, y->device))
        return copy_locally(operation, y, x);
    const nd_backend *backend = nd__registry_backend(x->device.kind);
    if (x->device.kind == y->device.kind && backend->copy_peer)
        return copy_to_peer(operation, y, x);
    bool to_host = same_device(y->device, host);
    if (to_host && nd__tensor_is_contiguous(y) && y->dtype == x->dtype)
        return nd__copy_to_host(operation, x, y->data);
    nd_tensor *fetched = fetch(operation, x);
    if (!fetched)
        return nd_error_get_status();
    nd_status status;
    if (to_host) {
        status = copy_locally(operation, y, fetched);
    } else {
        nd_tensor *source = packed(operation, fetched, y->dtype);
        status = source ? write_from_host(operation, y, source->data) : nd_error_get_status();
        nd_object_release(source);
    }
    nd_object_release(fetched);
    return status;
}

/// A recorded copy of x with another dtype or device.
static nd_tensor *copied(const char *operation, nd_op op, const nd_tensor *x, nd_dtype dtype,
                         nd_device device) {
    if (nd__capture_running() && !same_device(x->device, device)) {
        nd__capture_error(operation);
        return NULL;
    }
    nd_tensor *result = nd__tensor_result(operation, &x, 1, device, dtype, x->ndim, x->shape);
    if (!result)
        return NULL;
    if (nd__copy_into(operation, result, x) != ND_OK) {
        nd_object_release(result);
        return NULL;
    }
    return nd__record(op, result, &x, 1, NULL);
}

nd_tensor *nd_contiguous(const nd_tensor *x) {
    if (nd__tensor_check_operand("contiguous", "x", x) != ND_OK)
        return NULL;
    return nd__tensor_is_contiguous(x) ? nd_retain(x)
                                       : copied("contiguous", ND_OP_clone, x, x->dtype, x->device);
}

nd_tensor *nd_clone(const nd_tensor *x) {
    if (nd__tensor_check_operand("clone", "x", x) != ND_OK)
        return NULL;
    return copied("clone", ND_OP_clone, x, x->dtype, x->device);
}

nd_tensor *nd_cast(const nd_tensor *x, nd_dtype dtype) {
    if (nd__tensor_check_operand("cast", "x", x) != ND_OK)
        return NULL;
    return x->dtype == dtype ? nd_retain(x) : copied("cast", ND_OP_cast, x, dtype, x->device);
}

nd_tensor *nd__copy_to(const char *operation, const nd_tensor *x, nd_device device) {
    if (nd__tensor_check_operand(operation, "x", x) != ND_OK ||
        nd__registry_device_check(operation, device) != ND_OK)
        return NULL;
    return same_device(x->device, device) ? nd_retain(x)
                                          : copied(operation, ND_OP_to, x, x->dtype, device);
}

nd_tensor *nd_to(const nd_tensor *x, nd_device device) {
    return nd__copy_to("to", x, device);
}
