// The harness of nd_load_npz. What is accepted is written, stored and compressed, and read again,
// and must be the same.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <string.h>
#include <unistd.h>

enum { ARRAYS_MAX = 64 };

static void *load(const char *path) {
    return nd_load_npz(path);
}

static bool equal(const void *a, const void *b) {
    return fuzz_maps_equal(a, b);
}

static void check_round_trip(const nd_map *map, bool compressed) {
    const char *names[ARRAYS_MAX];
    const nd_tensor *tensors[ARRAYS_MAX];
    const nd_object *object;
    size_t count = 0;
    if (nd_map_get_size(map) > ARRAYS_MAX)
        return;
    for (size_t at = 0; nd_map_next(map, &at, &names[count], &object); count++)
        tensors[count] = (const nd_tensor *)object;
    const char *path = fuzz_path();
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = compressed;
    if (nd_save_npz(path, count, names, tensors, &options) != ND_OK) {
        if (nd_error_get_status() == ND_ERROR_UNSUPPORTED)
            return; // without zlib
        fuzz_die("what was read cannot be written: %s", nd_error_get_message());
    }
    nd_auto nd_map *again = nd_load_npz(path);
    if (!again || !fuzz_maps_equal(map, again))
        fuzz_die("an archive changed on its way through a file");
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bound_more =
        1032 * (uint64_t)size; // true entries, unpacked before a lie behind them is seen
    nd_map *map = fuzz_load(data, size, load, equal);
    if (map) {
        check_round_trip(map, false);
        check_round_trip(map, true);
    }
    nd_release(map);
    fuzz_end_input();
    return 0;
}
