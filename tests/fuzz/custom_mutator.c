// Tells libFuzzer that a program is made of steps: half of its changes are of whole ones.
#include "tests/fuzz/mutate.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
    return seed % 2 ? LLVMFuzzerMutate(data, size, capacity)
                    : fuzz_mutate(data, size, capacity, seed);
}
