// Reading and writing whole files: short reads, interrupted calls, full disks, renamed writes.
//
// Invariant: every descriptor opened here is closed here, and every temporary file is renamed or
// removed. Error texts are composed from the errno of the call that failed, before anything else
// can change it.
#include "lib/io/file.h"
#include "lib/core/alloc.h"
#include "lib/core/error.h"
#include "lib/core/pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t (*nd__file_pread)(int descriptor, void *buffer, size_t bytes, off_t position) = pread;

static nd_status file_error(const char *operation, const char *path, const char *failed);
static char *resolve_target(const char *path);
static char *temporary_path(const char *target);
static nd_status open_beside(nd_file_writer *writer, mode_t mode);

nd_status nd__file_open(nd_file *file, const char *operation, const char *path) {
    *file = (nd_file){.operation = operation, .path = path, .descriptor = -1};
    if (!path)
        return nd__error_null(operation, "path");
    // Without O_NONBLOCK the open of a pipe would wait for a writer; a regular file does not care.
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0)
        return file_error(operation, path, "cannot be opened");
    struct stat stat;
    nd_status status = ND_OK;
    if (fstat(file->descriptor, &stat) != 0)
        status = file_error(operation, path, "cannot be examined");
    else if (!S_ISREG(stat.st_mode))
        status = nd__error(ND_ERROR_IO, "%s: '%s' is not a regular file", operation, path);
    else
        file->size = (uint64_t)stat.st_size;
    if (status != ND_OK)
        nd__file_close(file);
    return status;
}

nd_status nd__file_read_some(nd_file *file, void *buffer, size_t bytes, size_t *ret_bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = nd__file_pread(file->descriptor, (char *)buffer + done, bytes - done,
                                     (off_t)(file->position + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_error(file->operation, file->path, "cannot be read");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    file->position += done;
    *ret_bytes = done;
    return ND_OK;
}

nd_status nd__file_read(nd_file *file, void *buffer, size_t bytes) {
    size_t got = 0;
    nd_status status = nd__file_read_some(file, buffer, bytes, &got);
    if (status == ND_OK && got < bytes)
        status = nd__error(ND_ERROR_IO, "%s: '%s' ends after %llu bytes, %llu more were expected",
                           file->operation, file->path, (unsigned long long)file->position,
                           (unsigned long long)(bytes - got));
    return status;
}

void nd__file_close(nd_file *file) {
    if (file->descriptor >= 0)
        close(file->descriptor);
    file->descriptor = -1;
}

nd_status nd__file_create(nd_file_writer *writer, const char *operation, const char *path) {
    *writer = (nd_file_writer){.operation = operation, .path = path, .descriptor = -1};
    if (!path)
        return nd__error_null(operation, "path");
    struct stat stat_before;
    bool exists = stat(path, &stat_before) == 0;
    if (exists && !S_ISREG(stat_before.st_mode)) {
        // A device or pipe cannot be replaced by a file without harm: it is written as it is.
        writer->descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return writer->descriptor >= 0 ? ND_OK : file_error(operation, path, "cannot be opened");
    }
    writer->target = resolve_target(path);
    if (!writer->target)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the name '%s'", operation,
                         path);
    nd_status status = open_beside(writer, exists ? stat_before.st_mode & 07777 : 0666);
    // The new file keeps the old one's permissions, as if it had been written in place.
    if (status == ND_OK && exists && fchmod(writer->descriptor, stat_before.st_mode & 07777) != 0)
        status = file_error(operation, path, "cannot be given its old permissions");
    if (status != ND_OK)
        nd__file_abandon(writer);
    return status;
}

nd_status nd__file_write(nd_file_writer *writer, const void *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(writer->descriptor, (const char *)data + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return file_error(writer->operation, writer->path, "cannot be written");
        done += (size_t)wrote;
    }
    return ND_OK;
}

nd_status nd__file_commit(nd_file_writer *writer) {
    nd_status status = ND_OK;
    // A device or pipe has nothing to synchronise and answers EINVAL.
    if (writer->temporary && fsync(writer->descriptor) != 0)
        status = file_error(writer->operation, writer->path, "cannot be written");
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    // Network file systems report a full disk here; the descriptor is gone in either case.
    if (close(descriptor) != 0 && errno != EINTR && status == ND_OK)
        status = file_error(writer->operation, writer->path, "cannot be written");
    if (status == ND_OK && writer->temporary) {
        if (rename(writer->temporary, writer->target) != 0) {
            status = file_error(writer->operation, writer->path, "cannot be replaced");
        } else {
            nd__free(writer->temporary);
            writer->temporary = NULL;
        }
    }
    nd__file_abandon(writer);
    return status;
}

void nd__file_abandon(nd_file_writer *writer) {
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    writer->descriptor = -1;
    if (writer->temporary)
        unlink(writer->temporary);
    nd__free(writer->temporary);
    nd__free(writer->target);
    writer->temporary = NULL;
    writer->target = NULL;
}

/// ND_ERROR_IO with the reason that errno gives.
static nd_status file_error(const char *operation, const char *path, const char *failed) {
    char buffer[128];
    const char *reason = strerror_r(errno, buffer, sizeof(buffer));
    return nd__error(ND_ERROR_IO, "%s: '%s' %s: %s", operation, path, failed, reason);
}

/// The path that a rename has to replace: a symbolic link's target rather than the link. NULL
/// without memory.
static char *resolve_target(const char *path) {
    char *real = realpath(path, NULL); // NULL for a file that does not exist yet
    const char *target = real ? real : path;
    size_t bytes = strlen(target) + 1;
    char *copy = nd__obtain(bytes);
    if (copy)
        memcpy(copy, target, bytes);
    free(real);
    return copy;
}

/// A name nobody uses in the target's directory, so that the rename stays within one file system.
/// NULL without memory.
static char *temporary_path(const char *target) {
    static atomic_uint counter;
    const char *slash = strrchr(target, '/');
    int directory = slash ? (int)(slash - target) + 1 : 0;
    size_t bytes = (size_t)directory + 48;
    char *path = nd__obtain(bytes);
    if (path)
        snprintf(path, bytes, "%.*s.nd-%ld-%u.tmp", directory, target, (long)getpid(),
                 atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed));
    return path;
}

static nd_status open_beside(nd_file_writer *writer, mode_t mode) {
    for (int attempt = 0; attempt < 100; attempt++) {
        nd__free(writer->temporary);
        writer->temporary = temporary_path(writer->target);
        if (!writer->temporary)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a name beside '%s'",
                             writer->operation, writer->path);
        writer->descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (writer->descriptor >= 0)
            return ND_OK;
        if (errno != EEXIST)
            break; // another process left this name behind: the next number
    }
    nd_status status = file_error(writer->operation, writer->path, "cannot be created");
    // The name belongs to somebody else, or to nobody: it must not be removed.
    nd__free(writer->temporary);
    writer->temporary = NULL;
    return status;
}
