// Runs a harness without libFuzzer: the corpus and changes of it as ordinary tests, one input for a
// debugger, and the corpus's texts as the bytes that libFuzzer begins with.
//
//   replay FILE...               every file, as tests; ND_FUZZ_CHANGES says how many changes of each run, too
//   replay --run FILE            that input alone, so that what stops it is what a debugger sees
//   replay --show FILE           an input of bytes as text
//   replay --pack FOLDER FILE... texts as bytes, one file in FOLDER each
//
// A file whose name ends in .txt is text, any other is bytes.
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/text.h"
#include "tests/testing.h"
#include <stdlib.h>

enum { CAPACITY = 4096, CHANGES = 40 };

static char **files;
static int file_count;

static uint8_t *read_file(const char *name, size_t *ret_size) {
    FILE *file = fopen(name, "rb");
    size_t size = 0, capacity = 1 << 20;
    uint8_t *data = calloc(1, capacity + 1); // so that a text ends with 0
    if (!file || !data || (size = fread(data, 1, capacity, file)) == capacity) {
        fprintf(stderr, "cannot read %s\n", name);
        exit(2);
    }
    fclose(file);
    *ret_size = size;
    return data;
}

static bool is_text(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".txt") == 0;
}

/// The bytes of an input, to be freed.
static uint8_t *load(const char *name, size_t *ret_size) {
    uint8_t *data = read_file(name, ret_size);
    if (!is_text(name))
        return data;
    uint8_t *bytes = fuzz_read_text(name, (const char *)data, ret_size);
    free(data);
    return bytes;
}

static void run_file(const char *name) {
    size_t size;
    uint8_t *data = load(name, &size);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static void test_corpus(void **state) {
    (void)state;
    assert_true(file_count > 0);
    for (int i = 0; i < file_count; i++)
        run_file(files[i]);
}

/// What stops, stops with the input in a file, to be shown and run alone.
static void keep(const uint8_t *data, size_t size) {
    const char *folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR");
    char name[4096];
    snprintf(name, sizeof name, "%s/last-input", folder ? folder : ".");
    FILE *file = getenv("ND_FUZZ_KEEP") || folder ? fopen(name, "wb") : NULL;
    if (file) {
        fwrite(data, 1, size, file);
        fclose(file);
    }
}

/// Changes of changes: each input is the one before it, changed a little, and begins anew now and
/// then.
static void test_changes_of_the_corpus(void **state) {
    (void)state;
    const char *wanted = getenv("ND_FUZZ_CHANGES");
    const char *first = getenv("ND_FUZZ_SEED");
    uint64_t changes = wanted ? strtoull(wanted, NULL, 10) : CHANGES,
             seed = first ? strtoull(first, NULL, 10) : 1;
    uint8_t changed[CAPACITY];
    for (int i = 0; i < file_count; i++) {
        size_t size, changed_size = 0;
        uint8_t *data = load(files[i], &size);
        for (uint64_t n = 0; n < changes; n++, seed++) {
            if (n % 20 == 0)
                memcpy(changed, data, changed_size = size < CAPACITY ? size : CAPACITY);
            changed_size = fuzz_mutate(changed, changed_size, CAPACITY, seed);
            keep(changed, changed_size);
            LLVMFuzzerTestOneInput(changed, changed_size);
        }
        free(data);
    }
}

static void pack(const char *folder, const char *name) {
    size_t size;
    uint8_t *data = load(name, &size);
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.bin", folder, base);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(2);
    }
    free(data);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--run") == 0) {
        run_file(argv[2]);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--show") == 0) {
        size_t size;
        uint8_t *data = load(argv[2], &size);
        fuzz_write_text(stdout, data, size);
        free(data);
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "--pack") == 0) {
        for (int i = 3; i < argc; i++)
            pack(argv[2], argv[i]);
        return 0;
    }
    files = argv + 1;
    file_count = argc - 1;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_corpus),
        ND_TEST(test_changes_of_the_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
