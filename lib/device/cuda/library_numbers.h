// Numbers and layouts of NVIDIA's libraries' interfaces, whose headers ndarc is built without; the
// same in cuBLAS 12 and 13. tests/cudart/abi_libraries.c compares them with a toolkit's headers.
#ifndef ND_LIB_DEVICE_CUDA_LIBRARY_NUMBERS_H
#define ND_LIB_DEVICE_CUDA_LIBRARY_NUMBERS_H
#include <stddef.h>
#include <stdint.h>

// cuBLAS, and cuBLASLt beside it

enum { ND__BLAS_SUCCESS = 0, ND__BLAS_ALLOC_FAILED = 3, ND__BLAS_NOT_SUPPORTED = 15 };
enum { ND__BLAS_PLAIN = 0, ND__BLAS_TRANSPOSED = 1 };
enum { ND__BLAS_F32 = 0, ND__BLAS_F64 = 1, ND__BLAS_F16 = 2, ND__BLAS_BF16 = 14 };
enum { ND__BLAS_COMPUTE_F32 = 68, ND__BLAS_COMPUTE_F64 = 70 };
enum { ND__BLAS_NO_REDUCED_SUMS = 16 };

// cuBLASLt

enum {
    ND__LT_DESC_TRANSA = 3,
    ND__LT_DESC_TRANSB = 4,
    ND__LT_DESC_EPILOGUE = 7,
    ND__LT_DESC_BIAS_POINTER = 8
};
enum { ND__LT_EPILOGUE_NONE = 1, ND__LT_EPILOGUE_RELU = 2, ND__LT_EPILOGUE_BIAS = 4 };
enum {
    ND__LT_PREFERENCE_WORKSPACE = 1,
    ND__LT_PREFERENCE_SUMS = 3,
    ND__LT_PREFERENCE_ALIGNMENT_A = 5 ///< then b, c and d
};
enum { ND__LT_SUMS_IN_PLACE = 1, ND__LT_SUMS_IN_COMPUTE_TYPE = 2 };

typedef struct nd_lt_algorithm {
    uint64_t data[8];
} nd_lt_algorithm;

/// What the heuristic answers.
typedef struct nd_lt_result {
    nd_lt_algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} nd_lt_result;

// cuDNN 9

enum { ND__DNN_SUCCESS = 0, ND__DNN_NOT_SUPPORTED = 3000, ND__DNN_INTERNAL_ERROR = 4000 };
enum { ND__DNN_NO_HOST_MEMORY = 4003, ND__DNN_NO_DEVICE_MEMORY = 4004 };
enum { ND__DNN_F32 = 0, ND__DNN_F64 = 1 };
enum { ND__DNN_CHANNELS_FIRST = 0, ND__DNN_CROSS_CORRELATION = 1 };
enum { ND__DNN_DEFAULT_MATH = 0, ND__DNN_FMA_MATH = 3, ND__DNN_DETERMINISTIC = 1 };
enum { ND__DNN_MEAN_WITH_PADDING = 1, ND__DNN_MEAN_WITHOUT_PADDING = 2 };
enum { ND__DNN_NAN_PROPAGATES = 1 };

/// What is offered for a convolution, or for one of its gradients.
typedef struct nd_dnn_algorithm {
    int algorithm, status;
    float time;
    size_t workspace;
    int determinism, math;
    int reserved[3];
} nd_dnn_algorithm;
#endif
