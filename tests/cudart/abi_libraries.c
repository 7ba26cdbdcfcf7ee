// That lib/device/cuda and NVIDIA's headers, where there are any, say the same of the libraries
// that are opened at run time. Compiled, not run.
#include "lib/device/cuda/library_numbers.h"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)

#if !defined(CUDART_FAKE) && __has_include(<cublasLt.h>)
#include <cublasLt.h>

SAME(ND__BLAS_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(ND__BLAS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(ND__BLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(ND__BLAS_PLAIN, CUBLAS_OP_N);
SAME(ND__BLAS_TRANSPOSED, CUBLAS_OP_T);
SAME(ND__BLAS_F32, CUDA_R_32F);
SAME(ND__BLAS_F64, CUDA_R_64F);
SAME(ND__BLAS_F16, CUDA_R_16F);
SAME(ND__BLAS_BF16, CUDA_R_16BF);
SAME(ND__BLAS_I8, CUDA_R_8I);
SAME(ND__BLAS_I32, CUDA_R_32I);
SAME(ND__BLAS_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(ND__BLAS_COMPUTE_I32, CUBLAS_COMPUTE_32I);
SAME(ND__BLAS_COMPUTE_F64, CUBLAS_COMPUTE_64F);
SAME(ND__BLAS_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(ND__BLAS_NO_REDUCED_SUMS, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(ND__LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(ND__LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(ND__LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(ND__LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(ND__LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT);
SAME(ND__LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU);
SAME(ND__LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(ND__LT_EPILOGUE_RELU | ND__LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(ND__LT_PREFERENCE_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(ND__LT_PREFERENCE_SUMS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(ND__LT_PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(ND__LT_PREFERENCE_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(ND__LT_SUMS_IN_PLACE, CUBLASLT_REDUCTION_SCHEME_INPLACE);
SAME(ND__LT_SUMS_IN_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(sizeof(nd_lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(nd_lt_result), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(nd_lt_result, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(nd_lt_result, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

#if !defined(CUDART_FAKE) && __has_include(<cudnn.h>)
#include <cudnn.h>
#if CUDNN_MAJOR == 9
SAME(ND__DNN_SUCCESS, CUDNN_STATUS_SUCCESS);
SAME(ND__DNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED);
SAME(ND__DNN_INTERNAL_ERROR, CUDNN_STATUS_INTERNAL_ERROR);
SAME(ND__DNN_NO_HOST_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
SAME(ND__DNN_NO_DEVICE_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
SAME(ND__DNN_F32, CUDNN_DATA_FLOAT);
SAME(ND__DNN_F64, CUDNN_DATA_DOUBLE);
SAME(ND__DNN_CHANNELS_FIRST, CUDNN_TENSOR_NCHW);
SAME(ND__DNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION);
SAME(ND__DNN_DEFAULT_MATH, CUDNN_DEFAULT_MATH);
SAME(ND__DNN_TENSOR_MATH, CUDNN_TENSOR_OP_MATH);
SAME(ND__DNN_FMA_MATH, CUDNN_FMA_MATH);
SAME(ND__DNN_DETERMINISTIC, CUDNN_DETERMINISTIC);
SAME(ND__DNN_MEAN_WITH_PADDING, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING);
SAME(ND__DNN_MEAN_WITHOUT_PADDING, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
SAME(ND__DNN_NAN_PROPAGATES, CUDNN_PROPAGATE_NAN);
SAME(ND__DNN_F16, CUDNN_DATA_HALF);
SAME(ND__DNN_I32, CUDNN_DATA_INT32);
SAME(ND__DNN_BF16, CUDNN_DATA_BFLOAT16);
SAME(ND__DNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(ND__DNN_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(ND__DNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(ND__DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(ND__DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(ND__DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(ND__DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(ND__DNN_HEURISTIC_MODE, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(ND__DNN_HEURISTIC_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(ND__DNN_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(ND__DNN_CONFIG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(ND__DNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(ND__DNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(ND__DNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(ND__DNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(ND__DNN_GRAPH_OPERATIONS, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(ND__DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(ND__DNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(ND__DNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(ND__DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES);
SAME(ND__DNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(ND__DNN_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(ND__DNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(ND__DNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(ND__DNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(ND__DNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(ND__DNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(ND__DNN_OF_HANDLE, CUDNN_TYPE_HANDLE);
SAME(ND__DNN_OF_TYPE, CUDNN_TYPE_DATA_TYPE);
SAME(ND__DNN_OF_BOOL, CUDNN_TYPE_BOOLEAN);
SAME(ND__DNN_OF_I64, CUDNN_TYPE_INT64);
SAME(ND__DNN_OF_POINTER, CUDNN_TYPE_VOID_PTR);
SAME(ND__DNN_OF_MODE, CUDNN_TYPE_HEUR_MODE);
SAME(ND__DNN_OF_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(ND__DNN_OF_COMPARISON, CUDNN_TYPE_POINTWISE_MODE);
SAME(ND__DNN_OF_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(ND__DNN_BY_MODEL, CUDNN_HEUR_MODE_A);
SAME(ND__DNN_AT_LEAST, CUDNN_POINTWISE_CMP_GE);
SAME(ND__DNN_NOTE_TENSOR_CORES, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
SAME(ND__DNN_NOTE_KEEPS_NAN, CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
#if CUDNN_VERSION >= 92100
SAME(ND__DNN_HEURISTIC_DEVICE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(ND__DNN_PLAN_DEVICE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(ND__DNN_ATTENTION, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
SAME(ND__DNN_BAND_MASK, CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR);
SAME(ND__DNN_ATTENTION_QUERY, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
SAME(ND__DNN_ATTENTION_KEY, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
SAME(ND__DNN_ATTENTION_VALUE, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
SAME(ND__DNN_ATTENTION_OUT, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
SAME(ND__DNN_ATTENTION_LOG_SUMS, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
SAME(ND__DNN_ATTENTION_SCALE, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
SAME(ND__DNN_ATTENTION_SCORES, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH);
SAME(ND__DNN_ATTENTION_SCORES_IN, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID);
SAME(ND__DNN_ATTENTION_SCORES_OUT, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID);
SAME(ND__DNN_BAND_X, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC);
SAME(ND__DNN_BAND_SHIFT, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC);
SAME(ND__DNN_BAND_FILL, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC);
SAME(ND__DNN_BAND_Y, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC);
SAME(ND__DNN_BAND_COMPARISON, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE);
#endif
#define SAME_LAYOUT(theirs)                                                       \
    SAME(sizeof(nd_dnn_algorithm), sizeof(theirs));                               \
    SAME(offsetof(nd_dnn_algorithm, status), offsetof(theirs, status));           \
    SAME(offsetof(nd_dnn_algorithm, workspace), offsetof(theirs, memory));        \
    SAME(offsetof(nd_dnn_algorithm, determinism), offsetof(theirs, determinism)); \
    SAME(offsetof(nd_dnn_algorithm, math), offsetof(theirs, mathType))
SAME_LAYOUT(cudnnConvolutionFwdAlgoPerf_t);
SAME_LAYOUT(cudnnConvolutionBwdDataAlgoPerf_t);
SAME_LAYOUT(cudnnConvolutionBwdFilterAlgoPerf_t);
#endif
#endif

// The arguments of functions, by calls of the real ones with what lib/device/cuda passes.

#if !defined(CUDART_FAKE) && __has_include(<cufft.h>)
#include <cufft.h>

SAME(ND__FFT_SUCCESS, CUFFT_SUCCESS);
SAME(ND__FFT_ALLOC_FAILED, CUFFT_ALLOC_FAILED);
SAME(ND__FFT_INVALID_TYPE, CUFFT_INVALID_TYPE);
SAME(ND__FFT_INVALID_VALUE, CUFFT_INVALID_VALUE);
SAME(ND__FFT_INVALID_SIZE, CUFFT_INVALID_SIZE);
SAME(ND__FFT_NOT_IMPLEMENTED, CUFFT_NOT_IMPLEMENTED);
SAME(ND__FFT_NOT_SUPPORTED, CUFFT_NOT_SUPPORTED);
SAME(ND__FFT_C2C, CUFFT_C2C);
SAME(ND__FFT_R2C, CUFFT_R2C);
SAME(ND__FFT_C2R, CUFFT_C2R);
SAME(ND__FFT_Z2Z, CUFFT_Z2Z);
SAME(ND__FFT_D2Z, CUFFT_D2Z);
SAME(ND__FFT_Z2D, CUFFT_Z2D);
SAME(ND__FFT_FORWARD, CUFFT_FORWARD);
SAME(ND__FFT_INVERSE, CUFFT_INVERSE);
SAME(sizeof(int), sizeof(cufftHandle));

static unsigned __attribute__((unused))
abi_of_cufft(int plan, long long *n, cudaStream_t stream, void *memory, size_t *ret_bytes) {
    return cufftCreate(&plan) + cufftSetAutoAllocation(plan, 0) +
           cufftMakePlanMany64(plan, 1, n, n, 1LL, 0LL, n, 1LL, 0LL, CUFFT_C2C, 1LL, ret_bytes) +
           cufftSetStream(plan, stream) + cufftSetWorkArea(plan, memory) +
           cufftExecC2C(plan, memory, memory, 1) + cufftExecZ2Z(plan, memory, memory, 1) +
           cufftExecR2C(plan, memory, memory) + cufftExecC2R(plan, memory, memory) +
           cufftExecD2Z(plan, memory, memory) + cufftExecZ2D(plan, memory, memory) +
           cufftDestroy(plan);
}
#endif

#if !defined(CUDART_FAKE) && __has_include(<cusolverDn.h>)
#include <cusolverDn.h>

SAME(ND__SOLVER_SUCCESS, CUSOLVER_STATUS_SUCCESS);
SAME(ND__SOLVER_ALLOC_FAILED, CUSOLVER_STATUS_ALLOC_FAILED);
SAME(ND__SOLVER_EXECUTION_FAILED, CUSOLVER_STATUS_EXECUTION_FAILED);
SAME(ND__SOLVER_INTERNAL_ERROR, CUSOLVER_STATUS_INTERNAL_ERROR);
SAME(ND__SOLVER_VALUES, CUSOLVER_EIG_MODE_NOVECTOR);
SAME(ND__SOLVER_VECTORS, CUSOLVER_EIG_MODE_VECTOR);
SAME(ND__BLAS_LOWER, CUBLAS_FILL_MODE_LOWER);
SAME(ND__BLAS_UPPER, CUBLAS_FILL_MODE_UPPER);
SAME(ND__BLAS_RIGHT, CUBLAS_SIDE_RIGHT);
SAME(ND__BLAS_UNIT, CUBLAS_DIAG_UNIT);

typedef struct solver_arguments {
    cusolverDnHandle_t handle;
    cusolverDnParams_t params;
    void *data;
    int64_t n, *pivots;
    int lwork, *info;
    size_t bytes, *ret_bytes;
    float *narrow;
    double *wide;
} solver_arguments;

#define WORK a->data, a->bytes, a->data, a->bytes, a->info
#define SIZES a->ret_bytes, a->ret_bytes

static unsigned __attribute__((unused)) abi_of_cusolver(solver_arguments *a, cudaStream_t stream) {
    const cudaDataType type = CUDA_R_32F;
    const cublasFillMode_t lower = CUBLAS_FILL_MODE_LOWER;
    const cusolverEigMode_t vectors = CUSOLVER_EIG_MODE_VECTOR;
    const signed char job = 'S';
    void *d = a->data;
    const int64_t n = a->n;
    const int m = (int)n;
    return cusolverDnCreate(&a->handle) + cusolverDnCreateParams(&a->params) +
           cusolverDnSetStream(a->handle, stream) +
           cusolverDnXpotrf_bufferSize(a->handle, a->params, lower, n, type, d, n, type, SIZES) +
           cusolverDnXpotrf(a->handle, a->params, lower, n, type, d, n, type, WORK) +
           cusolverDnXgetrf_bufferSize(a->handle, a->params, n, n, type, d, n, type, SIZES) +
           cusolverDnXgetrf(a->handle, a->params, n, n, type, d, n, a->pivots, type, WORK) +
           cusolverDnXgetrs(a->handle, a->params, CUBLAS_OP_N, n, n, type, d, n, a->pivots, type, d,
                            n, a->info) +
           cusolverDnXgeqrf_bufferSize(a->handle, a->params, n, n, type, d, n, type, d, type,
                                       SIZES) +
           cusolverDnXgeqrf(a->handle, a->params, n, n, type, d, n, type, d, type, WORK) +
           cusolverDnSorgqr_bufferSize(a->handle, m, m, m, a->narrow, m, a->narrow, &a->lwork) +
           cusolverDnDorgqr_bufferSize(a->handle, m, m, m, a->wide, m, a->wide, &a->lwork) +
           cusolverDnSorgqr(a->handle, m, m, m, a->narrow, m, a->narrow, a->narrow, m, a->info) +
           cusolverDnDorgqr(a->handle, m, m, m, a->wide, m, a->wide, a->wide, m, a->info) +
           cusolverDnXsyevd_bufferSize(a->handle, a->params, vectors, lower, n, type, d, n, type, d,
                                       type, SIZES) +
           cusolverDnXsyevd(a->handle, a->params, vectors, lower, n, type, d, n, type, d, type,
                            WORK) +
           cusolverDnXgesvd_bufferSize(a->handle, a->params, job, job, n, n, type, d, n, type, d,
                                       type, d, n, type, d, n, type, SIZES) +
           cusolverDnXgesvd(a->handle, a->params, job, job, n, n, type, d, n, type, d, type, d, n,
                            type, d, n, type, WORK);
}

static unsigned __attribute__((unused))
abi_of_triangles(cublasHandle_t handle, const float *a, float *b, const double *c, double *d) {
    return cublasStrsm_v2(handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                          CUBLAS_DIAG_UNIT, 1, 1, a, a, 1, b, 1) +
           cublasDtrsm_v2(handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                          CUBLAS_DIAG_UNIT, 1, 1, c, c, 1, d, 1);
}
#endif
