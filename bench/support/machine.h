// What the figures were measured on.
#ifndef ND_BENCH_MACHINE_H
#define ND_BENCH_MACHINE_H
#include "bench/support/json.h"

/// Writes "machine": {cpu, cores, memory_bytes, system, compiler, gpus} into an open object.
void bench_machine_json(bench_json *json);

/// One line for people, such as "AMD EPYC, 2 cores, 24 GiB, Linux 6.1 x86_64, gcc 12.2.0". Writes
/// at most `size` bytes; returns `buffer`.
const char *bench_machine_line(char *buffer, size_t size);

/// Bytes of this process that are in memory now, as the system counts them; 0 when it does not
/// tell.
uint64_t bench_resident_bytes(void);

#endif
