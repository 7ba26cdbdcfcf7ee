// Fourier transforms by cuFFT.
#ifndef ND_LIB_DEVICE_CUDA_CUFFT_H
#define ND_LIB_DEVICE_CUDA_CUFFT_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// fft, rfft or irfft of two elements or more. ND_ERROR_UNSUPPORTED, with nothing queued, when cuFFT is
/// missing or refuses, and while this thread captures, for sizes that are new.
nd_status nd__cufft_transform(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call);
#endif
