/// @file
/// Tensors to and from other libraries without a copy, as DLPack 1.x
/// (https://dmlc.github.io/dlpack) describes them: NumPy, PyTorch, JAX, CuPy and others.
///
/// The structs are those of DLPack's own header, which a program brings: here they are only named.
///
/// Memory is shared, so that each side sees what the other writes. Writes of the other side are not
/// recorded, and do not count for the check that what a backward pass needs was not overwritten.
/// Nothing is converted: shape, strides, dtype and device are the same on both sides.
#ifndef ND_DLPACK_H
#define ND_DLPACK_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensorVersioned;
struct DLManagedTensor;

/// Lends the memory of x: a description of it that whoever gets it gives back by calling its
/// `deleter` once, on any thread, in any order with the end of x and of its manager. Until then the
/// memory is held as by a view of x, and counts for the manager that it is in: closing that manager
/// moves it up, and reports it as escaped. nd_close() of x and nd_manager_dispose() leave the memory
/// to the description.
///
/// Where x lies on a device, the work that was queued for it is done on return. Strides are given in
/// every case; those of axes of size 1 and of empty tensors are the ones that a contiguous tensor
/// has. The read-only flag is set for memory that was taken read-only (nd_from_dlpack()).
///
/// @param x any layout; on the CPU or a CUDA device
/// @return owned: its `deleter` frees it. NULL with an error
/// @errors ND_ERROR_STATE (x requires a gradient, which DLPack does not carry: lend nd_detach(x), or
///         a clone; inside a callback), ND_ERROR_CLOSED, ND_ERROR_DEVICE, ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API struct DLManagedTensorVersioned *nd_to_dlpack(const nd_tensor *x);

/// The same as DLPack describes it before its version 1.0, for consumers that know no other. It has
/// no flag for read-only memory: ND_ERROR_STATE for that.
ND_API struct DLManagedTensor *nd_to_dlpack_unversioned(const nd_tensor *x);

/// A tensor over the memory of another library, placed in the current manager, which is charged
/// with the bytes from the first element to the last. On success `managed` belongs to the library:
/// its `deleter`, where there is one, is called once, when the last tensor over the memory has died,
/// on the thread on which that happens (any, a collection's too), after the work that was queued for
/// the device. On failure it is the caller's as before.
///
/// Where the memory is a device's, what the other library queued for it must be done, or ordered
/// before the device's default stream. Page-locked host memory (kDLCUDAHost) is memory of the CPU.
/// Memory that is taken in twice is not known to be the same: what writes over an operand that lies
/// there again is not refused. Memory with the read-only flag is not written: an operation in place is ND_ERROR_STATE;
/// nd_get_data() does not know.
///
/// @param managed of version 1.x; kDLCPU, kDLCUDAHost, kDLCUDA or kDLCUDAManaged. Shape NULL stands
///                for no dimensions, strides NULL for contiguous, a negative stride is one of ours
/// @return owned
/// @errors ND_ERROR_UNSUPPORTED (version 2 and above, a dtype that is none of ours, such as complex
///         numbers and vectors, memory of other devices, more than 8 dimensions),
///         ND_ERROR_SHAPE (a negative size or number of dimensions, sizes that overflow),
///         ND_ERROR_INVALID_ARGUMENT (NULL data or shape, extents beyond the address space, an
///         address that is not aligned for the dtype, a byte of a bool on the host that is neither
///         0 nor 1), ND_ERROR_DEVICE (no such device),
///         ND_ERROR_STATE (inside a callback), ND_ERROR_QUOTA, ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_tensor *nd_from_dlpack(struct DLManagedTensorVersioned *managed) ND_OWNED;

/// The same of a description from before version 1.0.
ND_API nd_tensor *nd_from_dlpack_unversioned(struct DLManagedTensor *managed) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
