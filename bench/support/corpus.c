// Reads the pages into one tensor.
#include "bench/support/corpus.h"

#include "bench/support/paths.h"

#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>

static int64_t size_of(const char *path);
static bool read_into(const char *path, unsigned char *to, int64_t size);

nd_tensor *corpus_load(void) {
    char folder[4096];
    char pattern[4200];
    if (!bench_find_file("docs", folder, sizeof folder))
        return NULL;
    snprintf(pattern, sizeof pattern, "%s/*.md", folder);
    glob_t pages;
    if (glob(pattern, 0, NULL, &pages) != 0)
        return NULL;
    int64_t bytes = 0;
    for (size_t i = 0; i < pages.gl_pathc; i++)
        bytes += size_of(pages.gl_pathv[i]);
    nd_tensor *text = nd_empty(ND_SHAPE(bytes), ND_U8);
    unsigned char *to = nd_get_data(text);
    bool good = to != NULL;
    for (size_t i = 0; i < pages.gl_pathc && good; i++) {
        int64_t size = size_of(pages.gl_pathv[i]);
        good = read_into(pages.gl_pathv[i], to, size);
        to += size;
    }
    globfree(&pages);
    if (!good)
        nd_release(text);
    return good ? text : NULL;
}

static int64_t size_of(const char *path) {
    struct stat file;
    return stat(path, &file) == 0 ? (int64_t)file.st_size : 0;
}

static bool read_into(const char *path, unsigned char *to, int64_t size) {
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool whole = fread(to, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    return whole;
}
