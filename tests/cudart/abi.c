// That the fake runtime's header says what a toolkit's says: this file is compiled with each, where
// both are. Numbers, layouts and the types of the functions that lib/device/cuda calls.
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#include <stdint.h>

#define SAME(name, number) _Static_assert((long)(name) == (number), #name)
SAME(cudaSuccess, 0);
SAME(cudaErrorInvalidValue, 1);
SAME(cudaErrorMemoryAllocation, 2);
SAME(cudaErrorInvalidConfiguration, 9);
SAME(cudaErrorStubLibrary, 34);
SAME(cudaErrorInvalidDeviceFunction, 98);
SAME(cudaErrorNoDevice, 100);
SAME(cudaErrorInvalidDevice, 101);
SAME(cudaErrorNoKernelImageForDevice, 209);
SAME(cudaErrorECCUncorrectable, 214);
SAME(cudaErrorInvalidResourceHandle, 400);
SAME(cudaErrorIllegalState, 401);
SAME(cudaErrorNotReady, 600);
SAME(cudaErrorIllegalAddress, 700);
SAME(cudaErrorLaunchFailure, 719);
SAME(cudaErrorNotPermitted, 800);
SAME(cudaErrorStreamCaptureUnsupported, 900);
SAME(cudaErrorStreamCaptureInvalidated, 901);
SAME(cudaErrorStreamCaptureMerge, 902);
SAME(cudaErrorStreamCaptureUnmatched, 903);
SAME(cudaErrorStreamCaptureUnjoined, 904);
SAME(cudaErrorStreamCaptureIsolation, 905);
SAME(cudaErrorStreamCaptureImplicit, 906);
SAME(cudaErrorCapturedEvent, 907);
SAME(cudaErrorStreamCaptureWrongThread, 908);
SAME(cudaErrorUnknown, 999);
SAME(cudaDevAttrMultiProcessorCount, 16);
SAME(cudaDevAttrComputeMode, 20);
SAME(cudaDevAttrComputeCapabilityMajor, 75);
SAME(cudaDevAttrComputeCapabilityMinor, 76);
SAME(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97);
SAME(cudaDevAttrMemoryPoolsSupported, 115);
SAME(cudaFuncAttributeMaxDynamicSharedMemorySize, 8);
SAME(cudaLaunchAttributeProgrammaticStreamSerialization, 6);
SAME(cudaComputeModeProhibited, 2);
SAME(cudaMemcpyHostToDevice, 1);
SAME(cudaMemcpyDeviceToHost, 2);
SAME(cudaMemcpyDeviceToDevice, 3);
SAME(cudaHostAllocPortable, 1);
SAME(cudaStreamNonBlocking, 1);
SAME(cudaEventDisableTiming, 2);
SAME(cudaStreamCaptureModeGlobal, 0);
SAME(cudaStreamCaptureModeThreadLocal, 1);
SAME(cudaStreamCaptureModeRelaxed, 2);
SAME(cudaStreamCaptureStatusActive, 1);
SAME(cudaStreamCaptureStatusInvalidated, 2);
SAME(cudaMemAllocationTypePinned, 1);
SAME(cudaMemLocationTypeDevice, 1);
SAME(cudaMemPoolAttrReleaseThreshold, 4);
SAME(cudaMemPoolAttrReservedMemCurrent, 5);
SAME(cudaMemPoolAttrUsedMemCurrent, 7);

SAME(sizeof(struct cudaMemPoolProps), 88);
SAME(offsetof(struct cudaMemPoolProps, location), 8);
SAME(offsetof(struct cudaMemPoolProps, maxSize), 24);
SAME(sizeof(cudaLaunchConfig_t), 56);
SAME(sizeof(cudaLaunchAttribute), 72);
SAME(offsetof(cudaLaunchAttribute, val), 8);
SAME(offsetof(cudaLaunchConfig_t, blockDim), 12);
SAME(offsetof(cudaLaunchConfig_t, stream), 32);

// A function of another type is no initialiser.
extern const struct nd_cuda_functions {
    cudaError_t (*device_count)(int *);
    cudaError_t (*set_device)(int);
    cudaError_t (*attribute)(int *, enum cudaDeviceAttr, int);
    cudaError_t (*last_error)(void);
    cudaError_t (*stream_new)(cudaStream_t *, unsigned);
    cudaError_t (*stream_wait)(cudaStream_t);
    cudaError_t (*host_function)(cudaStream_t, void (*)(void *), void *);
    cudaError_t (*event_new)(cudaEvent_t *, unsigned);
    cudaError_t (*event_record)(cudaEvent_t, cudaStream_t);
    cudaError_t (*event_wait)(cudaEvent_t);
    cudaError_t (*host_memory)(void **, size_t, unsigned);
    cudaError_t (*memory_left)(size_t *, size_t *);
    cudaError_t (*copy)(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
    cudaError_t (*pool_new)(cudaMemPool_t *, const struct cudaMemPoolProps *);
    cudaError_t (*pool_attribute)(cudaMemPool_t, enum cudaMemPoolAttr, void *);
    cudaError_t (*pool_trim)(cudaMemPool_t, size_t);
    cudaError_t (*allocate)(void **, size_t, cudaMemPool_t, cudaStream_t);
    cudaError_t (*release)(void *, cudaStream_t);
    cudaError_t (*function_attribute)(const void *, enum cudaFuncAttribute, int);
    cudaError_t (*launch)(const cudaLaunchConfig_t *, const void *, void **);
    cudaError_t (*capture_begin)(cudaStream_t, enum cudaStreamCaptureMode);
    cudaError_t (*capture_end)(cudaStream_t, cudaGraph_t *);
    cudaError_t (*capture_status)(cudaStream_t, enum cudaStreamCaptureStatus *);
    cudaError_t (*capture_mode)(enum cudaStreamCaptureMode *);
    cudaError_t (*graph_new)(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
    cudaError_t (*graph_launch)(cudaGraphExec_t, cudaStream_t);
    cudaError_t (*graph_release)(cudaGraphExec_t);
    cudaError_t (*graph_source_release)(cudaGraph_t);
} nd_cuda_functions;

const struct nd_cuda_functions nd_cuda_functions = {
    cudaGetDeviceCount,
    cudaSetDevice,
    cudaDeviceGetAttribute,
    cudaGetLastError,
    cudaStreamCreateWithFlags,
    cudaStreamSynchronize,
    cudaLaunchHostFunc,
    cudaEventCreateWithFlags,
    cudaEventRecord,
    cudaEventSynchronize,
    cudaHostAlloc,
    cudaMemGetInfo,
    cudaMemcpyAsync,
    cudaMemPoolCreate,
    cudaMemPoolGetAttribute,
    cudaMemPoolTrimTo,
    cudaMallocFromPoolAsync,
    cudaFreeAsync,
    cudaFuncSetAttribute,
    cudaLaunchKernelExC,
    cudaStreamBeginCapture,
    cudaStreamEndCapture,
    cudaStreamIsCapturing,
    cudaThreadExchangeStreamCaptureMode,
    cudaGraphInstantiate,
    cudaGraphLaunch,
    cudaGraphExecDestroy,
    cudaGraphDestroy,
};
#endif
