// Control groups are folders, and what is said to them is written into files.
#include "bench/support/memory_group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "ndarc.limit."

enum { TEXT = 4096 };

static bool read_file(const char *folder, const char *name, char text[TEXT]);
static bool write_file(const char *folder, const char *name, const char *text);
static const char *own_path(char *groups, bool version_1);
static bool has_word(const char *words, const char *word);
static bool join(char target[GROUP_PATH], const char *folder, const char *name);
static bool find_1(const char *root, char *groups, memory_group *ret_parent);
static bool find_2(const char *root, char *groups, memory_group *ret_parent);
static bool set_limit(const memory_group *group, uint64_t bytes);
static void remove_orphans(const char *parent);

bool memory_group_find_parent(const char *root, const char *own, memory_group *ret_parent,
                              char reason[GROUP_REASON]) {
    char groups[TEXT], copy[TEXT];
    *ret_parent = (memory_group){0};
    if (!read_file("", own, groups)) {
        snprintf(reason, GROUP_REASON, "%s cannot be read", own);
        return false;
    }
    memcpy(copy, groups, sizeof copy);
    if (find_1(root, copy, ret_parent))
        return true;
    memcpy(copy, groups, sizeof copy);
    if (find_2(root, copy, ret_parent))
        return true;
    snprintf(reason, GROUP_REASON, "in %s no group of this process hands on limits of memory",
             root);
    return false;
}

bool memory_group_make(const memory_group *parent, uint64_t bytes, memory_group *ret_group,
                       char reason[GROUP_REASON]) {
    char name[64];
    memory_group group = {.version = parent->version};
    *ret_group = (memory_group){0};
    remove_orphans(parent->folder);
    snprintf(name, sizeof name, PREFIX "%ld", (long)getpid());
    if (!join(group.folder, parent->folder, name) || mkdir(group.folder, 0755) != 0) {
        snprintf(reason, GROUP_REASON, "no group can be made in %.400s: %s", parent->folder,
                 strerror(errno));
        return false;
    }
    if (!set_limit(&group, bytes)) {
        snprintf(reason, GROUP_REASON, "no limit can be set in %.400s: %s", group.folder,
                 strerror(errno));
        rmdir(group.folder);
        return false;
    }
    *ret_group = group;
    return true;
}

bool memory_group_add(const memory_group *group, pid_t process) {
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)process);
    return write_file(group->folder, "cgroup.procs", text);
}

uint64_t memory_group_get_peak(const memory_group *group) {
    char text[TEXT];
    const char *name = group->version == 1 ? "memory.max_usage_in_bytes" : "memory.peak";
    return read_file(group->folder, name, text) ? strtoull(text, NULL, 10) : 0;
}

uint64_t memory_group_get_kills(const memory_group *group) {
    static const char word[] = "oom_kill ";
    char text[TEXT];
    const char *name = group->version == 1 ? "memory.oom_control" : "memory.events";
    if (!read_file(group->folder, name, text))
        return 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, sizeof word - 1) == 0)
            return strtoull(line + sizeof word - 1, NULL, 10);
    }
    return 0;
}

bool memory_group_remove(memory_group *group) {
    enum { ATTEMPTS = 100 };
    const struct timespec pause = {.tv_nsec = 10000000};
    bool removed = group->version == 0;
    // A process that was waited for may still be on its way out of its group.
    for (int i = 0; i < ATTEMPTS && !removed; i++) {
        removed = rmdir(group->folder) == 0 || errno == ENOENT;
        if (!removed)
            nanosleep(&pause, NULL);
    }
    if (removed)
        *group = (memory_group){0};
    return removed;
}

// ------------------------------------------------------------------------------------ the parent

/// The own group below the memory controller's mount. A container may see that mount at another
/// place in the tree than its own group's path says: then it is the mount's top.
static bool find_1(const char *root, char *groups, memory_group *ret_parent) {
    const char *path = own_path(groups, true);
    char mount[GROUP_PATH], text[TEXT];
    if (!path || !join(mount, root, "memory"))
        return false;
    bool found = join(ret_parent->folder, mount, path + 1) &&
                 read_file(ret_parent->folder, "memory.limit_in_bytes", text);
    if (!found)
        found = join(ret_parent->folder, mount, "") &&
                read_file(ret_parent->folder, "memory.limit_in_bytes", text);
    ret_parent->version = found ? 1 : 0;
    return found;
}

/// The own group or the one above it, whichever hands on the limits of memory.
static bool find_2(const char *root, char *groups, memory_group *ret_parent) {
    const char *path = own_path(groups, false);
    char text[TEXT];
    if (!path || !join(ret_parent->folder, root, path + 1))
        return false;
    const size_t least = strlen(root);
    for (int i = 0; i < 2 && strlen(ret_parent->folder) >= least; i++) {
        if (read_file(ret_parent->folder, "cgroup.subtree_control", text) &&
            has_word(text, "memory")) {
            ret_parent->version = 2;
            return true;
        }
        *strrchr(ret_parent->folder, '/') = '\0';
    }
    return false;
}

/// The path in "4:memory:/path" of version 1, or in "0::/path" of version 2; it ends `groups`.
static const char *own_path(char *groups, bool version_1) {
    for (char *line = groups; line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (path) {
            *path++ = '\0';
            if (*path == '/' && (version_1 ? has_word(controllers + 1, "memory")
                                           : strcmp(controllers + 1, "") == 0))
                return path;
        }
        line = end ? end + 1 : NULL;
    }
    return NULL;
}

static bool has_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || strchr(" ,", at[-1])) && (!at[length] || strchr(" ,\n", at[length])))
            return true;
    return false;
}

// ------------------------------------------------------------------------------------- the group

static bool set_limit(const memory_group *group, uint64_t bytes) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    if (group->version == 2) {
        // There is no such file where swap is not counted.
        write_file(group->folder, "memory.swap.max", "0");
        return write_file(group->folder, "memory.max", text);
    }
    write_file(group->folder, "memory.swappiness", "0");
    return write_file(group->folder, "memory.limit_in_bytes", text);
}

/// Groups of this kind whose maker is not there any more. One that still has processes stays.
static void remove_orphans(const char *parent) {
    DIR *folder = opendir(parent);
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[GROUP_PATH];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        long process = strtol(entry->d_name + sizeof PREFIX - 1, NULL, 10);
        bool gone = process == getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH);
        if (gone && process > 0 && join(path, parent, entry->d_name))
            rmdir(path);
    }
    closedir(folder);
}

// ------------------------------------------------------------------------------------- the files

static bool join(char target[GROUP_PATH], const char *folder, const char *name) {
    const char *slash = *name ? "/" : "";
    int length = snprintf(target, GROUP_PATH, "%s%s%s", folder, slash, name);
    return length > 0 && length < GROUP_PATH;
}

/// False when it cannot be read. An empty folder: `name` is the whole path.
static bool read_file(const char *folder, const char *name, char text[TEXT]) {
    char path[GROUP_PATH];
    size_t used = 0;
    text[0] = '\0';
    if (!(*folder ? join(path, folder, name) : join(path, name, "")))
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    for (ssize_t got; used < TEXT - 1 && (got = read(file, text + used, TEXT - 1 - used)) > 0;)
        used += (size_t)got;
    close(file);
    text[used] = '\0';
    return true;
}

static bool write_file(const char *folder, const char *name, const char *text) {
    char path[GROUP_PATH];
    if (!join(path, folder, name))
        return false;
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const size_t length = strlen(text);
    bool good = write(file, text, length) == (ssize_t)length;
    int error = errno;
    close(file);
    errno = error;
    return good;
}
