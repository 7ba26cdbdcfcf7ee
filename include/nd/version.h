/// @file
/// Which ndarc this is: of the headers when a program is compiled, and of the library when it runs.
///
/// Versions are those of semver.org; docs/stability.md says what may change with each part.
#ifndef ND_VERSION_H
#define ND_VERSION_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Changes with what breaks programs; also the number in the library's SONAME.
#define ND_VERSION_MAJOR 0
/// Changes with what is added; while MAJOR is 0, also with what breaks programs.
#define ND_VERSION_MINOR 1
/// Changes with what is mended.
#define ND_VERSION_PATCH 0

/// One number for a version, in order of age: for `#if` and for nd_version_number().
#define ND_VERSION_NUMBER_OF(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
/// The headers' version as one number.
#define ND_VERSION_NUMBER ND_VERSION_NUMBER_OF(ND_VERSION_MAJOR, ND_VERSION_MINOR, ND_VERSION_PATCH)
/// Whether the headers are of this version or newer: `#if ND_VERSION_AT_LEAST(0, 2, 0)`.
#define ND_VERSION_AT_LEAST(major, minor, patch) \
    (ND_VERSION_NUMBER >= ND_VERSION_NUMBER_OF(major, minor, patch))

#define ND__TEXT(x) ND__TEXT_OF(x)
#define ND__TEXT_OF(x) #x
/// The headers' version as text, such as "0.1.0".
#define ND_VERSION_STRING \
    ND__TEXT(ND_VERSION_MAJOR) "." ND__TEXT(ND_VERSION_MINOR) "." ND__TEXT(ND_VERSION_PATCH)

/// Version of the library that runs, which can be another than that of the headers.
///
/// @return such as "0.1.0"; static storage
/// @errors none
/// @threads any
ND_API const char *nd_version(void);

/// Version of the library that runs as one number, to compare with ND_VERSION_NUMBER_OF().
///
/// @return ND_VERSION_NUMBER as it was when the library was built
/// @errors none
/// @threads any
ND_API uint32_t nd_version_number(void);

#ifdef __cplusplus
}
#endif
#endif
