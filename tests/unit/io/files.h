// Files of a test: names in the test's own folder, content from memory, and errors that must name a
// file.
#ifndef ND_TESTS_UNIT_IO_FILES_H
#define ND_TESTS_UNIT_IO_FILES_H
#include "tests/testing.h"
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/// Path of a file in the test's folder; static storage, good for the next three calls.
static inline const char *nd_test_path(const char *name) {
    static char paths[4][512];
    static unsigned next;
    const char *folder = getenv("TEST_TMPDIR");
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder ? folder : "/tmp", name);
    return path;
}

static inline void nd_test_write(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/// Content of a file, to be freed.
static inline char *nd_test_read(const char *path, size_t *ret_bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, file), bytes);
    data[bytes] = 0;
    fclose(file);
    *ret_bytes = bytes;
    return data;
}

/// Entries of a folder, those with a leading dot included.
static inline int nd_test_count_files(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/// The last call failed with this status, and its sentence contains the fragment. Clears the error.
static inline void assert_failed(nd_status status, const char *fragment) {
    if (nd_error_get_status() != status || !strstr(nd_error_get_message(), fragment))
        fail_msg("expected %s with '%s', got %s: %s", nd_status_get_name(status), fragment,
                 nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    nd_error_clear();
}
#endif
