// Ranks over an NCCL without GPUs (tests/cudart/nccl.h), what its tests share: threads of this process,
// each with a device of the fake runtime, which join through a file; or, where the program runs under
// mpirun, this process as one of them.
#ifndef ND_TESTS_DISTRIBUTED_NCCL_RANKS_H
#define ND_TESTS_DISTRIBUTED_NCCL_RANKS_H
#include "tests/cudart/nccl.h"
#include "tests/cudart/streams.h"
#include "tests/distributed/ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

enum { NCCL_RANKS = 4, NCCL_REMOTE_ERROR = 6 };

typedef void nccl_body(nd_communicator *comm, int rank, void *context);

typedef struct nccl_rank {
    const char *path;
    int rank, ranks;
    double timeout;
    nccl_body *body;
    void *context;
    pthread_t thread;
} nccl_rank;

static inline const nccl_control *nccl(void) {
    void *library = dlopen(getenv("ND_NCCL"), RTLD_NOW);
    assert_non_null(library);
    const nccl_control *control = dlsym(library, NCCL_CONTROL);
    assert_non_null(control);
    return control;
}

static inline nccl_statistics nccl_counts(void) {
    nccl_statistics now;
    nccl()->get_statistics(&now);
    return now;
}

static inline void nccl_path(char *path, size_t bytes) {
    static atomic_int number;
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, bytes, "%s/nccl-id-%d-%d", folder ? folder : "/tmp", (int)getpid(),
             atomic_fetch_add(&number, 1));
}

static inline nd_communicator *nccl_join(const char *path, int rank, int ranks, double timeout) {
    nd_communicator_options options = ND_COMMUNICATOR_OPTIONS_INIT;
    options.timeout = timeout;
    return nd_communicator_from_nccl_file(path, rank, ranks, cuda(rank), &options);
}

static inline void *nccl_run_one(void *argument) {
    const nccl_rank *it = argument;
    nd_communicator *comm = nccl_join(it->path, it->rank, it->ranks, 60);
    assert_handle(comm);
    assert_ok(nd_communicator_set_timeout(comm, it->timeout));
    it->body(comm, it->rank, it->context);
    nd_release(comm);
    return NULL;
}

/// Whether this process is one rank of several, under mpirun.
static inline bool nccl_is_process(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
}

static inline void nccl_run_as_process(double timeout, nccl_body *body, void *context) {
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world);
    nd_auto nd_communicator *comm = nd_communicator_from_nccl(world, cuda(rank), NULL);
    assert_handle(comm);
    assert_ok(nd_communicator_set_timeout(comm, timeout));
    body(comm, rank, context);
    assert_ok(nd_barrier(world));
}

/// Runs `body` on each of so many ranks.
static inline void nccl_run(int ranks, double timeout, nccl_body *body, void *context) {
    if (nccl_is_process()) {
        nccl_run_as_process(timeout, body, context);
        return;
    }
    char path[300];
    nccl_path(path, sizeof path);
    nccl_rank each[NCCL_RANKS];
    for (int rank = 0; rank < ranks; rank++) {
        each[rank] = (nccl_rank){path, rank, ranks, timeout, body, context, 0};
        assert_int_equal(pthread_create(&each[rank].thread, NULL, nccl_run_one, &each[rank]), 0);
    }
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(each[rank].thread, NULL);
    unlink(path);
}

/// Behind a test: no communicator, no work and no memory of a device is left.
static inline void assert_no_nccl_left(void) {
    assert_int_equal(nccl_counts().alive, 0);
    assert_nothing_left_on_devices();
}

/// As make() of ranks.h, on that rank's device.
static inline nd_tensor *make_there(uint64_t seed, int rank, int layout, int ndim,
                                    const int64_t *shape, nd_dtype dtype) {
    nd_auto nd_tensor *values = make(seed, rank, 0, ndim, shape, dtype);
    int64_t wide[ND_MAX_DIMS] = {0};
    int axes[ND_MAX_DIMS] = {0};
    for (int i = 0; i < ndim; i++) {
        axes[i] = layout & 1 ? ndim - 1 - i : i;
        wide[axes[i]] = shape[i] * (layout & 2 ? 2 : 1);
    }
    nd_auto nd_tensor *zeros = nd_zeros(ndim, wide, dtype);
    nd_auto nd_tensor *there = nd_to(zeros, cuda(rank));
    nd_tensor *ordered = nd_permute(there, ndim, axes);
    for (int i = 0; i < ndim && layout & 2; i++) {
        nd_tensor *every_second = nd_slice(ordered, 0, INT64_MAX, 2, i);
        nd_release(ordered);
        ordered = every_second;
    }
    assert_handle(ordered);
    assert_ok(nd_copy_(ordered, values));
    return ordered;
}
#endif
