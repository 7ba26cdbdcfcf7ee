// Plain and gzipped files behind one interface.
//
// Invariant: nothing is unpacked beyond what the caller asked for and one byte, so a file that
// unpacks to terabytes costs what was asked for. zlib's own memory comes from the library's
// allocator, so that tests can make it fail.
#include "lib/io/inflate.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <string.h>

#ifndef ND_HAVE_ZLIB
#define ND_HAVE_ZLIB 0
#endif

static const unsigned char gzip_magic[2] = {0x1f, 0x8b};

#if ND_HAVE_ZLIB
#include <zlib.h>

typedef struct nd_inflater {
    z_stream zlib;
    uint64_t produced; ///< of all members
    bool ended;        ///< the last member's checksum was verified and no other begins
    unsigned char input[1 << 16];
} nd_inflater;

static nd_status start_inflater(nd_stream *stream);
static nd_status inflate_some(nd_stream *stream);
static nd_status refill(nd_stream *stream);
static nd_status skip(nd_stream *stream, uint64_t bytes);
#else
typedef struct nd_inflater nd_inflater;
#endif

nd_status nd__inflate_open(nd_stream *stream, const char *operation, const char *path) {
    stream->inflater = NULL;
    nd_status status = nd__file_open(&stream->file, operation, path);
    unsigned char magic[2] = {0, 0};
    size_t got = 0;
    if (status == ND_OK)
        status = nd__file_read_some(&stream->file, magic, sizeof(magic), &got);
    stream->file.position = 0;
    if (status == ND_OK && got == sizeof(magic) && memcmp(magic, gzip_magic, sizeof(magic)) == 0) {
#if ND_HAVE_ZLIB
        status = start_inflater(stream);
#else
        status = nd__error(ND_ERROR_UNSUPPORTED,
                           "%s: '%s' is gzipped, and this library was built without zlib",
                           operation, path);
#endif
    }
    if (status != ND_OK)
        nd__inflate_close(stream);
    return status;
}

uint64_t nd__inflate_bytes_max(const nd_stream *stream) {
    uint64_t bytes = stream->file.size;
    if (stream->inflater && __builtin_mul_overflow(bytes, (uint64_t)1032, &bytes))
        return UINT64_MAX;
    return bytes;
}

#if ND_HAVE_ZLIB

nd_status nd__inflate_read(nd_stream *stream, void *buffer, size_t bytes) {
    nd_inflater *inflater = stream->inflater;
    if (!inflater)
        return nd__file_read(&stream->file, buffer, bytes);
    // zlib counts in unsigned int.
    const size_t chunk_max = (size_t)1 << 30;
    unsigned char *out = buffer;
    while (bytes > 0) {
        size_t chunk = bytes < chunk_max ? bytes : chunk_max;
        inflater->zlib.next_out = out;
        inflater->zlib.avail_out = (unsigned)chunk;
        while (inflater->zlib.avail_out > 0) {
            if (inflater->ended)
                return nd__error(ND_ERROR_IO, "%s: '%s' unpacks to fewer bytes than it announces",
                                 stream->file.operation, stream->file.path);
            nd_status status = inflate_some(stream);
            if (status != ND_OK)
                return status;
        }
        out += chunk;
        bytes -= chunk;
        inflater->produced += chunk;
    }
    return ND_OK;
}

nd_status nd__inflate_bear_out(nd_stream *stream, uint64_t bytes, uint64_t memory) {
    nd_inflater *inflater = stream->inflater;
    if (!inflater || memory / 64 <= stream->file.size)
        return ND_OK;
    uint64_t here = inflater->produced;
    nd_status status = skip(stream, bytes);
    if (status != ND_OK)
        return status;
    stream->file.position = 0;
    inflater->zlib.avail_in = 0;
    inflater->produced = 0;
    inflater->ended = false;
    inflateReset(&inflater->zlib);
    return skip(stream, here);
}

static nd_status skip(nd_stream *stream, uint64_t bytes) {
    unsigned char nowhere[1 << 14];
    nd_status status = ND_OK;
    while (bytes > 0 && status == ND_OK) {
        size_t piece = bytes < sizeof(nowhere) ? (size_t)bytes : sizeof(nowhere);
        status = nd__inflate_read(stream, nowhere, piece);
        bytes -= piece;
    }
    return status;
}

nd_status nd__inflate_expect_end(nd_stream *stream) {
    nd_inflater *inflater = stream->inflater;
    bool more = !inflater && stream->file.position < stream->file.size;
    unsigned char extra;
    while (inflater && !inflater->ended && !more) {
        inflater->zlib.next_out = &extra;
        inflater->zlib.avail_out = 1;
        nd_status status = inflate_some(stream);
        if (status != ND_OK)
            return status;
        more = inflater->zlib.avail_out == 0;
    }
    if (more)
        return nd__error(ND_ERROR_FORMAT, "%s: '%s' goes on after the data that it announces",
                         stream->file.operation, stream->file.path);
    return ND_OK;
}

void nd__inflate_close(nd_stream *stream) {
    if (stream->inflater)
        inflateEnd(&stream->inflater->zlib);
    nd__alloc_free(stream->inflater);
    stream->inflater = NULL;
    nd__file_close(&stream->file);
}

static void *zlib_allocate(void *opaque, unsigned count, unsigned size) {
    (void)opaque;
    return nd__pressure_alloc_zeroed((size_t)count * size);
}

static void zlib_free(void *opaque, void *pointer) {
    (void)opaque;
    nd__alloc_free(pointer);
}

static nd_status start_inflater(nd_stream *stream) {
    nd_inflater *inflater = nd__pressure_alloc_zeroed(sizeof(*inflater));
    if (inflater) {
        inflater->zlib.zalloc = zlib_allocate;
        inflater->zlib.zfree = zlib_free;
        // 16: a gzip wrapper and no other.
        if (inflateInit2(&inflater->zlib, 16 + MAX_WBITS) == Z_OK) {
            stream->inflater = inflater;
            return ND_OK;
        }
        nd__alloc_free(inflater);
    }
    return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to unpack '%s'", stream->file.operation,
                     stream->file.path);
}

/// One step of zlib: consumes input or produces output, or notices the end.
static nd_status inflate_some(nd_stream *stream) {
    nd_inflater *inflater = stream->inflater;
    z_stream *zlib = &inflater->zlib;
    nd_status status = zlib->avail_in == 0 ? refill(stream) : ND_OK;
    if (status != ND_OK)
        return status;
    int answer = inflate(zlib, Z_NO_FLUSH);
    if (answer == Z_STREAM_END) {
        // A gzip file may hold several members one after the other.
        if (zlib->avail_in == 0 && stream->file.position < stream->file.size)
            status = refill(stream);
        inflater->ended = status == ND_OK && zlib->avail_in == 0;
        if (status == ND_OK && !inflater->ended)
            answer = inflateReset(zlib);
    }
    if (status != ND_OK || answer == Z_OK || answer == Z_STREAM_END)
        return status;
    if (answer == Z_MEM_ERROR)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to unpack '%s'",
                         stream->file.operation, stream->file.path);
    return nd__error(ND_ERROR_FORMAT, "%s: '%s' is a damaged gzip file: %s", stream->file.operation,
                     stream->file.path, zlib->msg ? zlib->msg : "it cannot be unpacked");
}

/// Reads more of the file; its end is an error, because zlib wanted more.
static nd_status refill(nd_stream *stream) {
    nd_inflater *inflater = stream->inflater;
    size_t got = 0;
    nd_status status =
        nd__file_read_some(&stream->file, inflater->input, sizeof(inflater->input), &got);
    if (status == ND_OK && got == 0)
        status = nd__error(ND_ERROR_IO, "%s: '%s' ends in the middle of its gzipped data",
                           stream->file.operation, stream->file.path);
    inflater->zlib.next_in = inflater->input;
    inflater->zlib.avail_in = (unsigned)got;
    return status;
}

#else

nd_status nd__inflate_bear_out(nd_stream *stream, uint64_t bytes, uint64_t memory) {
    (void)stream, (void)bytes, (void)memory; // a plain file's size has said it
    return ND_OK;
}

nd_status nd__inflate_read(nd_stream *stream, void *buffer, size_t bytes) {
    return nd__file_read(&stream->file, buffer, bytes);
}

nd_status nd__inflate_expect_end(nd_stream *stream) {
    if (stream->file.position == stream->file.size)
        return ND_OK;
    return nd__error(ND_ERROR_FORMAT, "%s: '%s' goes on after the data that it announces",
                     stream->file.operation, stream->file.path);
}

void nd__inflate_close(nd_stream *stream) {
    nd__file_close(&stream->file);
}

#endif
