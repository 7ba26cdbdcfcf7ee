// What the harnesses of PNG and JPEG share: what must hold for every input.
#ifndef ND_TESTS_FUZZ_PICTURES_H
#define ND_TESTS_FUZZ_PICTURES_H
#include "tests/fuzz/reader.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/// More samples than these are read, but not written again.
enum { FUZZ_SAMPLES_MAX = 1 << 18 };

static inline void *fuzz_load_picture(const char *path) {
    return nd_load_image(path, NULL);
}

static inline bool fuzz_equal_pictures(const void *a, const void *b) {
    return fuzz_tensors_equal(a, b);
}

/// Whether there is the library that writes this, without which nothing can be read either.
static inline bool fuzz_can(nd_tensor *(*encode)(const nd_tensor *image)) {
    nd_auto nd_tensor *pixel = nd_ones(ND_SHAPE(1, 1), ND_U8);
    nd_auto nd_tensor *written = encode(pixel);
    nd_error_clear();
    return written != NULL;
}

/// With each number of channels, turned: the same pixels, in either order.
static inline void fuzz_vary_picture(const uint8_t *data, size_t size, const nd_tensor *x) {
    const int64_t *shape = nd_get_shape(x);
    for (int channels = 1; channels <= 4; channels++) {
        nd_image_options options = ND_IMAGE_OPTIONS_INIT;
        options.channels = channels;
        options.oriented = true;
        nd_auto nd_tensor *y = nd_decode_image(data, size, &options);
        if (!y)
            fuzz_die("a picture cannot be read with %d channels: %s", channels,
                     nd_error_get_message());
        const int64_t *other = nd_get_shape(y);
        bool same = other[0] == shape[0] && other[1] == shape[1];
        bool turned = other[0] == shape[1] && other[1] == shape[0];
        if (other[2] != channels || (!same && !turned))
            fuzz_die("a picture has another shape with %d channels", channels);
    }
}

/// Reads an input from a file, at once and in pieces, and from memory. The picture, or NULL.
static inline nd_tensor *fuzz_read_picture(const uint8_t *data, size_t size) {
    nd_tensor *x = fuzz_load(data, size, fuzz_load_picture, fuzz_equal_pictures);
    nd_status status = nd_error_get_status();
    uint8_t *alone = malloc(size + !size); // so that what is read behind it is seen
    if (size)
        memcpy(alone, data, size);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    fuzz_bound_begin();
    nd_auto nd_tensor *decoded = nd_decode_image(alone, size, NULL);
    fuzz_bound_end(size, nd_manager_get_total_bytes(NULL) - before);
    if (!x != !decoded || (x && !fuzz_tensors_equal(x, decoded)))
        fuzz_die("a picture is another one when it is read from memory");
    if (!x && nd_error_get_status() != status)
        fuzz_die("a picture is refused for another reason when it is read from memory: %s",
                 nd_error_get_message());
    if (x && nd_get_numel(x) <= FUZZ_SAMPLES_MAX)
        fuzz_vary_picture(alone, size, x);
    free(alone);
    nd_error_clear();
    return x;
}
#endif
