// libjpeg, opened when it is first wanted.
#include "lib/io/jpeg_library.h"
#include "lib/base/error.h"

#if ND_HAVE_JPEG
#include "lib/base/optional.h"

#if JPEG_LIB_VERSION < 70
#define FILE_NAME "libjpeg.so.62"
#elif JPEG_LIB_VERSION < 80
#define FILE_NAME "libjpeg.so.7"
#elif JPEG_LIB_VERSION < 90
#define FILE_NAME "libjpeg.so.8"
#else
#define FILE_NAME "libjpeg.so.9"
#endif

const nd_jpeg_library *nd__jpeg_library(const char *operation) {
    static const char *const files[] = {FILE_NAME, NULL};
#define NAME(result, name, arguments) "jpeg_" #name,
    static const char *const names[] = {ND__JPEG_FUNCTIONS(NAME)};
#undef NAME
    enum { COUNT = sizeof names / sizeof *names };
    _Static_assert(sizeof(nd_jpeg_library) == COUNT * sizeof(void *), "a table of functions alone");
    static nd_optional library = {.what = "libjpeg",
                                  .package = "libjpeg62-turbo",
                                  .variable = "ND_JPEG",
                                  .files = files,
                                  .count = COUNT,
                                  .names = names};
    const nd_jpeg_library *functions = nd__optional_functions(&library);
    if (!functions) {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(&library, why);
        nd__error(status, "%s: JPEG %s", operation, why);
    }
    return functions;
}

#else

const nd_jpeg_library *nd__jpeg_library(const char *operation) {
    nd__error(ND_ERROR_UNSUPPORTED,
              "%s: this library was built without JPEG (Debian: libjpeg62-turbo-dev)", operation);
    return NULL;
}

#endif
