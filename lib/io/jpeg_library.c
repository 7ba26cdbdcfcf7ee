// libjpeg, opened once.
#include "lib/io/jpeg_library.h"
#include "lib/base/error.h"

#if ND_HAVE_JPEG
#include "lib/io/codec.h"
#include <pthread.h>

#if JPEG_LIB_VERSION < 70
#define FILE_NAME "libjpeg.so.62"
#elif JPEG_LIB_VERSION < 80
#define FILE_NAME "libjpeg.so.7"
#elif JPEG_LIB_VERSION < 90
#define FILE_NAME "libjpeg.so.8"
#else
#define FILE_NAME "libjpeg.so.9"
#endif

static nd_jpeg_library library;
static bool found;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_library(void) {
#define NAME(result, name, arguments) "jpeg_" #name,
    static const char *const names[] = {ND__JPEG_FUNCTIONS(NAME)};
#undef NAME
    enum { COUNT = sizeof names / sizeof *names };
    _Static_assert(sizeof library == COUNT * sizeof(void *), "a table of functions alone");
    found = nd__codec_open("ND_JPEG", FILE_NAME, COUNT, names, &library);
}

const nd_jpeg_library *nd__jpeg_library(const char *operation) {
    pthread_once(&opened, open_library);
    if (found)
        return &library;
    nd__error(ND_ERROR_UNSUPPORTED,
              "%s: JPEG needs " FILE_NAME ", which this machine has not (Debian: libjpeg62-turbo)",
              operation);
    return NULL;
}

#else

const nd_jpeg_library *nd__jpeg_library(const char *operation) {
    nd__error(ND_ERROR_UNSUPPORTED,
              "%s: this library was built without JPEG (Debian: libjpeg62-turbo-dev)", operation);
    return NULL;
}

#endif
