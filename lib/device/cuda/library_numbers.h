// Numbers and layouts of NVIDIA's libraries' interfaces, whose headers ndarc is built without; the
// same in cuBLAS 12 and 13. tests/cudart/abi_libraries.c compares them with a toolkit's headers.
#ifndef ND_LIB_DEVICE_CUDA_LIBRARY_NUMBERS_H
#define ND_LIB_DEVICE_CUDA_LIBRARY_NUMBERS_H
#include <stddef.h>
#include <stdint.h>

// cuBLAS, and cuBLASLt beside it

enum { ND__BLAS_SUCCESS = 0, ND__BLAS_ALLOC_FAILED = 3, ND__BLAS_NOT_SUPPORTED = 15 };
enum { ND__BLAS_PLAIN = 0, ND__BLAS_TRANSPOSED = 1 };
enum { ND__BLAS_LOWER = 0, ND__BLAS_UPPER = 1, ND__BLAS_RIGHT = 1, ND__BLAS_UNIT = 1 };
enum { ND__BLAS_F32 = 0, ND__BLAS_F64 = 1, ND__BLAS_F16 = 2, ND__BLAS_BF16 = 14 };
enum { ND__BLAS_I8 = 3, ND__BLAS_I32 = 10 };
enum { ND__BLAS_COMPUTE_F32 = 68, ND__BLAS_COMPUTE_F64 = 70, ND__BLAS_COMPUTE_I32 = 72 };
enum { ND__BLAS_COMPUTE_TF32 = 77 };
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

// cuSOLVER

enum {
    ND__SOLVER_SUCCESS = 0,
    ND__SOLVER_ALLOC_FAILED = 2,
    ND__SOLVER_EXECUTION_FAILED = 6,
    ND__SOLVER_INTERNAL_ERROR = 7
};
enum { ND__SOLVER_VALUES = 0, ND__SOLVER_VECTORS = 1 };

// cuFFT

enum {
    ND__FFT_SUCCESS = 0,
    ND__FFT_ALLOC_FAILED = 2,
    ND__FFT_INVALID_TYPE = 3,
    ND__FFT_INVALID_VALUE = 4,
    ND__FFT_INVALID_SIZE = 8,
    ND__FFT_NOT_IMPLEMENTED = 14,
    ND__FFT_NOT_SUPPORTED = 16
};
enum {
    ND__FFT_C2C = 0x29, ///< what is read and what is written: R and C in f32, D and Z in f64
    ND__FFT_R2C = 0x2a,
    ND__FFT_C2R = 0x2c,
    ND__FFT_Z2Z = 0x69,
    ND__FFT_D2Z = 0x6a,
    ND__FFT_Z2D = 0x6c
};
enum { ND__FFT_FORWARD = -1, ND__FFT_INVERSE = 1 };

// cuDNN 9

enum { ND__DNN_SUCCESS = 0, ND__DNN_NOT_SUPPORTED = 3000, ND__DNN_INTERNAL_ERROR = 4000 };
enum { ND__DNN_NO_HOST_MEMORY = 4003, ND__DNN_NO_DEVICE_MEMORY = 4004 };
enum { ND__DNN_F32 = 0, ND__DNN_F64 = 1 };
enum { ND__DNN_CHANNELS_FIRST = 0, ND__DNN_CROSS_CORRELATION = 1 };
enum { ND__DNN_DEFAULT_MATH = 0, ND__DNN_TENSOR_MATH = 1, ND__DNN_FMA_MATH = 3 };
enum { ND__DNN_DETERMINISTIC = 1 };
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

// cuDNN's graphs of operations, which a plan is made for: kinds of descriptors, what is set in
// them, types of values. Those of attention are cuDNN 9.21's.

enum { ND__DNN_F16 = 2, ND__DNN_I32 = 4, ND__DNN_BF16 = 9 };
enum { ND__DNN_ATTENTION_VERSION = 92100 };
enum {
    ND__DNN_ENGINE = 2,
    ND__DNN_CONFIG = 3,
    ND__DNN_HEURISTIC = 4,
    ND__DNN_PLAN = 5,
    ND__DNN_GRAPH = 15,
    ND__DNN_PACK = 16,
    ND__DNN_TENSOR = 17,
    ND__DNN_ATTENTION = 41,
    ND__DNN_BAND_MASK = 44
};
enum {
    ND__DNN_HEURISTIC_MODE = 200,
    ND__DNN_HEURISTIC_GRAPH = 201,
    ND__DNN_HEURISTIC_RESULTS = 202,
    ND__DNN_HEURISTIC_DEVICE = 204,
    ND__DNN_CONFIG_ENGINE = 300,
    ND__DNN_PLAN_HANDLE = 400,
    ND__DNN_PLAN_CONFIG = 401,
    ND__DNN_PLAN_WORKSPACE = 402,
    ND__DNN_PLAN_DEVICE = 407,
    ND__DNN_GRAPH_HANDLE = 800,
    ND__DNN_GRAPH_OPERATIONS = 801,
    ND__DNN_TENSOR_ALIGNMENT = 900,
    ND__DNN_TENSOR_TYPE = 901,
    ND__DNN_TENSOR_SIZES = 902,
    ND__DNN_TENSOR_STRIDES = 903,
    ND__DNN_TENSOR_ID = 906,
    ND__DNN_TENSOR_VIRTUAL = 907,
    ND__DNN_TENSOR_BY_VALUE = 908,
    ND__DNN_PACK_IDS = 1000,
    ND__DNN_PACK_POINTERS = 1001,
    ND__DNN_PACK_WORKSPACE = 1003,
    ND__DNN_ENGINE_NOTES = 1303,
    ND__DNN_ATTENTION_QUERY = 2800,
    ND__DNN_ATTENTION_KEY = 2801,
    ND__DNN_ATTENTION_VALUE = 2802,
    ND__DNN_ATTENTION_OUT = 2803,
    ND__DNN_ATTENTION_LOG_SUMS = 2804,
    ND__DNN_ATTENTION_SCALE = 2805,
    ND__DNN_ATTENTION_SCORES = 2811, ///< a graph from scores to scores
    ND__DNN_ATTENTION_SCORES_IN = 2812,
    ND__DNN_ATTENTION_SCORES_OUT = 2813,
    ND__DNN_BAND_X = 3000,
    ND__DNN_BAND_SHIFT = 3004,
    ND__DNN_BAND_FILL = 3005,
    ND__DNN_BAND_Y = 3006,
    ND__DNN_BAND_COMPARISON = 3007
};
enum {
    ND__DNN_OF_HANDLE = 0,
    ND__DNN_OF_TYPE = 1,
    ND__DNN_OF_BOOL = 2,
    ND__DNN_OF_I64 = 3,
    ND__DNN_OF_POINTER = 6,
    ND__DNN_OF_MODE = 8,
    ND__DNN_OF_NOTE = 11,
    ND__DNN_OF_COMPARISON = 14,
    ND__DNN_OF_DESCRIPTOR = 15
};
enum { ND__DNN_BY_MODEL = 3, ND__DNN_AT_LEAST = 303 };
/// What an engine may say of its numbers. Others: not the same bits every time, shorter sums, …
enum { ND__DNN_NOTE_TENSOR_CORES = 0, ND__DNN_NOTE_KEEPS_NAN = 9 };
#endif
