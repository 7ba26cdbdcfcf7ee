// The harness of PNG files. Each input is read as it is, and once more mended: with the checksums
// that it should have, and with what its IDAT chunks hold as rows that are not compressed. What is
// accepted is the same when it was written and read again.
#include "lib/io/content.h"
#include "tests/fuzz/pictures.h"
#include "tests/fuzz/text.h"

enum { SIGNATURE = 8, NAME = 4, STORED_MAX = 65535 };

typedef struct output {
    uint8_t *bytes;
    size_t size;
} output;

static void put(output *out, const void *data, size_t size) {
    out->bytes = realloc(out->bytes, out->size + size + 1);
    if (!out->bytes)
        fuzz_die("no memory");
    if (size)
        memcpy(out->bytes + out->size, data, size);
    out->size += size;
}

static void put_number(output *out, uint32_t number) {
    put(out, &(uint32_t){__builtin_bswap32(number)}, 4);
}

/// A zlib stream of one stored block.
static void put_rows(output *out, const uint8_t *rows, size_t size) {
    uint32_t a = 1, b = 0;
    size = size < STORED_MAX ? size : STORED_MAX;
    for (size_t i = 0; i < size; i++) {
        a = (a + rows[i]) % 65521;
        b = (b + a) % 65521;
    }
    put(out, "\x78\x01\x01", 3);
    put(out, &(uint16_t){(uint16_t)size}, 2);
    put(out, &(uint16_t){(uint16_t)~size}, 2);
    put(out, rows, size);
    put_number(out, b << 16 | a);
}

static void put_chunk(output *out, const uint8_t *name, const uint8_t *data, size_t size) {
    output content = {NULL, 0};
    if (memcmp(name, "IDAT", NAME) == 0)
        put_rows(&content, data, size);
    else
        put(&content, data, size);
    put_number(out, (uint32_t)content.size);
    put(out, name, NAME);
    put(out, content.bytes, content.size);
    put_number(
        out, nd__content_crc(0, out->bytes + out->size - content.size - NAME, content.size + NAME));
    free(content.bytes);
}

static output mended(const uint8_t *data, size_t size) {
    output out = {NULL, 0};
    put(&out, "\x89PNG\r\n\x1a\n", SIGNATURE);
    size_t at = SIGNATURE;
    while (at + 4 + NAME <= size) {
        size_t left = size - at - 4 - NAME;
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                        (size_t)data[at + 2] << 8 | data[at + 3];
        length = length < left ? length : left;
        put_chunk(&out, data + at + 4, data + at + 4 + NAME, length);
        at += 4 + NAME + length + 4;
    }
    return out;
}

static nd_tensor *encode(const nd_tensor *image) {
    return nd_encode_png(image, NULL);
}

static void check(const uint8_t *data, size_t size) {
    nd_auto nd_tensor *x = fuzz_read_picture(data, size);
    if (!x || nd_get_numel(x) > FUZZ_SAMPLES_MAX)
        return;
    const char *path = fuzz_path();
    if (nd_save_png(path, x, NULL) != ND_OK)
        fuzz_die("what was read cannot be written: %s", nd_error_get_message());
    nd_auto nd_tensor *again = nd_load_image(path, NULL);
    if (!again || !fuzz_tensors_equal(x, again))
        fuzz_die("a picture changed on its way through a file");
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!fuzz_can(encode))
        return 0;
    check(data, size);
    output whole = mended(data, size);
    check(whole.bytes, whole.size);
    free(whole.bytes);
    fuzz_end_input();
    return 0;
}
