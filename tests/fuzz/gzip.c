// The harness of streams, plain and gzipped, beside zlib's own reading of the whole file.
#include "lib/io/inflate.h"
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <stdlib.h>
#include <string.h>
#if ND_HAVE_ZLIB
#include <zlib.h>
#endif

enum { PLAIN_MAX = 1 << 16 };

static uint8_t plain[PLAIN_MAX];

#if ND_HAVE_ZLIB
/// Members one after the other. The number of bytes, or -1 when zlib refuses or there are too many.
static int64_t unpack(const uint8_t *data, size_t size) {
    z_stream zlib = {.next_in = (Bytef *)(uintptr_t)data,
                     .avail_in = (unsigned)size,
                     .next_out = plain,
                     .avail_out = PLAIN_MAX};
    if (inflateInit2(&zlib, 16 + MAX_WBITS) != Z_OK)
        fuzz_die("no zlib");
    int answer;
    do {
        answer = inflate(&zlib, Z_NO_FLUSH);
        if (answer == Z_STREAM_END && zlib.avail_in > 0)
            answer = inflateReset(&zlib);
    } while (answer == Z_OK && zlib.avail_out > 0);
    inflateEnd(&zlib);
    return answer == Z_STREAM_END ? (int64_t)(PLAIN_MAX - zlib.avail_out) : -1;
}
#endif

/// What the file says, or -1.
static int64_t meaning(const uint8_t *data, size_t size) {
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
#if ND_HAVE_ZLIB
        return unpack(data, size);
#else
        return -1;
#endif
    }
    if (size > PLAIN_MAX)
        return -1;
    memcpy(plain, data, size);
    return (int64_t)size;
}

/// Reads `bytes` in uneven pieces and looks for the end.
static nd_status read_all(const char *path, uint8_t *buffer, size_t bytes) {
    nd_stream stream;
    nd_status status = nd__inflate_open(&stream, "fuzz", path);
    if (status != ND_OK)
        return status;
    for (size_t at = 0, piece = 1; status == ND_OK && at < bytes;
         at += piece, piece = piece * 3 % 101 + 1) {
        if (piece > bytes - at)
            piece = bytes - at;
        status = nd__inflate_read(&stream, buffer + at, piece);
    }
    if (status == ND_OK)
        status = nd__inflate_expect_end(&stream);
    if (bytes > nd__inflate_bytes_max(&stream) && status == ND_OK)
        fuzz_die("a file unpacks to more than is possible");
    nd__inflate_close(&stream);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t buffer[PLAIN_MAX + 1];
    int64_t bytes = meaning(data, size);
    const char *path = fuzz_file(data, size);
    nd_error_clear();
    if (bytes >= 0) {
        fuzz_bound_begin();
        nd_status status = read_all(path, buffer, (size_t)bytes);
        fuzz_bound_end(size, 0);
        if (status != ND_OK)
            fuzz_die("a whole file is refused: %s", nd_error_get_message());
        if (memcmp(buffer, plain, (size_t)bytes) != 0)
            fuzz_die("a file has another content than zlib finds");
        if (read_all(path, buffer, (size_t)bytes + 1) == ND_OK)
            fuzz_die("a file has more bytes than it has");
        if (bytes > 0 && read_all(path, buffer, (size_t)bytes - 1) == ND_OK)
            fuzz_die("the end of a file is seen before its last byte");
    } else {
        fuzz_bound_begin();
        read_all(path, buffer, size % PLAIN_MAX);
        fuzz_bound_end(size, 0);
    }
    fuzz_end_input();
    return 0;
}
