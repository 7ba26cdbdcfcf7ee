#include "kernels/cpu/lapack.h"

nd_optional *nd__cpu_lapack_library(void) {
    static const char *const files[] = {"liblapack.so.3", "libopenblas.so.0", "liblapack.so", NULL};
#define NAME_F32(name, arguments) "s" #name "_",
#define NAME_F64(name, arguments) "d" #name "_",
    static const char *const names[] = {ND__LAPACK_FUNCTIONS(NAME_F32)
                                            ND__LAPACK_FUNCTIONS(NAME_F64)};
#undef NAME_F32
#undef NAME_F64
    enum { COUNT = sizeof names / sizeof *names };
    _Static_assert(2 * sizeof(nd__lapack_functions) == COUNT * sizeof(void *),
                   "two tables of functions alone");
    static nd_optional library = {.what = "LAPACK",
                                  .package = "liblapack3",
                                  .variable = "ND_LAPACK",
                                  .files = files,
                                  .count = COUNT,
                                  .names = names};
    return &library;
}

const nd__lapack_functions *nd__cpu_lapack(nd_dtype dtype) {
    const nd__lapack_functions *both = nd__optional_functions(nd__cpu_lapack_library());
    return !both || dtype == ND_F32 ? both : both + 1;
}
