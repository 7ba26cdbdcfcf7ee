// Changes to inputs, by units: steps of a program, bytes of a file. The same seed gives the same
// change.
#ifndef ND_TESTS_FUZZ_MUTATE_H
#define ND_TESTS_FUZZ_MUTATE_H
#include <stddef.h>
#include <stdint.h>

/// Bytes of a unit: 5 for programs, 1 for files.
extern const size_t fuzz_unit;

/// Changes, inserts, doubles, moves or removes a few units in place; at most `capacity` bytes.
/// Returns the new size.
size_t fuzz_mutate(uint8_t *data, size_t size, size_t capacity, uint64_t seed);

#endif
