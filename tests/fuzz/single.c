// The harness of programs on one thread: after every call nd_debug_check and the counters of all
// managers, at the end nothing left.
#include "tests/fuzz/program.h"
#include "tests/fuzz/text.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fuzz_actor actor;
    static fuzz_step steps[FUZZ_STEPS_MAX];
    memset(&actor, 0, sizeof actor);
    actor.steps = steps;
    actor.count = fuzz_steps(data, size, steps);
    fuzz_begin_program(false);
    fuzz_me = &actor;
    while (actor.next < actor.count)
        fuzz_run_step(&actor);
    fuzz_end_blocks(&actor, false);
    fuzz_clear_board();
    fuzz_drop(&actor);
    fuzz_end_program();
    fuzz_me = NULL;
    return 0;
}
