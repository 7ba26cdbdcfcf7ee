// How ranks become those of an NCCL communicator: one of them makes an id, the others learn it.
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/signals.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/// Inside a call of `over`: its rank 0 makes the id, all get it. Memory for it outlives a failure.
/// `status`: this rank has failed already.
static nd_status exchange_id(const nd_communicator *over, const nd_transport_call *call,
                             nd_device device, nd_status status, nd_nccl_id *ret_id) {
    static nd_nccl_id shared; // that of a process, which does this once at a time: MPI may keep it
    static nd_lock lock;
    nd_description mine = {.call = ND__CALL_NCCL};
    if (status == ND_OK)
        status = nd__nccl_check(call->operation, device);
    nd_nccl_id id = {{0}};
    if (status == ND_OK && over->rank == 0)
        status = nd__nccl_make_id(call->operation, &id);
    mine.status = (int32_t)status;
    status = nd__agreement_reach(over, call, &mine);
    if (status != ND_OK)
        return status;
    nd__lock_acquire(&lock);
    shared = id;
    status = nd__communicator_note(over, over->transport->functions->broadcast(
                                             over->transport, call, &shared, sizeof shared, 0));
    *ret_id = shared;
    nd__lock_release(&lock);
    return status;
}

nd_communicator *nd_communicator_from_nccl(const nd_communicator *comm, nd_device device,
                                           const nd_communicator_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "communicator_from_nccl";
    nd_transport_call call, chosen;
    nd_status status = nd__communicator_read_options(operation, options,
                                                     nd_communicator_get_timeout(comm), &chosen);
    if (nd__communicator_enter(operation, comm, &call) != ND_OK)
        return NULL;
    nd_nccl_id id;
    status = comm->transport->device.kind == ND_CPU
                 ? exchange_id(comm, &call, device, status, &id)
                 : nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: comm must be one of MPI; nd_communicator_duplicate() "
                             "makes another one of NCCL",
                             operation);
    nd__communicator_leave(comm);
    nd_transport *transport =
        status == ND_OK ? nd__nccl_new(&chosen, &id, comm->rank, comm->size, device) : NULL;
    return transport ? nd__communicator_on(&chosen, transport) : NULL;
}

static nd_status file_failed(const char *operation, const char *path, const char *what) {
    return nd__error(ND_ERROR_IO, "%s: %s '%.300s': %s", operation, what, path,
                     nd__error_reason(errno));
}

/// The file appears with the whole id in it, or not at all.
static nd_status write_id(const char *operation, const char *path, const nd_nccl_id *id) {
    char beside[4096];
    if ((size_t)snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid()) >= sizeof beside)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the path is too long", operation);
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return file_failed(operation, beside, "cannot write");
    nd_signals_writing writing;
    nd__signals_write_begin(&writing);
    bool written = write(file, id, sizeof *id) == (ssize_t)sizeof *id;
    nd__signals_write_end(&writing, !written);
    nd_status status = ND_OK;
    if (close(file) != 0 || !written)
        status = file_failed(operation, beside, "cannot write");
    else if (link(beside, path) != 0) // unlike a renaming, it replaces no id of others
        status = file_failed(operation, path, "cannot make");
    unlink(beside);
    return status;
}

/// Waits for the file.
static nd_status read_id(const nd_transport_call *call, const char *path, nd_nccl_id *ret_id) {
    uint64_t begin = nd__clock_now_ns();
    int file;
    while ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        if (errno != ENOENT)
            return file_failed(call->operation, path, "cannot read");
        if ((double)(nd__clock_now_ns() - begin) * 1e-9 > call->seconds)
            return nd__error(ND_ERROR_IO, "%s: rank 0 did not make '%.300s' within %g s",
                             call->operation, path, call->seconds);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    bool whole = read(file, ret_id, sizeof *ret_id) == (ssize_t)sizeof *ret_id;
    close(file);
    return whole ? ND_OK
                 : nd__error(ND_ERROR_FORMAT, "%s: '%.300s' holds no id of NCCL", call->operation,
                             path);
}

nd_communicator *nd_communicator_from_nccl_file(const char *path, int rank, int ranks,
                                                nd_device device,
                                                const nd_communicator_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "communicator_from_nccl_file";
    nd_transport_call call;
    if (!path) {
        nd__error_null(operation, "path");
        return NULL;
    }
    if (rank < 0 || rank >= ranks) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d of %d", operation, rank, ranks);
        return NULL;
    }
    nd_nccl_id id;
    nd_status status = nd__communicator_read_options(operation, options, 60, &call);
    if (status == ND_OK)
        status = nd__nccl_check(operation, device);
    if (status == ND_OK && rank == 0)
        status = nd__nccl_make_id(operation, &id);
    if (status == ND_OK)
        status = rank == 0 ? write_id(operation, path, &id) : read_id(&call, path, &id);
    nd_transport *transport =
        status == ND_OK ? nd__nccl_new(&call, &id, rank, ranks, device) : NULL;
    return transport ? nd__communicator_on(&call, transport) : NULL;
}
