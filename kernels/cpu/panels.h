// Into how many parts a product or a convolution is cut whose parts oneDNN computes.
//
// oneDNN chooses its way by a part's sizes, and with it the last bits of a result. To cut by sizes
// alone, also for one thread, would keep the bits the same for every number of threads, but costs
// one thread 7 % of a small network's step. So the cut depends on how many threads there may be:
// never on what they are doing. Where the program asks for the same bits (nd_set_deterministic) it
// is that of ND__DETERMINISTIC_THREADS.
#ifndef ND_KERNELS_CPU_PANELS_H
#define ND_KERNELS_CPU_PANELS_H
#include "kernels/cpu/parallel.h"

/// Multiplications up to which sharing costs more than it gives, and of which a part has no fewer.
#define ND__SERIAL_PRODUCT ((int64_t)1 << 17)
#define ND__LEAST_PART ((int64_t)1 << 17)
/// From here on there are two parts for each thread, so that the last one is not waited for as
/// long.
#define ND__LARGE_PRODUCT ((int64_t)1 << 26)

/// Enough parts for the processors that most machines have; a part of one thread's is no smaller
/// than ND__LEAST_PART with any number.
#define ND__DETERMINISTIC_THREADS 16

/// A power of two, for `size` multiplications.
static inline int64_t nd__parts_of(int64_t size) {
    if (size <= ND__SERIAL_PRODUCT)
        return 1;
    int64_t threads = nd__cpu_is_deterministic() ? ND__DETERMINISTIC_THREADS : nd__cpu_threads();
    int64_t parts = 1;
    int64_t most = threads > 1 && size >= ND__LARGE_PRODUCT ? 2 * threads : threads;
    while (parts < most && size / parts >= 2 * ND__LEAST_PART)
        parts *= 2;
    return parts;
}
#endif
