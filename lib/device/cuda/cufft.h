// Fourier transforms by cuFFT.
#ifndef ND_LIB_DEVICE_CUDA_CUFFT_H
#define ND_LIB_DEVICE_CUDA_CUFFT_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// fft, rfft or irfft. ND_ERROR_UNSUPPORTED, with nothing queued, when cuFFT is missing or refuses, and while
/// this thread captures, for sizes whose plan is not there.
nd_status nd__cufft_transform(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call);
#endif
