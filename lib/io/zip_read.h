// The directory of a zip archive (APPNOTE.TXT 6.3): which entries it has, and where their bytes are.
//
// Invariant: a directory that nd__zip_read_open accepted is consistent in itself and with the file:
// entries stored or deflated, without encryption, their headers and bytes in the file, before the
// directory, not overlapping each other, their names what their own headers say. Names are names:
// nothing here ever opens a file by one.
#ifndef ND_LIB_IO_ZIP_READ_H
#define ND_LIB_IO_ZIP_READ_H
#include "lib/io/content.h"

typedef struct nd_zip_entry {
    char *name;      ///< lives in the directory's text: UTF-8, terminated
    uint64_t header; ///< where its own header begins
    uint64_t begin;  ///< where its bytes begin
    uint64_t packed;
    uint64_t bytes;
    uint32_t crc;
    bool deflated;
} nd_zip_entry;

typedef struct nd_zip_read {
    nd_file *file;         ///< borrowed
    unsigned char *text;   ///< the directory as it is in the file, names terminated; owned
    nd_zip_entry *entries; ///< in the order of the directory; owned
    size_t count;
    uint64_t directory; ///< where it begins in the file
    uint64_t directory_bytes;
} nd_zip_read;

/// Reads the directory of an open file. On error nothing is left.
nd_status nd__zip_read_open(nd_zip_read *zip, nd_file *file);
/// The bytes of an entry.
nd_content nd__zip_read_content(const nd_zip_read *zip, const nd_zip_entry *entry);
void nd__zip_read_close(nd_zip_read *zip);
#endif
