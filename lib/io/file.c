// Reading and writing whole files: short reads, interrupted calls, full disks, renamed writes.
//
// Invariant: every descriptor opened here is closed here, and every temporary file is renamed or
// removed, but for one whose content is nowhere else, which the error names. At no moment would a
// crash leave neither the old content nor the new one whole. Error texts are composed from the
// errno of the call that failed, before anything else can change it.
#include "lib/io/file.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/signals.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t (*nd__file_pread)(int descriptor, void *buffer, size_t bytes, off_t position) = pread;

static nd_status file_error(const char *operation, const char *path, const char *failed);
static nd_status writer_error(const nd_file_writer *writer, const char *failed);
static nd_status check_empty(nd_file *file);
static char *resolve_target(const char *path);
static nd_status open_beside(nd_file_writer *writer, mode_t mode);
static nd_status keep_identity(nd_file_writer *writer, const struct stat *before);
static nd_status finish(nd_file_writer *writer);
static nd_status replace(nd_file_writer *writer);
static nd_status write_over(nd_file_writer *writer);

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
    else if (stat.st_size == 0)
        status = check_empty(file);
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
    if (status == ND_OK && got < bytes && file->position < file->size)
        status = nd__error(ND_ERROR_IO,
                           "%s: '%s' ends after %llu bytes, and its size is %llu: it was cut short "
                           "meanwhile, or has less than it says, as files of /sys have",
                           file->operation, file->path, (unsigned long long)file->position,
                           (unsigned long long)file->size);
    else if (status == ND_OK && got < bytes)
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
    *writer = (nd_file_writer){.operation = operation, .path = path, .descriptor = -1, .over = -1};
    if (!path)
        return nd__error_null(operation, "path");
    struct stat before;
    bool exists = stat(path, &before) == 0;
    if (!exists && errno == ELOOP)
        return writer_error(writer, "cannot be opened");
    if (exists && !S_ISREG(before.st_mode)) {
        // A device or pipe cannot be replaced by a file without harm: it is written as it is.
        writer->descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return writer->descriptor >= 0 ? ND_OK : writer_error(writer, "cannot be opened");
    }
    writer->target = resolve_target(path);
    if (!writer->target)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the name '%s'", operation,
                         path);
    nd_status status = open_beside(writer, exists ? 0600 : 0666);
    if (status == ND_OK && exists)
        status = keep_identity(writer, &before);
    if (status != ND_OK)
        nd__file_abandon(writer);
    return status;
}

nd_status nd__file_write(nd_file_writer *writer, const void *data, size_t bytes) {
    size_t done = 0;
    nd_signals_writing writing;
    nd__signals_write_begin(&writing);
    while (done < bytes) {
        ssize_t wrote = write(writer->descriptor, (const char *)data + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        done += (size_t)wrote;
    }
    nd__signals_write_end(&writing, done < bytes);
    return done < bytes ? writer_error(writer, "cannot be written") : ND_OK;
}

nd_status nd__file_commit(nd_file_writer *writer) {
    nd_signals_writing writing;
    nd__signals_write_begin(&writing);
    nd_status status = finish(writer);
    nd__signals_write_end(&writing, status != ND_OK);
    return status;
}

void nd__file_abandon(nd_file_writer *writer) {
    if (writer->descriptor >= 0)
        close(writer->descriptor);
    if (writer->over >= 0)
        close(writer->over);
    writer->descriptor = writer->over = -1;
    if (writer->temporary)
        unlink(writer->temporary);
    nd__alloc_free(writer->temporary);
    nd__alloc_free(writer->target);
    writer->temporary = NULL;
    writer->target = NULL;
}

/// ND_ERROR_IO with the reason that errno gives.
static nd_status file_error(const char *operation, const char *path, const char *failed) {
    return nd__error(ND_ERROR_IO, "%s: '%s' %s: %s", operation, path, failed,
                     nd__error_reason(errno));
}

static nd_status writer_error(const nd_file_writer *writer, const char *failed) {
    return file_error(writer->operation, writer->path, failed);
}

/// What is in a file of size 0: nothing, but for one of /proc and its kind, which is made when it is
/// read.
static nd_status check_empty(nd_file *file) {
    char first;
    size_t got = 0;
    nd_status status = nd__file_read_some(file, &first, 1, &got);
    if (status == ND_OK && got > 0)
        status = nd__error(ND_ERROR_IO,
                           "%s: '%s' has content, and size 0, as files of /proc have; a copy of it "
                           "can be read",
                           file->operation, file->path);
    return status;
}

// ------------------------------------------------------------------------------------------------
// names

/// Length of a path up to its last part.
static int folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

static char *copied(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = nd__pressure_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

/// Where a symbolic link leads; `path` itself when it is none. Consumes `path`; NULL without
/// memory.
static char *follow_link(char *path) {
    char link[PATH_MAX + 1];
    ssize_t length = readlink(path, link, PATH_MAX);
    if (length <= 0)
        return path;
    link[length] = '\0';
    int folder = link[0] == '/' ? 0 : folder_length(path);
    size_t bytes = (size_t)folder + (size_t)length + 1;
    char *next = nd__pressure_alloc(bytes);
    if (next)
        snprintf(next, bytes, "%.*s%s", folder, path, link);
    nd__alloc_free(path);
    return next;
}

/// The path that a rename has to replace: what a symbolic link leads to rather than the link, also
/// where nothing is there yet. NULL without memory.
static char *resolve_target(const char *path) {
    char *real = realpath(path, NULL);
    char *target = copied(real ? real : path);
    // A chain of links that has no end was refused before; one that grows meanwhile is cut.
    for (int links = 0; !real && target && links < 40; links++) {
        char *next = follow_link(target);
        if (next == target)
            break;
        target = next;
    }
    free(real);
    return target;
}

/// Numbers of the process's own, and of chance when some are taken: processes of the same number
/// that were killed may have left any number of files.
static unsigned temporary_number(int attempt) {
    enum { COUNTED = 10 };
    static atomic_uint counter;
    unsigned number;
    if (attempt >= COUNTED &&
        getrandom(&number, sizeof number, GRND_NONBLOCK) == (ssize_t)sizeof number)
        return number;
    return atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
}

/// A name in the target's directory, so that the rename stays within one file system. NULL without
/// memory.
static char *temporary_path(const char *target, int attempt) {
    int folder = folder_length(target);
    size_t bytes = (size_t)folder + 48;
    char *path = nd__pressure_alloc(bytes);
    if (path)
        snprintf(path, bytes, "%.*s.nd-%ld-%u.tmp", folder, target, (long)getpid(),
                 temporary_number(attempt));
    return path;
}

static nd_status open_beside(nd_file_writer *writer, mode_t mode) {
    for (int attempt = 0; attempt < 100; attempt++) {
        nd__alloc_free(writer->temporary);
        writer->temporary = temporary_path(writer->target, attempt);
        if (!writer->temporary)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a name beside '%s'",
                             writer->operation, writer->path);
        writer->descriptor = open(writer->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (writer->descriptor >= 0)
            return ND_OK;
        if (errno != EEXIST)
            break; // another process left this name behind: the next number
    }
    nd_status status =
        nd__error(ND_ERROR_IO, "%s: '%s' cannot be written: '%s' beside it cannot be created: %s",
                  writer->operation, writer->path,
                  writer->temporary + folder_length(writer->target), nd__error_reason(errno));
    // The name belongs to somebody else, or to nobody: it must not be removed.
    nd__alloc_free(writer->temporary);
    writer->temporary = NULL;
    return status;
}

// ------------------------------------------------------------------------------------------------
// putting the new file in the old one's place

/// The new file becomes what the old one is: owner, group, permissions. What a rename would change
/// all the same, a file of several names or of somebody else, is to be written over.
static nd_status keep_identity(nd_file_writer *writer, const struct stat *before) {
    struct stat now;
    if (fstat(writer->descriptor, &now) != 0)
        return writer_error(writer, "cannot be examined");
    bool foreign = (now.st_uid != before->st_uid || now.st_gid != before->st_gid) &&
                   fchown(writer->descriptor, before->st_uid, before->st_gid) != 0;
    if (foreign || before->st_nlink > 1) {
        writer->over = open(writer->target, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        return writer->over >= 0 ? ND_OK : writer_error(writer, "cannot be opened");
    }
    return fchmod(writer->descriptor, before->st_mode & 07777) == 0
               ? ND_OK
               : writer_error(writer, "cannot be given its old permissions");
}

/// Makes the names in the target's folder durable: a new name is lost in a crash before.
static nd_status sync_folder(const nd_file_writer *writer) {
    char folder[PATH_MAX + 1];
    int length = folder_length(writer->target);
    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? writer->target : ".");
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return ND_OK; // one that may be written but not read: nothing can be done
    nd_status status = ND_OK;
    // Some file systems cannot, and say so.
    if (fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        status = writer_error(writer, "was written, but its folder cannot be");
    close(descriptor);
    return status;
}

static nd_status replace(nd_file_writer *writer) {
    if (rename(writer->temporary, writer->target) != 0)
        return writer_error(writer, "cannot be replaced");
    nd__alloc_free(writer->temporary);
    writer->temporary = NULL;
    return sync_folder(writer);
}

/// The temporary file, whole, over the target's content. False with errno.
static bool copy_over(const nd_file_writer *writer, off_t size) {
    off_t done = 0;
    while (done < size) {
        ssize_t moved = sendfile(writer->over, writer->descriptor, &done, (size_t)(size - done));
        if (moved == 0)
            errno = EIO; // it was whole when it was measured
        if (moved == 0 || (moved < 0 && errno != EINTR))
            return false;
    }
    return ftruncate(writer->over, size) == 0 && fsync(writer->over) == 0;
}

/// Writes the target itself, for what a rename would change. The copy beside it is durable under
/// its name before, and the room is reserved: what can still fail leaves the new content there.
static nd_status write_over(nd_file_writer *writer) {
    struct stat stat;
    if (fstat(writer->descriptor, &stat) != 0)
        return writer_error(writer, "cannot be examined");
    nd_status status = sync_folder(writer);
    if (status != ND_OK)
        return status;
    if (stat.st_size > 0 && fallocate(writer->over, FALLOC_FL_KEEP_SIZE, 0, stat.st_size) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return writer_error(writer, "cannot be written");
    if (copy_over(writer, stat.st_size))
        return ND_OK;
    status =
        nd__error(ND_ERROR_IO, "%s: '%s' cannot be written: %s; all of its new content is in '%s'",
                  writer->operation, writer->path, nd__error_reason(errno), writer->temporary);
    nd__alloc_free(writer->temporary);
    writer->temporary = NULL;
    return status;
}

/// Makes the content durable, and gives it its place.
static nd_status finish(nd_file_writer *writer) {
    nd_status status = ND_OK;
    // A device or pipe has nothing to synchronise and answers EINVAL.
    if (writer->temporary && fsync(writer->descriptor) != 0)
        status = writer_error(writer, "cannot be written");
    if (status == ND_OK && writer->over >= 0)
        status = write_over(writer);
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    // Network file systems report a full disk here; the descriptor is gone in either case.
    if (close(descriptor) != 0 && errno != EINTR && status == ND_OK)
        status = writer_error(writer, "cannot be written");
    if (status == ND_OK && writer->temporary && writer->over < 0)
        status = replace(writer);
    nd__file_abandon(writer);
    return status;
}
