// Writing JPEG with libjpeg.
//
// Invariant: libjpeg leaves a step by longjmp to `attempt` and nowhere else, always with an error
// set; what it holds is destroyed behind that.
#include "lib/io/jpeg_write.h"
#include "lib/io/jpeg_library.h"

#if ND_HAVE_JPEG
#include "lib/base/error.h"
#include <setjmp.h>

typedef struct jpeg_writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr output;
    const nd_jpeg_library *library;
    nd_image_sink *sink;
    const nd_image_pixels *pixels;
    int quality;
    bool progressive;
    jmp_buf back;
    JOCTET buffer[1 << 14];
} jpeg_writer;

static bool attempt(jpeg_writer *writer, void (*step)(jpeg_writer *writer));
static void write_picture(jpeg_writer *writer);
static void end(jpeg_writer *writer);

nd_status nd__jpeg_write(nd_image_sink *sink, const nd_image_pixels *pixels, int quality,
                         bool progressive) {
    jpeg_writer writer = {.library = nd__jpeg_library(sink->operation),
                          .sink = sink,
                          .pixels = pixels,
                          .quality = quality,
                          .progressive = progressive};
    if (!writer.library)
        return nd_error_get_status();
    bool done = attempt(&writer, write_picture);
    end(&writer);
    return done ? ND_OK : nd_error_get_status();
}

/// Runs a step; false when it was left with an error. Changes nothing of its own between the two
/// returns of setjmp.
static bool attempt(jpeg_writer *writer, void (*step)(jpeg_writer *writer)) {
    if (setjmp(writer->back))
        return false;
    step(writer);
    return true;
}

static void fail(j_common_ptr jpeg) {
    jpeg_writer *writer = jpeg->client_data;
    const char *operation = writer->sink->operation;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to compress", operation);
    else
        nd__error(ND_ERROR_UNSUPPORTED, "%s: libjpeg says: %s", operation, message);
    longjmp(writer->back, 1);
}

/// Of what is written nothing is damaged.
static void ignore_level(j_common_ptr jpeg, int level) {
    (void)jpeg;
    (void)level;
}

static void ignore(j_common_ptr jpeg) {
    (void)jpeg;
}

static void empty_buffer(j_compress_ptr jpeg) {
    jpeg_writer *writer = jpeg->client_data;
    writer->output.next_output_byte = writer->buffer;
    writer->output.free_in_buffer = sizeof writer->buffer;
}

static void hand_over(jpeg_writer *writer, size_t bytes) {
    if (nd__image_sink_write(writer->sink, writer->buffer, bytes) != ND_OK)
        longjmp(writer->back, 1);
}

/// The buffer is full, whatever libjpeg has counted.
static boolean write_buffer(j_compress_ptr jpeg) {
    hand_over(jpeg->client_data, sizeof((jpeg_writer *)0)->buffer);
    empty_buffer(jpeg);
    return TRUE;
}

static void write_rest(j_compress_ptr jpeg) {
    jpeg_writer *writer = jpeg->client_data;
    hand_over(writer, sizeof writer->buffer - writer->output.free_in_buffer);
}

static void write_picture(jpeg_writer *writer) {
    const nd_jpeg_library *library = writer->library;
    const nd_image_pixels *pixels = writer->pixels;
    j_compress_ptr jpeg = &writer->jpeg;
    jpeg->err = library->std_error(&writer->errors);
    writer->errors.error_exit = fail;
    writer->errors.emit_message = ignore_level;
    writer->errors.output_message = ignore;
    jpeg->client_data = writer;
    library->CreateCompress(jpeg, JPEG_LIB_VERSION, sizeof *jpeg);
    writer->output = (struct jpeg_destination_mgr){.init_destination = empty_buffer,
                                                   .empty_output_buffer = write_buffer,
                                                   .term_destination = write_rest};
    jpeg->dest = &writer->output;
    jpeg->image_width = (JDIMENSION)pixels->width;
    jpeg->image_height = (JDIMENSION)pixels->height;
    jpeg->input_components = pixels->channels;
    jpeg->in_color_space = pixels->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    library->set_defaults(jpeg);
    library->set_quality(jpeg, writer->quality, TRUE);
    if (writer->progressive)
        library->simple_progression(jpeg);
    library->start_compress(jpeg, TRUE);
    size_t row_bytes = (size_t)(pixels->width * pixels->channels);
    for (int64_t y = 0; y < pixels->height; y++) {
        // libjpeg does not write there.
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels->data + (size_t)y * row_bytes);
        library->write_scanlines(jpeg, &row, 1);
    }
    library->finish_compress(jpeg);
}

static void end(jpeg_writer *writer) {
    writer->library->destroy((j_common_ptr)&writer->jpeg);
}

#else

nd_status nd__jpeg_write(nd_image_sink *sink, const nd_image_pixels *pixels, int quality,
                         bool progressive) {
    (void)pixels;
    (void)quality;
    (void)progressive;
    nd__jpeg_library(sink->operation);
    return nd_error_get_status();
}

#endif
