// The harness of programs on three threads, with a board through which they hand each other
// objects, and the calling thread beside them, which reports and collects. Two bits of a step's
// last number say which thread it is of; 3: of all.
//
// What must hold here is what holds when everybody has stopped: nothing is left, every check
// agrees. In between the thread sanitizer watches.
#include "tests/fuzz/program.h"
#include "tests/fuzz/text.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3 };

static fuzz_actor actors[THREADS];
static fuzz_step steps[THREADS][FUZZ_STEPS_MAX];
static pthread_barrier_t start;
static _Atomic int running;

static void *run(void *data) {
    fuzz_actor *me = data;
    fuzz_me = me;
    pthread_barrier_wait(&start);
    while (me->next < me->count)
        fuzz_run_step(me);
    // Every second thread leaves its scopes to its end.
    fuzz_end_blocks(me, me->number % 2 == 1);
    fuzz_me = NULL;
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/// Gives every step to its thread.
static void deal(const uint8_t *data, size_t size) {
    static fuzz_step all[FUZZ_STEPS_MAX];
    size_t count = fuzz_steps(data, size, all);
    for (unsigned t = 0; t < THREADS; t++) {
        fuzz_actor *actor = &actors[t];
        memset(actor, 0, sizeof *actor);
        actor->number = t;
        actor->steps = steps[t];
        for (size_t i = 0; i < count; i++)
            if (all[i].d >> 6 == t || all[i].d >> 6 == THREADS)
                steps[t][actor->count++] = all[i];
    }
}

/// What the calling thread does beside the others, at least once.
static void report_beside(void) {
    FILE *nowhere = fopen("/dev/null", "w");
    unsigned turn = 0;
    if (!nowhere)
        fuzz_die("there is no /dev/null");
    do {
        switch (turn++ % 4) {
        case 0:
            nd_debug_dump_json(NULL, nowhere, 0);
            break;
        case 1:
            nd_gc_collect(NULL, NULL);
            break;
        case 2:
            nd_debug_dump(NULL, nowhere);
            break;
        default:
            nd_debug_report_leaks(NULL, nowhere, 0);
        }
    } while (atomic_load(&running) > 0);
    fclose(nowhere);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pthread_t threads[THREADS];
    deal(data, size);
    fuzz_begin_program(true);
    atomic_store(&running, THREADS);
    if (pthread_barrier_init(&start, NULL, THREADS) != 0)
        fuzz_die("no barrier");
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, run, &actors[t]) != 0)
            fuzz_die("no thread");
    report_beside();
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&start);
    fuzz_clear_board();
    for (int t = 0; t < THREADS; t++)
        fuzz_drop(&actors[t]);
    fuzz_end_program();
    return 0;
}
