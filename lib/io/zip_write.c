// Writing zip archives.
//
// Invariant: a stored entry's header is complete before its content; that of a deflated one is
// followed by a data descriptor, because its size is not known before.
#include "lib/io/zip_write.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/content.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <string.h>

#ifndef ND_HAVE_ZLIB
#define ND_HAVE_ZLIB 0
#endif
#if ND_HAVE_ZLIB
#include <zlib.h>
#endif

enum {
    VERSION = 20,
    VERSION_ZIP64 = 45,
    MADE_BY_UNIX = 3 << 8,
    FLAG_DESCRIPTOR = 1 << 3,
    FLAG_UTF8 = 1 << 11,
    DATE_1980_01_01 = 0x21,
    METHOD_DEFLATED = 8,
    MODE = 0600
};

uint64_t nd__zip_write_limit = UINT32_MAX - 1;

// An entry on its way.
typedef struct nd_zip_record {
    const char *name;
    uint64_t header; ///< where it begins
    uint64_t packed, bytes;
    uint32_t crc;
    unsigned flags;
    bool deflated;
    bool zip64; ///< its own header has sizes of 64 bits
} nd_zip_record;

// Fields as they are put one behind the other.
typedef struct nd_zip_fields {
    unsigned char data[96];
    size_t size;
} nd_zip_fields;

static nd_status write_local(nd_zip_write *zip, const nd_zip_record *record);
static nd_status write_stored(nd_zip_write *zip, const nd_zip_piece *pieces, size_t count);
static nd_status write_deflated(nd_zip_write *zip, nd_zip_record *record,
                                const nd_zip_piece *pieces, size_t count);
static nd_status add_to_directory(nd_zip_write *zip, const nd_zip_record *record);
static nd_status write_end(nd_zip_write *zip);

nd_status nd__zip_write_create(nd_zip_write *zip, const char *operation, const char *path) {
    *zip = (nd_zip_write){.position = 0};
    return nd__file_create(&zip->writer, operation, path);
}

nd_status nd__zip_write_entry(nd_zip_write *zip, const char *name, const nd_zip_piece *pieces,
                              size_t count, bool deflated) {
    nd_zip_record record = {.name = name, .header = zip->position, .deflated = deflated};
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c >= 0x80)
            record.flags = FLAG_UTF8;
    for (size_t i = 0; i < count; i++) {
        record.bytes += pieces[i].bytes;
        record.crc = nd__content_crc(record.crc, pieces[i].data, pieces[i].bytes);
    }
    record.packed = record.bytes;
    record.flags |= deflated ? FLAG_DESCRIPTOR : 0;
    // Bytes that cannot be compressed become a thousandth more.
    record.zip64 = record.bytes + record.bytes / 512 + 1024 > nd__zip_write_limit;
    nd_status status = write_local(zip, &record);
    if (status == ND_OK)
        status = deflated ? write_deflated(zip, &record, pieces, count)
                          : write_stored(zip, pieces, count);
    return status == ND_OK ? add_to_directory(zip, &record) : status;
}

nd_status nd__zip_write_commit(nd_zip_write *zip) {
    nd_status status = write_end(zip);
    if (status == ND_OK)
        status = nd__file_commit(&zip->writer);
    nd__zip_write_abandon(zip);
    return status;
}

void nd__zip_write_abandon(nd_zip_write *zip) {
    nd__file_abandon(&zip->writer);
    nd__alloc_free(zip->directory);
    zip->directory = NULL;
}

static nd_status put(nd_zip_write *zip, const void *data, size_t bytes) {
    zip->position += bytes;
    return nd__file_write(&zip->writer, data, bytes);
}

/// Adds the low bytes of a number.
static void add(nd_zip_fields *fields, uint64_t value, size_t bytes) {
    memcpy(fields->data + fields->size, &value, bytes);
    fields->size += bytes;
}

/// What a field of 32 bits says: the number, or that it stands elsewhere.
static uint64_t narrow(uint64_t value) {
    return value > nd__zip_write_limit ? UINT32_MAX : value;
}

/// What the two headers of an entry have in common, from the flags to the length of the name.
static void add_common(nd_zip_fields *fields, const nd_zip_record *record, uint64_t packed,
                       uint64_t bytes, uint32_t crc) {
    add(fields, record->flags, 2);
    add(fields, record->deflated ? METHOD_DEFLATED : 0, 2);
    add(fields, 0, 2);
    add(fields, DATE_1980_01_01, 2);
    add(fields, crc, 4);
    add(fields, packed, 4);
    add(fields, bytes, 4);
    add(fields, strlen(record->name), 2);
}

static nd_status write_local(nd_zip_write *zip, const nd_zip_record *record) {
    nd_zip_fields fields = {.size = 0}, extra = {.size = 0};
    // A deflated entry's numbers stand in its descriptor.
    uint64_t packed = record->deflated ? 0 : record->packed;
    uint64_t bytes = record->deflated ? 0 : record->bytes;
    if (record->zip64) {
        add(&extra, 1, 2);
        add(&extra, 16, 2);
        add(&extra, bytes, 8);
        add(&extra, packed, 8);
    }
    add(&fields, 0x04034b50u, 4);
    add(&fields, record->zip64 ? VERSION_ZIP64 : VERSION, 2);
    add_common(&fields, record, record->zip64 ? UINT32_MAX : packed,
               record->zip64 ? UINT32_MAX : bytes, record->deflated ? 0 : record->crc);
    add(&fields, extra.size, 2);
    nd_status status = put(zip, fields.data, fields.size);
    if (status == ND_OK)
        status = put(zip, record->name, strlen(record->name));
    return status == ND_OK ? put(zip, extra.data, extra.size) : status;
}

static nd_status write_stored(nd_zip_write *zip, const nd_zip_piece *pieces, size_t count) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = put(zip, pieces[i].data, pieces[i].bytes);
    return status;
}

#if ND_HAVE_ZLIB

static void *zlib_allocate(void *opaque, unsigned count, unsigned size) {
    (void)opaque;
    return nd__pressure_alloc_zeroed((size_t)count * size);
}

static void zlib_free(void *opaque, void *pointer) {
    (void)opaque;
    nd__alloc_free(pointer);
}

/// Hands zlib some bytes, or with `flush` Z_FINISH asks for the rest, and writes what it makes.
static nd_status deflate_piece(nd_zip_write *zip, z_stream *zlib, const void *data, size_t bytes,
                               int flush) {
    unsigned char packed[1 << 14];
    zlib->next_in = (unsigned char *)(uintptr_t)data;
    zlib->avail_in = (unsigned)bytes;
    do {
        zlib->next_out = packed;
        zlib->avail_out = sizeof packed;
        deflate(zlib, flush);
        nd_status status = put(zip, packed, sizeof packed - zlib->avail_out);
        if (status != ND_OK)
            return status;
    } while (zlib->avail_out == 0);
    return ND_OK;
}

static nd_status write_deflated(nd_zip_write *zip, nd_zip_record *record,
                                const nd_zip_piece *pieces, size_t count) {
    // zlib counts in unsigned int.
    const size_t chunk_max = (size_t)1 << 30;
    z_stream zlib = {.zalloc = zlib_allocate, .zfree = zlib_free};
    if (deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to compress '%.100s'",
                         zip->writer.operation, record->name);
    uint64_t begin = zip->position;
    nd_status status = ND_OK;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0, chunk; status == ND_OK && at < pieces[i].bytes; at += chunk) {
            chunk = pieces[i].bytes - at < chunk_max ? pieces[i].bytes - at : chunk_max;
            status =
                deflate_piece(zip, &zlib, (const char *)pieces[i].data + at, chunk, Z_NO_FLUSH);
        }
    if (status == ND_OK)
        status = deflate_piece(zip, &zlib, "", 0, Z_FINISH);
    deflateEnd(&zlib);
    if (status != ND_OK)
        return status;
    record->packed = zip->position - begin;
    nd_zip_fields descriptor = {.size = 0};
    add(&descriptor, 0x08074b50u, 4);
    add(&descriptor, record->crc, 4);
    add(&descriptor, record->packed, record->zip64 ? 8 : 4);
    add(&descriptor, record->bytes, record->zip64 ? 8 : 4);
    return put(zip, descriptor.data, descriptor.size);
}

#else

static nd_status write_deflated(nd_zip_write *zip, nd_zip_record *record,
                                const nd_zip_piece *pieces, size_t count) {
    (void)pieces;
    (void)count;
    return nd__error(ND_ERROR_UNSUPPORTED,
                     "%s: '%.100s' cannot be compressed: this library was built without zlib",
                     zip->writer.operation, record->name);
}

#endif

static nd_status add_to_directory(nd_zip_write *zip, const nd_zip_record *record) {
    nd_zip_fields fields = {.size = 0}, extra = {.size = 0};
    const uint64_t wide[] = {record->bytes, record->packed, record->header};
    uint64_t narrowed[3];
    for (int i = 0; i < 3; i++) {
        narrowed[i] = narrow(wide[i]);
        if (narrowed[i] != wide[i] && extra.size == 0)
            add(&extra, 1, 4); // the length follows
        if (narrowed[i] != wide[i])
            add(&extra, wide[i], 8);
    }
    if (extra.size)
        extra.data[2] = (unsigned char)(extra.size - 4);
    add(&fields, 0x02014b50u, 4);
    add(&fields, MADE_BY_UNIX | VERSION_ZIP64, 2);
    add(&fields, record->zip64 || extra.size ? VERSION_ZIP64 : VERSION, 2);
    add_common(&fields, record, narrowed[1], narrowed[0], record->crc);
    add(&fields, extra.size, 2);
    add(&fields, 0, 2); // comment
    add(&fields, 0, 2); // disk
    add(&fields, 0, 2); // internal attributes
    add(&fields, (uint64_t)MODE << 16, 4);
    add(&fields, narrowed[2], 4);
    size_t name_bytes = strlen(record->name);
    size_t bytes = fields.size + name_bytes + extra.size;
    if (bytes > zip->directory_room - zip->directory_bytes) {
        size_t room = 2 * zip->directory_room + bytes + 256;
        unsigned char *grown = nd__pressure_alloc_resize(zip->directory, room);
        if (!grown)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the directory of '%s'",
                             zip->writer.operation, zip->writer.path);
        zip->directory = grown;
        zip->directory_room = room;
    }
    unsigned char *at = zip->directory + zip->directory_bytes;
    memcpy(at, fields.data, fields.size);
    memcpy(at + fields.size, record->name, name_bytes);
    memcpy(at + fields.size + name_bytes, extra.data, extra.size);
    zip->directory_bytes += bytes;
    zip->count++;
    return ND_OK;
}

/// The directory and what says where it is.
static nd_status write_end(nd_zip_write *zip) {
    uint64_t directory = zip->position;
    nd_status status = zip->directory ? put(zip, zip->directory, zip->directory_bytes) : ND_OK;
    uint64_t end = zip->position;
    bool many = zip->count >= UINT16_MAX;
    nd_zip_fields fields = {.size = 0};
    if (many || narrow(zip->directory_bytes) == UINT32_MAX || narrow(directory) == UINT32_MAX) {
        add(&fields, 0x06064b50u, 4);
        add(&fields, 44, 8); // bytes that follow
        add(&fields, MADE_BY_UNIX | VERSION_ZIP64, 2);
        add(&fields, VERSION_ZIP64, 2);
        add(&fields, 0, 8); // disks
        add(&fields, zip->count, 8);
        add(&fields, zip->count, 8);
        add(&fields, zip->directory_bytes, 8);
        add(&fields, directory, 8);
        add(&fields, 0x07064b50u, 4);
        add(&fields, 0, 4);
        add(&fields, end, 8);
        add(&fields, 1, 4);
        status = status == ND_OK ? put(zip, fields.data, fields.size) : status;
        fields.size = 0;
    }
    add(&fields, 0x06054b50u, 4);
    add(&fields, 0, 4); // disks
    add(&fields, many ? UINT16_MAX : zip->count, 2);
    add(&fields, many ? UINT16_MAX : zip->count, 2);
    add(&fields, narrow(zip->directory_bytes), 4);
    add(&fields, narrow(directory), 4);
    add(&fields, 0, 2); // comment
    return status == ND_OK ? put(zip, fields.data, fields.size) : status;
}
