// Runs programs and says what was found.
//
//   core [--limit N] [--samples N] [--no-races] [--no-trace] [--expect-error] [PROGRAM...]
//
// Each program runs in a process of its own, two at a time. Without --expect-error the first error
// fails; with it, the run ends with the first error and fails when there is none. N is of
// executions (by default each program's own bound, if it has one), and of random schedules behind
// them (20 times as many where the limit came first), for each program.
#include "tests/model/memory.h"
#include "tests/model/programs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS = 2 };
enum { FOUND_NOTHING = 0, FOUND_ERROR = 1, FOUND_NOTHING_BOUNDED = 3 };

static uint64_t limit; // 0: each program's own
static uint64_t samples = 1000;
static bool trace = true;

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int check(const model_program *program) {
    double begun = seconds();
    uint64_t bound = limit ? limit : program->bound ? program->bound : UINT64_MAX;
    model_result result = model_explore(program, bound, samples, trace);
    printf("%-26s %10llu %10llu %10llu %12llu %8u %8.2f  %s%s%s\n", program->name,
           (unsigned long long)result.executions, (unsigned long long)result.pruned,
           (unsigned long long)result.sampled, (unsigned long long)result.events, result.longest,
           seconds() - begun,
           result.failed      ? "ERROR"
           : !result.complete ? "bounded"
           : result.loose && !program->outcomes
               ? "complete, but for the order of stores to one word"
               : "complete",
           result.failed ? ": " : "", result.message);
    if (result.missed || result.repeated)
        printf(
            "%-26s the search is wrong: %llu of %llu random schedules were not explored, %llu were "
            "explored twice\n",
            "", (unsigned long long)result.missed, (unsigned long long)result.sampled,
            (unsigned long long)result.repeated);
    fflush(stdout);
    return result.failed || result.missed || result.repeated         ? FOUND_ERROR
           : result.complete && (!result.loose || program->outcomes) ? FOUND_NOTHING
                                                                     : FOUND_NOTHING_BOUNDED;
}

enum { MOST_PROGRAMS = 256 };
static const model_program *programs[MOST_PROGRAMS];
static size_t program_count;

/// Those that are explored to a bound come last: they take longest, and find least.
static void list_programs(void) {
    const struct {
        const model_program *first;
        size_t count;
    } lists[] = {{model_litmus_programs, model_litmus_program_count},
                 {model_core_programs, model_core_program_count},
                 {model_managers_programs, model_managers_program_count},
                 {model_settled_programs, model_settled_program_count},
                 {model_steps_programs, model_steps_program_count},
                 {model_attach_programs, model_attach_program_count},
                 {model_tensors_programs, model_tensors_program_count},
                 {model_lock_programs, model_lock_program_count},
                 {model_biased_programs, model_biased_program_count},
                 {model_accounts_programs, model_accounts_program_count}};
    for (int bounded = 0; bounded < 2; bounded++)
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
            for (size_t k = 0; k < lists[i].count && program_count < MOST_PROGRAMS; k++)
                if ((lists[i].first[k].bound != 0) == bounded)
                    programs[program_count++] = &lists[i].first[k];
}

static bool chosen(const model_program *program, char **names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], program->name) == 0)
            return true;
    return count == 0;
}

int main(int argc, char **argv) {
    bool expect_error = false;
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--limit") == 0 && first + 1 < argc)
            limit = strtoull(argv[++first], NULL, 10);
        else if (strcmp(argv[first], "--samples") == 0 && first + 1 < argc)
            samples = strtoull(argv[++first], NULL, 10);
        else if (strcmp(argv[first], "--no-races") == 0)
            memory_races_reported = false;
        else if (strcmp(argv[first], "--no-trace") == 0)
            trace = false;
        else if (strcmp(argv[first], "--expect-error") == 0)
            expect_error = true;
        else
            return fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[first]), 2;
    }
    list_programs();
    printf("%-26s %10s %10s %10s %12s %8s %8s\n", "program", "executions", "pruned", "random",
           "events", "longest", "seconds");
    fflush(stdout);
    int running = 0, errors = 0, bounded = 0, run = 0, broken = 0;
    for (size_t next = 0; next < program_count || running;) {
        if (expect_error && errors)
            next = program_count; // noticed
        if (next < program_count && running < JOBS) {
            const model_program *program = programs[next++];
            if (!chosen(program, argv + first, argc - first))
                continue;
            run++;
            running++;
            fflush(stdout);
            if (fork() == 0) {
                setvbuf(stdout, NULL, _IOFBF, 1 << 20); // a counterexample in one piece
                _exit(check(program));
            }
            continue;
        }
        int status;
        if (wait(&status) < 0)
            break;
        running--;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        errors += code == FOUND_ERROR;
        bounded += code == FOUND_NOTHING_BOUNDED;
        broken += code != FOUND_ERROR && code != FOUND_NOTHING && code != FOUND_NOTHING_BOUNDED;
    }
    printf("%d programs, %d with an error, %d explored to a bound only\n", run, errors, bounded);
    if (run == 0 || broken)
        return 2;
    return expect_error ? errors == 0 : errors != 0;
}
