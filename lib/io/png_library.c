// libpng, opened once.
#include "lib/io/png_library.h"
#include "lib/base/error.h"
#include "lib/io/codec.h"
#include <pthread.h>

static nd_png_library library;
static bool found;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_library(void) {
#define NAME(result, name, arguments) "png_" #name,
    static const char *const names[] = {ND__PNG_FUNCTIONS(NAME)};
#undef NAME
    enum { COUNT = sizeof names / sizeof *names };
    _Static_assert(sizeof library == COUNT * sizeof(void *), "a table of functions alone");
    found = nd__codec_open("ND_PNG", "libpng16.so.16", COUNT, names, &library);
}

const nd_png_library *nd__png_library(const char *operation) {
    pthread_once(&opened, open_library);
    if (found)
        return &library;
    nd__error(ND_ERROR_UNSUPPORTED,
              "%s: PNG needs libpng, which this machine has not (Debian: libpng16-16)", operation);
    return NULL;
}
