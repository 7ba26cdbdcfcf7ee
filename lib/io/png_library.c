// libpng, opened when it is first wanted.
#include "lib/io/png_library.h"
#include "lib/base/error.h"
#include "lib/base/optional.h"

const nd_png_library *nd__png_library(const char *operation) {
    static const char *const files[] = {"libpng16.so.16", NULL};
#define NAME(result, name, arguments) "png_" #name,
    static const char *const names[] = {ND__PNG_FUNCTIONS(NAME)};
#undef NAME
    enum { COUNT = sizeof names / sizeof *names };
    _Static_assert(sizeof(nd_png_library) == COUNT * sizeof(void *), "a table of functions alone");
    static nd_optional library = {.what = "libpng",
                                  .package = "libpng16-16",
                                  .variable = "ND_PNG",
                                  .files = files,
                                  .count = COUNT,
                                  .names = names};
    const nd_png_library *functions = nd__optional_functions(&library);
    if (!functions) {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(&library, why);
        nd__error(status, "%s: PNG %s", operation, why);
    }
    return functions;
}
