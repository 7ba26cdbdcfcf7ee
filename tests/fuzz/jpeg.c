// The harness of JPEG files. What is accepted can be written, in either form, and read again with
// the same shape.
#include "tests/fuzz/pictures.h"
#include "tests/fuzz/text.h"

static nd_tensor *encode(const nd_tensor *image) {
    return nd_encode_jpeg(image, NULL);
}

static void write_again(const nd_tensor *x, bool progressive) {
    nd_jpeg_options options = ND_JPEG_OPTIONS_INIT;
    options.progressive = progressive;
    options.quality = progressive ? 30 : 95;
    nd_auto nd_tensor *written = nd_encode_jpeg(x, &options);
    if (!written)
        fuzz_die("what was read cannot be written: %s", nd_error_get_message());
    nd_auto nd_tensor *again =
        nd_decode_image(nd_get_data(written), (size_t)nd_get_numel(written), NULL);
    if (!again || memcmp(nd_get_shape(again), nd_get_shape(x), 3 * sizeof(int64_t)) != 0)
        fuzz_die("a picture that was written cannot be read: %s", nd_error_get_message());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!fuzz_can(encode))
        return 0;
    fuzz_bound_more = 16 << 20; // a few rows of blocks, as wide as the header says
    nd_auto nd_tensor *x = fuzz_read_picture(data, size);
    bool colours = x && nd_get_dtype(x) == ND_U8 && nd_get_shape(x)[2] % 2 == 1;
    if (colours && nd_get_numel(x) <= FUZZ_SAMPLES_MAX) {
        write_again(x, false);
        write_again(x, true);
    }
    nd_release(nd_steal(&x));
    fuzz_end_input();
    return 0;
}
