// Looks for runfiles in the few places where Bazel of any version lays them.
#include "bench/support/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool readable(const char *buffer, int length, size_t size);

bool bench_find_file(const char *path, char *buffer, size_t size) {
    // The repository's folder in the runfiles is called by its name, or "_main" with modules.
    static const char *const repositories[] = {"ndarc", "_main"};
    if (readable(buffer, snprintf(buffer, size, "%s", path), size))
        return true;
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    const char *runfiles = getenv("RUNFILES_DIR");
    for (size_t i = 0; i < sizeof repositories / sizeof *repositories; i++) {
        const char *repository = repositories[i];
        if (runfiles &&
            readable(buffer, snprintf(buffer, size, "%s/%s/%s", runfiles, repository, path), size))
            return true;
        int written = snprintf(buffer, size, "%s.runfiles/%s/%s", program, repository, path);
        if (readable(buffer, written, size))
            return true;
    }
    return false;
}

bool bench_user_path(const char *path, char *buffer, size_t size) {
    const char *from = getenv("BUILD_WORKING_DIRECTORY");
    int length = from && path[0] != '/' ? snprintf(buffer, size, "%s/%s", from, path)
                                        : snprintf(buffer, size, "%s", path);
    return length >= 0 && (size_t)length < size;
}

static bool cannot_write(const char *program, const char *path) {
    fprintf(stderr, "%s: cannot write %s: %s\n", program, path, strerror(errno));
    return false;
}

bool bench_check_result(const char *program, const char *path) {
    char target[4096];
    errno = ENAMETOOLONG;
    if (!bench_user_path(path, target, sizeof target))
        return cannot_write(program, path);
    int file = open(target, O_WRONLY | O_CLOEXEC);
    const bool missing = file < 0 && errno == ENOENT;
    if (missing)
        file = open(target, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    if (file < 0)
        return cannot_write(program, path);
    close(file);
    if (missing)
        unlink(target);
    return true;
}

FILE *bench_open_result(const char *program, const char *path) {
    char target[4096];
    errno = ENAMETOOLONG;
    FILE *stream = bench_user_path(path, target, sizeof target) ? fopen(target, "we") : NULL;
    if (!stream)
        cannot_write(program, path);
    return stream;
}

bool bench_program_exists(const char *name) {
    if (strchr(name, '/'))
        return access(name, X_OK) == 0;
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char candidate[4096];
        int written = snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, name);
        if (written > 0 && (size_t)written < sizeof candidate && access(candidate, X_OK) == 0)
            return true;
        path += length;
        path += *path == ':';
    }
    return false;
}

static bool readable(const char *buffer, int length, size_t size) {
    return length >= 0 && (size_t)length < size && access(buffer, R_OK) == 0;
}
