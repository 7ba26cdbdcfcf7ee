// Which schedule comes next: source-DPOR with sleep sets, depth first, by running anew.
//
// Invariant: when a state leaves the stack, every continuation of it that differs from an explored
// one in the order of dependent events has been explored from it. A process in `sleep` need not be
// run: whatever it leads to has been seen from a state above, and nothing dependent has happened
// since.
#include "tests/model/scheduler_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct step {
    // The state before the event.
    uint8_t enabled, backtrack, done, sleep; ///< sets of processes
    operation pending[PROCESSES];
    // The event.
    uint8_t process;
    operation what;
    uint64_t before;
    uint16_t clock[PROCESSES];
    int32_t previous[2]; ///< event before it at the same address, or -1
} step;

typedef struct place {
    uintptr_t address;
    uint64_t execution;
    int32_t last;
} place;

enum { PLACES = 8192 };

typedef struct search {
    step steps[EVENTS];
    uint32_t depth;
    uint32_t known; ///< steps before it repeat the execution before, their races are known
    uint16_t clocks[PROCESSES][PROCESSES];
    place places[PLACES];
    uint64_t execution;
    uint64_t *explored; ///< hashes of the complete executions, an open hash table; or NULL
    size_t explored_size, explored_count;
    uint64_t random; ///< state of the draw while sampling, else 0
} search;

static search *now;

// -------------------------------------------------------------------------------------- dependence

static bool accesses_conflict(const shared_access *a, const shared_access *b) {
    if (a->type == ACCESS_NONE || a->address != b->address || b->type == ACCESS_NONE)
        return false;
    return !(a->type == b->type && (a->type == ACCESS_READ || a->type == ACCESS_ADD));
}

static bool dependent(const operation *a, const operation *b) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (accesses_conflict(&a->accesses[i], &b->accesses[k]))
                return true;
    return false;
}

static int32_t *last_at(uintptr_t address) {
    for (size_t i = (address >> 2) * UINT64_C(0x9E3779B97F4A7C15) >> 51;; i = (i + 1) % PLACES) {
        place *at = &now->places[i];
        if (at->execution != now->execution) {
            *at = (place){.address = address, .execution = now->execution, .last = -1};
            return &at->last;
        }
        if (at->address == address)
            return &at->last;
    }
}

static void join(uint16_t *clock, const uint16_t *other) {
    for (int i = 0; i < PROCESSES; i++)
        if (other[i] > clock[i])
            clock[i] = other[i];
}

static bool happens_before(const step *early, const uint16_t *clock) {
    return clock[early->process] >= early->clock[early->process];
}

// ------------------------------------------------------------------------------------------- races

/// Event `late` could also come before `early`: makes sure that the state before `early` will be
/// continued with a process that begins that.
static void add_race(int32_t early, int32_t late) {
    step *state = &now->steps[early];
    uint32_t first[PROCESSES] = {0}; // clock of the first event behind that early does not precede
    uint8_t initials = 0, seen = 0;
    for (int32_t i = early + 1; i <= late; i++) {
        const step *behind = &now->steps[i];
        if (i < late && happens_before(state, behind->clock))
            continue;
        int process = behind->process;
        if (seen & (1u << process))
            continue;
        bool initial = true;
        for (int other = 0; other < PROCESSES; other++)
            if (other != process && (seen & (1u << other)) && behind->clock[other] >= first[other])
                initial = false;
        seen |= (uint8_t)(1u << process);
        first[process] = behind->clock[process];
        if (initial)
            initials |= (uint8_t)(1u << process);
    }
    if (initials & (state->backtrack | state->sleep | state->done))
        return;
    uint8_t useful = initials & state->enabled;
    if (useful & (1u << now->steps[late].process))
        state->backtrack |= (uint8_t)(1u << now->steps[late].process);
    else if (useful)
        state->backtrack |= useful & (uint8_t)-useful;
    else
        state->backtrack |= state->enabled;
}

/// Whether `late` could have been executed before `early`: it waits for something that `early`
/// may have brought about.
static bool was_possible_before(const step *early, const step *late) {
    switch (late->what.kind) {
    case EVENT_LOCK:
        return early->what.kind == EVENT_LOCK;
    case EVENT_AWAIT:
        return early->before != late->what.expected;
    case EVENT_SLEEP: // a later wake is not the one that it waited for
        return (uint64_t)(early - now->steps) > late->what.expected;
    default:
        return true;
    }
}

/// A barrier waits for the stores before it, but not for the flush of one that it could come before.
static void join_flushes_beside(uint32_t early, uint32_t late) {
    for (uint32_t i = early + 1; i < late; i++)
        if (now->steps[i].what.kind == EVENT_FLUSH &&
            !happens_before(&now->steps[early], now->steps[i].clock))
            join(now->steps[late].clock, now->steps[i].clock);
}

/// Clock of the newest event, and its races with those before it at one of its addresses.
static void look_back(uint32_t newest, int which, uint16_t *clock, const uint16_t *own) {
    step *late = &now->steps[newest];
    const shared_access *mine = &late->what.accesses[which];
    late->previous[which] = -1;
    if (mine->type == ACCESS_NONE)
        return;
    int32_t *last = last_at(mine->address);
    late->previous[which] = *last;
    bool waits = late->what.kind == EVENT_LOCK || late->what.kind == EVENT_AWAIT ||
                 late->what.kind == EVENT_SLEEP || late->what.kind == EVENT_BARRIER;
    bool found = false; // what a waiting event could have come before
    for (int32_t i = *last; i >= 0;) {
        step *early = &now->steps[i];
        int slot = early->what.accesses[0].address == mine->address ? 0 : 1;
        const shared_access *theirs = &early->what.accesses[slot];
        if (accesses_conflict(mine, theirs)) {
            bool possible = was_possible_before(early, late);
            if (early->process != late->process && newest + 1 >= now->known && !now->random &&
                possible && !found && !happens_before(early, waits ? own : clock)) {
                memcpy(late->clock, waits ? own : clock, sizeof late->clock);
                late->clock[late->process] = clock[late->process];
                if (late->what.kind == EVENT_BARRIER)
                    join_flushes_beside((uint32_t)i, newest);
                add_race(i, (int32_t)newest);
            }
            if (waits && possible && late->what.kind != EVENT_BARRIER)
                found = true;
            join(clock, early->clock);
            bool full = theirs->type == ACCESS_WRITE || theirs->type == ACCESS_LOCK;
            if (full && (!waits || found))
                break;
        }
        i = early->previous[slot];
    }
    *last = (int32_t)newest;
}

static void account(uint32_t newest, uint32_t flush_origin) {
    step *late = &now->steps[newest];
    int process = late->process;
    uint16_t clock[PROCESSES];
    memcpy(clock, now->clocks[process], sizeof clock);
    if (process >= MODEL_PROGRAM_THREADS)
        join(clock, now->steps[flush_origin].clock);
    else if (late->what.kind != EVENT_BARRIER && late->what.kind != EVENT_LOAD &&
             late->what.kind != EVENT_STORE && late->what.kind != EVENT_AWAIT &&
             late->what.kind != EVENT_SLEEP)
        join(clock, now->clocks[process + MODEL_PROGRAM_THREADS]);
    uint16_t own[PROCESSES];
    memcpy(own, clock, sizeof own);
    clock[process] = (uint16_t)(now->clocks[process][process] + 1);
    if (late->what.kind == EVENT_BARRIER)
        for (int i = MODEL_PROGRAM_THREADS; i < PROCESSES; i++)
            join(clock, now->clocks[i]);
    look_back(newest, 0, clock, own);
    look_back(newest, 1, clock, own);
    memcpy(late->clock, clock, sizeof clock);
    memcpy(now->clocks[process], clock, sizeof clock);
}

// -------------------------------------------------------------------------------------- executions

static void look_at_state(step *state, uint8_t sleep) {
    state->enabled = 0;
    for (int i = 0; i < PROCESSES; i++) {
        state->pending[i] = *model_pending(i);
        if (model_enabled(i))
            state->enabled |= (uint8_t)(1u << i);
    }
    state->sleep = sleep;
    state->backtrack = state->done = 0;
}

/// Buffers first, then the thread that ran: a schedule with few switches and no late store.
static int choose(uint8_t possible, int before) {
    for (int i = MODEL_PROGRAM_THREADS; i < PROCESSES; i++)
        if (possible & (1u << i))
            return i;
    if (before >= 0 && (possible & (1u << before)))
        return before;
    return __builtin_ctz(possible);
}

static int draw(uint8_t enabled) {
    now->random ^= now->random << 13;
    now->random ^= now->random >> 7;
    now->random ^= now->random << 17;
    int nth = (int)((now->random >> 20) % (uint64_t)__builtin_popcount(enabled));
    while (nth--)
        enabled &= (uint8_t)(enabled - 1);
    return __builtin_ctz(enabled);
}

typedef enum outcome { OUTCOME_DONE, OUTCOME_PRUNED, OUTCOME_FAILED } outcome;

/// Runs one execution: the steps below now->known as before, then on its own.
static outcome run(const model_program *program, model_result *result) {
    now->depth = 0;
    now->execution++;
    memset(now->clocks, 0, sizeof now->clocks);
    if (!model_start(program))
        return OUTCOME_FAILED;
    uint8_t sleep = 0;
    int before = -1;
    while (now->depth < EVENTS) {
        step *state = &now->steps[now->depth];
        if (now->depth >= now->known) {
            look_at_state(state, sleep);
            if (!state->enabled)
                break;
            uint8_t possible = state->enabled & (uint8_t)~sleep;
            if (!possible)
                return OUTCOME_PRUNED;
            state->process =
                (uint8_t)(now->random ? draw(state->enabled) : choose(possible, before));
            state->backtrack = state->done = (uint8_t)(1u << state->process);
        }
        int process = state->process;
        const operation *next = model_pending(process);
        if (now->depth + 1 < now->known &&
            (next->kind != state->what.kind || next->word != state->what.word)) {
            snprintf(result->message, sizeof result->message,
                     "the same schedule has led to another event: not deterministic");
            return OUTCOME_FAILED;
        }
        state->what = *next;
        uint32_t origin = process >= MODEL_PROGRAM_THREADS ? model_flush_origin(process) : 0;
        uint8_t asleep =
            (uint8_t)((state->sleep | state->done) & ~(1u << process)) & state->enabled;
        sleep = 0;
        for (int i = 0; i < PROCESSES && !now->random; i++)
            if ((asleep & (1u << i)) && !dependent(&state->pending[i], &state->what))
                sleep |= (uint8_t)(1u << i);
        account(now->depth, origin);
        result->events++;
        bool good = model_step(process, now->depth, &state->before);
        now->depth++;
        if (!good)
            return OUTCOME_FAILED;
        if (process < MODEL_PROGRAM_THREADS)
            before = process;
    }
    if (now->depth > result->longest)
        result->longest = now->depth;
    if (now->depth == EVENTS || model_unfinished()) {
        snprintf(result->message, sizeof result->message, "%s",
                 now->depth == EVENTS ? "the program does not end"
                                      : "deadlock: no thread can go on");
        return OUTCOME_FAILED;
    }
    return model_run_main(program->finish) ? OUTCOME_DONE : OUTCOME_FAILED;
}

/// Prepares the next execution: the deepest state with something left to do.
static bool backtrack(void) {
    while (now->depth > 0) {
        step *state = &now->steps[now->depth - 1];
        uint8_t left = state->backtrack & (uint8_t) ~(state->done | state->sleep);
        if (left) {
            state->process = (uint8_t)__builtin_ctz(left);
            state->done |= (uint8_t)(1u << state->process);
            now->known = now->depth;
            return true;
        }
        now->depth--;
    }
    return false;
}

// ---------------------------------------------------------------------------------- counterexample

/// Where in the source an event was asked for, when addr2line is installed.
static void print_source(const void *caller) {
    extern const char __executable_start[];
    char command[512], executable[256] = {0}, line[256];
    if (readlink("/proc/self/exe", executable, sizeof executable - 1) < 0)
        return;
    snprintf(command, sizeof command, "addr2line -fis -e '%s' 0x%lx 2>/dev/null", executable,
             (unsigned long)((const char *)caller - 1 - __executable_start));
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return;
    while (fgets(line, sizeof line, pipe)) {
        line[strcspn(line, "\n")] = '\0';
        printf(" %s", line);
    }
    pclose(pipe);
}

static void print_counterexample(const model_program *program, const char *message) {
    printf("%s: %s\n", program->name, message);
    for (uint32_t i = 0; i < now->depth; i++) {
        char line[256];
        const step *each = &now->steps[i];
        model_describe(each->process, &each->what, each->before, line, sizeof line);
        printf("%4u  %-72s", i, line);
        print_source(each->what.caller);
        putchar('\n');
    }
}

// ---------------------------------------------------------------------------------------- sampling

/// Two executions have the same hash when they order all dependent events alike.
static uint64_t hash_of_execution(void) {
    uint64_t sum = 1;
    for (uint32_t i = 0; i < now->depth; i++) {
        const step *each = &now->steps[i];
        uint64_t hash = each->process + 1;
        for (int k = 0; k < PROCESSES; k++)
            hash = (hash ^ each->clock[k]) * UINT64_C(0x9E3779B97F4A7C15) ^ hash >> 29;
        sum += hash * UINT64_C(0xD6E8FEB86659FD93);
    }
    return sum ? sum : 1;
}

static bool find_explored(uint64_t hash, bool add) {
    if (add && 2 * now->explored_count >= now->explored_size) {
        uint64_t *before = now->explored;
        size_t size = now->explored_size;
        now->explored_size = size ? 2 * size : 1 << 16;
        now->explored_count = 0;
        now->explored = calloc(now->explored_size, sizeof *now->explored);
        if (!now->explored)
            abort();
        for (size_t i = 0; i < size; i++)
            if (before[i])
                find_explored(before[i], true);
        free(before);
    }
    for (size_t i = hash % now->explored_size;; i = (i + 1) % now->explored_size) {
        if (now->explored[i] == hash)
            return true;
        if (now->explored[i] == 0) {
            if (add) {
                now->explored[i] = hash;
                now->explored_count++;
            }
            return false;
        }
    }
}

/// Runs random schedules. What the exploration took for complete must contain each; where it came to
/// its bound they are what looks at the rest.
static void sample(const model_program *program, uint64_t samples, model_result *result) {
    now->random = UINT64_C(0x2545F4914F6CDD1D);
    for (uint64_t i = 0; i < samples && !result->failed; i++) {
        now->known = 0;
        result->failed = run(program, result) != OUTCOME_DONE;
        if (result->failed)
            snprintf(result->message, sizeof result->message, "sampled: %s", model_message());
        else
            result->missed += result->complete && !find_explored(hash_of_execution(), false);
        result->sampled++;
    }
    now->random = 0;
}

model_result model_explore(const model_program *program, uint64_t limit, uint64_t samples,
                           bool verbose) {
    model_result result = {0};
    if (!now)
        now = calloc(1, sizeof *now);
    model_begin();
    if (!model_run_main(program->setup)) {
        result.failed = true;
        snprintf(result.message, sizeof result.message, "in setup: %s", model_message());
        return result;
    }
    memory_take_snapshot();
    now->known = 0;
    bool again = true;
    do {
        switch (run(program, &result)) {
        case OUTCOME_DONE:
            result.executions++;
            if (samples && find_explored(hash_of_execution(), true))
                result.repeated++;
            break;
        case OUTCOME_PRUNED:
            result.pruned++;
            break;
        case OUTCOME_FAILED:
            result.failed = true;
            if (!result.message[0])
                snprintf(result.message, sizeof result.message, "%s", model_message());
            if (verbose)
                print_counterexample(program, result.message);
            return result;
        }
        if (result.executions + result.pruned >= limit)
            break;
    } while ((again = backtrack()));
    result.complete = !again;
    // Where the bound came first there is more to look for.
    sample(program, result.complete ? samples : 20 * samples, &result);
    return result;
}
