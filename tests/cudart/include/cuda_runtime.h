// CUDA C++ for a host compiler: a .cu file compiled with -D__CUDACC__ and this header becomes
// functions for the host, and its launches go to the fake runtime, which calls them once for every
// thread.
//
// Holds what kernels/cuda/ uses: one-dimensional grids, static shared memory, dynamic one by
// cudart_shared_memory(), __syncthreads(), shuffles of 32-bit words, waiting for what is queued before.
#ifndef ND_TESTS_CUDART_CUDA_RUNTIME_H
#define ND_TESTS_CUDART_CUDA_RUNTIME_H
#include "cuda_runtime_api.h"
#include "fat_binary.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// One block runs at a time.
#define __shared__ static

extern "C" {
/// Of the thread that runs; written by the runtime alone.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
}

inline void __syncthreads() {
    cudart_barrier();
}
inline void cudaTriggerProgrammaticLaunchCompletion() {
}
inline void cudaGridDependencySynchronize() {
    cudart_earlier_awaited();
}
inline uint32_t __shfl_sync(unsigned mask, uint32_t word, int source, int width = 32) {
    unsigned lane = threadIdx.x % 32;
    return cudart_exchange(mask, word, lane / width * width + (unsigned)source % width);
}
inline uint32_t __shfl_xor_sync(unsigned mask, uint32_t word, int lanes) {
    return cudart_exchange(mask, word, threadIdx.x % 32 ^ (unsigned)lanes);
}

namespace cudart {

template <int... numbers> struct Numbers {};
template <int count, int... numbers> struct Count : Count<count - 1, count - 1, numbers...> {};
template <int... numbers> struct Count<0, numbers...> { typedef Numbers<numbers...> type; };

/// A function of these parameters as the runtime calls it.
template <class... Parameters> struct Kernel {
    template <int... numbers>
    static void apply(void (*function)(Parameters...), void *const *arguments,
                      Numbers<numbers...>) {
        function(*static_cast<Parameters *>(arguments[numbers])...);
    }
    static void call(const void *function, void *const *arguments) {
        apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void *>(function)), arguments,
              typename Count<sizeof...(Parameters)>::type());
    }
    /// As a stub does when the program starts.
    static void register_once(const void *function, const char *name) {
        static cudart_fat_binary binary = {CUDART_FAT_BINARY_MAGIC,
                                           __CUDA_ARCH_LIST__ / 10,
                                           sizeof...(Parameters),
                                           {sizeof(Parameters)...},
                                           call};
        if (cudart_is_registered(function))
            return;
        void **module = __cudaRegisterFatBinary(&binary);
        __cudaRegisterFunction(module, static_cast<const char *>(function), nullptr, name, -1,
                               nullptr, nullptr, nullptr, nullptr, nullptr);
        __cudaRegisterFatBinaryEnd(module);
    }
};

} // namespace cudart

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), enum cudaFuncAttribute name,
                                 int value) {
    const void *function = reinterpret_cast<const void *>(kernel);
    cudart::Kernel<Parameters...>::register_once(function, __PRETTY_FUNCTION__);
    return cudaFuncSetAttribute(function, name, value);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               const Arguments &...arguments) {
    const void *function = reinterpret_cast<const void *>(kernel);
    cudart::Kernel<Parameters...>::register_once(function, __PRETTY_FUNCTION__);
    return [&](Parameters... converted) {
        void *addresses[] = {&converted...};
        return cudaLaunchKernelExC(config, function, addresses);
    }(arguments...);
}
#endif
