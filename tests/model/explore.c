// Which schedule comes next, and what its loads read: source-DPOR with sleep sets, depth first, by
// running anew.
//
// A load is ordered with the store that it reads from, and with no other: that it reads an older
// value than it could is the same as having run before the later store. So all entries that it may
// read are tried where it stands, and a store that comes behind it without being its consequence is
// a race: the search runs that store first, too, and then only needs what the load can read anew.
//
// Invariant: when a state leaves the stack, every continuation of it that differs from an explored
// one in the order of dependent events, or in what a load reads, has been explored from it. A
// process that is asleep need not be run: whatever it leads to has been seen from a state above,
// and nothing dependent has happened since. A load is asleep for the entries that there were, and
// not for those stored since.
#include "tests/model/scheduler_internal.h"
#include "tests/model/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct step {
    // The state before the event.
    uint8_t enabled, backtrack, done; ///< sets of processes
    uint32_t slept[PROCESSES];        ///< entries below are asleep; what is no load is, unless 0
    operation pending[PROCESSES];
    load_choices choices[PROCESSES];
    // The event.
    uint8_t process;
    uint32_t reads; ///< entry of the word's history
    operation what;
    event_result result;
    uint16_t clock[PROCESSES];
    int32_t previous[3]; ///< event before it at the same address, or -1
} step;

typedef struct place {
    uintptr_t address;
    uint64_t execution;
    int32_t last;
} place;

enum { PLACES = 8192, ASLEEP = UINT32_MAX };

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
    if (a->type == ACCESS_LOAD || b->type == ACCESS_LOAD)
        return false;
    return !(a->type == b->type && (a->type == ACCESS_LOOK || a->type == ACCESS_SHARE));
}

/// A load and a later store: the load could have read that.
static bool could_be_read(const shared_access *load, const shared_access *store) {
    return load->type == ACCESS_LOAD && (store->type == ACCESS_WRITE || store->type == ACCESS_LOCK);
}

static bool dependent(const operation *a, const operation *b) {
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
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

static bool is_load(const operation *step) {
    return step->kind == EVENT_LOAD;
}

/// Oldest entry that a process' load may read and that is not asleep; how many are left to be read
/// is said by choices.count.
static uint32_t bottom(const step *state, int process) {
    uint32_t lowest = state->choices[process].lowest, slept = state->slept[process];
    return slept > lowest ? slept : lowest;
}

static bool is_awake(const step *state, int process) {
    if (is_load(&state->pending[process]))
        return bottom(state, process) < state->choices[process].count;
    return state->slept[process] == 0;
}

/// Whether a process' event need not, or will, be explored from a state.
static bool is_covered(const step *state, int process, const step *event) {
    if ((state->backtrack | state->done) & (1u << process))
        return true;
    return is_load(&event->what) ? event->reads < state->slept[process]
                                 : state->slept[process] != 0;
}

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
        if (!initial)
            continue;
        if (is_covered(state, process, behind))
            return;
        initials |= (uint8_t)(1u << process);
    }
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
    case EVENT_SLEEP: // a later wake is not the one that it waited for
        return (uint64_t)(early - now->steps) > late->what.expected;
    default:
        return true;
    }
}

/// The newest event could have come before an earlier one that is no cause of it. `own` is its
/// clock without what it is ordered with.
static void meet(int32_t early, uint32_t newest, const uint16_t *clock) {
    step *late = &now->steps[newest];
    if (now->steps[early].process == late->process || newest + 1 < now->known || now->random ||
        happens_before(&now->steps[early], clock))
        return;
    uint16_t own = late->clock[late->process];
    memcpy(late->clock, clock, sizeof late->clock);
    late->clock[late->process] = own;
    add_race(early, (int32_t)newest);
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
    bool waits = late->what.kind == EVENT_LOCK || late->what.kind == EVENT_SLEEP;
    bool here = waits && which == 0; // for what happens at this address
    bool found = false;              // what a waiting event could have come before
    for (int32_t i = mine->type == ACCESS_LOAD ? -1 : *last; i >= 0;) {
        step *early = &now->steps[i];
        int slot = 0;
        while (early->what.accesses[slot].address != mine->address)
            slot++;
        const shared_access *theirs = &early->what.accesses[slot];
        if (could_be_read(theirs, mine)) {
            meet(i, newest, waits ? own : clock);
        } else if (accesses_conflict(mine, theirs)) {
            bool possible = !here || was_possible_before(early, late);
            if (possible && !found)
                meet(i, newest, waits ? own : clock);
            found |= here && possible;
            join(clock, early->clock);
            bool full = theirs->type == ACCESS_WRITE || theirs->type == ACCESS_LOCK;
            if (full && (!here || found))
                break;
        }
        i = early->previous[slot];
    }
    *last = (int32_t)newest;
}

static void account(uint32_t newest) {
    step *late = &now->steps[newest];
    int process = late->process;
    uint16_t clock[PROCESSES];
    memcpy(clock, now->clocks[process], sizeof clock);
    uint32_t causes[PROCESSES];
    for (int i = model_causes(process, late->reads, causes); i-- > 0;)
        join(clock, now->steps[causes[i]].clock);
    uint16_t own[PROCESSES];
    memcpy(own, clock, sizeof own);
    late->clock[process] = clock[process] = (uint16_t)(now->clocks[process][process] + 1);
    for (int i = 0; i < 3; i++)
        look_back(newest, i, clock, own);
    memcpy(late->clock, clock, sizeof clock);
    memcpy(now->clocks[process], clock, sizeof clock);
}

// -------------------------------------------------------------------------------------- executions

static void look_at_state(step *state, const uint32_t *slept) {
    state->enabled = 0;
    for (int i = 0; i < PROCESSES; i++) {
        state->pending[i] = *model_pending(i);
        if (model_enabled(i, &state->choices[i]))
            state->enabled |= (uint8_t)(1u << i);
        state->slept[i] = (state->enabled & (1u << i)) ? slept[i] : 0;
    }
    state->backtrack = state->done = 0;
}

/// What is asleep when a state's event has happened: what has been explored from the state, and is
/// not dependent on the event.
static void put_to_sleep(const step *state, uint32_t *ret_slept) {
    for (int i = 0; i < PROCESSES; i++) {
        uint32_t slept = state->slept[i];
        if (state->done & (1u << i))
            slept = is_load(&state->pending[i]) ? state->choices[i].count : ASLEEP;
        bool wakes = i == state->process || now->random || !(state->enabled & (1u << i)) ||
                     (slept && dependent(&state->pending[i], &state->what));
        ret_slept[i] = wakes ? 0 : slept;
    }
}

/// The kernel first, then the thread that ran: a schedule with few switches.
static int choose(uint8_t possible, int before) {
    for (int i = MODEL_PROGRAM_THREADS; i < PROCESSES; i++)
        if (possible & (1u << i))
            return i;
    if (before >= 0 && (possible & (1u << before)))
        return before;
    return __builtin_ctz(possible);
}

static uint32_t draw(uint32_t below) {
    now->random ^= now->random << 13;
    now->random ^= now->random >> 7;
    now->random ^= now->random << 17;
    return (uint32_t)((now->random >> 20) % below);
}

static int draw_process(uint8_t enabled) {
    uint32_t nth = draw((uint32_t)__builtin_popcount(enabled));
    while (nth--)
        enabled &= (uint8_t)(enabled - 1);
    return __builtin_ctz(enabled);
}

/// The newest entry; while sampling, half of the time any.
static uint32_t choose_entry(const load_choices *choices) {
    if (choices->count == 0)
        return 0;
    if (!now->random || draw(2))
        return choices->count - 1;
    return choices->lowest + draw(choices->count - choices->lowest);
}

typedef enum outcome { OUTCOME_DONE, OUTCOME_PRUNED, OUTCOME_FAILED, OUTCOME_DISCOVERED } outcome;

/// Chooses what a state that is new goes on with; false when all that could be is asleep.
static bool choose_event(step *state, int before) {
    uint8_t possible = 0;
    for (int i = 0; i < PROCESSES; i++)
        if ((state->enabled & (1u << i)) && is_awake(state, i))
            possible |= (uint8_t)(1u << i);
    if (!possible)
        return false;
    int process = now->random ? draw_process(state->enabled) : choose(possible, before);
    state->process = (uint8_t)process;
    state->backtrack = state->done = (uint8_t)(1u << process);
    state->reads = choose_entry(&state->choices[process]);
    return true;
}

/// Executes the event of a state; false when the execution has ended there.
static bool run_event(step *state, model_result *result) {
    const operation *next = model_pending(state->process);
    if (now->depth + 1 < now->known &&
        (next->kind != state->what.kind || next->word != state->what.word)) {
        snprintf(result->message, sizeof result->message,
                 "the same schedule has led to another event: not deterministic");
        return false;
    }
    state->what = *next;
    account(now->depth);
    result->events++;
    return model_step(state->process, now->depth++, state->reads, &state->result);
}

/// Runs one execution: the steps below now->known as before, then on its own.
static outcome run(const model_program *program, model_result *result) {
    now->depth = 0;
    now->execution++;
    memset(now->clocks, 0, sizeof now->clocks);
    if (!model_start(program))
        return model_discovered() ? OUTCOME_DISCOVERED : OUTCOME_FAILED;
    uint32_t slept[PROCESSES] = {0};
    int before = -1;
    while (now->depth < EVENTS) {
        step *state = &now->steps[now->depth];
        if (now->depth >= now->known) {
            look_at_state(state, slept);
            if (!state->enabled)
                break;
            if (!choose_event(state, before))
                return OUTCOME_PRUNED;
        }
        if (!run_event(state, result))
            return model_discovered() ? OUTCOME_DISCOVERED : OUTCOME_FAILED;
        put_to_sleep(state, slept);
        if (state->process < MODEL_PROGRAM_THREADS)
            before = state->process;
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
        now->known = now->depth;
        if (is_load(&state->pending[state->process]) &&
            state->reads > bottom(state, state->process)) {
            state->reads--;
            return true;
        }
        for (int i = 0; i < PROCESSES; i++)
            if (((state->backtrack & ~state->done) & (1u << i)) && is_awake(state, i)) {
                state->process = (uint8_t)i;
                state->done |= (uint8_t)(1u << i);
                state->reads = state->choices[i].count ? state->choices[i].count - 1 : 0;
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
        model_describe(each->process, &each->what, &each->result, line, sizeof line);
        printf("%4u  %-80s", i, line);
        if (each->what.caller)
            print_source(each->what.caller);
        putchar('\n');
    }
}

// ---------------------------------------------------------------------------------------- sampling

static uint64_t mixed(uint64_t value) {
    value = (value ^ value >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    value = (value ^ value >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return value ^ value >> 32;
}

/// Two executions have the same hash when they order all dependent events alike, and read the same.
static uint64_t hash_of_execution(void) {
    uint64_t sum = 1;
    for (uint32_t i = 0; i < now->depth; i++) {
        const step *each = &now->steps[i];
        uint64_t hash = mixed(each->process + 1 + ((uint64_t)each->reads << 8));
        for (int k = 0; k < PROCESSES; k++)
            hash = mixed(hash ^ each->clock[k]);
        sum += hash;
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

/// Runs random schedules. What the exploration took for complete must contain each; where it came
/// to its bound they are what looks at the rest. False when one has discovered a shared word.
static bool sample(const model_program *program, uint64_t samples, model_result *result) {
    now->random = UINT64_C(0x2545F4914F6CDD1D);
    outcome last = OUTCOME_DONE;
    for (uint64_t i = 0; i < samples && last != OUTCOME_FAILED; i++) {
        now->known = 0;
        last = run(program, result);
        result->sampled++;
        if (last == OUTCOME_DISCOVERED && result->complete)
            break;
        if (last == OUTCOME_DONE)
            result->missed += result->complete && !find_explored(hash_of_execution(), false);
    }
    if (last == OUTCOME_FAILED) {
        result->failed = true;
        char message[sizeof result->message];
        snprintf(message, sizeof message, "sampled: %.480s",
                 result->message[0] ? result->message : model_message());
        memcpy(result->message, message, sizeof message);
    }
    now->random = 0;
    return last != OUTCOME_DISCOVERED;
}

/// Random schedules before the first: which words are shared is best known from the beginning.
static void warm_up(const model_program *program) {
    enum { ROUNDS = 200, MOST = 2000 };
    model_result ignored = {0};
    now->random = UINT64_C(0x9E3779B97F4A7C15);
    int all = 0;
    for (int i = 0; i < ROUNDS && all < MOST; i++, all++) {
        now->known = 0;
        if (run(program, &ignored) == OUTCOME_DISCOVERED)
            i = 0;
    }
    now->random = 0;
}

/// Explores from the beginning; false when a word has turned out to be shared.
static bool explore(const model_program *program, uint64_t limit, uint64_t samples,
                    model_result *result) {
    *result = (model_result){0};
    free(now->explored);
    now->explored = NULL;
    now->explored_size = now->explored_count = 0;
    now->known = 0;
    model_outcomes();
    bool again = true;
    do {
        switch (run(program, result)) {
        case OUTCOME_DONE:
            result->executions++;
            if (samples && find_explored(hash_of_execution(), true))
                result->repeated++;
            break;
        case OUTCOME_PRUNED:
            result->pruned++;
            break;
        case OUTCOME_DISCOVERED:
            return false;
        case OUTCOME_FAILED:
            result->failed = true;
            if (!result->message[0])
                snprintf(result->message, sizeof result->message, "%s", model_message());
            return true;
        }
        if (result->executions + result->pruned >= limit)
            break;
    } while ((again = backtrack()));
    result->complete = !again;
    uint64_t outcomes = model_outcomes();
    if (result->complete && program->outcomes && outcomes != program->outcomes) {
        result->failed = true;
        snprintf(result->message, sizeof result->message, "outcomes %#llx instead of %#llx",
                 (unsigned long long)outcomes, (unsigned long long)program->outcomes);
        return true;
    }
    // Where the bound came first there is more to look for.
    return sample(program, result->complete ? samples : 20 * samples, result) || !result->complete;
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
    warm_up(program);
    while (!explore(program, limit, samples, &result))
        ;
    result.loose = words_unordered_stores() > 0;
    if (result.failed && verbose)
        print_counterexample(program, result.message);
    return result;
}
