// .npz files: round trips, archives built field by field, and archives that lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include "lib/io/content.h"
#include "lib/io/zip_write.h"
#if ND_HAVE_ZLIB
#include <zlib.h>
#endif

// An archive that a test builds, byte by byte.
typedef struct archive {
    unsigned char data[1 << 14];
    size_t size;
    unsigned char directory[4096];
    size_t directory_bytes;
    size_t count;
} archive;

// What is put into the fields of an entry, right or wrong.
typedef struct entry {
    const char *name;
    const void *data;
    size_t packed;
    size_t bytes;
    unsigned flags, method;
    uint32_t crc;
    bool zip64;           ///< sizes in extra fields
    bool descriptor;      ///< sizes and checksum behind the data only
    const char *local;    ///< another name in its own header
    int64_t header_moved; ///< what the directory's place is wrong by
} entry;

static void add(unsigned char *data, size_t *size, uint64_t value, size_t bytes) {
    memcpy(data + *size, &value, bytes);
    *size += bytes;
}

static void add_common(unsigned char *data, size_t *size, const entry *of, bool local) {
    bool later = local && of->descriptor;
    add(data, size, of->flags, 2);
    add(data, size, of->method, 2);
    add(data, size, 0, 4);
    add(data, size, later ? 0 : of->crc, 4);
    add(data, size, of->zip64 ? UINT32_MAX : later ? 0 : of->packed, 4);
    add(data, size, of->zip64 ? UINT32_MAX : later ? 0 : of->bytes, 4);
}

static void add_extra(unsigned char *data, size_t *size, const entry *of) {
    if (!of->zip64)
        return;
    add(data, size, 0xcafe, 2); // a field that nobody knows
    add(data, size, 1, 2);
    add(data, size, 7, 1);
    add(data, size, 1, 2);
    add(data, size, 16, 2);
    add(data, size, of->bytes, 8);
    add(data, size, of->packed, 8);
}

static void add_entry(archive *zip, const entry *of) {
    const char *local = of->local ? of->local : of->name;
    size_t header = zip->size, extra = of->zip64 ? 25 : 0;
    add(zip->data, &zip->size, 0x04034b50, 4);
    add(zip->data, &zip->size, 20, 2);
    add_common(zip->data, &zip->size, of, true);
    add(zip->data, &zip->size, strlen(local), 2);
    add(zip->data, &zip->size, extra, 2);
    memcpy(zip->data + zip->size, local, strlen(local));
    zip->size += strlen(local);
    add_extra(zip->data, &zip->size, of);
    memcpy(zip->data + zip->size, of->data, of->packed);
    zip->size += of->packed;
    if (of->descriptor) {
        add(zip->data, &zip->size, 0x08074b50, 4);
        add(zip->data, &zip->size, of->crc, 4);
        add(zip->data, &zip->size, of->packed, 4);
        add(zip->data, &zip->size, of->bytes, 4);
    }
    unsigned char *data = zip->directory;
    size_t *size = &zip->directory_bytes;
    add(data, size, 0x02014b50, 4);
    add(data, size, 20, 2);
    add(data, size, 20, 2);
    add_common(data, size, of, false);
    add(data, size, strlen(of->name), 2);
    add(data, size, extra, 2);
    add(data, size, 0, 2);
    add(data, size, 0, 2);
    add(data, size, 0, 2);
    add(data, size, 0, 4);
    add(data, size, (uint64_t)((int64_t)header + of->header_moved), 4);
    memcpy(data + *size, of->name, strlen(of->name));
    *size += strlen(of->name);
    add_extra(data, size, of);
    zip->count++;
}

/// Writes the archive with a comment of so many bytes behind it.
static const char *finish(archive *zip, size_t comment) {
    const char *path = nd_test_path("built.npz");
    size_t directory = zip->size;
    memcpy(zip->data + zip->size, zip->directory, zip->directory_bytes);
    zip->size += zip->directory_bytes;
    add(zip->data, &zip->size, 0x06054b50, 4);
    add(zip->data, &zip->size, 0, 4);
    add(zip->data, &zip->size, zip->count, 2);
    add(zip->data, &zip->size, zip->count, 2);
    add(zip->data, &zip->size, zip->directory_bytes, 4);
    add(zip->data, &zip->size, directory, 4);
    add(zip->data, &zip->size, comment, 2);
    memset(zip->data + zip->size, '.', comment);
    zip->size += comment;
    nd_test_write(path, zip->data, zip->size);
    return path;
}

/// The .npy of three bytes u8, 1, 2 and 3; static storage.
static const unsigned char *three(size_t *ret_bytes) {
    static unsigned char npy[200];
    static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}";
    memcpy(npy, "\x93NUMPY\x01\x00", 8);
    npy[8] = sizeof header - 1;
    memcpy(npy + 10, header, sizeof header - 1);
    memcpy(npy + 10 + sizeof header - 1, "\x01\x02\x03", 3);
    *ret_bytes = 10 + sizeof header - 1 + 3;
    return npy;
}

static entry stored_three(const char *name) {
    size_t bytes;
    const unsigned char *data = three(&bytes);
    return (entry){.name = name,
                   .data = data,
                   .packed = bytes,
                   .bytes = bytes,
                   .crc = nd__content_crc(0, data, bytes)};
}

static void assert_three(const nd_map *map, const char *name) {
    assert_true(nd_map_contains(map, name));
    const nd_tensor *x = (const nd_tensor *)nd_map_get(map, name);
    assert_int_equal(nd_get_dtype(x), ND_U8);
    assert_int_equal(nd_get_numel(x), 3);
    assert_memory_equal(nd_get_data(x), "\x01\x02\x03", 3);
}

/// An archive of one entry is refused.
static void refuse(const entry *of, nd_status status, const char *fragment) {
    archive zip = {.size = 0};
    add_entry(&zip, of);
    assert_null(nd_load_npz(finish(&zip, 0)));
    assert_non_null(strstr(nd_error_get_message(), "built.npz"));
    assert_failed(status, fragment);
}

/// Every dtype that the format has, and shapes; to be released. The number of them.
static size_t make_tensors(nd_tensor **ret_tensors, char (*ret_names)[24]) {
    size_t count = 0;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        if (dtype == ND_BF16)
            continue;
        nd_auto nd_tensor *numbers = nd_arange(0, 2000, 1, ND_F64);
        nd_auto nd_tensor *cast = nd_cast(numbers, (nd_dtype)dtype);
        nd_auto nd_tensor *matrix = nd_reshape(cast, ND_SHAPE(50, 40));
        ret_tensors[count] = nd_transpose(matrix, 0, 1);
        snprintf(ret_names[count], 24, "a/\xc3\xa9 %d", dtype);
        count++;
    }
    ret_tensors[count] = nd_scalar(-3, ND_I64);
    snprintf(ret_names[count++], 24, "scalar.npy");
    ret_tensors[count] = nd_zeros(ND_SHAPE(2, 0), ND_F32);
    snprintf(ret_names[count++], 24, "%s", "");
    return count;
}

static void check_round_trip(const nd_npz_options *options) {
    const char *path = nd_test_path("round.npz");
    nd_tensor *tensors[ND_DTYPE_COUNT + 2];
    char texts[ND_DTYPE_COUNT + 2][24];
    const char *names[ND_DTYPE_COUNT + 2];
    size_t count = make_tensors(tensors, texts);
    for (size_t i = 0; i < count; i++)
        names[i] = texts[i];
    assert_ok(nd_save_npz(path, count, names, (const nd_tensor *const *)tensors, options));
    nd_auto nd_map *map = nd_load_npz(path);
    assert_handle(map);
    assert_int_equal(nd_map_get_size(map), count);
    const char *name;
    const nd_object *object;
    size_t i = 0;
    for (size_t at = 0; nd_map_next(map, &at, &name, &object); i++) {
        const nd_tensor *read = (const nd_tensor *)object;
        nd_auto nd_tensor *ordered = nd_contiguous(tensors[i]);
        assert_string_equal(name, names[i]);
        assert_int_equal(nd_get_dtype(read), nd_get_dtype(ordered));
        assert_int_equal(nd_get_ndim(read), nd_get_ndim(ordered));
        assert_int_equal(nd_get_numel(read), nd_get_numel(ordered));
        assert_memory_equal(nd_get_data(read), nd_get_data(ordered),
                            (size_t)nd_get_numel(read) * nd_dtype_get_size(nd_get_dtype(read)));
    }
    for (i = 0; i < count; i++)
        nd_release(tensors[i]);
}

static void test_round_trip_stored(void **state) {
    (void)state;
    check_round_trip(NULL);
}

#if ND_HAVE_ZLIB
static void test_round_trip_compressed(void **state) {
    (void)state;
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = true;
    check_round_trip(&options);
}
#endif

/// As if every number were beyond 32 bits.
static void test_round_trip_with_zip64(void **state) {
    (void)state;
    uint64_t limit = nd__zip_write_limit;
    nd__zip_write_limit = 100;
    check_round_trip(NULL);
#if ND_HAVE_ZLIB
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = true;
    check_round_trip(&options);
#endif
    nd__zip_write_limit = limit;
}

static void test_no_arrays_and_the_current_manager(void **state) {
    (void)state;
    const char *path = nd_test_path("none.npz");
    assert_ok(nd_save_npz(path, 0, NULL, NULL, NULL));
    nd_auto nd_map *none = nd_load_npz(path);
    assert_int_equal(nd_map_get_size(none), 0);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100), ND_F32);
    const char *name = "x";
    assert_ok(nd_save_npz(path, 1, &name, (const nd_tensor *const *)&x, NULL));
    nd_manager *manager = nd_manager_new(NULL, "load");
    nd_with_manager(manager) {
        nd_auto nd_map *map = nd_load_npz(path);
        assert_ptr_equal(nd_get_manager(map), manager);
        assert_ptr_equal(nd_get_manager(nd_map_get(map, "x")), manager);
    }
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    nd_release(manager);
}

static void test_archives_of_others(void **state) {
    (void)state;
    archive zip = {.size = 5}; // something before the first entry
    entry plain = stored_three("plain.npy"), bare = stored_three("../../etc/passwd");
    entry wide = stored_three("wide.npy"), later = stored_three("later.npy");
    wide.zip64 = true;
    later.descriptor = true;
    later.flags = 1 << 3;
    add_entry(&zip, &plain);
    add_entry(&zip, &bare);
    add_entry(&zip, &wide);
    add_entry(&zip, &later);
    nd_auto nd_map *map = nd_load_npz(finish(&zip, 40));
    assert_handle(map);
    assert_int_equal(nd_map_get_size(map), 4);
    assert_three(map, "plain");
    assert_three(map, "../../etc/passwd");
    assert_three(map, "wide");
    assert_three(map, "later");
}

static void test_F25_entries_that_lie(void **state) {
    (void)state;
    entry good = stored_three("x.npy"), bad = good;
    bad.flags = 1;
    refuse(&bad, ND_ERROR_UNSUPPORTED, "'x.npy' is encrypted");
    bad = good;
    bad.method = 12;
    refuse(&bad, ND_ERROR_UNSUPPORTED, "by another method than deflate");
    bad = good;
    bad.bytes++;
    refuse(&bad, ND_ERROR_FORMAT, "stored, in another number of bytes");
    bad = good;
    bad.crc ^= 1;
    refuse(&bad, ND_ERROR_FORMAT, "'x.npy' is damaged: its checksum");
    bad = good;
    bad.local = "y.npy";
    refuse(&bad, ND_ERROR_FORMAT, "another name or method");
    bad = good;
    bad.header_moved = 1;
    refuse(&bad, ND_ERROR_FORMAT, "is not where the directory says");
    bad.header_moved = 1 << 20;
    refuse(&bad, ND_ERROR_FORMAT, "is not in the file");
    bad = good;
    bad.name = "\xff.npy";
    refuse(&bad, ND_ERROR_FORMAT, "not valid UTF-8");
    bad = (entry){.name = "readme.txt", .data = "hello, world", .packed = 12, .bytes = 12};
    bad.crc = nd__content_crc(0, bad.data, 12);
    refuse(&bad, ND_ERROR_FORMAT, "'readme.txt' is no .npy file");
}

static void test_F25_duplicate_names_and_overlaps(void **state) {
    (void)state;
    entry x = stored_three("x.npy"), same = stored_three("x");
    archive twice = {.size = 0}, overlap = {.size = 0};
    add_entry(&twice, &x);
    add_entry(&twice, &same);
    assert_null(nd_load_npz(finish(&twice, 0)));
    assert_failed(ND_ERROR_FORMAT, "two arrays of the name 'x'");
    // One entry that the directory has twice: the bytes of both are the same.
    add_entry(&overlap, &x);
    memcpy(overlap.directory + overlap.directory_bytes, overlap.directory, overlap.directory_bytes);
    overlap.directory_bytes *= 2;
    overlap.count = 2;
    assert_null(nd_load_npz(finish(&overlap, 0)));
    assert_failed(ND_ERROR_FORMAT, "'x.npy' overlaps the one before it");
}

static void test_F25_ends_that_lie(void **state) {
    (void)state;
    // Fields of the record at the end, and what each says wrongly.
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *fragment;
    } cases[] = {
        {4, 2, 1, "a part of several"},
        {8, 2, 2, "a part of several"},
        {8, 4, 0x00090009, "too short for its entries"},
        {8, 4, 0, "goes on after its entries"},
        {12, 4, 1 << 30, "not in the file"},
        {16, 4, 1 << 30, "not in the file"},
        {16, 4, 0xffffffff, "zip64 record is not there"},
        {16, 4, 3, "does not end where its end is told"},
        {20, 2, 1, "its end is not there"},
        {0, 1, 0, "its end is not there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        archive zip = {.size = 0};
        entry x = stored_three("x.npy");
        add_entry(&zip, &x);
        const char *path = finish(&zip, 0);
        memcpy(zip.data + zip.size - 22 + cases[i].at, &cases[i].value, cases[i].bytes);
        nd_test_write(path, zip.data, zip.size);
        reset_memory();
        assert_null(nd_load_npz(path));
        assert_true(stop_memory() < MEMORY_MAX(zip.size));
        assert_failed(ND_ERROR_FORMAT, cases[i].fragment);
    }
}

/// Three runs of bytes, one behind the other, as a file.
static const char *joined(const char *first, size_t first_bytes, const char *between,
                          size_t between_bytes, const char *second, size_t second_bytes) {
    const char *path = nd_test_path("joined.npz");
    char *all = malloc(first_bytes + between_bytes + second_bytes);
    memcpy(all, first, first_bytes);
    memcpy(all + first_bytes, between, between_bytes);
    memcpy(all + first_bytes + between_bytes, second, second_bytes);
    nd_test_write(path, all, first_bytes + between_bytes + second_bytes);
    free(all);
    return path;
}

static void test_F25_ends_that_readers_take_for_others(void **state) {
    (void)state;
    // Of two archives one behind the other, the second's end tells a place in the first.
    const char *path = nd_test_path("one.npz"), *name = "w";
    size_t bytes[2];
    char *content[2];
    for (int i = 0; i < 2; i++) {
        nd_auto nd_tensor *w = nd_full(ND_SHAPE(2), ND_F64, i + 1.0);
        assert_ok(nd_save_npz(path, 1, &name, (const nd_tensor *const *)&w, NULL));
        content[i] = nd_test_read(path, &bytes[i]);
    }
    assert_null(nd_load_npz(joined(content[0], bytes[0], "", 0, content[1], bytes[1])));
    assert_failed(ND_ERROR_FORMAT, "its directory does not end where its end is told");

    // Something between the directory and its end; and the place of a zip64 record, which some
    // readers follow though no field is full, in the comment of the last entry.
    const char *end = content[0] + bytes[0] - 22;
    assert_null(nd_load_npz(joined(content[0], bytes[0] - 22, "xyz", 3, end, 22)));
    assert_failed(ND_ERROR_FORMAT, "its directory does not end where its end is told");
    char locator[20] = {0x50, 0x4b, 0x06, 0x07};
    uint32_t directory_bytes, directory;
    memcpy(&directory_bytes, end + 12, 4);
    memcpy(&directory, end + 16, 4);
    directory_bytes += sizeof locator;
    char commented[22];
    memcpy(commented, end, sizeof commented);
    memcpy(commented + 12, &directory_bytes, 4);
    content[0][directory + 32] = sizeof locator;
    assert_null(nd_load_npz(joined(content[0], bytes[0] - 22, locator, 20, commented, 22)));
    assert_failed(ND_ERROR_FORMAT, "it tells two places of its directory");
    locator[0] = 'x'; // any other comment
    nd_auto nd_map *all =
        nd_load_npz(joined(content[0], bytes[0] - 22, locator, 20, commented, 22));
    assert_int_equal(nd_map_get_size(all), 1);
    free(content[0]);
    free(content[1]);
}

static void test_F25_zip64_records_that_lie(void **state) {
    (void)state;
    const char *path = nd_test_path("wide.npz"), *bad = nd_test_path("narrow.npz");
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100), ND_F32);
    const char *name = "x";
    uint64_t limit = nd__zip_write_limit;
    nd__zip_write_limit = 100;
    assert_ok(nd_save_npz(path, 1, &name, (const nd_tensor *const *)&x, NULL));
    nd__zip_write_limit = limit;
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    // Fields of the record, which stands 98 bytes before the end, of the locator and of the entry.
    static const struct {
        size_t before, bytes;
        uint64_t value;
        const char *fragment;
    } cases[] = {
        {98, 1, 0, "zip64 record is not where"},
        {98 - 24, 8, 7, "a part of several"},
        {98 - 24, 8, 0, "a part of several"},
        {98 - 40, 8, UINT64_MAX, "its directory is not in the file"},
        {98 - 48, 8, UINT64_MAX, "its directory is not in the file"},
        {98 - 48, 8, 1, "its directory does not end where its end is told"},
        {98 - 4, 8, 45, "zip64 record does not end where its place is told"},
        {42, 1, 0, "the place of its zip64 record is not there"},
        {42 - 8, 8, UINT64_MAX, "its zip64 record is not in the file"},
        {98 + 20, 2, 2, "zip64 field of an entry is not there"},
        {98 + 18, 2, 8, "a zip64 field of an entry is too short"},
        {98 + 16, 8, UINT64_MAX - 5, "is stored, in another number of bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *changed = malloc(bytes);
        memcpy(changed, content, bytes);
        memcpy(changed + bytes - cases[i].before, &cases[i].value, cases[i].bytes);
        nd_test_write(bad, changed, bytes);
        free(changed);
        assert_null(nd_load_npz(bad));
        assert_failed(ND_ERROR_FORMAT, cases[i].fragment);
    }
    free(content);
}

static void check_truncated(const nd_npz_options *options) {
    const char *path = nd_test_path("whole.npz"), *cut = nd_test_path("cut.npz");
    nd_auto nd_tensor *x = nd_arange(0, 20, 1, ND_F32);
    nd_auto nd_tensor *y = nd_zeros(ND_SHAPE(2, 2), ND_I64);
    const char *names[] = {"x", "y"};
    const nd_tensor *tensors[] = {x, y};
    assert_ok(nd_save_npz(path, 2, names, tensors, options));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    for (size_t length = 0; length < bytes; length++) {
        nd_test_write(cut, content, length);
        assert_null(nd_load_npz(cut));
        assert_failed(ND_ERROR_FORMAT, "cut.npz");
    }
    // A changed byte changes an array, a name or a checksum, or means nothing; never anything else.
    for (size_t i = 0; i < bytes; i++) {
        content[i] ^= 0x5a;
        nd_test_write(cut, content, bytes);
        nd_auto nd_map *map = nd_load_npz(cut);
        if (map)
            assert_int_equal(nd_map_get_size(map), 2);
        else
            assert_non_null(strstr(nd_error_get_message(), "cut.npz"));
        nd_error_clear();
        content[i] ^= 0x5a;
    }
    free(content);
}

static void test_F24_truncated_or_damaged_anywhere(void **state) {
    (void)state;
    check_truncated(NULL);
#if ND_HAVE_ZLIB
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = true;
    check_truncated(&options);
#endif
}

static void test_F24_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100000), ND_F32);
    const char *name = "x";
    assert_int_equal(nd_save_npz("/dev/full", 1, &name, (const nd_tensor *const *)&x, NULL),
                     ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No space left");
}

#if ND_HAVE_ZLIB

/// Deflates into memory; to be freed.
static unsigned char *pack(const void *content, size_t bytes, size_t *ret_bytes) {
    size_t room = bytes + bytes / 100 + 128;
    unsigned char *packed = malloc(room);
    assert_non_null(packed);
    z_stream zlib = {.next_in = (unsigned char *)(uintptr_t)content,
                     .avail_in = (unsigned)bytes,
                     .next_out = packed,
                     .avail_out = (unsigned)room};
    assert_int_equal(deflateInit2(&zlib, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    *ret_bytes = room - zlib.avail_out;
    deflateEnd(&zlib);
    return packed;
}

static void test_F25_zip_bombs(void **state) {
    (void)state;
    enum { BYTES = 8 << 20, HEADER = 128 };
    unsigned char *npy = calloc(1, BYTES + HEADER);
    assert_non_null(npy);
    static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (8388608,)}";
    memcpy(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(npy + 10, ' ', HEADER - 10);
    memcpy(npy + 10, header, sizeof header - 1);
    entry bomb = {.name = "x.npy", .method = 8, .bytes = BYTES + HEADER};
    unsigned char *packed = pack(npy, BYTES + HEADER, &bomb.packed);
    bomb.data = packed;
    bomb.crc = nd__content_crc(0, npy, BYTES + HEADER);
    archive zip = {.size = 0};
    add_entry(&zip, &bomb);
    const char *path = finish(&zip, 0);
    nd_auto nd_map *map = nd_load_npz(path); // all zeros, but what it says it is
    assert_handle(map);
    assert_int_equal(nd_get_numel((const nd_tensor *)nd_map_get(map, "x")), BYTES);
    // The same announcement, without the bytes: no memory is taken for it.
    free(packed);
    packed = pack(npy, HEADER + 5000, &bomb.packed);
    bomb.data = packed;
    archive lie = {.size = 0};
    add_entry(&lie, &bomb);
    path = finish(&lie, 0);
    reset_memory();
    assert_null(nd_load_npz(path));
    assert_true(stop_memory() < MEMORY_MAX(lie.size));
    assert_failed(ND_ERROR_FORMAT, "'x.npy' unpacks to fewer bytes than its archive says");
    // And more than the archive says.
    bomb.bytes = HEADER + 4000;
    refuse(&bomb, ND_ERROR_FORMAT, "8388608 bytes; 4000 follow");
    bomb.packed -= 3;
    bomb.bytes = HEADER + BYTES;
    refuse(&bomb, ND_ERROR_FORMAT, "'x.npy' ends in the middle of its compressed data");
    bomb.data = "\xff\xff\xff\xff\xff";
    bomb.packed = 5;
    refuse(&bomb, ND_ERROR_FORMAT, "compressed data of");
    free(packed);
    free(npy);
}

#else

static void test_compressed_without_zlib(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    const char *name = "x";
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = true;
    assert_int_equal(
        nd_save_npz(nd_test_path("never.npz"), 1, &name, (const nd_tensor *const *)&x, &options),
        ND_ERROR_UNSUPPORTED);
    assert_failed(ND_ERROR_UNSUPPORTED, "built without zlib");
    entry deflated = stored_three("x.npy");
    deflated.method = 8;
    refuse(&deflated, ND_ERROR_UNSUPPORTED, "built without zlib");
}

#endif

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *half = nd_ones(ND_SHAPE(1), ND_BF16);
    const char *path = nd_test_path("never.npz");
    unlink(path);
    const char *names[] = {"x", "x"};
    const nd_tensor *tensors[] = {x, half};
    assert_null(nd_load_npz(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_null(nd_load_npz(nd_test_path("missing.npz")));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_int_not_equal(nd_save_npz(NULL, 1, names, tensors, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_save_npz(path, 1, NULL, tensors, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "names is NULL");
    assert_int_not_equal(nd_save_npz(path, 1, names, NULL, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "tensors is NULL");
    assert_int_not_equal(nd_save_npz(path, 1, names, tensors, &(nd_npz_options){.size = 0}), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_NPZ_OPTIONS_INIT");
    assert_int_not_equal(nd_save_npz(path, 2, names, tensors, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "'x' was given twice");
    names[1] = "y";
    assert_int_not_equal(nd_save_npz(path, 2, names, tensors, NULL), ND_OK);
    assert_failed(ND_ERROR_DTYPE, "bfloat16");
    char *longest = malloc(65540);
    memset(longest, 'n', 65539);
    longest[65539] = 0;
    names[0] = longest;
    assert_int_not_equal(nd_save_npz(path, 1, names, tensors, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "longer than a zip archive allows");
    free(longest);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_round_trip_stored),
        ND_TEST(test_round_trip_with_zip64),
        ND_TEST(test_no_arrays_and_the_current_manager),
        ND_TEST(test_archives_of_others),
        ND_TEST(test_F25_entries_that_lie),
        ND_TEST(test_F25_duplicate_names_and_overlaps),
        ND_TEST(test_F25_ends_that_lie),
        ND_TEST(test_F25_ends_that_readers_take_for_others),
        ND_TEST(test_F25_zip64_records_that_lie),
        ND_TEST(test_F24_truncated_or_damaged_anywhere),
        ND_TEST(test_F24_full_disk_leaves_the_old_file),
        ND_TEST(test_F30_bad_arguments),
#if ND_HAVE_ZLIB
        ND_TEST(test_round_trip_compressed),
        ND_TEST(test_F25_zip_bombs),
#else
        ND_TEST(test_compressed_without_zlib),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
