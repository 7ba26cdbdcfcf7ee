// A test under each set of instructions that kernels were compiled for and this machine has.
#ifndef ND_TESTS_UNIT_OPS_ISAS_H
#define ND_TESTS_UNIT_OPS_ISAS_H
#include "kernels/cpu/cpu.h"

static inline void on_every_isa(void (*test)(void)) {
    static const char *const names[] = {"baseline", "x86_64_v3", "x86_64_v4", "x86_64_v4_halves"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (nd__cpu_use_isa(names[i]))
            test();
    nd__cpu_use_isa(NULL);
}
#endif
