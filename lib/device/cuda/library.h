// NVIDIA's libraries of kernels, found when the program runs: ndarc neither links nor needs them.
//
// Where a library is looked for, in this order: under the file name that a variable of the
// environment gives, and nowhere else when it is set; by the loader's rules; in the folders
// nvidia/*/lib of a Python environment: the one that this code was installed in, and $VIRTUAL_ENV;
// in /usr/local/cuda/lib64. A library is never closed once a device uses it.
#ifndef ND_LIB_DEVICE_CUDA_LIBRARY_H
#define ND_LIB_DEVICE_CUDA_LIBRARY_H
#include "kernels/cuda/cuda.h"
#include "lib/device/cuda/cuda_device.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/// The names of a library's file.
typedef struct nd_library {
    const char *variable;   ///< of the environment
    const char *given;      ///< what is replaced in the file name that it gives; NULL: nothing
    const char *stem;       ///< "libcublas"
    int versions[2];        ///< that it is known by, the first preferred; 0: none
    const char *folders[2]; ///< below nvidia/ of a Python environment
} nd_library;

/// NULL: it is not there, or, with *ret_short set to true, there was no memory or no file descriptor
/// to open it.
void *nd__library_open(const nd_library *library, bool *ret_short);

/// Whether it is known that a library is there, or that it is not.
typedef struct nd_library_state {
    pthread_mutex_t lock;
    _Atomic(bool) settled;
} nd_library_state;
#define ND_LIBRARY_STATE_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER }

/// Calls `open` until that is known; it returns false where there was no room to find out.
void nd__library_settle(nd_library_state *state, bool (*open)(void));
/// A symbol into a function pointer of any type; false when the library has no such symbol.
bool nd__library_find(void *library, const char *name, void *ret_function);

/// Makes the handles of the libraries that are there, which wait and allocate, as far as it can:
/// what is missing is not made in a capture.
void nd__library_prepare(nd_cuda_device *device);

/// A call by the libraries that are there. ND_ERROR_UNSUPPORTED, with nothing done that another
/// kernel does not do again, when none of them takes it.
nd_status nd__library_launch(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call);
#endif
