// Makes the folder below that for temporary files, and removes it.
#include "bench/workloads/harness/handed.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool handed_make(handed *handed, const workload *workload, const run_settings *settings) {
    *handed = (struct handed){0};
    if (!workload->hand_over)
        return true;
    const char *temporary = getenv("TMPDIR");
    snprintf(handed->folder, sizeof handed->folder, "%s/ndarc.XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(handed->folder)) {
        fprintf(stderr, "%s: no folder %s: %s\n", workload->name, handed->folder, strerror(errno));
        *handed = (struct handed){0};
        return false;
    }
    run_settings writing = *settings;
    writing.hand_over = handed->folder;
    child child;
    run_figures figures = {.status = ND_ERROR_STATE};
    if (child_start(&child, workload, &writing, 0))
        child_finish(&child, NULL, NULL, &figures);
    if (figures.status == ND_OK)
        return true;
    handed_remove(handed);
    if (!figures.no_device)
        fprintf(stderr, "%s: what PyTorch's side begins with: %s\n", workload->name,
                figures.message);
    return figures.no_device;
}

void handed_remove(handed *handed) {
    DIR *folder = *handed->folder ? opendir(handed->folder) : NULL;
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(handed->folder);
    *handed = (struct handed){0};
}
