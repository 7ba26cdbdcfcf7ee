// Reading JPEG with libjpeg.
//
// Invariant: libjpeg leaves a step by longjmp to `attempt` and nowhere else, always with an error
// set; what it holds is destroyed behind that. What it warns of is an error. Memory for more than
// the source's credit is taken only when all scans have been read, an eighth as wide and high, to
// nowhere. Coefficients of pictures that come in several scans take memory row by row, as the data
// of a row come; while they are read to nowhere, a bit for each.
#include "lib/io/jpeg_read.h"
#include "lib/io/jpeg_library.h"

#if ND_HAVE_JPEG
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/elements.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"

#include <setjmp.h>
#include <string.h>

enum {
    SCANS_MAX = 500,   // each goes over all of the picture
    SHRUNK = 8,        // the smallest that libjpeg can make of 8
    COLUMN_BYTES = 128 // more than libjpeg takes for a column, in rows of several kinds
};
/// What libjpeg takes beside rows.
#define WORKING_BYTES ((uint64_t)1 << 18)
/// Of blocks of coefficients, for vector instructions.
#define BLOCK_ALIGNMENT 32

/// All coefficients of a component, in rows of blocks.
///
/// A sketch keeps of each only whether it is 0: more does not tell where the data of later scans lie.
/// The rows that libjpeg looks at are made of that in a window, and become that again.
typedef struct coefficients {
    struct coefficients *next;
    JDIMENSION blocks, count; ///< of a row; rows
    void **memory;            ///< owned, one for each row; NULL: its data have not come yet
    JBLOCKROW *rows;
    // Of a sketch, whose memory[row] is an uint64_t for each block:
    void *window;              ///< owned
    JDIMENSION window_rows;    ///< that it has room for
    JDIMENSION begin, showing; ///< first row and number of those that it holds
} coefficients;

typedef struct jpeg_reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr input;
    struct jpeg_progress_mgr progress;
    const nd_jpeg_library *library;
    nd_image_source *source;
    coefficients *components; ///< owned
    bool sketched;            ///< coefficients are
    bool grey;
    int orientation;
    nd_tensor *tensor; ///< owned; NULL: a shrunk picture goes nowhere
    jmp_buf back;
} jpeg_reader;

static bool attempt(jpeg_reader *reader, void (*step)(jpeg_reader *reader));
static void begin(jpeg_reader *reader);
static void read_rows(jpeg_reader *reader);
static void end(jpeg_reader *reader);
static nd_status check_kind(const jpeg_reader *reader);
static nd_status check_size(const jpeg_reader *reader);
static nd_status bear_out(jpeg_reader *reader);
static int exif_orientation(const jpeg_saved_marker_ptr markers);

nd_tensor *nd__jpeg_read(nd_image_source *source, bool grey, int *ret_orientation) {
    jpeg_reader reader = {
        .library = nd__jpeg_library(source->operation), .source = source, .grey = grey};
    if (!reader.library)
        return NULL;
    bool done = attempt(&reader, begin) && check_kind(&reader) == ND_OK &&
                check_size(&reader) == ND_OK && bear_out(&reader) == ND_OK;
    if (done) {
        int channels = reader.jpeg.out_color_space == JCS_GRAYSCALE ? 1 : 3;
        int64_t shape[] = {reader.jpeg.image_height, reader.jpeg.image_width, channels};
        reader.tensor = nd__elements_new(source->operation, ND_U8, 3, shape);
        done = reader.tensor && attempt(&reader, read_rows);
    }
    *ret_orientation = reader.orientation;
    end(&reader);
    if (done)
        return reader.tensor;
    nd_release(reader.tensor);
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// errors

/// Runs a step; false when it was left with an error. Changes nothing of its own between the two
/// returns of setjmp.
static bool attempt(jpeg_reader *reader, void (*step)(jpeg_reader *reader)) {
    if (setjmp(reader->back))
        return false;
    step(reader);
    return true;
}

static _Noreturn void leave(jpeg_reader *reader) {
    longjmp(reader->back, 1);
}

/// ND_ERROR_FORMAT, or another of a few. An image that says its height behind its rows has none at first.
static nd_status status_of(const struct jpeg_decompress_struct *jpeg) {
    switch (jpeg->err->msg_code) {
    case JERR_EMPTY_IMAGE:
        return jpeg->image_width > 0 && jpeg->num_components > 0 ? ND_ERROR_UNSUPPORTED
                                                                 : ND_ERROR_FORMAT;
    case JERR_OUT_OF_MEMORY:
        return ND_ERROR_OUT_OF_MEMORY;
    case JERR_BAD_LIB_VERSION:
    case JERR_BAD_PRECISION:
    case JERR_BAD_STRUCT_SIZE:
    case JERR_COMPONENT_COUNT:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
    case JERR_SOF_UNSUPPORTED:
        return ND_ERROR_UNSUPPORTED;
    default:
        return ND_ERROR_FORMAT;
    }
}

static void complain(j_common_ptr jpeg) {
    jpeg_reader *reader = jpeg->client_data;
    nd_status status = status_of(&reader->jpeg);
    char message[JMSG_LENGTH_MAX], text[ND__IMAGE_SOURCE_TEXT];
    nd__image_source_text(reader->source, text);
    jpeg->err->format_message(jpeg, message);
    if (status == ND_ERROR_OUT_OF_MEMORY)
        nd__error(status, "%s: no memory to decode %s, a JPEG of %u x %u pixels",
                  reader->source->operation, text, reader->jpeg.image_width,
                  reader->jpeg.image_height);
    else
        nd__error(status, "%s: %s %s: %s", reader->source->operation, text,
                  status == ND_ERROR_FORMAT ? "is a damaged JPEG" : "is a JPEG that cannot be read",
                  message);
    leave(reader);
}

/// Below 0 are warnings, which say that data are damaged; the others tell what is going on.
static void complain_of_damage(j_common_ptr jpeg, int level) {
    if (level < 0)
        complain(jpeg);
}

static void ignore(j_common_ptr jpeg) {
    (void)jpeg;
}

// -------------------------------------------------------------------------------------------------
// input

static void do_nothing(j_decompress_ptr jpeg) {
    (void)jpeg;
}

static boolean fill(j_decompress_ptr jpeg) {
    jpeg_reader *reader = jpeg->client_data;
    struct jpeg_source_mgr *input = &reader->input;
    if (nd__image_source_next(reader->source, &input->next_input_byte, &input->bytes_in_buffer) !=
        ND_OK)
        leave(reader);
    if (input->bytes_in_buffer > 0)
        return TRUE;
    nd__image_source_truncated(reader->source);
    leave(reader);
}

static void skip(j_decompress_ptr jpeg, long bytes) {
    struct jpeg_source_mgr *input = jpeg->src;
    size_t left = bytes > 0 ? (size_t)bytes : 0;
    while (left > input->bytes_in_buffer) {
        left -= input->bytes_in_buffer;
        fill(jpeg);
    }
    input->next_input_byte += left;
    input->bytes_in_buffer -= left;
}

/// A restart marker is not where it should be: nothing is guessed.
static boolean refuse_to_resync(j_decompress_ptr jpeg, int desired) {
    jpeg->err->msg_code = JWRN_MUST_RESYNC;
    jpeg->err->msg_parm.i[0] = jpeg->unread_marker;
    jpeg->err->msg_parm.i[1] = desired;
    complain((j_common_ptr)jpeg);
    return FALSE;
}

/// Called now and then, more than once for each scan.
static void watch(j_common_ptr jpeg) {
    jpeg_reader *reader = jpeg->client_data;
    if (reader->jpeg.input_scan_number <= SCANS_MAX)
        return;
    char text[ND__IMAGE_SOURCE_TEXT];
    nd__error(ND_ERROR_UNSUPPORTED, "%s: %s has more than %d scans", reader->source->operation,
              nd__image_source_text(reader->source, text), SCANS_MAX);
    leave(reader);
}

// -------------------------------------------------------------------------------------------------
// coefficients

static _Noreturn void leave_without_memory(jpeg_reader *reader, size_t bytes) {
    char text[ND__IMAGE_SOURCE_TEXT];
    nd__error(ND_ERROR_OUT_OF_MEMORY,
              "%s: no memory for %zu bytes of the coefficients of %s, a JPEG of %u x %u pixels",
              reader->source->operation, bytes, nd__image_source_text(reader->source, text),
              reader->jpeg.image_width, reader->jpeg.image_height);
    leave(reader);
}

static void *allocate(jpeg_reader *reader, size_t bytes) {
    void *memory = nd__pressure_alloc_zeroed(bytes);
    if (!memory)
        leave_without_memory(reader, bytes);
    return memory;
}

/// The first block in memory that has room for as many and their alignment.
static JBLOCKROW aligned(void *memory) {
    char *at = memory;
    at += BLOCK_ALIGNMENT - (uintptr_t)at % BLOCK_ALIGNMENT;
    return (JBLOCKROW)(void *)at;
}

/// libjpeg's request for rows of blocks that it will want to see a few at a time.
static jvirt_barray_ptr request_rows(j_common_ptr jpeg, int pool, boolean zeroed, JDIMENSION blocks,
                                     JDIMENSION rows, JDIMENSION at_once) {
    jpeg_reader *reader = jpeg->client_data;
    (void)pool, (void)zeroed, (void)at_once;
    coefficients *component = allocate(reader, sizeof *component);
    component->next = reader->components;
    reader->components = component;
    component->blocks = blocks;
    component->count = rows;
    component->memory = allocate(reader, rows * sizeof *component->memory);
    component->rows = allocate(reader, rows * sizeof *component->rows);
    return (jvirt_barray_ptr)component;
}

static void sketch_block(const JCOEF *block, uint64_t *ret_sketch) {
    uint64_t sketch = 0;
    for (int i = 0; i < DCTSIZE2; i++)
        sketch |= (uint64_t)(block[i] != 0) << i;
    *ret_sketch = sketch;
}

static void show_block(uint64_t sketch, JCOEF *ret_block) {
    for (int i = 0; i < DCTSIZE2; i++)
        ret_block[i] = (JCOEF)(sketch >> i & 1);
}

/// Rows of a sketch that exist, in its window; what that held goes back.
static JBLOCKARRAY show_rows(jpeg_reader *reader, coefficients *component, JDIMENSION begin,
                             JDIMENSION count) {
    JDIMENSION blocks = component->blocks;
    for (JDIMENSION row = 0; row < component->showing; row++) {
        uint64_t *sketch = component->memory[component->begin + row];
        for (JDIMENSION i = 0; i < blocks; i++)
            sketch_block(component->rows[row][i], &sketch[i]);
    }
    component->showing = 0;
    if (count > component->window_rows) {
        nd__alloc_free(component->window);
        component->window = NULL;
        component->window =
            allocate(reader, (size_t)count * blocks * sizeof(JBLOCK) + BLOCK_ALIGNMENT);
        component->window_rows = count;
    }
    for (JDIMENSION row = 0; row < count; row++) {
        const uint64_t *sketch = component->memory[begin + row];
        component->rows[row] = aligned(component->window) + (size_t)row * blocks;
        for (JDIMENSION i = 0; i < blocks; i++)
            show_block(sketch[i], component->rows[row][i]);
    }
    component->begin = begin;
    component->showing = count;
    return component->rows;
}

/// Some of those rows, zero at first. They exist once a scan was to write them.
static JBLOCKARRAY access_rows(j_common_ptr jpeg, jvirt_barray_ptr array, JDIMENSION begin,
                               JDIMENSION count, boolean writable) {
    jpeg_reader *reader = jpeg->client_data;
    coefficients *component = (coefficients *)array;
    char text[ND__IMAGE_SOURCE_TEXT];
    for (JDIMENSION row = begin; row < begin + count; row++) {
        if (row >= component->count || (!component->memory[row] && !writable)) {
            nd__error(ND_ERROR_FORMAT, "%s: %s is a damaged JPEG: no scan has all of a component",
                      reader->source->operation, nd__image_source_text(reader->source, text));
            leave(reader);
        }
        if (component->memory[row])
            continue;
        size_t bytes = component->blocks * sizeof(JBLOCK) + BLOCK_ALIGNMENT;
        component->memory[row] =
            allocate(reader, reader->sketched ? component->blocks * sizeof(uint64_t) : bytes);
        if (!reader->sketched)
            component->rows[row] = aligned(component->memory[row]);
    }
    return reader->sketched ? show_rows(reader, component, begin, count) : component->rows + begin;
}

static void free_coefficients(jpeg_reader *reader) {
    while (reader->components) {
        coefficients *component = reader->components;
        reader->components = component->next;
        for (JDIMENSION row = 0; component->memory && row < component->count; row++)
            nd__alloc_free(component->memory[row]);
        nd__alloc_free(component->memory);
        nd__alloc_free(component->rows);
        nd__alloc_free(component->window);
        nd__alloc_free(component);
    }
}

// -------------------------------------------------------------------------------------------------
// steps

/// From the beginning to the first scan.
static void begin(jpeg_reader *reader) {
    const nd_jpeg_library *library = reader->library;
    j_decompress_ptr jpeg = &reader->jpeg;
    nd__image_source_rewind(reader->source);
    jpeg->err = library->std_error(&reader->errors);
    reader->errors.error_exit = complain;
    reader->errors.emit_message = complain_of_damage;
    reader->errors.output_message = ignore;
    jpeg->client_data = reader;
    library->CreateDecompress(jpeg, JPEG_LIB_VERSION, sizeof *jpeg);
    jpeg->mem->request_virt_barray = request_rows;
    jpeg->mem->access_virt_barray = access_rows;
    reader->progress.progress_monitor = watch;
    jpeg->progress = &reader->progress;
    reader->input = (struct jpeg_source_mgr){.init_source = do_nothing,
                                             .fill_input_buffer = fill,
                                             .skip_input_data = skip,
                                             .resync_to_restart = refuse_to_resync,
                                             .term_source = do_nothing};
    jpeg->src = &reader->input;
    library->save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
    library->read_header(jpeg, TRUE);
    reader->orientation = exif_orientation(jpeg->marker_list);
    bool luminance = jpeg->jpeg_color_space == JCS_GRAYSCALE ||
                     (reader->grey && jpeg->jpeg_color_space == JCS_YCbCr);
    jpeg->out_color_space = luminance ? JCS_GRAYSCALE : JCS_RGB;
}

static void end(jpeg_reader *reader) {
    reader->library->destroy((j_common_ptr)&reader->jpeg);
    free_coefficients(reader);
}

/// All rows, and what follows them, into the tensor or, shrunk, nowhere.
static void read_rows(jpeg_reader *reader) {
    const nd_jpeg_library *library = reader->library;
    j_decompress_ptr jpeg = &reader->jpeg;
    if (!reader->tensor)
        jpeg->scale_denom = SHRUNK * jpeg->scale_num;
    if (reader->sketched)
        jpeg->do_block_smoothing = FALSE; // which looks at several rows, of what is not there
    library->start_decompress(jpeg);
    size_t row_bytes = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
    JSAMPROW row;
    if (reader->tensor) {
        row = reader->tensor->data;
        if (row_bytes * jpeg->output_height != (size_t)reader->tensor->numel)
            ERREXIT(jpeg, JERR_BAD_STATE);
    } else {
        row = *jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, (JDIMENSION)row_bytes, 1);
    }
    while (jpeg->output_scanline < jpeg->output_height) {
        library->read_scanlines(jpeg, &row, 1);
        row += reader->tensor ? row_bytes : 0;
    }
    library->finish_decompress(jpeg);
}

// -------------------------------------------------------------------------------------------------
// believing a header

static nd_status check_kind(const jpeg_reader *reader) {
    const struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const char *beyond = jpeg->arith_code                        ? "arithmetic coding"
                         : jpeg->jpeg_color_space == JCS_CMYK    ? "colours of CMYK"
                         : jpeg->jpeg_color_space == JCS_YCCK    ? "colours of YCCK"
                         : jpeg->jpeg_color_space == JCS_UNKNOWN ? "colours of no known kind"
                                                                 : NULL;
    char text[ND__IMAGE_SOURCE_TEXT];
    return beyond ? nd__error(ND_ERROR_UNSUPPORTED, "%s: %s is a JPEG with %s",
                              reader->source->operation,
                              nd__image_source_text(reader->source, text), beyond)
                  : ND_OK;
}

static uint64_t count_blocks(const struct jpeg_decompress_struct *jpeg) {
    uint64_t blocks = 0;
    for (int i = 0; i < jpeg->num_components; i++)
        blocks +=
            (uint64_t)jpeg->comp_info[i].width_in_blocks * jpeg->comp_info[i].height_in_blocks;
    return blocks;
}

/// Every block of 64 coefficients takes a bit at least.
static nd_status check_size(const jpeg_reader *reader) {
    const struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    if (count_blocks(jpeg) <= 8 * reader->source->size)
        return ND_OK;
    char text[ND__IMAGE_SOURCE_TEXT];
    return nd__error(ND_ERROR_FORMAT,
                     "%s: %s announces %u x %u pixels, more than its %llu bytes "
                     "can hold",
                     reader->source->operation, nd__image_source_text(reader->source, text),
                     jpeg->image_width, jpeg->image_height,
                     (unsigned long long)reader->source->size);
}

/// Whether the scans are really there, where they become more than is believed; goes back to the
/// first.
static nd_status bear_out(jpeg_reader *reader) {
    const struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    uint64_t channels = jpeg->out_color_space == JCS_GRAYSCALE ? 1 : 3;
    uint64_t bytes = jpeg->image_height * channels * jpeg->image_width +
                     jpeg->image_width * (uint64_t)COLUMN_BYTES + WORKING_BYTES;
    bool several = jpeg->progressive_mode || jpeg->comps_in_scan < jpeg->num_components;
    bytes += several ? count_blocks(jpeg) * sizeof(JBLOCK) : 0;
    if (bytes <= nd__image_source_credit(reader->source))
        return ND_OK;
    reader->sketched = several;
    if (!attempt(reader, read_rows))
        return nd_error_get_status();
    end(reader);
    reader->sketched = false;
    return attempt(reader, begin) ? ND_OK : nd_error_get_status();
}

// -------------------------------------------------------------------------------------------------
// Exif

/// A number of `bytes` bytes of a TIFF file, in its order of them.
static uint32_t tiff_number(const unsigned char *at, int bytes, bool big_endian) {
    uint32_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint32_t)at[i] << 8 * (big_endian ? bytes - 1 - i : i);
    return number;
}

/// The orientation that the first directory of a TIFF file has, 1 to 8; 0: none that makes sense.
static int tiff_orientation(const unsigned char *tiff, size_t bytes) {
    enum { HEADER = 8, COUNT = 2, ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    if (bytes < HEADER || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 0;
    bool big = *tiff == 'M';
    size_t at = tiff_number(tiff + 4, 4, big);
    if (at > bytes - COUNT)
        return 0;
    uint32_t entries = tiff_number(tiff + at, COUNT, big);
    at += COUNT;
    for (; entries > 0 && bytes - at >= ENTRY; entries--, at += ENTRY) {
        const unsigned char *entry = tiff + at;
        if (tiff_number(entry, 2, big) != TAG)
            continue;
        uint32_t value = tiff_number(entry + 8, 2, big);
        bool fine = tiff_number(entry + 2, 2, big) == SHORT &&
                    tiff_number(entry + 4, 4, big) == 1 && value >= 1 && value <= 8;
        return fine ? (int)value : 0;
    }
    return 0;
}

/// That of the first Exif block; 1, as it is stored, where there is none.
static int exif_orientation(const jpeg_saved_marker_ptr markers) {
    static const char name[6] = "Exif";
    for (jpeg_saved_marker_ptr marker = markers; marker; marker = marker->next) {
        if (marker->marker != JPEG_APP0 + 1 || marker->data_length < sizeof name ||
            memcmp(marker->data, name, sizeof name) != 0)
            continue;
        int orientation =
            tiff_orientation(marker->data + sizeof name, marker->data_length - sizeof name);
        return orientation ? orientation : 1;
    }
    return 1;
}

#else

nd_tensor *nd__jpeg_read(nd_image_source *source, bool grey, int *ret_orientation) {
    (void)grey;
    (void)ret_orientation;
    nd__jpeg_library(source->operation);
    return NULL;
}

#endif
