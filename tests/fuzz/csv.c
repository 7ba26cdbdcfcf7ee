// The harness of texts of numbers. What is accepted is written and read again, and must be the
// same, NaN apart; an integer is the same number as a float.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <unistd.h>

static nd_csv_options options(void) {
    nd_csv_options options = ND_CSV_OPTIONS_INIT;
    options.missing = true;
    return options;
}

static void *load(const char *path) {
    nd_csv_options with_gaps = options();
    return nd_load_csv(path, ND_F64, &with_gaps);
}

/// The same shape and numbers.
static bool equal(const void *a, const void *b) {
    if (nd_get_size(a, 0) != nd_get_size(b, 0) || nd_get_size(a, 1) != nd_get_size(b, 1))
        return false;
    const double *x = nd_get_data(a), *y = nd_get_data(b);
    for (int64_t i = 0; i < nd_get_numel(a); i++)
        if (x[i] != y[i] && (x[i] == x[i] || y[i] == y[i]))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nd_tensor *x = fuzz_load(data, size, load, equal);
    const char *file = fuzz_file(data, size);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    fuzz_bound_begin();
    nd_auto nd_tensor *integers = nd_load_csv(file, ND_I64, NULL);
    fuzz_bound_end(size, nd_manager_get_total_bytes(NULL) - before);
    nd_error_clear();
    if (integers) {
        nd_auto nd_tensor *floats = nd_cast(integers, ND_F64);
        if (!x || !equal(x, floats))
            fuzz_die("integers are other numbers than floats");
    }
    if (x) {
        const char *path = fuzz_path();
        if (nd_save_csv(path, x, NULL) != ND_OK)
            fuzz_die("what was read cannot be written: %s", nd_error_get_message());
        nd_auto nd_tensor *again = nd_load_csv(path, ND_F64, NULL);
        if (!again || !equal(x, again))
            fuzz_die("numbers changed on their way through a text");
        unlink(path);
    }
    nd_release(x);
    nd_release(nd_steal(&integers));
    fuzz_end_input();
    return 0;
}
