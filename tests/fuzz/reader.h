// What the harnesses of readers share: an input as a file in memory, read as it is and in pieces,
// and the verdict on what came.
#ifndef ND_TESTS_FUZZ_READER_H
#define ND_TESTS_FUZZ_READER_H
#include <nd/nd.h>

/// Says what is wrong and stops.
__attribute__((format(printf, 1, 2), noreturn)) void fuzz_die(const char *format, ...);

/// Path of a file with this content, good until the next call.
const char *fuzz_file(const uint8_t *data, size_t size);

/// Begins to count the memory that is asked for, of the library and, where a sanitizer's allocator
/// tells, of everybody else.
void fuzz_bound_begin(void);
/// Ends it: an input of `size` bytes may have taken 64 times as many and 1 MiB, and what `borne_out`
/// bytes in managers that data have turned out to be may: twice as many, and no more. Else the
/// program stops.
void fuzz_bound_end(size_t size, uint64_t borne_out);
/// What an input may take beside that, where docs/files.md says so.
extern uint64_t fuzz_bound_more;

/// Loads the same content twice: read at once, and in pieces of one to eight bytes. Both must
/// answer alike, keep the bound on memory, a refusal must have a sentence that names the file, and
/// afterwards nothing may be left. The first result, or NULL with its error.
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
