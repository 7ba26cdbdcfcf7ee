// See trace_file.h. What may be written is decided by what was opened, not by what stood there
// before.
#include "lib/debug/trace_file.h"
#include "lib/base/error.h"
#include "lib/base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/// The descriptor that a path names; -1 when it names a file.
static int own_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) != 0 || !strchr("0123456789", path[length]))
            continue;
        char *end;
        long number = strtol(path + length, &end, 10);
        if (end != path + length && *end == '\0' && number <= 1 << 20)
            return (int)number;
    }
    return -1;
}

static const char *last_error(void) {
    return nd__error_reason(errno);
}

/// What is wrong with writing to an open file, which is emptied when nothing is.
static const char *refuse_or_empty(int file) {
    struct stat stat;
    if (fstat(file, &stat) != 0)
        return last_error();
    if (S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode))
        return NULL;
    if (!S_ISREG(stat.st_mode))
        return "it is neither a regular file nor a pipe or a terminal";
    if (stat.st_nlink > 1)
        return "it is a file with several names, all of which would be emptied";
    return ftruncate(file, 0) == 0 ? NULL : last_error();
}

int nd__trace_file_open(const char *path, const char **ret_reason) {
    int own = own_descriptor(path), file;
    if (own >= 0) {
        file = fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (file < 0)
            *ret_reason = last_error();
        return file;
    }
    // O_NONBLOCK: a pipe that nobody reads is an error and not a program that never begins.
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0644);
    if (file < 0) {
        *ret_reason = errno == ELOOP   ? "it is a symbolic link, which a trace does not follow"
                      : errno == ENXIO ? "nobody reads from it"
                                       : last_error();
        return -1;
    }
    const char *reason = refuse_or_empty(file);
    int flags = fcntl(file, F_GETFL);
    if (!reason && (flags < 0 || fcntl(file, F_SETFL, flags & ~O_NONBLOCK) != 0))
        reason = last_error();
    if (reason) {
        close(file);
        *ret_reason = reason;
        return -1;
    }
    return file;
}

ssize_t nd__trace_file_write(int file, const void *data, size_t bytes) {
    nd_signals_writing writing;
    nd__signals_write_begin(&writing);
    ssize_t written = write(file, data, bytes);
    // A reader that leaves in the middle of a write raises SIGPIPE beside what was taken.
    nd__signals_write_end(&writing, written < 0 || (size_t)written < bytes);
    return written;
}
