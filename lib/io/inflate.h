// A file read as a stream of bytes, plain or gzipped: the caller does not notice which.
//
// Invariant: a read either fills its buffer or fails with a sentence; a gzipped stream's checksum
// has been verified when nd__inflate_expect_end answers ND_OK. Memory used is a fixed buffer,
// whatever the file says.
#ifndef ND_LIB_IO_INFLATE_H
#define ND_LIB_IO_INFLATE_H
#include "lib/io/file.h"

typedef struct nd_stream {
    nd_file file;
    struct nd_inflater *inflater; ///< NULL for a plain file
} nd_stream;

/// Opens a file and looks at its first bytes. On error nothing stays open. ND_ERROR_UNSUPPORTED:
/// gzipped, and the library was built without zlib.
nd_status nd__inflate_open(nd_stream *stream, const char *operation, const char *path);
nd_status nd__inflate_read(nd_stream *stream, void *buffer, size_t bytes);
/// Asks whether the file holds so many more bytes, before `memory` is taken for them. Where that is
/// more than 64 times the file, the bytes are unpacked to nowhere, and the stream then goes back to
/// where it was. Error as of nd__inflate_read().
nd_status nd__inflate_bear_out(nd_stream *stream, uint64_t bytes, uint64_t memory);
/// ND_ERROR_FORMAT when more bytes follow or the checksum is wrong.
nd_status nd__inflate_expect_end(nd_stream *stream);
/// Most bytes that the whole file can unpack to: deflate packs at most 1032 to one.
uint64_t nd__inflate_bytes_max(const nd_stream *stream);
void nd__inflate_close(nd_stream *stream);
#endif
