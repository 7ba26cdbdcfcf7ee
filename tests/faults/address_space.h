// How much address space the process has, for tests that bound it.
#ifndef ND_TESTS_FAULTS_ADDRESS_SPACE_H
#define ND_TESTS_FAULTS_ADDRESS_SPACE_H
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/// Bytes of address space in use; 0 where /proc does not say.
static uint64_t address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
#endif
