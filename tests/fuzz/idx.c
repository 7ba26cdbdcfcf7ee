// The harness of nd_load_idx. A plain file that is accepted is read once more here, by hand.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <string.h>

static void *load(const char *path) {
    return nd_load_idx(path);
}

static bool equal(const void *a, const void *b) {
    return fuzz_tensors_equal(a, b);
}

static uint64_t big_endian(const uint8_t *bytes, unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

/// A signed number of so many bits as one of 32.
static uint64_t widen(uint64_t number, unsigned bits) {
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return ((number ^ sign) - sign) & UINT32_MAX;
}

/// The element as the format defines it, as the bits of the tensor's dtype.
static uint64_t expected(uint8_t type, const uint8_t *bytes) {
    switch (type) {
    case 0x08:
        return bytes[0];
    case 0x09:
        return widen(bytes[0], 8);
    case 0x0b:
        return widen(big_endian(bytes, 2), 16);
    case 0x0e:
        return big_endian(bytes, 8);
    default:
        return big_endian(bytes, 4);
    }
}

static void check(const nd_tensor *x, const uint8_t *data, size_t size) {
    static const uint8_t sizes[] = {
        [0x08] = 1, [0x09] = 1, [0x0b] = 2, [0x0c] = 4, [0x0d] = 4, [0x0e] = 8};
    uint8_t type = data[2];
    if (type >= sizeof sizes || sizes[type] == 0 || nd_get_ndim(x) != data[3])
        fuzz_die("a file of an unknown type or with other dimensions was accepted");
    const uint8_t *element = data + 4 + 4 * (size_t)data[3];
    for (int axis = 0; axis < data[3]; axis++)
        if (nd_get_size(x, axis) != (int64_t)big_endian(data + 4 + 4 * axis, 4))
            fuzz_die("an axis has another size than the file says");
    if (size != (size_t)(element - data) + (size_t)nd_get_numel(x) * sizes[type])
        fuzz_die("a file with more or fewer bytes than its elements was accepted");
    const char *loaded = nd_get_data(x);
    size_t width = nd_dtype_get_size(nd_get_dtype(x));
    for (int64_t i = 0; i < nd_get_numel(x); i++, element += sizes[type], loaded += width) {
        uint64_t bits = 0;
        memcpy(&bits, loaded, width);
        if (bits != expected(type, element))
            fuzz_die("element %lld is not what the file says", (long long)i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nd_tensor *x = fuzz_load(data, size, load, equal);
    bool gzipped = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    if (x && !gzipped)
        check(x, data, size);
    nd_release(x);
    fuzz_end_input();
    return 0;
}
