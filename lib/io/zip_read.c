// Reading the directories of zip archives.
//
// Invariant: nothing that a field says is believed before it was held against the file's size; the
// memory taken is at most a few times that of the directory, which is in the file. Entries that
// overlap are refused, because a file could unpack to the square of its size with them.
#include "lib/io/zip_read.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/io/elements.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    END64_HEAD = 12, // up to where its own size counts from
    COMMENT_MAX = 65535,
    FLAG_ENCRYPTED = 1,
    FLAG_STRONG = 1 << 6,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    EXTRA_ZIP64 = 1
};
#define LOCAL_SIGNATURE 0x04034b50u
#define ENTRY_SIGNATURE 0x02014b50u
#define END_SIGNATURE 0x06054b50u
#define LOCATOR_SIGNATURE 0x07064b50u
#define END64_SIGNATURE 0x06064b50u

static nd_status find_directory(nd_zip_read *zip, uint64_t *ret_count);
static nd_status read_end64(nd_zip_read *zip, uint64_t end, uint64_t *ret_count);
static nd_status read_directory(nd_zip_read *zip, uint64_t count);
static nd_status read_entry(nd_zip_read *zip, size_t at, nd_zip_entry *ret_entry, size_t *ret_next);
static nd_status read_zip64(const nd_zip_read *zip, const unsigned char *fields,
                            const unsigned char *extra, size_t extra_bytes, nd_zip_entry *entry);
static nd_status read_local(const nd_zip_read *zip, nd_zip_entry *entry);
static nd_status check_overlaps(const nd_zip_read *zip);

nd_status nd__zip_read_open(nd_zip_read *zip, nd_file *file) {
    *zip = (nd_zip_read){.file = file};
    uint64_t count = 0;
    nd_status status = find_directory(zip, &count);
    if (status == ND_OK)
        status = read_directory(zip, count);
    for (size_t i = 0; status == ND_OK && i < zip->count; i++)
        status = read_local(zip, &zip->entries[i]);
    if (status == ND_OK)
        status = check_overlaps(zip);
    if (status != ND_OK)
        nd__zip_read_close(zip);
    return status;
}

nd_content nd__zip_read_content(const nd_zip_read *zip, const nd_zip_entry *entry) {
    return (nd_content){
        .file = zip->file,
        .entry = entry->name,
        .begin = entry->begin,
        .packed = entry->packed,
        .bytes = entry->bytes,
        .expected = entry->crc,
        .deflated = entry->deflated,
    };
}

void nd__zip_read_close(nd_zip_read *zip) {
    nd__alloc_free(zip->text);
    nd__alloc_free(zip->entries);
    *zip = (nd_zip_read){.file = zip->file};
}

static nd_status zip_error(const nd_zip_read *zip, const char *problem) {
    return nd__error(ND_ERROR_FORMAT, "%s: '%s' is no zip archive that can be read: %s",
                     zip->file->operation, zip->file->path, problem);
}

static nd_status entry_error(const nd_zip_read *zip, nd_status status, const nd_zip_entry *entry,
                             const char *problem) {
    return nd__error(status, "%s: '%s': entry '%.100s' %s", zip->file->operation, zip->file->path,
                     entry->name, problem);
}

static nd_status no_memory(const nd_zip_read *zip) {
    return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the directory of '%s', %llu bytes",
                     zip->file->operation, zip->file->path,
                     (unsigned long long)zip->directory_bytes);
}

static nd_status read_at(const nd_zip_read *zip, uint64_t position, void *buffer, size_t bytes) {
    zip->file->position = position;
    return nd__file_read(zip->file, buffer, bytes);
}

// ------------------------------------------------------------------------------------------------
// the end of the archive

/// The directory ends where the record begins that tells its place. Else some readers would take
/// that place for one counted from elsewhere, and find other entries.
static nd_status check_directory(const nd_zip_read *zip, uint64_t end) {
    if (zip->directory > end || zip->directory_bytes > end - zip->directory)
        return zip_error(zip, "its directory is not in the file");
    if (zip->directory_bytes != end - zip->directory)
        return zip_error(zip, "its directory does not end where its end is told");
    return ND_OK;
}

/// Some readers follow the place of a zip64 record wherever there is one.
static nd_status check_one_end(const nd_zip_read *zip, uint64_t end) {
    unsigned char locator[LOCATOR_BYTES];
    if (end < LOCATOR_BYTES)
        return ND_OK;
    nd_status status = read_at(zip, end - LOCATOR_BYTES, locator, sizeof locator);
    if (status == ND_OK && nd__elements_u32(locator) == LOCATOR_SIGNATURE)
        return zip_error(zip, "it tells two places of its directory");
    return status;
}

/// The record at the end says where the directory is. A comment may follow it, and its length must
/// be what follows.
static nd_status find_directory(nd_zip_read *zip, uint64_t *ret_count) {
    uint64_t size = zip->file->size;
    if (size < END_BYTES)
        return zip_error(zip, "it has fewer bytes than an empty one");
    size_t tail_bytes = size < END_BYTES + COMMENT_MAX ? (size_t)size : END_BYTES + COMMENT_MAX;
    unsigned char *tail = nd__pressure_alloc(tail_bytes);
    if (!tail)
        return no_memory(zip);
    nd_status status = read_at(zip, size - tail_bytes, tail, tail_bytes);
    size_t at = tail_bytes - END_BYTES;
    bool found = false;
    while (status == ND_OK) {
        found = nd__elements_u32(tail + at) == END_SIGNATURE &&
                nd__elements_u16(tail + at + 20) == tail_bytes - END_BYTES - at;
        if (found || at == 0)
            break;
        at--;
    }
    unsigned char end[END_BYTES];
    memcpy(end, tail + at, sizeof end);
    nd__alloc_free(tail);
    if (status != ND_OK)
        return status;
    if (!found)
        return zip_error(zip, "its end is not there");
    uint64_t end_at = size - tail_bytes + at;
    *ret_count = nd__elements_u16(end + 10);
    zip->directory_bytes = nd__elements_u32(end + 12);
    zip->directory = nd__elements_u32(end + 16);
    bool split = nd__elements_u16(end + 4) != 0 || nd__elements_u16(end + 6) != 0 ||
                 nd__elements_u16(end + 8) != *ret_count;
    bool large = *ret_count == UINT16_MAX || zip->directory_bytes == UINT32_MAX ||
                 zip->directory == UINT32_MAX;
    if (large)
        return read_end64(zip, end_at, ret_count);
    if (split)
        return zip_error(zip, "it is a part of several");
    status = check_directory(zip, end_at);
    return status == ND_OK ? check_one_end(zip, end_at) : status;
}

/// Where a field of the record at the end is full, another one stands before it.
static nd_status read_end64(nd_zip_read *zip, uint64_t end, uint64_t *ret_count) {
    unsigned char locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES)
        return zip_error(zip, "the place of its zip64 record is not there");
    nd_status status = read_at(zip, end - LOCATOR_BYTES, locator, sizeof locator);
    if (status != ND_OK)
        return status;
    if (nd__elements_u32(locator) != LOCATOR_SIGNATURE)
        return zip_error(zip, "the place of its zip64 record is not there");
    uint64_t at = nd__elements_u64(locator + 8);
    if (end - LOCATOR_BYTES < END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES)
        return zip_error(zip, "its zip64 record is not in the file");
    status = read_at(zip, at, record, sizeof record);
    if (status != ND_OK)
        return status;
    if (nd__elements_u32(record) != END64_SIGNATURE)
        return zip_error(zip, "its zip64 record is not where it is said to be");
    *ret_count = nd__elements_u64(record + 32);
    zip->directory_bytes = nd__elements_u64(record + 40);
    zip->directory = nd__elements_u64(record + 48);
    if (nd__elements_u32(record + 16) != 0 || nd__elements_u32(record + 20) != 0 ||
        nd__elements_u64(record + 24) != *ret_count)
        return zip_error(zip, "it is a part of several");
    if (nd__elements_u64(record + 4) != end - LOCATOR_BYTES - at - END64_HEAD)
        return zip_error(zip, "its zip64 record does not end where its place is told");
    return check_directory(zip, at);
}

// ------------------------------------------------------------------------------------------------
// the directory

static nd_status read_directory(nd_zip_read *zip, uint64_t count) {
    if (count > zip->directory_bytes / ENTRY_BYTES)
        return zip_error(zip, "its directory is too short for its entries");
    zip->text = nd__pressure_alloc((size_t)zip->directory_bytes + 1);
    zip->entries = nd__pressure_alloc(((size_t)count + 1) * sizeof *zip->entries);
    if (!zip->text || !zip->entries)
        return no_memory(zip);
    nd_status status = read_at(zip, zip->directory, zip->text, (size_t)zip->directory_bytes);
    size_t at = 0;
    for (uint64_t i = 0; status == ND_OK && i < count; i++) {
        status = read_entry(zip, at, &zip->entries[i], &at);
        zip->count += status == ND_OK;
    }
    if (status == ND_OK && at != zip->directory_bytes)
        return zip_error(zip, "its directory goes on after its entries");
    return status;
}

static nd_status read_entry(nd_zip_read *zip, size_t at, nd_zip_entry *ret_entry,
                            size_t *ret_next) {
    size_t left = (size_t)zip->directory_bytes - at;
    unsigned char *fields = zip->text + at;
    if (left < ENTRY_BYTES || nd__elements_u32(fields) != ENTRY_SIGNATURE)
        return zip_error(zip, "its directory is damaged");
    size_t name_bytes = nd__elements_u16(fields + 28), extra_bytes = nd__elements_u16(fields + 30);
    size_t bytes = ENTRY_BYTES + name_bytes + extra_bytes + nd__elements_u16(fields + 32);
    if (left < bytes)
        return zip_error(zip, "its directory ends in an entry");
    // The name moves to where the fields were read, and leaves room for its end.
    nd_zip_entry entry = {
        .name = (char *)fields,
        .header = nd__elements_u32(fields + 42),
        .packed = nd__elements_u32(fields + 20),
        .bytes = nd__elements_u32(fields + 24),
        .crc = nd__elements_u32(fields + 16),
    };
    unsigned flags = nd__elements_u16(fields + 8), method = nd__elements_u16(fields + 10);
    entry.deflated = method == METHOD_DEFLATED;
    nd_status status =
        read_zip64(zip, fields, fields + ENTRY_BYTES + name_bytes, extra_bytes, &entry);
    if (status != ND_OK)
        return status;
    memmove(fields, fields + ENTRY_BYTES, name_bytes);
    fields[name_bytes] = '\0';
    if (strlen(entry.name) != name_bytes || !nd__utf8_is_valid(entry.name))
        return zip_error(zip, "the name of an entry is not valid UTF-8");
    if (flags & (FLAG_ENCRYPTED | FLAG_STRONG))
        return entry_error(zip, ND_ERROR_UNSUPPORTED, &entry, "is encrypted");
    if (method != METHOD_STORED && method != METHOD_DEFLATED)
        return entry_error(zip, ND_ERROR_UNSUPPORTED, &entry,
                           "is compressed by another method than deflate");
    if (!entry.deflated && entry.packed != entry.bytes)
        return entry_error(zip, ND_ERROR_FORMAT, &entry, "is stored, in another number of bytes");
    *ret_entry = entry;
    *ret_next = at + bytes;
    return ND_OK;
}

/// Numbers that fill their field stand in the extra field of zip64, in this order.
static nd_status read_zip64(const nd_zip_read *zip, const unsigned char *fields,
                            const unsigned char *extra, size_t extra_bytes, nd_zip_entry *entry) {
    uint64_t *wide[] = {&entry->bytes, &entry->packed, &entry->header};
    bool large = false;
    for (int i = 0; i < 3; i++)
        large |= *wide[i] == UINT32_MAX;
    if (nd__elements_u16(fields + 34) != 0)
        return zip_error(zip, "it is a part of several");
    if (!large)
        return ND_OK;
    while (extra_bytes >= 4) {
        size_t bytes = nd__elements_u16(extra + 2);
        if (bytes > extra_bytes - 4)
            break;
        if (nd__elements_u16(extra) == EXTRA_ZIP64) {
            const unsigned char *at = extra + 4;
            for (int i = 0; i < 3; i++) {
                if (*wide[i] != UINT32_MAX)
                    continue;
                if (bytes < 8)
                    return zip_error(zip, "a zip64 field of an entry is too short");
                *wide[i] = nd__elements_u64(at);
                at += 8;
                bytes -= 8;
            }
            return ND_OK;
        }
        extra += 4 + bytes;
        extra_bytes -= 4 + bytes;
    }
    return zip_error(zip, "the zip64 field of an entry is not there");
}

/// The entry's own header, whose length only it says, and whose name must be the directory's.
static nd_status read_local(const nd_zip_read *zip, nd_zip_entry *entry) {
    unsigned char fields[LOCAL_BYTES];
    unsigned char piece[256];
    if (zip->directory < LOCAL_BYTES || entry->header > zip->directory - LOCAL_BYTES)
        return entry_error(zip, ND_ERROR_FORMAT, entry, "is not in the file");
    nd_status status = read_at(zip, entry->header, fields, sizeof fields);
    if (status != ND_OK)
        return status;
    size_t name_bytes = nd__elements_u16(fields + 26);
    if (nd__elements_u32(fields) != LOCAL_SIGNATURE)
        return entry_error(zip, ND_ERROR_FORMAT, entry, "is not where the directory says");
    entry->begin = entry->header + LOCAL_BYTES + name_bytes + nd__elements_u16(fields + 28);
    if (entry->begin > zip->directory || entry->packed > zip->directory - entry->begin)
        return entry_error(zip, ND_ERROR_FORMAT, entry, "is not in the file");
    bool same = name_bytes == strlen(entry->name) &&
                (nd__elements_u16(fields + 8) == METHOD_DEFLATED) == entry->deflated;
    for (size_t at = 0; same && at < name_bytes; at += sizeof piece) {
        size_t bytes = name_bytes - at < sizeof piece ? name_bytes - at : sizeof piece;
        status = read_at(zip, entry->header + LOCAL_BYTES + at, piece, bytes);
        if (status != ND_OK)
            return status;
        same = memcmp(piece, entry->name + at, bytes) == 0;
    }
    return same ? ND_OK
                : entry_error(zip, ND_ERROR_FORMAT, entry,
                              "has another name or method in its own header");
}

static int compare_places(const void *a, const void *b) {
    const nd_zip_entry *x = *(const nd_zip_entry *const *)a;
    const nd_zip_entry *y = *(const nd_zip_entry *const *)b;
    return (x->header > y->header) - (x->header < y->header);
}

static nd_status check_overlaps(const nd_zip_read *zip) {
    const nd_zip_entry **sorted = nd__pressure_alloc((zip->count + 1) * sizeof *sorted);
    if (!sorted)
        return no_memory(zip);
    for (size_t i = 0; i < zip->count; i++)
        sorted[i] = &zip->entries[i];
    qsort(sorted, zip->count, sizeof *sorted, compare_places);
    nd_status status = ND_OK;
    for (size_t i = 1; status == ND_OK && i < zip->count; i++)
        if (sorted[i]->header < sorted[i - 1]->begin + sorted[i - 1]->packed)
            status = entry_error(zip, ND_ERROR_FORMAT, sorted[i], "overlaps the one before it");
    nd__alloc_free(sorted);
    return status;
}
