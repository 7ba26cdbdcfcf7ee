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

/// A function of a library, and the pointer that its address is written to.
typedef struct nd_library_function {
    const char *name;
    void *ret_function; ///< to a pointer to a function of any type
} nd_library_function;

/// A library: the names of its file, what is called of it, and what is known of it.
typedef struct nd_library {
    const char *variable;   ///< of the environment
    const char *given;      ///< what is replaced in the file name that it gives; NULL: nothing
    const char *stem;       ///< "libcublas"
    int versions[2];        ///< that it is known by, the first preferred; 0: none
    const char *folders[2]; ///< below nvidia/ of a Python environment
    const nd_library_function *functions; ///< without one of which it is none; ended by {0}
    pthread_mutex_t lock;                 ///< ND_LIBRARY_LOCK
    _Atomic(bool) settled; ///< known to be there, or not to be; then `opened` does not change
    void *opened;          ///< NULL: it is not there
} nd_library;
#define ND_LIBRARY_LOCK PTHREAD_MUTEX_INITIALIZER

/// Opens a library and finds its functions, once. NULL: it is not there, or there was no memory or
/// no file descriptor to open it, and the next call tries again. For any thread.
void *nd__library_open(nd_library *library);
/// Finds functions; false when the library lacks one.
bool nd__library_find(void *opened, const nd_library_function *functions);

/// Makes the handles of the libraries that are there, which wait and allocate, as far as it can:
/// what is missing is not made in a capture.
void nd__library_prepare(nd_cuda_device *device);

/// A call by the libraries that are there. ND_ERROR_UNSUPPORTED, with nothing done that another
/// kernel does not do again, when none of them takes it.
nd_status nd__library_launch(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call);
#endif
