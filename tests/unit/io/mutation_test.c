// Files with a few bytes changed at random, thousands of them: each loads or is refused with a
// sentence, and nothing is left either way. The sanitizers watch.
#include "tests/unit/io/files.h"

#include <sys/mman.h>

enum { MUTANTS = 5000 };

static uint64_t random_state;

/// xorshift64*; the same mutants in every run.
static uint64_t next_random(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717);
}

/// Changes up to four bytes: a random value, a bit, or a character that means something to the
/// formats.
static size_t mutate(unsigned char *content, size_t bytes) {
    static const char meaningful[] = "{}[]\":,0129-.\\u";
    for (uint64_t changes = 1 + next_random() % 4; changes > 0; changes--) {
        // Most of the bytes are data; headers are where the trouble is.
        size_t where = next_random() % (next_random() % 4 ? (bytes < 160 ? bytes : 160) : bytes);
        switch (next_random() % 4) {
        case 0:
            content[where] = (unsigned char)next_random();
            break;
        case 1:
            content[where] ^= (unsigned char)(1u << next_random() % 8);
            break;
        case 2:
            content[where] = (unsigned char)meaningful[next_random() % (sizeof(meaningful) - 1)];
            break;
        default:
            memmove(content + where, content + where + 1, bytes - where - 1);
            bytes--;
        }
    }
    return bytes;
}

/// Reads every byte of a tensor, so that a sanitizer sees memory that is not there.
static void touch(const nd_tensor *x) {
    const unsigned char *byte = nd_get_data(x);
    size_t bytes = (size_t)nd_get_numel(x) * nd_dtype_get_size(nd_get_dtype(x));
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += byte[i];
    assert_true(sum <= 255 * bytes);
}

static void assert_refused_with_a_sentence(const char *path) {
    assert_int_not_equal(nd_error_get_status(), ND_OK);
    assert_non_null(strstr(nd_error_get_message(), path));
    nd_error_clear();
}

static void run_mutants(const char *original, void (*load)(const char *path), uint64_t seed) {
    size_t bytes;
    char *content = nd_test_read(original, &bytes);
    unsigned char *mutant = malloc(bytes);
    assert_non_null(mutant);
    random_state = seed;
    // A file in memory: thousands of them on a disk would take half a minute.
    int file = memfd_create("mutant", MFD_CLOEXEC);
    assert_true(file >= 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    for (int i = 0; i < MUTANTS; i++) {
        memcpy(mutant, content, bytes);
        size_t mutant_bytes = mutate(mutant, bytes);
        assert_int_equal(ftruncate(file, 0), 0);
        assert_int_equal(pwrite(file, mutant, mutant_bytes, 0), mutant_bytes);
        load(path);
    }
    close(file);
    free(mutant);
    free(content);
}

static void load_safetensors(const char *path) {
    nd_auto nd_list *list = nd_load_safetensors(path);
    if (!list) {
        assert_refused_with_a_sentence(path);
        return;
    }
    for (size_t i = 0; i < nd_list_get_size(list); i++)
        touch((const nd_tensor *)nd_list_get(list, i));
}

static void load_idx(const char *path) {
    nd_auto nd_tensor *x = nd_load_idx(path);
    if (x)
        touch(x);
    else
        assert_refused_with_a_sentence(path);
}

static void test_F25_mutants_of_a_safetensors_file(void **state) {
    (void)state;
    const char *path = nd_test_path("original.safetensors");
    nd_auto nd_tensor *x = nd_arange(0, 12, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(x, ND_SHAPE(3, 4));
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(5), ND_BOOL);
    const char *names[] = {"matrix", "mask \xc3\xa9"};
    const nd_tensor *tensors[] = {matrix, mask};
    assert_ok(nd_save_safetensors(path, 2, names, tensors));
    run_mutants(path, load_safetensors, 1);
}

static void test_F25_mutants_of_an_idx_file(void **state) {
    (void)state;
    static const unsigned char idx[] = {0, 0, 0x0b, 2, 0, 0, 0, 2, 0, 0,  0,  3,
                                        1, 2, 3,    4, 5, 6, 7, 8, 9, 10, 11, 12};
    const char *path = nd_test_path("original.idx");
    nd_test_write(path, idx, sizeof(idx));
    run_mutants(path, load_idx, 2);
}

static void test_F25_mutants_of_a_gzipped_file(void **state) {
    (void)state;
    run_mutants("data/mnist/t10k-labels-idx1-ubyte.gz", load_idx, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F25_mutants_of_a_safetensors_file),
        ND_TEST(test_F25_mutants_of_an_idx_file),
        ND_TEST(test_F25_mutants_of_a_gzipped_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
