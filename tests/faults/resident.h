// How much of the process is in memory, for tests of what is kept and given back.
#ifndef ND_TESTS_FAULTS_RESIDENT_H
#define ND_TESTS_FAULTS_RESIDENT_H
#include "tests/testing.h"
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/// Bytes that are resident, as the system says.
static uint64_t resident(void) {
    unsigned long long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &all, &pages), 2);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
#endif
