/// @file
/// Basic vocabulary of ndarc: export and ownership attributes, status codes, dtypes, devices,
/// handle types.
///
/// Ownership is visible in types everywhere in these headers:
///
///     T *        owned: the holder owes one nd_release().
///     const T *  borrowed: valid while the thing it was borrowed from is; never released.
///
/// Functions that return an owned handle carry ND_OWNED, which makes gcc -fanalyzer report leaked
/// results and double releases in the code that calls them.
#ifndef ND_BASE_H
#define ND_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <nd/detail/cplusplus.h>
extern "C" {
#endif

/// A cast that C++ programs need not be told of (-Wold-style-cast): no part of the interface.
#ifdef __cplusplus
#define ND__CAST(type, x) static_cast<type>(x)
#else
#define ND__CAST(type, x) ((type)(x))
#endif

/// On every function that the library exports. Attributes have their underscores in these headers:
/// a program may have macros named `malloc` or `unused`.
#define ND_API __attribute__((__visibility__("default")))

/// Largest number of dimensions of a tensor.
#define ND_MAX_DIMS 8

/// What a function that returns no handle answers. ND_OK is zero.
typedef enum nd_status {
    ND_OK = 0,                   ///< all went well
    ND_ERROR_INVALID_ARGUMENT,   ///< NULL, out of range, malformed
    ND_ERROR_SHAPE,              ///< shapes that do not fit each other or the operation
    ND_ERROR_DTYPE,              ///< dtype the operation does not take
    ND_ERROR_DEVICE,             ///< device missing, mismatched, or failed
    ND_ERROR_OUT_OF_MEMORY,      ///< host or device memory, after every stage of the ladder
    ND_ERROR_QUOTA,              ///< a manager's byte quota or cap refused
    ND_ERROR_CLOSED,             ///< object or manager was closed
    ND_ERROR_STATE,              ///< right arguments at the wrong time (another thread's scope)
    ND_ERROR_NOT_DIFFERENTIABLE, ///< no gradient rule for the operation
    ND_ERROR_IO,                 ///< file missing, unreadable, truncated, full disk
    ND_ERROR_FORMAT,             ///< file content that breaks its format
    ND_ERROR_UNSUPPORTED,        ///< valid, but not built into this library or backend
} nd_status;

/// Element types. Bytes per element: nd_dtype_get_size().
typedef enum nd_dtype {
    ND_BOOL = 0,    ///< one byte, 0 or 1
    ND_U8,          ///< unsigned, 0 to 255
    ND_I32,         ///< signed, 32 bits
    ND_I64,         ///< signed, 64 bits
    ND_F32,         ///< IEEE 754 binary32
    ND_F64,         ///< IEEE 754 binary64
    ND_I8,          ///< signed, 8 bits
    ND_I16,         ///< signed, 16 bits
    ND_U16,         ///< unsigned, 16 bits
    ND_U32,         ///< unsigned, 32 bits
    ND_U64,         ///< unsigned, 64 bits
    ND_F16,         ///< IEEE 754 binary16: 11 bits of significand, up to 65504
    ND_BF16,        ///< the upper half of a binary32: 8 bits of significand, f32's range
    ND_DTYPE_COUNT, ///< how many there are
} nd_dtype;

/// Kinds of devices.
typedef enum nd_device_kind {
    ND_CPU = 0,           ///< the host
    ND_CUDA,              ///< an NVIDIA GPU
    ND_DEVICE_KIND_COUNT, ///< how many there are
} nd_device_kind;

/// Places for kinds of devices in the arrays of structs. Fixed, and more than there are kinds, so
/// that a new kind changes the size of no struct. A place whose kind does not exist is 0 in what a
/// program reads.
#define ND_MAX_DEVICE_KINDS 8

/// One device. Small, passed by value.
typedef struct nd_device {
    nd_device_kind kind; ///< what it is
    int32_t index;       ///< which of its kind, from 0
} nd_device;

// Handle types. All are counted objects and can be passed to nd_retain, nd_release, nd_close,
// nd_weak_new, nd_manager_attach.
typedef struct nd_object nd_object;           ///< any object
typedef struct nd_tensor nd_tensor;           ///< n-dimensional array
typedef struct nd_manager nd_manager;         ///< node of the manager tree
typedef struct nd_weak nd_weak;               ///< weak reference
typedef struct nd_list nd_list;               ///< growable list of objects
typedef struct nd_map nd_map;                 ///< objects by name, in the order in which they came
typedef struct nd_resource nd_resource;       ///< user memory or handle under management
typedef struct nd_node nd_node;               ///< node of the autograd graph
typedef struct nd_module nd_module;           ///< neural network module
typedef struct nd_optimizer nd_optimizer;     ///< optimizer
typedef struct nd_schedule nd_schedule;       ///< schedule of a learning rate
typedef struct nd_ema nd_ema;                 ///< moving averages of parameters
typedef struct nd_loss_scaler nd_loss_scaler; ///< scale of a loss in half precision
typedef struct nd_state nd_state;             ///< what of a training goes into a file
typedef struct nd_dataset nd_dataset;         ///< data set with shuffling batches
typedef struct nd_gguf nd_gguf;               ///< open GGUF file
typedef struct nd_communicator nd_communicator;   ///< ranks that compute together
typedef struct nd_data_parallel nd_data_parallel; ///< a module trained by several ranks
typedef struct nd_stream nd_stream;               ///< stream of work on a device
typedef struct nd_event nd_event;                 ///< place in a stream
typedef struct nd_graph nd_graph;                 ///< captured work of a device
typedef struct nd_scope nd_scope;                 ///< scope; not counted

/// A line of the program, for creation sites. Objects point to it: what was made by a library that
/// is unloaded must be gone before.
typedef struct nd_site {
    const char *file; ///< as __FILE__ gives it; static storage
    uint32_t line;    ///< from 1
} nd_site;

/// Creation site that new objects of this thread get; set around calls by the macros of
/// ND_TRACK_SITES.
extern ND_API __thread const nd_site *nd__site;

/// Gives up an owned handle; the last one destroys the object. Use nd_release() of <nd/object.h>.
///
/// @param object owned; NULL is fine
/// @errors none. A release too many stops the program
/// @threads any, beside everything; never waits for the collector
ND_API void nd_object_release(void *object);

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11 && !defined(__cplusplus)
/// On every function that returns an owned handle: the compiler warns when it is ignored, leaked,
/// or released twice. In C++ only when it is ignored: gcc's analyzer does not follow destructors,
/// and would call every handle that one releases a leak.
#define ND_OWNED __attribute__((__malloc__(nd_object_release, 1), __warn_unused_result__))
#elif defined(__GNUC__) && !defined(__clang__)
#define ND_OWNED __attribute__((__warn_unused_result__))
#elif defined(__clang__)
#define ND_OWNED __attribute__((ownership_returns(nd_object), __warn_unused_result__))
#else
#define ND_OWNED
#endif

// A block with something that begins before it and ends on every exit from it. To the compiler it
// is a `for`, whose variable has a number in its name, so that nested blocks do not shadow each
// other. clang-format off
#define ND__FOR_BLOCK(type, begin, end) ND__FOR_BLOCK_NUMBERED(__COUNTER__, type, begin, end)
#define ND__FOR_BLOCK_NUMBERED(n, type, begin, end) ND__FOR_BLOCK_OF(n, type, begin, end)
#define ND__FOR_BLOCK_OF(n, type, begin, end)                                            \
    for (type nd_block_##n __attribute__((__cleanup__(end))) = begin; nd_block_##n.once; \
         nd_block_##n.once = false)

// What a struct of size and version begins with, and all else zero.
#ifdef __cplusplus
#define ND__SIZED(type) nd__sized<type>()
#else
#define ND__SIZED(type) \
    { .size = sizeof(type), .version = 1 }
#endif
// clang-format on

#ifdef __cplusplus
}
#endif
#endif
