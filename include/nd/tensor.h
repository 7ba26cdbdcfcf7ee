/// @file
/// Tensors: creation, properties, views, transfer, printing.
///
/// A tensor is a strided window (shape, strides in elements, offset) onto a storage; views share
/// it. (A small tensor on the host carries its data itself, until a view shares them.) Indices that
/// count from the end are written as negative numbers, for axes too. A shape argument is `int ndim,
/// const int64_t *shape`; ND_SHAPE(3, 4) writes both. Operations are safe on different tensors from
/// any threads; one tensor may be read by many threads at once, but not while one writes it.
#ifndef ND_TENSOR_H
#define ND_TENSOR_H
#include <nd/number.h>
#include <nd/object.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

/// ND_SHAPE(2, 3): the two arguments `ndim, shape` of a creation function. Of a tensor
/// without axes write `0, NULL`: strict C11 has no empty list. In C++ the shape lives to the end of
/// the statement.
#ifdef __cplusplus
#define ND_SHAPE(...) decltype(nd__shape(__VA_ARGS__))::count, nd__shape(__VA_ARGS__).get()
#else
#define ND_SHAPE(...)                                                                    \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
        __VA_ARGS__                                                                      \
    }
#endif

/// Bytes of one element; 0 for an invalid dtype.
ND_API size_t nd_dtype_get_size(nd_dtype dtype);
/// "float32" and so on (names of the Array API); "invalid" otherwise.
ND_API const char *nd_dtype_get_name(nd_dtype dtype);
/// dtype of a result of two operands, as in the Array API: the wider of one kind; the least signed
/// integer that holds a signed and an unsigned one; the float of a float and an integer; f32 of f16
/// and bf16; bool gives way. ND_DTYPE_COUNT for u64 and a signed integer, which no dtype holds (an
/// operation on the two is ND_ERROR_DTYPE), and for an invalid dtype.
ND_API nd_dtype nd_promote_dtypes(nd_dtype a, nd_dtype b);
/// Whether operands of both have results of `to`: can_cast of the Array API. nd_cast() itself goes
/// from every dtype to every other. False for an invalid dtype.
ND_API bool nd_can_cast(nd_dtype from, nd_dtype to);

/// The kinds of dtypes.
typedef enum nd_dtype_kind {
    ND_KIND_BOOL = 0, ///< 0 and 1
    ND_KIND_UNSIGNED, ///< integers from 0 on
    ND_KIND_SIGNED,   ///< integers
    ND_KIND_FLOAT,    ///< floating-point numbers
    ND_KIND_COUNT,    ///< how many there are; of an invalid dtype
} nd_dtype_kind;
/// Of what kind a dtype is.
ND_API nd_dtype_kind nd_dtype_get_kind(nd_dtype dtype);
/// The least finite number of a dtype, exactly: nd_full(ndim, shape, nd_dtype_get_min(dtype), dtype)
/// holds it. 0 of an invalid dtype.
ND_API nd_number nd_dtype_get_min(nd_dtype dtype);
/// The greatest finite number of a dtype, likewise.
ND_API nd_number nd_dtype_get_max(nd_dtype dtype);
/// From 1 to the next number of a dtype of floats; 0 of others.
ND_API double nd_dtype_get_epsilon(nd_dtype dtype);
/// The least positive number of full precision of a dtype of floats; 0 of others.
ND_API double nd_dtype_get_smallest_normal(nd_dtype dtype);

// ----------------------------------------------------------------------------------------- devices

/// Number of devices of a kind that can be used now; 0 is a normal answer.
ND_API int nd_get_device_count(nd_device_kind kind);
/// Device on which this thread creates tensors; the CPU at first. Error: no such device.
ND_API nd_status nd_set_default_device(nd_device device);
/// Device on which this thread creates tensors.
ND_API nd_device nd_get_default_device(void);
/// Waits until all work queued on the device is done.
///
/// @param device which
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (no such device, or it failed), ND_ERROR_INVALID_ARGUMENT (an index of
///         work queued earlier was out of range), ND_ERROR_STATE (inside a callback of
///         nd_queue_callback)
/// @threads any. Destroys what callbacks of nd_queue_callback have released
ND_API nd_status nd_synchronize(nd_device device);

/// Queues a call of `callback(data)` behind all work queued so far on the device; what is queued
/// later waits for it. It is called once, on some thread of the host (on the CPU, where nothing is
/// queued, on this one, before the function returns). What a device that fails has not reached is
/// not called, and what it keeps is released by the nd_synchronize of that device that tells of the
/// failure, or by a later one; nor is it called in a forked child; at the end of a process only what
/// nd_synchronize waited for is sure to be.
///
/// Inside it the program may retain and release objects of any kind, and read what they say of
/// themselves (nd_get_shape, nd_get_data, nd_object_get_data, nd_get_count and the like);
/// nd_weak_get may wait for the collector. Nothing may be made, closed, attached, collected or
/// computed there, and no device be called: what would is refused with ND_ERROR_STATE, in the error
/// of that thread. What the callback releases last counts as freed at once but is destroyed later,
/// never inside a callback: by the next nd_synchronize or nd_queue_callback, object that dies
/// elsewhere, closing manager, collection or trigger of one, allocation under pressure, or at exit,
/// on the thread that does that.
///
/// @param device whose queue
/// @param callback brief; must not wait for whoever may be calling a device; NULL: nothing is
///        called
/// @param data handed to the callback
/// @param kept borrowed; kept alive until the callback has returned, and released like what the
///        callback releases; NULL: nothing
/// @return ND_OK, or the error; then nothing is queued or kept
/// @errors ND_ERROR_INVALID_ARGUMENT (neither callback nor object), ND_ERROR_DEVICE (no such
///         device, or it failed), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_STATE (inside a callback)
/// @threads any. Callbacks of one device other than the CPU run one after the other, on one thread
///          at a time
ND_API nd_status nd_queue_callback(nd_device device, void (*callback)(void *data), void *data,
                                   const void *kept);

// ---------------------------------------------------------------------------------------- creation
//
// All return an owned contiguous tensor on the default device, or NULL.

/// Uninitialised.
ND_API nd_tensor *nd_empty(int ndim, const int64_t *shape, nd_dtype dtype) ND_OWNED;
/// All 0.
ND_API nd_tensor *nd_zeros(int ndim, const int64_t *shape, nd_dtype dtype) ND_OWNED;
/// All 1.
ND_API nd_tensor *nd_ones(int ndim, const int64_t *shape, nd_dtype dtype) ND_OWNED;
/// All `value`: any number of C, exactly (<nd/number.h>). Error: an integer dtype cannot hold it; a
/// fraction is cut off first. bool is value != 0.
ND_API nd_tensor *nd_full(int ndim, const int64_t *shape, nd_number value, nd_dtype dtype) ND_OWNED;
/// 0-d tensor; `value` as in nd_full().
ND_API nd_tensor *nd_scalar(nd_number value, nd_dtype dtype) ND_OWNED;
/// start, start+step, ... below stop: [ceil((stop-start)/step)]. Exact when all three and the dtype
/// are integers, else computed in f64.
ND_API nd_tensor *nd_arange(nd_number start, nd_number stop, nd_number step,
                            nd_dtype dtype) ND_OWNED;
/// `count` values from start to stop, both included, computed in f64, finite however far they are
/// apart; of integer dtypes rounded down: [count].
ND_API nd_tensor *nd_linspace(double start, double stop, int64_t count, nd_dtype dtype) ND_OWNED;
/// Identity matrix: [n, n].
ND_API nd_tensor *nd_eye(int64_t n, nd_dtype dtype) ND_OWNED;
/// Copies contiguous host memory of the given shape. Error: a byte of a bool is neither 0 nor 1.
ND_API nd_tensor *nd_from_data(const void *data, int ndim, const int64_t *shape,
                               nd_dtype dtype) ND_OWNED;
/// Wraps host memory without copying; `free(pointer, bytes)` (may be NULL) is called when the
/// storage dies, unless the pointer is NULL, which it may be where there are no elements. Error: as
/// nd_from_data(), and an address that is not aligned. Whoever wraps memory twice sees to it that
/// operations with an operand over the one write nothing over the other.
ND_API nd_tensor *nd_wrap(void *data, int ndim, const int64_t *shape, nd_dtype dtype,
                          void (*free)(void *pointer, size_t bytes)) ND_OWNED;
/// New tensor of x's shape, dtype and device, uninitialised. Placed at x's manager, whatever is
/// current.
ND_API nd_tensor *nd_empty_like(const nd_tensor *x) ND_OWNED;
/// The same, all 0.
ND_API nd_tensor *nd_zeros_like(const nd_tensor *x) ND_OWNED;
/// The same, all 1.
ND_API nd_tensor *nd_ones_like(const nd_tensor *x) ND_OWNED;
/// The same, all `value`, as in nd_full().
ND_API nd_tensor *nd_full_like(const nd_tensor *x, nd_number value) ND_OWNED;

/// Key of the counter-based generator (Philox 4x32-10): the same key gives the same numbers on
/// every device and with any number of threads.
typedef struct nd_key {
    uint64_t seed;   ///< from nd_key_new()
    uint64_t stream; ///< from nd_key_fold()
} nd_key;
/// Key of a seed.
ND_API nd_key nd_key_new(uint64_t seed);
/// Independent key derived from `key` and a number, such as a step or layer index.
ND_API nd_key nd_key_fold(nd_key key, uint64_t data);
/// Uniform in [0, 1); of a float dtype. Multiples of 2^-24, of f64 2^-53, f16 2^-11, bf16 2^-8.
ND_API nd_tensor *nd_rand(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) ND_OWNED;
/// Standard normal; of a float dtype.
ND_API nd_tensor *nd_randn(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) ND_OWNED;
/// Integers in [low, high). Error: the dtype does not hold every integer of the range.
ND_API nd_tensor *nd_randint(nd_key key, int64_t low, int64_t high, int ndim, const int64_t *shape,
                             nd_dtype dtype) ND_OWNED;
/// Random permutation of 0 ... n-1: [n], i64, on the CPU.
ND_API nd_tensor *nd_randperm(nd_key key, int64_t n) ND_OWNED;

// -------------------------------------------------------------------------------------- properties
//
// NULL gives 0, -1 or NULL without an error.

/// Number of dimensions.
ND_API int nd_get_ndim(const nd_tensor *x);
/// ndim entries, borrowed.
ND_API const int64_t *nd_get_shape(const nd_tensor *x);
/// ndim entries, in elements, borrowed.
ND_API const int64_t *nd_get_strides(const nd_tensor *x);
/// -1 and an error when axis is out of range.
ND_API int64_t nd_get_size(const nd_tensor *x, int axis);
/// Number of elements.
ND_API int64_t nd_get_numel(const nd_tensor *x);
/// Type of the elements.
ND_API nd_dtype nd_get_dtype(const nd_tensor *x);
/// Where the storage is.
ND_API nd_device nd_get_device(const nd_tensor *x);
/// Whether the elements lie in row-major order without gaps.
ND_API bool nd_is_contiguous(const nd_tensor *x);
/// True when the two share a storage.
ND_API bool nd_is_view_of(const nd_tensor *x, const nd_tensor *y);
/// Bytes of the whole storage under x, which a small view pins.
ND_API size_t nd_get_storage_bytes(const nd_tensor *x);
/// Address of the first element of a host tensor; NULL with an error for device memory or a closed
/// tensor. Valid while x is. Writing through it does not bump the version counter.
ND_API void *nd_get_data(const nd_tensor *x);
/// The value of a tensor with one element, of any dtype and device. NaN with an error otherwise. An
/// int64 or uint64 beyond 2^53 is rounded: nd_get_item_i64() does not.
ND_API double nd_get_item(const nd_tensor *x);
/// The value of a tensor with one element, exactly. Error: a float that is no int64, a uint64
/// beyond; nothing is written.
ND_API nd_status nd_get_item_i64(const nd_tensor *x, int64_t *ret_value);
/// Copies x, in row-major order, to host memory of exactly nd_get_numel(x) * nd_dtype_get_size
/// bytes.
ND_API nd_status nd_copy_to_host(const nd_tensor *x, void *destination, size_t bytes);

// ------------------------------------------------------------------------------------------- views
//
// Results share x's storage where that is possible (always, unless said otherwise) and are
// differentiable. What is written in place through a view is written to x, and belongs to the
// history of x and of its other views from then on (<nd/ops.h>). For that a view of floats made
// while recording keeps alive the tensor that it, or the view it was made of, is a view of. Where
// that one was made inside nd_no_grad, or is a detached alias that is not contiguous, there is no
// such tensor, and the view keeps the storage alone.

/// New shape of the same number of elements; one entry may be -1. A copy when strides do not allow
/// a view.
ND_API nd_tensor *nd_reshape(const nd_tensor *x, int ndim, const int64_t *shape) ND_OWNED;
/// Axes reordered: result axis i is x's axis axes[i]; `naxes` must be x's ndim.
ND_API nd_tensor *nd_permute(const nd_tensor *x, int naxes, const int *axes) ND_OWNED;
/// Two axes exchanged.
ND_API nd_tensor *nd_transpose(const nd_tensor *x, int axis0, int axis1) ND_OWNED;
/// Broadcast to `shape` (stride 0); -1 keeps a size.
ND_API nd_tensor *nd_expand(const nd_tensor *x, int ndim, const int64_t *shape) ND_OWNED;
/// x[start:stop:step] along axis, with Python's clamping; INT64_MAX is the end. A view where step is
/// above 0. A step below 0 walks backwards, to INT64_MIN for "to the first" (INT64_MAX, INT64_MIN, -1
/// is all of it), and copies. Error: a step of 0.
ND_API nd_tensor *nd_slice(const nd_tensor *x, int64_t start, int64_t stop, int64_t step,
                           int axis) ND_OWNED;
/// x[index] along axis; the axis goes away. Error when out of range.
ND_API nd_tensor *nd_select(const nd_tensor *x, int64_t index, int axis) ND_OWNED;
/// Without an axis of size 1. Error: it has another size.
ND_API nd_tensor *nd_squeeze(const nd_tensor *x, int axis) ND_OWNED;
/// With a new axis of size 1 at `axis`.
ND_API nd_tensor *nd_unsqueeze(const nd_tensor *x, int axis) ND_OWNED;
/// Axes from `start_axis` on become one.
ND_API nd_tensor *nd_flatten(const nd_tensor *x, int start_axis) ND_OWNED;
/// Arbitrary window; checked against the storage's bounds. `offset` counts elements from the
/// storage's first, wherever x begins in it; neither it nor a stride is negative. Differentiable
/// where x is contiguous, or a view of a contiguous tensor, and the window shows nothing beyond
/// that; elements that it shows more than once get the sum of their gradients.
ND_API nd_tensor *nd_as_strided(const nd_tensor *x, int ndim, const int64_t *shape,
                                const int64_t *strides, int64_t offset) ND_OWNED;
/// Same storage, no history.
ND_API nd_tensor *nd_detach(const nd_tensor *x) ND_OWNED;

// -------------------------------------------------------------------------------- copies, transfer

/// x itself (retained) when contiguous, else a copy.
ND_API nd_tensor *nd_contiguous(const nd_tensor *x) ND_OWNED;
/// A copy, contiguous and differentiable.
ND_API nd_tensor *nd_clone(const nd_tensor *x) ND_OWNED;
/// Another dtype; x itself (retained) when it has it. A float becomes the nearest integer towards
/// zero that the dtype holds, NaN becomes 0; an integer that becomes narrower keeps its low bits;
/// anything to bool is != 0. What becomes a float is rounded once, to the nearest, ties to even,
/// from every dtype.
ND_API nd_tensor *nd_cast(const nd_tensor *x, nd_dtype dtype) ND_OWNED;
/// Another device; x itself (retained) when there.
ND_API nd_tensor *nd_to(const nd_tensor *x, nd_device device) ND_OWNED;
/// Joined along an existing axis. All inputs of one dtype and device; count >= 1.
ND_API nd_tensor *nd_concat(size_t count, const nd_tensor *const *inputs, int axis) ND_OWNED;
/// Joined along a new axis.
ND_API nd_tensor *nd_stack(size_t count, const nd_tensor *const *inputs, int axis) ND_OWNED;

// ---------------------------------------------------------------------------------------- printing

/// NumPy-like text: values, summarised above 1,000 elements, with dtype and shape. The same in every
/// locale.
ND_API nd_status nd_print(const nd_tensor *x, FILE *stream);
/// The same into a buffer, cut and terminated; returns the length it needs (without terminator), -1
/// on error.
ND_API int64_t nd_format(const nd_tensor *x, char *buffer, size_t size);

#ifndef __cplusplus
/// @cond
#define nd_full(...) (nd_full)(ND__NUMBER_BEFORE_LAST(__VA_ARGS__))
#define nd_arange(...) (nd_arange)(ND__NUMBERS_BEFORE_LAST(__VA_ARGS__))
#define nd_scalar(...) (nd_scalar)(ND__NUMBER_FIRST(__VA_ARGS__))
#define nd_full_like(...) (nd_full_like)(ND__NUMBER_SECOND(__VA_ARGS__))
/// @endcond
#endif

#ifdef __cplusplus
}
#endif
#endif
