// What the harnesses of readers share: an input as a file in memory, read as it is and in pieces,
// and the verdict on what came.
#ifndef ND_TESTS_FUZZ_READER_H
#define ND_TESTS_FUZZ_READER_H
#include <nd/nd.h>

/// Says what is wrong and stops.
__attribute__((format(printf, 1, 2), noreturn)) void fuzz_die(const char *format, ...);

/// Path of a file with this content, good until the next call.
const char *fuzz_file(const uint8_t *data, size_t size);

/// Loads the same content twice: read at once, and in pieces of one to eight bytes. Both must
/// answer alike, a refusal must have a sentence that names the file, and afterwards nothing may be
/// left. The first result, or NULL with its error.
void *fuzz_load(const uint8_t *data, size_t size, void *(*load)(const char *path),
                bool (*equal)(const void *a, const void *b));

/// Whether two tensors have the same shape, dtype, name and bytes.
bool fuzz_tensors_equal(const nd_tensor *a, const nd_tensor *b);

/// Whether two maps have the same names in the same order, and such tensors under them.
bool fuzz_maps_equal(const nd_map *a, const nd_map *b);

/// Path for a file to be written and unlinked, in memory where that can be: a writer waits for the
/// disk.
const char *fuzz_path(void);

/// At the end of an input: no object, no byte, no error is left.
void fuzz_end_input(void);

#endif
