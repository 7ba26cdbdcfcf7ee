// Contents of files and of archives' entries, stored or deflated.
//
// Invariant: nothing is unpacked beyond what the caller asked for and one byte, and no more is read
// from the file than the entry has.
#include "lib/io/content.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <stdio.h>
#include <string.h>

#ifndef ND_HAVE_ZLIB
#define ND_HAVE_ZLIB 0
#endif
#if ND_HAVE_ZLIB
#include <zlib.h>
#endif

/// What an entry may unpack to on its archive's word: so many times what it takes in the file.
#define BELIEVED_RATIO 64

#if ND_HAVE_ZLIB
typedef struct nd_content_inflater {
    z_stream zlib;
    uint64_t taken; ///< packed bytes read from the file
    bool ended;     ///< the packed bytes say that they are all
    unsigned char input[1 << 15];
} nd_content_inflater;

static nd_status start_inflater(nd_content *content);
static nd_status inflate_piece(nd_content *content, unsigned char *buffer, size_t bytes,
                               size_t *ret_bytes);
#endif
static nd_status read_packed(nd_content *content, void *buffer, size_t bytes);

nd_content nd__content_of_file(nd_file *file) {
    return (nd_content){.file = file, .packed = file->size, .bytes = file->size};
}

nd_status nd__content_begin(nd_content *content) {
    content->position = 0;
    content->crc = 0;
    if (!content->deflated)
        return ND_OK;
#if ND_HAVE_ZLIB
    return start_inflater(content);
#else
    char text[ND__CONTENT_TEXT];
    return nd__error(ND_ERROR_UNSUPPORTED,
                     "%s: %s is compressed, and this library was built without zlib",
                     content->file->operation, nd__content_text(content, text));
#endif
}

nd_status nd__content_read(nd_content *content, void *buffer, size_t bytes) {
    char text[ND__CONTENT_TEXT];
    if (bytes > content->bytes - content->position)
        return nd__error(ND_ERROR_IO, "%s: %s ends after %llu bytes, %llu more were expected",
                         content->file->operation, nd__content_text(content, text),
                         (unsigned long long)content->bytes,
                         (unsigned long long)(bytes - (content->bytes - content->position)));
    nd_status status = read_packed(content, buffer, bytes);
    if (status != ND_OK)
        return status;
    content->position += bytes;
    if (content->entry)
        content->crc = nd__content_crc(content->crc, buffer, bytes);
    return ND_OK;
}

nd_status nd__content_expect_end(nd_content *content) {
    char text[ND__CONTENT_TEXT];
    bool more = content->position < content->bytes;
#if ND_HAVE_ZLIB
    unsigned char extra;
    size_t got = 0;
    if (!more && content->deflated) {
        nd_status status = inflate_piece(content, &extra, 1, &got);
        if (status != ND_OK)
            return status;
        more = got > 0;
    }
#endif
    if (more)
        return nd__error(ND_ERROR_FORMAT, "%s: %s goes on after the data that it announces",
                         content->file->operation, nd__content_text(content, text));
    if (content->entry && content->crc != content->expected)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: %s is damaged: its checksum is %08x, its archive says %08x",
                         content->file->operation, nd__content_text(content, text), content->crc,
                         content->expected);
    return ND_OK;
}

nd_status nd__content_bear_out(nd_content *content) {
    if (!content->deflated || content->bytes / BELIEVED_RATIO < content->packed)
        return nd__content_begin(content);
    unsigned char nowhere[1 << 14];
    nd_status status = nd__content_begin(content);
    while (status == ND_OK && content->position < content->bytes) {
        uint64_t left = content->bytes - content->position;
        status = nd__content_read(content, nowhere,
                                  left < sizeof nowhere ? (size_t)left : sizeof nowhere);
    }
    if (status == ND_OK)
        status = nd__content_expect_end(content);
    return status == ND_OK ? nd__content_begin(content) : status;
}

void nd__content_close(nd_content *content) {
#if ND_HAVE_ZLIB
    if (content->inflater)
        inflateEnd(&content->inflater->zlib);
    nd__alloc_free(content->inflater);
#endif
    content->inflater = NULL;
}

const char *nd__content_text(const nd_content *content, char *buffer) {
    int length = snprintf(buffer, ND__CONTENT_TEXT, "'%.300s'", content->file->path);
    if (content->entry)
        snprintf(buffer + length, ND__CONTENT_TEXT - (size_t)length, ": '%.100s'", content->entry);
    return buffer;
}

#if ND_HAVE_ZLIB

uint32_t nd__content_crc(uint32_t crc, const void *data, size_t bytes) {
    return (uint32_t)crc32_z(crc, data, bytes);
}

static nd_status read_packed(nd_content *content, void *buffer, size_t bytes) {
    if (!content->deflated) {
        content->file->position = content->begin + content->position;
        return nd__file_read(content->file, buffer, bytes);
    }
    // zlib counts in unsigned int.
    const size_t piece_max = (size_t)1 << 30;
    unsigned char *out = buffer;
    while (bytes > 0) {
        size_t got = 0;
        nd_status status = inflate_piece(content, out, bytes < piece_max ? bytes : piece_max, &got);
        if (status != ND_OK)
            return status;
        char text[ND__CONTENT_TEXT];
        if (got == 0)
            return nd__error(ND_ERROR_FORMAT, "%s: %s unpacks to fewer bytes than its archive says",
                             content->file->operation, nd__content_text(content, text));
        out += got;
        bytes -= got;
    }
    return ND_OK;
}

static void *zlib_allocate(void *opaque, unsigned count, unsigned size) {
    (void)opaque;
    return nd__pressure_alloc_zeroed((size_t)count * size);
}

static void zlib_free(void *opaque, void *pointer) {
    (void)opaque;
    nd__alloc_free(pointer);
}

static nd_status start_inflater(nd_content *content) {
    nd_content_inflater *inflater = content->inflater;
    if (inflater) {
        inflateReset(&inflater->zlib);
        inflater->zlib.avail_in = 0;
        inflater->taken = 0;
        inflater->ended = false;
        return ND_OK;
    }
    inflater = nd__pressure_alloc_zeroed(sizeof *inflater);
    if (inflater) {
        inflater->zlib.zalloc = zlib_allocate;
        inflater->zlib.zfree = zlib_free;
        // Below zero: deflate without a wrapper.
        if (inflateInit2(&inflater->zlib, -MAX_WBITS) == Z_OK) {
            content->inflater = inflater;
            return ND_OK;
        }
        nd__alloc_free(inflater);
    }
    char text[ND__CONTENT_TEXT];
    return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to unpack %s", content->file->operation,
                     nd__content_text(content, text));
}

/// Reads more of the packed bytes; that there are none is an error, because zlib wanted more.
static nd_status refill(nd_content *content) {
    nd_content_inflater *inflater = content->inflater;
    uint64_t left = content->packed - inflater->taken;
    size_t bytes = left < sizeof inflater->input ? (size_t)left : sizeof inflater->input;
    char text[ND__CONTENT_TEXT];
    if (bytes == 0)
        return nd__error(ND_ERROR_FORMAT, "%s: %s ends in the middle of its compressed data",
                         content->file->operation, nd__content_text(content, text));
    content->file->position = content->begin + inflater->taken;
    nd_status status = nd__file_read(content->file, inflater->input, bytes);
    inflater->taken += bytes;
    inflater->zlib.next_in = inflater->input;
    inflater->zlib.avail_in = status == ND_OK ? (unsigned)bytes : 0;
    return status;
}

/// Unpacks up to `bytes`; fewer only at the end of the packed bytes.
static nd_status inflate_piece(nd_content *content, unsigned char *buffer, size_t bytes,
                               size_t *ret_bytes) {
    nd_content_inflater *inflater = content->inflater;
    z_stream *zlib = &inflater->zlib;
    zlib->next_out = buffer;
    zlib->avail_out = (unsigned)bytes;
    while (zlib->avail_out > 0 && !inflater->ended) {
        nd_status status = zlib->avail_in == 0 ? refill(content) : ND_OK;
        if (status != ND_OK)
            return status;
        int answer = inflate(zlib, Z_NO_FLUSH);
        inflater->ended = answer == Z_STREAM_END;
        char text[ND__CONTENT_TEXT];
        if (answer == Z_MEM_ERROR)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to unpack %s",
                             content->file->operation, nd__content_text(content, text));
        if (answer != Z_OK && answer != Z_STREAM_END)
            return nd__error(ND_ERROR_FORMAT, "%s: the compressed data of %s are damaged: %s",
                             content->file->operation, nd__content_text(content, text),
                             zlib->msg ? zlib->msg : "they cannot be unpacked");
    }
    *ret_bytes = bytes - zlib->avail_out;
    return ND_OK;
}

#else

uint32_t nd__content_crc(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static nd_status read_packed(nd_content *content, void *buffer, size_t bytes) {
    content->file->position = content->begin + content->position;
    return nd__file_read(content->file, buffer, bytes);
}

#endif
