// Numbers as people read them. Each function writes into `buffer` and returns it.
#ifndef ND_BENCH_NUMBERS_H
#define ND_BENCH_NUMBERS_H
#include <stdint.h>

enum { NUMBER_TEXT = 32 };
/// 1234567 -> "1,234,567".
const char *with_commas(char buffer[NUMBER_TEXT], uint64_t value);
/// 1234567 -> "1.2 MiB".
const char *in_units(char buffer[NUMBER_TEXT], uint64_t bytes);

#endif
