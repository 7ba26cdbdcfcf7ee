// Writing PNG with libpng.
//
// Invariant: libpng leaves a step by longjmp to `attempt` and nowhere else, always with an error
// set; what it holds is destroyed behind that.
#include "lib/io/png_write.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/png_library.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

#include <setjmp.h>

enum { SIZE_MAX_ALLOWED = 0x7fffffff }; // the format's limit

typedef struct png_writer {
    const nd_png_library *library;
    nd_image_sink *sink;
    const nd_image_pixels *pixels;
    int compression;
    void *png, *info; ///< libpng's, owned
    bool out_of_memory;
    jmp_buf back;
} png_writer;

static bool attempt(png_writer *writer, void (*step)(png_writer *writer));
static void write_picture(png_writer *writer);

nd_status nd__png_write(nd_image_sink *sink, const nd_image_pixels *pixels, int compression) {
    png_writer writer = {.library = nd__png_library(sink->operation),
                         .sink = sink,
                         .pixels = pixels,
                         .compression = compression};
    if (!writer.library)
        return nd_error_get_status();
    bool done = attempt(&writer, write_picture);
    if (writer.png)
        writer.library->destroy_write_struct(&writer.png, &writer.info);
    return done ? ND_OK : nd_error_get_status();
}

/// Runs a step; false when it was left with an error. Changes nothing of its own between the two
/// returns of setjmp.
static bool attempt(png_writer *writer, void (*step)(png_writer *writer)) {
    if (setjmp(writer->back))
        return false;
    step(writer);
    return true;
}

static _Noreturn void leave(png_writer *writer) {
    longjmp(writer->back, 1);
}

static void fail(void *png, const char *message) {
    png_writer *writer = nd__png_library("png")->get_error_ptr(png);
    const char *operation = writer->sink->operation;
    if (writer->out_of_memory)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to compress", operation);
    else
        nd__error(ND_ERROR_UNSUPPORTED, "%s: libpng says: %s", operation, message);
    leave(writer);
}

/// Of what is written nothing is damaged.
static void ignore(void *png, const char *message) {
    (void)png;
    (void)message;
}

static void *allocate(void *png, size_t bytes) {
    png_writer *writer = nd__png_library("png")->get_mem_ptr(png);
    void *memory = nd__pressure_alloc(bytes);
    writer->out_of_memory |= memory == NULL;
    return memory;
}

static void give_back(void *png, void *memory) {
    (void)png;
    nd__alloc_free(memory);
}

static void transfer(void *png, unsigned char *data, size_t bytes) {
    png_writer *writer = nd__png_library("png")->get_io_ptr(png);
    if (nd__image_sink_write(writer->sink, data, bytes) != ND_OK)
        leave(writer);
}

static void flush(void *png) {
    (void)png;
}

static void write_picture(png_writer *writer) {
    static const int colors[] = {0, ND__PNG_ALPHA, ND__PNG_COLOR, ND__PNG_COLOR | ND__PNG_ALPHA};
    const nd_png_library *library = writer->library;
    const nd_image_pixels *pixels = writer->pixels;
    writer->png = library->create_write_struct_2(library->get_libpng_ver(NULL), writer, fail,
                                                 ignore, writer, allocate, give_back);
    if (writer->png)
        writer->info = library->create_info_struct(writer->png);
    if (!writer->info) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for libpng", writer->sink->operation);
        leave(writer);
    }
    library->set_write_fn(writer->png, writer, transfer, flush);
    library->set_user_limits(writer->png, SIZE_MAX_ALLOWED, SIZE_MAX_ALLOWED);
    library->set_compression_level(writer->png, writer->compression);
    library->set_IHDR(writer->png, writer->info, (uint32_t)pixels->width, (uint32_t)pixels->height,
                      8 * pixels->sample_bytes, colors[pixels->channels - 1], 0, 0, 0);
    library->write_info(writer->png, writer->info);
    if (pixels->sample_bytes == 2)
        library->set_swap(writer->png);
    size_t row_bytes = (size_t)(pixels->width * pixels->channels * pixels->sample_bytes);
    for (int64_t y = 0; y < pixels->height; y++)
        library->write_row(writer->png, pixels->data + (size_t)y * row_bytes);
    library->write_end(writer->png, NULL);
}
