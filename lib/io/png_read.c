// Reading PNG with libpng.
//
// Invariant: libpng leaves a step by longjmp to `attempt` and nowhere else, always with an error
// set; what it holds is destroyed behind that. Memory for more than the source's credit is taken
// only when the rows have been unpacked to nowhere. Chunks beside the picture are skipped, not
// read.
#include "lib/io/png_read.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/elements.h"
#include "lib/io/png_library.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"

#include <setjmp.h>
#include <string.h>

enum {
    KEEP_NEVER = 1,               // of chunks: PNG_HANDLE_CHUNK_NEVER
    CHUNK_TRNS = 16,              // PNG_INFO_tRNS
    SIZE_MAX_ALLOWED = 0x7fffffff // the format's limit
};
/// What one byte can at most unpack to with deflate.
#define DEFLATE_RATIO 1032
/// What libpng and zlib take beside rows.
#define WORKING_BYTES ((uint64_t)1 << 17)

typedef struct png_reader {
    const nd_png_library *library;
    nd_image_source *source;
    void *png, *info; ///< libpng's, owned
    const unsigned char *piece;
    size_t piece_bytes;
    bool out_of_memory;
    uint32_t width, height;
    size_t packed_row; ///< bytes of a row in the file
    int depth, channels;
    nd_tensor *tensor; ///< owned; NULL: rows go nowhere
    jmp_buf back;
} png_reader;

static bool attempt(png_reader *reader, void (*step)(png_reader *reader));
static void begin(png_reader *reader);
static void read_rows(png_reader *reader);
static void end(png_reader *reader);
static nd_status check_size(const png_reader *reader);
static nd_status bear_out(png_reader *reader);

nd_tensor *nd__png_read(nd_image_source *source) {
    png_reader reader = {.library = nd__png_library(source->operation), .source = source};
    if (!reader.library)
        return NULL;
    bool done =
        attempt(&reader, begin) && check_size(&reader) == ND_OK && bear_out(&reader) == ND_OK;
    if (done) {
        nd_dtype dtype = reader.depth == 16 ? ND_U16 : ND_U8;
        int64_t shape[] = {reader.height, reader.width, reader.channels};
        reader.tensor = nd__elements_new(source->operation, dtype, 3, shape);
        done = reader.tensor && attempt(&reader, read_rows);
    }
    end(&reader);
    if (done)
        return reader.tensor;
    nd_release(reader.tensor);
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// what libpng calls

/// Runs a step; false when it was left with an error. Changes nothing of its own between the two
/// returns of setjmp.
static bool attempt(png_reader *reader, void (*step)(png_reader *reader)) {
    if (setjmp(reader->back))
        return false;
    step(reader);
    return true;
}

static _Noreturn void leave(png_reader *reader) {
    longjmp(reader->back, 1);
}

/// Errors, and warnings, which say that a file is not quite what it should be.
static void complain(void *png, const char *message) {
    png_reader *reader = nd__png_library("png")->get_error_ptr(png);
    char text[ND__IMAGE_SOURCE_TEXT];
    nd__image_source_text(reader->source, text);
    if (reader->out_of_memory)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to read %s", reader->source->operation,
                  text);
    else
        nd__error(ND_ERROR_FORMAT, "%s: %s is a damaged PNG: %s", reader->source->operation, text,
                  message);
    leave(reader);
}

static void *allocate(void *png, size_t bytes) {
    png_reader *reader = nd__png_library("png")->get_mem_ptr(png);
    void *memory = nd__pressure_alloc(bytes);
    reader->out_of_memory |= memory == NULL;
    return memory;
}

static void give_back(void *png, void *memory) {
    (void)png;
    nd__alloc_free(memory);
}

static void transfer(void *png, unsigned char *data, size_t bytes) {
    png_reader *reader = nd__png_library("png")->get_io_ptr(png);
    while (bytes > 0) {
        if (reader->piece_bytes == 0 &&
            nd__image_source_next(reader->source, &reader->piece, &reader->piece_bytes) != ND_OK)
            leave(reader);
        if (reader->piece_bytes == 0) {
            nd__image_source_truncated(reader->source);
            leave(reader);
        }
        size_t part = bytes < reader->piece_bytes ? bytes : reader->piece_bytes;
        memcpy(data, reader->piece, part);
        data += part;
        bytes -= part;
        reader->piece += part;
        reader->piece_bytes -= part;
    }
}

// -------------------------------------------------------------------------------------------------
// steps

/// From the beginning to the first row.
static void begin(png_reader *reader) {
    const nd_png_library *library = reader->library;
    nd__image_source_rewind(reader->source);
    reader->piece_bytes = 0;
    reader->png = library->create_read_struct_2(library->get_libpng_ver(NULL), reader, complain,
                                                complain, reader, allocate, give_back);
    if (reader->png)
        reader->info = library->create_info_struct(reader->png);
    if (!reader->info) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for libpng", reader->source->operation);
        leave(reader);
    }
    library->set_read_fn(reader->png, reader, transfer);
    library->set_user_limits(reader->png, SIZE_MAX_ALLOWED, SIZE_MAX_ALLOWED);
    library->set_keep_unknown_chunks(reader->png, KEEP_NEVER, NULL, -1);
    library->read_info(reader->png, reader->info);
    reader->width = library->get_image_width(reader->png, reader->info);
    reader->height = library->get_image_height(reader->png, reader->info);
    reader->depth = library->get_bit_depth(reader->png, reader->info);
    reader->packed_row = library->get_rowbytes(reader->png, reader->info);
    int color = library->get_color_type(reader->png, reader->info);
    bool alpha =
        (color & ND__PNG_ALPHA) || library->get_valid(reader->png, reader->info, CHUNK_TRNS) != 0;
    reader->channels = (color & ND__PNG_COLOR ? 3 : 1) + alpha;
}

static void end(png_reader *reader) {
    if (reader->png)
        reader->library->destroy_read_struct(&reader->png, &reader->info, NULL);
}

/// All rows, and what follows them, into the tensor or nowhere.
static void read_rows(png_reader *reader) {
    const nd_png_library *library = reader->library;
    unsigned char *row = NULL;
    size_t row_bytes = 0;
    if (reader->tensor) {
        library->set_expand(reader->png);
        if (reader->depth == 16)
            library->set_swap(reader->png);
        row = reader->tensor->data;
        row_bytes = (size_t)(reader->tensor->shape[1] * reader->tensor->shape[2]) *
                    nd__dtype_bytes[reader->tensor->dtype];
    }
    int passes = library->set_interlace_handling(reader->png);
    library->read_update_info(reader->png, reader->info);
    if (row && library->get_rowbytes(reader->png, reader->info) != row_bytes)
        complain(reader->png, "its rows are of another length than its header says");
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < reader->height; y++)
            library->read_row(reader->png, row ? row + y * row_bytes : NULL, NULL);
    library->read_end(reader->png, NULL);
}

// -------------------------------------------------------------------------------------------------
// believing a header

/// Bytes of the picture in memory; -1: more than can be counted.
static int64_t picture_bytes(const png_reader *reader) {
    int64_t shape[] = {reader->height, reader->width, reader->channels};
    return nd__elements_bytes(reader->depth == 16 ? ND_U16 : ND_U8, 3, shape);
}

static nd_status check_size(const png_reader *reader) {
    const nd_image_source *source = reader->source;
    // No more than the picture's, but for less than a byte each.
    uint64_t rows_max = source->size * DEFLATE_RATIO / reader->packed_row;
    if (picture_bytes(reader) >= 0 && reader->height <= rows_max)
        return ND_OK;
    char text[ND__IMAGE_SOURCE_TEXT];
    return nd__error(ND_ERROR_FORMAT,
                     "%s: %s announces %u x %u pixels, more than its %llu bytes "
                     "can unpack to",
                     source->operation, nd__image_source_text(source, text), reader->width,
                     reader->height, (unsigned long long)source->size);
}

/// Whether the rows are really there, where they are more than is believed: unpacks them to
/// nowhere, and goes back to the first.
static nd_status bear_out(png_reader *reader) {
    const nd_image_source *source = reader->source;
    const uint64_t credit = nd__image_source_credit(source), row = reader->width * (uint64_t)8;
    if ((uint64_t)picture_bytes(reader) + 3 * row + WORKING_BYTES <= credit)
        return ND_OK;
    char text[ND__IMAGE_SOURCE_TEXT];
    if (2 * (uint64_t)reader->packed_row + WORKING_BYTES > credit)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: %s announces rows of %zu bytes, too long to be believed of %llu",
                         source->operation, nd__image_source_text(source, text), reader->packed_row,
                         (unsigned long long)source->size);
    if (!attempt(reader, read_rows))
        return nd_error_get_status();
    end(reader);
    return attempt(reader, begin) ? ND_OK : nd_error_get_status();
}
