// The bytes of a file, or of an entry of an archive, as who reads a format sees them: in order, and
// of a known number.
//
// Invariant: a read either fills its buffer or fails with a sentence that names the file and the
// entry. Nothing of an entry is believed once nd__content_expect_end has refused its checksum.
#ifndef ND_LIB_IO_CONTENT_H
#define ND_LIB_IO_CONTENT_H
#include "lib/io/file.h"

typedef struct nd_content {
    nd_file *file;
    const char *entry; ///< name of the entry; NULL: the whole file
    uint64_t begin;    ///< where its bytes lie in the file
    uint64_t packed;   ///< how many they are there
    uint64_t bytes;    ///< and unpacked
    uint64_t position; ///< in the unpacked ones
    uint32_t crc;      ///< of the unpacked ones so far
    uint32_t expected; ///< of all of them
    bool deflated;
    struct nd_content_inflater *inflater; ///< owned; of a deflated entry that was begun
} nd_content;

/// A whole file.
nd_content nd__content_of_file(nd_file *file);
/// Goes to the beginning. Errors: no memory, ND_ERROR_UNSUPPORTED (deflated, and built without
/// zlib).
nd_status nd__content_begin(nd_content *content);
/// The next bytes; ND_ERROR_IO when there are fewer.
nd_status nd__content_read(nd_content *content, void *buffer, size_t bytes);
/// ND_ERROR_FORMAT when more bytes follow, or the checksum is another.
nd_status nd__content_expect_end(nd_content *content);
/// Whether an entry really unpacks to what its archive says, where that is more than 64 times what
/// it takes in the file: unpacks it to nowhere, so that no memory is taken on the word of a bomb.
nd_status nd__content_bear_out(nd_content *content);
/// Idempotent.
void nd__content_close(nd_content *content);

/// "'file'" or "'file': 'entry'", for sentences; returns the buffer.
#define ND__CONTENT_TEXT 512
const char *nd__content_text(const nd_content *content, char *buffer);

/// CRC-32 of ISO 3309, as in zip: of `bytes` more behind those that gave `crc`, 0 at first.
uint32_t nd__content_crc(uint32_t crc, const void *data, size_t bytes);
#endif
