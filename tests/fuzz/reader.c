#include "tests/fuzz/reader.h"
#include "lib/base/alloc.h"
#include "lib/io/file.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    abort();
}

const char *fuzz_file(const uint8_t *data, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0)
        file = memfd_create("input", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        fuzz_die("no file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

// ------------------------------------------------------------------------------ what an input takes

uint64_t fuzz_bound_more;
/// `asked`: of the library's allocators, given back or not. The others: of all there are, live now
/// and at most.
static _Atomic int64_t asked, live, most;

static bool count_asked(size_t bytes) {
    asked += (int64_t)bytes;
    return false;
}

// Those of a sanitizer, where there is one: pictures are read by libraries that allocate by themselves.
__attribute__((weak)) extern int __sanitizer_install_malloc_and_free_hooks(
    void (*allocated)(const volatile void *pointer, size_t bytes),
    void (*freed)(const volatile void *pointer));
__attribute__((weak)) extern size_t __sanitizer_get_allocated_size(const volatile void *pointer);

static void count_allocated(const volatile void *pointer, size_t bytes) {
    if (!pointer)
        return;
    int64_t now = atomic_fetch_add(&live, (int64_t)bytes) + (int64_t)bytes;
    int64_t before = atomic_load(&most);
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
        ;
}

static void count_freed(const volatile void *pointer) {
    if (pointer)
        live -= (int64_t)__sanitizer_get_allocated_size(pointer);
}

void fuzz_bound_begin(void) {
    static bool hooked;
    if (!hooked && __sanitizer_install_malloc_and_free_hooks && __sanitizer_get_allocated_size)
        __sanitizer_install_malloc_and_free_hooks(count_allocated, count_freed);
    hooked = true;
    asked = live = most = 0;
    nd__alloc_should_fail = count_asked;
}

void fuzz_bound_end(size_t size, uint64_t borne_out) {
    nd__alloc_should_fail = NULL;
    uint64_t bound = 64 * (uint64_t)size + (1 << 20) + 2 * borne_out + fuzz_bound_more;
    int64_t taken = asked > most ? asked : most;
    if (taken > (int64_t)bound)
        fuzz_die("%zu bytes took %lld bytes of memory, and may take %llu", size, (long long)taken,
                 (unsigned long long)bound);
}

static void *load_within_bound(const char *path, size_t size, void *(*load)(const char *path)) {
    uint64_t before = nd_manager_get_total_bytes(NULL);
    fuzz_bound_begin();
    void *loaded = load(path);
    fuzz_bound_end(size, nd_manager_get_total_bytes(NULL) - before);
    return loaded;
}

// -------------------------------------------------------------------------------------------------

static ssize_t read_a_little(int descriptor, void *buffer, size_t bytes, off_t position) {
    size_t piece = 1 + (size_t)position % 8;
    return pread(descriptor, buffer, bytes < piece ? bytes : piece, position);
}

/// A refusal says why.
static void check_refusal(const char *path) {
    if (nd_error_get_status() == ND_OK)
        fuzz_die("a file was refused without an error");
    if (!strstr(nd_error_get_message(), path))
        fuzz_die("a refusal does not name the file: %s", nd_error_get_message());
}

void *fuzz_load(const uint8_t *data, size_t size, void *(*load)(const char *path),
                bool (*equal)(const void *a, const void *b)) {
    const char *path = fuzz_file(data, size);
    char refusal[300] = "";
    nd_error_clear();
    void *at_once = load_within_bound(path, size, load);
    if (!at_once) {
        check_refusal(path);
        snprintf(refusal, sizeof refusal, "%s", nd_error_get_message());
        nd_error_clear();
    }
    nd__file_pread = read_a_little;
    void *in_pieces = load_within_bound(path, size, load);
    nd__file_pread = pread;
    if (!at_once != !in_pieces || (at_once && !equal(at_once, in_pieces)))
        fuzz_die("a file means something else when it is read in pieces");
    if (!at_once && strncmp(refusal, nd_error_get_message(), sizeof refusal - 1) != 0)
        fuzz_die("a file is refused for another reason when it is read in pieces: %s; %s", refusal,
                 nd_error_get_message());
    nd_object_release(in_pieces);
    return at_once;
}

bool fuzz_tensors_equal(const nd_tensor *a, const nd_tensor *b) {
    char name_a[256], name_b[256];
    if (nd_get_ndim(a) != nd_get_ndim(b) || nd_get_dtype(a) != nd_get_dtype(b) ||
        memcmp(nd_get_shape(a), nd_get_shape(b), (size_t)nd_get_ndim(a) * sizeof(int64_t)) != 0 ||
        strcmp(nd_get_name(a, name_a, sizeof name_a), nd_get_name(b, name_b, sizeof name_b)) != 0)
        return false;
    size_t bytes = (size_t)nd_get_numel(a) * nd_dtype_get_size(nd_get_dtype(a));
    return bytes == 0 || memcmp(nd_get_data(a), nd_get_data(b), bytes) == 0;
}

bool fuzz_maps_equal(const nd_map *a, const nd_map *b) {
    const char *name_a, *name_b;
    const nd_object *object_a, *object_b;
    size_t at_b = 0;
    if (nd_map_get_size(a) != nd_map_get_size(b))
        return false;
    for (size_t at_a = 0; nd_map_next(a, &at_a, &name_a, &object_a);)
        if (!nd_map_next(b, &at_b, &name_b, &object_b) || strcmp(name_a, name_b) != 0 ||
            !fuzz_tensors_equal((const nd_tensor *)object_a, (const nd_tensor *)object_b))
            return false;
    return true;
}

static char folder[40];

static void remove_folder(void) {
    rmdir(folder);
}

/// In a folder of its own: processes in namespaces of their own have the same numbers.
const char *fuzz_path(void) {
    static char path[64];
    if (!path[0]) {
        snprintf(folder, sizeof folder, "%s/ndarc-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(folder) || atexit(remove_folder) != 0)
            fuzz_die("no folder for a file");
        snprintf(path, sizeof path, "%s/file", folder);
    }
    return path;
}

void fuzz_end_input(void) {
    nd_error_clear();
    if (nd_manager_get_total_objects(NULL) != 0 || nd_manager_get_total_bytes(NULL) != 0)
        fuzz_die("a reader left %llu objects, %llu bytes",
                 (unsigned long long)nd_manager_get_total_objects(NULL),
                 (unsigned long long)nd_manager_get_total_bytes(NULL));
}
