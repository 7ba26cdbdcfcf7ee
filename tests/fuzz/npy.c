// The harness of nd_load_npy. What is accepted is the same when it is mapped, and when it was
// written and read again.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <unistd.h>

static void *load(const char *path) {
    return nd_load_npy(path, NULL);
}

static bool equal(const void *a, const void *b) {
    return fuzz_tensors_equal(a, b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nd_auto nd_tensor *x = fuzz_load(data, size, load, equal);
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    const char *file = fuzz_file(data, size);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    fuzz_bound_begin();
    nd_auto nd_tensor *mapped = nd_load_npy(file, &options);
    fuzz_bound_end(size, nd_manager_get_total_bytes(NULL) - before);
    if (!x != !mapped || (x && !fuzz_tensors_equal(x, mapped)))
        fuzz_die("a file means something else when it is mapped");
    nd_error_clear();
    if (x) {
        const char *path = fuzz_path();
        if (nd_save_npy(path, x) != ND_OK)
            fuzz_die("what was read cannot be written: %s", nd_error_get_message());
        nd_auto nd_tensor *again = nd_load_npy(path, NULL);
        if (!again || !fuzz_tensors_equal(x, again))
            fuzz_die("an array changed on its way through a file");
        unlink(path);
    }
    nd_release(nd_steal(&x));
    nd_release(nd_steal(&mapped));
    fuzz_end_input();
    return 0;
}
