// The threads of this process, as the kernel has them.
#ifndef ND_TESTS_THREADS_H
#define ND_TESTS_THREADS_H
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/// Whether a thread of this process is past its last instruction. The kernel lists one for a moment
/// after pthread_join() has returned, marked as exiting (PF_EXITING, the flags of proc(5)'s stat).
static inline bool nd_test_thread_exits(const char *id) {
    enum { EXITING = 4 };
    char path[64], stat[512];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", id);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
    fclose(file);
    const char *name_end = strrchr(stat, ')');
    unsigned flags = 0;
    return !name_end || sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
           (flags & EXITING);
}

/// Threads that have not ended, whatever library made them. -1: the kernel does not say.
static inline int nd_test_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return -1;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.' && !nd_test_thread_exits(entry->d_name);
    closedir(tasks);
    return count;
}
#endif
