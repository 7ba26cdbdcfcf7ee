// The functions of libpng that are used, with types of C: what libpng calls png_struct and png_info
// nobody but itself looks into, so its headers are not needed.
#ifndef ND_LIB_IO_PNG_LIBRARY_H
#define ND_LIB_IO_PNG_LIBRARY_H
#include <stddef.h>
#include <stdint.h>

/// Called with an error's sentence; must not return. Also for warnings, which may.
typedef void nd_png_complain(void *png, const char *message);
typedef void *nd_png_allocate(void *png, size_t bytes);
typedef void nd_png_free(void *png, void *memory);
typedef void nd_png_transfer(void *png, unsigned char *data, size_t bytes);
typedef void nd_png_flush(void *png);

/// Their names without png_.
#define ND__PNG_FUNCTIONS(F)                                                                       \
    F(const char *, get_libpng_ver, (const void *png))                                             \
    F(void *, create_read_struct_2,                                                                \
      (const char *version, void *owner, nd_png_complain *error, nd_png_complain *warning,         \
       void *memory_owner, nd_png_allocate *allocate, nd_png_free *release))                       \
    F(void *, create_write_struct_2,                                                               \
      (const char *version, void *owner, nd_png_complain *error, nd_png_complain *warning,         \
       void *memory_owner, nd_png_allocate *allocate, nd_png_free *release))                       \
    F(void *, create_info_struct, (const void *png))                                               \
    F(void, destroy_read_struct, (void **png, void **info, void **end))                            \
    F(void, destroy_write_struct, (void **png, void **info))                                       \
    F(void *, get_error_ptr, (const void *png))                                                    \
    F(void *, get_mem_ptr, (const void *png))                                                      \
    F(void *, get_io_ptr, (const void *png))                                                       \
    F(void, set_user_limits, (void *png, uint32_t width, uint32_t height))                         \
    F(void, set_read_fn, (void *png, void *owner, nd_png_transfer *read))                          \
    F(void, set_keep_unknown_chunks, (void *png, int keep, const unsigned char *names, int count)) \
    F(void, read_info, (void *png, void *info))                                                    \
    F(uint32_t, get_image_width, (const void *png, const void *info))                              \
    F(uint32_t, get_image_height, (const void *png, const void *info))                             \
    F(unsigned char, get_bit_depth, (const void *png, const void *info))                           \
    F(unsigned char, get_color_type, (const void *png, const void *info))                          \
    F(uint32_t, get_valid, (const void *png, const void *info, uint32_t chunks))                   \
    F(size_t, get_rowbytes, (const void *png, const void *info))                                   \
    F(void, set_expand, (void *png))                                                               \
    F(void, set_swap, (void *png))                                                                 \
    F(int, set_interlace_handling, (void *png))                                                    \
    F(void, read_update_info, (void *png, void *info))                                             \
    F(void, read_row, (void *png, unsigned char *row, unsigned char *display))                     \
    F(void, read_end, (void *png, void *info))                                                     \
    F(void, set_write_fn, (void *png, void *owner, nd_png_transfer *write, nd_png_flush *flush))   \
    F(void, set_compression_level, (void *png, int level))                                         \
    F(void, set_IHDR,                                                                              \
      (const void *png, void *info, uint32_t width, uint32_t height, int depth, int color,         \
       int interlaced, int compression, int filter))                                               \
    F(void, write_info, (void *png, const void *info))                                             \
    F(void, write_row, (void *png, const unsigned char *row))                                      \
    F(void, write_end, (void *png, void *info))

typedef struct nd_png_library {
#define ND__PNG_MEMBER(result, name, arguments) result(*name) arguments;
    ND__PNG_FUNCTIONS(ND__PNG_MEMBER)
#undef ND__PNG_MEMBER
} nd_png_library;

/// Bits of a colour type, as the format has them.
enum { ND__PNG_PALETTE = 1, ND__PNG_COLOR = 2, ND__PNG_ALPHA = 4 };

/// libpng, opened at the first call; NULL with ND_ERROR_UNSUPPORTED where it is missing.
const nd_png_library *nd__png_library(const char *operation);
#endif
