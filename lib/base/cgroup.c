#include "lib/base/cgroup.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void nd__cgroup_read(const char *path, char *text, size_t bytes) {
    size_t used = 0;
    int state;
    // Callers hold locks, and no function of the library is a cancellation point.
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got;
        while (used < bytes - 1 && (got = read(file, text + used, bytes - 1 - used)) > 0)
            used += (size_t)got;
        close(file);
    }
    pthread_setcancelstate(state, NULL);
    text[used] = '\0';
}

int64_t nd__cgroup_least(const char *root, const char *groups,
                         int64_t (*limit)(const char *folder)) {
    char text[4096], folder[PATH_MAX];
    nd__cgroup_read(groups, text, sizeof text);
    // Version 2 is the line "0::/path". Version 1 has a folder for each kind of limit.
    char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    char *path = line ? strchr(line, '/') : NULL;
    if (path)
        path[strcspn(path, "\n")] = '\0';
    size_t root_bytes = strlen(root);
    int bytes = snprintf(folder, sizeof folder, "%s%s", root, path ? path : "");
    if (bytes < 0 || (size_t)bytes >= sizeof folder)
        return 0;
    // A group's limit bounds the groups in it, so the least on the way up counts.
    int64_t least = 0;
    for (;;) {
        int64_t of_group = limit(folder);
        if (of_group > 0 && (least == 0 || of_group < least))
            least = of_group;
        char *slash = strrchr(folder + root_bytes, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/// 0 for "max", and for the number near 2^63 that version 1 says instead.
static int64_t memory_of_group(const char *folder) {
    char path[PATH_MAX + 32], text[64];
    snprintf(path, sizeof path, "%s/memory.max", folder);
    nd__cgroup_read(path, text, sizeof text);
    if (text[0] == '\0') {
        snprintf(path, sizeof path, "%s/memory/memory.limit_in_bytes", folder);
        nd__cgroup_read(path, text, sizeof text);
    }
    long long bytes = strtoll(text, NULL, 10);
    return bytes > 0 && bytes < LLONG_MAX / 2 ? bytes : 0;
}

int64_t nd__cgroup_memory(const char *root, const char *groups) {
    return nd__cgroup_least(root, groups, memory_of_group);
}
