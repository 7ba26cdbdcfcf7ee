// Threads by OpenMP, or none where it is not built in.
//
// Inside a parallel region of the user's everything runs on the calling thread. After a fork the child
// has lost its team of threads and libgomp would wait for them for ever, so the child stays serial.
#include "kernels/cpu/parallel.h"
#include <stdbool.h>

#if ND_HAVE_OPENMP
#include <omp.h>
#include <pthread.h>

static void serial_after_fork(void) {
    omp_set_num_threads(1);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, serial_after_fork);
}

int nd__cpu_threads(void) {
    return omp_in_parallel() ? 1 : omp_get_max_threads();
}
#else
int nd__cpu_threads(void) {
    return 1;
}
#endif

void nd__cpu_parallel(int64_t total, int64_t cost, int64_t grain, nd__range_body body,
                      void *context) {
    int64_t pieces = (total + grain - 1) / grain;
    int64_t threads = 1;
    if (pieces > 1 && total > ND__PARALLEL_WORK / (cost > 0 ? cost : 1)) {
        threads = nd__cpu_threads();
        threads = threads < pieces ? threads : pieces;
    }
    if (threads <= 1) {
        if (total > 0)
            body(context, 0, total);
        return;
    }
#if ND_HAVE_OPENMP
#pragma omp parallel num_threads((int)threads)
    {
        int64_t team = omp_get_num_threads(), mine = omp_get_thread_num();
        int64_t begin = pieces * mine / team * grain, end = pieces * (mine + 1) / team * grain;
        if (end > total)
            end = total;
        if (begin < end)
            body(context, begin, end);
    }
#endif
}

void nd__cpu_with_threads(int threads, nd__range_body body, void *context, int64_t total) {
#if ND_HAVE_OPENMP
    int before = omp_get_max_threads();
    bool change = threads > 0 && before != threads;
    if (change)
        omp_set_num_threads(threads);
    body(context, 0, total);
    if (change)
        omp_set_num_threads(before);
#else
    (void)threads;
    body(context, 0, total);
#endif
}
