// The version of the library, from the numbers of <nd/version.h>.
#include <nd/version.h>

const char *nd_version(void) {
    return ND_VERSION_STRING;
}

uint32_t nd_version_number(void) {
    return ND_VERSION_NUMBER;
}
