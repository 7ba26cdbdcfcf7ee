// Text to learn from: the pages of this repository's docs, one after the other.
#ifndef ND_BENCH_CORPUS_H
#define ND_BENCH_CORPUS_H
#include <nd/nd.h>

/// All docs/*.md in the order of their names: [bytes] of u8, on the CPU, in the current manager.
/// NULL when there are none, with an error where one could not be read.
nd_tensor *corpus_load(void) ND_OWNED;

#endif
