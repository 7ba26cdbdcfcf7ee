// Writing zip archives: entries one after the other, then the directory.
//
// Invariant: what was written so far is a prefix of a valid archive, so that it can go to a device
// or a pipe. The directory is kept in memory until the end. zip64 where a number needs it.
#ifndef ND_LIB_IO_ZIP_WRITE_H
#define ND_LIB_IO_ZIP_WRITE_H
#include "lib/io/file.h"

typedef struct nd_zip_write {
    nd_file_writer writer;
    uint64_t position; ///< bytes written
    uint64_t count;    ///< entries written
    unsigned char *directory;
    size_t directory_bytes;
    size_t directory_room;
} nd_zip_write;

/// A piece of an entry's content.
typedef struct nd_zip_piece {
    const void *data;
    size_t bytes;
} nd_zip_piece;

/// Starts to write. On error nothing is left behind.
nd_status nd__zip_write_create(nd_zip_write *zip, const char *operation, const char *path);
/// Writes an entry with the content of some pieces, one behind the other. Its name is UTF-8 of at
/// most 65535 bytes. After an error only nd__zip_write_abandon makes sense.
nd_status nd__zip_write_entry(nd_zip_write *zip, const char *name, const nd_zip_piece *pieces,
                              size_t count, bool deflated);
/// Writes the directory and puts the archive in the target's place. Closes, also on error.
nd_status nd__zip_write_commit(nd_zip_write *zip);
/// Closes and leaves the target as it was. Idempotent, harmless after a commit.
void nd__zip_write_abandon(nd_zip_write *zip);

/// The largest number that the fields of 32 bits are given, unless a test puts a smaller one here.
extern uint64_t nd__zip_write_limit;
#endif
