// See cusolver_library.h.
#include "lib/device/cuda/cusolver_library.h"

static nd_cusolver solver;

static const nd_library_function functions[] = {
    {"cusolverDnCreate", &solver.make},
    {"cusolverDnCreateParams", &solver.make_params},
    {"cusolverDnSetStream", &solver.set_stream},
    {"cusolverDnXpotrf_bufferSize", &solver.potrf_size},
    {"cusolverDnXpotrf", &solver.potrf},
    {"cusolverDnXgetrf_bufferSize", &solver.getrf_size},
    {"cusolverDnXgetrf", &solver.getrf},
    {"cusolverDnXgetrs", &solver.getrs},
    {"cusolverDnXgeqrf_bufferSize", &solver.geqrf_size},
    {"cusolverDnXgeqrf", &solver.geqrf},
    {"cusolverDnSorgqr_bufferSize", &solver.sorgqr_size},
    {"cusolverDnDorgqr_bufferSize", &solver.dorgqr_size},
    {"cusolverDnSorgqr", &solver.sorgqr},
    {"cusolverDnDorgqr", &solver.dorgqr},
    {"cusolverDnXsyevd_bufferSize", &solver.syevd_size},
    {"cusolverDnXsyevd", &solver.syevd},
    {"cusolverDnXgesvd_bufferSize", &solver.gesvd_size},
    {"cusolverDnXgesvd", &solver.gesvd},
    {0},
};

static nd_library library = {
    .variable = "ND_CUSOLVER",
    .stem = "libcusolver",
    .versions = {12, 11},
    .folders = {"cusolver", "cu13"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

nd_status nd__cusolver_library_status(int status) {
    switch (status) {
    case ND__SOLVER_SUCCESS:
        return ND_OK;
    case ND__SOLVER_ALLOC_FAILED:
        return ND_ERROR_OUT_OF_MEMORY;
    case ND__SOLVER_EXECUTION_FAILED:
    case ND__SOLVER_INTERNAL_ERROR:
        (void)nd__cuda_status(cudaGetLastError());
        return ND_ERROR_DEVICE;
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

static nd_status make_handle_and_params(nd_cuda_device *device) {
    nd_status status =
        device->solver ? ND_OK : nd__cusolver_library_status(solver.make(&device->solver));
    if (status != ND_OK)
        device->solver = NULL;
    if (status == ND_OK)
        status = nd__cusolver_library_status(solver.make_params(&device->solver_params));
    if (status != ND_OK)
        device->solver_params = NULL;
    return status;
}

/// The device's handle, and its parameters, which say nothing. Caller holds blas_lock.
static nd_status make_handle(nd_cuda_device *device) {
    enum { TRIES = 3 };
    if (device->solver && device->solver_params)
        return ND_OK;
    if (device->solver_tries == TRIES)
        return ND_ERROR_UNSUPPORTED;
    nd_status status = make_handle_and_params(device);
    if (status != ND_OK) { // where memory is short it has been seen to call that an internal error
        (void)nd__cuda_status(cudaMemPoolTrimTo(device->pool, 0));
        status = make_handle_and_params(device);
    }
    if (status == ND_OK || status == ND_ERROR_OUT_OF_MEMORY)
        return status;
    device->solver_tries++;
    return ND_ERROR_UNSUPPORTED;
}

const nd_cusolver *nd__cusolver_library(void) {
    return nd__library_open(&library) ? &solver : NULL;
}

nd_status nd__cusolver_library_handle(nd_cuda_device *device, const nd_cuda_queue *queue) {
    nd_status status = make_handle(device);
    return status == ND_OK ? nd__cusolver_library_status(
                                 solver.set_stream(device->solver, (cudaStream_t)queue->stream))
                           : status;
}
