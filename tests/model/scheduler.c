// What an event does: the simulated threads, their store buffers, and the words they share.
//
// Memory model: a relaxed or release store waits in its thread's buffer, in order, until the
// buffer's process writes it; the thread itself sees it at once, others do not. Read-modify-writes,
// seq_cst stores, fences and system calls wait until the own buffer is empty; the process-wide
// barrier until all are. Beside that the promises of the memory orders (and only those) order plain
// accesses.
//
// Everything that outlives an execution is reached through `engine`, outside the snapshot.
#include "tests/model/scheduler.h"
#include "lib/core/thread.h"
#include "tests/model/fiber.h"
#include "tests/model/scheduler_internal.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096, NAMES = 32 };

typedef struct buffered {
    volatile void *word;
    size_t size;
    uint64_t value;
    uint32_t event;
    model_clock released;
    operation flush;
} buffered;

typedef struct simulated {
    fiber *stack;
    void (*function)(void);
    bool ended, woken;
    operation next;
    uint64_t answer;
    model_clock clock;
    buffered buffer[BUFFER];
    uint32_t first, count; ///< of the buffer
    const volatile void *spun_on;
    uint64_t spun_value;
    size_t spun_size;
    void (*at_exit)(void *);
} simulated;

/// What a release on a word promised to the next acquire.
typedef struct word_sync {
    uintptr_t address;
    uint64_t execution;
    model_clock clock;
} word_sync;

typedef struct engine_state {
    simulated threads[MODEL_THREADS];
    fiber *scheduler;
    int current;
    bool on_fiber, failed;
    char message[512];
    jmp_buf escape;
    word_sync words[WORDS];
    uint64_t execution;
    struct {
        const char *at;
        const char *name;
    } names[NAMES];
    int named;
    uint32_t event;
    void (*at_thread_exit)(void *);
} engine_state;

static engine_state *engine;
static nd_thread records[MODEL_THREADS]; // part of the snapshot

// ----------------------------------------------------------------------------------------- failing

static void leave_execution(void) {
    if (engine->on_fiber) {
        simulated *self = &engine->threads[engine->current];
        fiber_switch(self->stack, engine->scheduler);
    }
    longjmp(engine->escape, 1);
}

void model_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!engine->failed)
        vsnprintf(engine->message, sizeof engine->message, format, arguments);
    va_end(arguments);
    engine->failed = true;
    leave_execution();
}

/// In place of abort() in the core: a count that must not be.
_Noreturn void nd__model_abort(void);
void nd__model_abort(void) {
    model_fail("the core has stopped the program");
    abort();
}

static void on_signal(int number) {
    signal(number, on_signal);
    model_fail("signal %d (%s)", number, strsignal(number));
}

const char *model_message(void) {
    return engine->message;
}

// ------------------------------------------------------------------------------------------- names

void model_name(const void *object, const char *name) {
    if (engine->named < NAMES) {
        engine->names[engine->named].at = object;
        engine->names[engine->named++].name = name;
    }
}

/// Index of the named object that a place is in, nearest below it; -1 when there is none.
static int named_below(const char *place) {
    enum { LARGEST = 512 };
    int nearest = -1;
    for (int i = 0; i < engine->named; i++)
        if ((size_t)(place - engine->names[i].at) < LARGEST &&
            (nearest < 0 || engine->names[i].at > engine->names[nearest].at))
            nearest = i;
    return nearest;
}

void model_place_name(const char *place, char *name, size_t size) {
    static const struct {
        size_t offset;
        const char *name;
    } fields[] = {
        {offsetof(nd_object, word), "word"},   {offsetof(nd_object, type), "type"},
        {offsetof(nd_object, home), "home"},   {offsetof(nd_object, flags), "flags"},
        {offsetof(nd_object, weaks), "weaks"}, {offsetof(nd_object, gc_index), "gc_index"},
    };
    for (int i = 0; i < MODEL_THREADS; i++) {
        size_t offset = (size_t)(place - (const char *)&records[i]);
        if (offset < sizeof records[i]) {
            if (offset == offsetof(nd_thread, writing))
                snprintf(name, size, "thread %d's writing", i);
            else
                snprintf(name, size, "thread %d's record+%zu", i, offset);
            return;
        }
    }
    int nearest = named_below(place);
    if (nearest < 0) {
        snprintf(name, size, "%p", (const void *)place);
        return;
    }
    size_t offset = (size_t)(place - engine->names[nearest].at);
    for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++)
        if (offset == fields[k].offset) {
            snprintf(name, size, "%s.%s", engine->names[nearest].name, fields[k].name);
            return;
        }
    snprintf(name, size, "%s+%zu", engine->names[nearest].name, offset);
}

void model_describe(int process, const operation *step, uint64_t before, char *text, size_t size) {
    static const char *const kinds[] = {"ends",
                                        "loads",
                                        "buffers a store to",
                                        "writes to memory",
                                        "stores",
                                        "exchanges",
                                        "compares and swaps",
                                        "adds to",
                                        "sets bits of",
                                        "clears bits of",
                                        "fences",
                                        "process barrier",
                                        "locks",
                                        "sees a change of",
                                        "futex-waits for",
                                        "is woken from",
                                        "wakes"};
    char place[64] = "";
    if (step->word)
        model_place_name((const char *)(uintptr_t)step->word, place, sizeof place);
    int length =
        snprintf(text, size, "%s %d  %s %s", process < MODEL_PROGRAM_THREADS ? "thread" : "buffer",
                 process % MODEL_PROGRAM_THREADS, kinds[step->kind], place);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (used >= size || !step->word || step->kind == EVENT_WAKE || step->kind == EVENT_SLEEP)
        return;
    if (step->kind == EVENT_LOAD)
        snprintf(text + used, size - used, ": %#llx", (unsigned long long)before);
    else if (step->kind == EVENT_STORE)
        snprintf(text + used, size - used, ": %#llx", (unsigned long long)step->value);
    else
        snprintf(text + used, size - used, ": was %#llx, with %#llx", (unsigned long long)before,
                 (unsigned long long)step->value);
}

// ------------------------------------------------------------------------------------------- words

uint64_t model_read_word(const volatile void *word, size_t size) {
    switch (size) {
    case 1:
        return *(const volatile uint8_t *)word;
    case 4:
        return *(const volatile uint32_t *)word;
    default:
        return *(const volatile uint64_t *)word;
    }
}

void model_write_word(volatile void *word, size_t size, uint64_t value) {
    switch (size) {
    case 1:
        *(volatile uint8_t *)word = (uint8_t)value;
        break;
    case 4:
        *(volatile uint32_t *)word = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)word = value;
    }
}

static word_sync *sync_of(const volatile void *word) {
    uintptr_t address = (uintptr_t)word;
    for (size_t i = (address >> 2) * UINT64_C(0x9E3779B97F4A7C15) >> 52;; i = (i + 1) % WORDS) {
        word_sync *sync = &engine->words[i];
        if (sync->execution != engine->execution) {
            *sync = (word_sync){.address = address, .execution = engine->execution};
            return sync;
        }
        if (sync->address == address)
            return sync;
    }
}

static bool acquires(int order) {
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst || order == memory_order_consume;
}

static bool releases(int order) {
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static uint64_t truncated(uint64_t value, size_t size) {
    return size >= 8 ? value : value & ((UINT64_C(1) << (8 * size)) - 1);
}

static const buffered *in_own_buffer(const simulated *self, const volatile void *word) {
    for (uint32_t i = self->count; i-- > 0;) {
        const buffered *store = &self->buffer[(self->first + i) % BUFFER];
        if (store->word == word)
            return store;
    }
    return NULL;
}

static uint64_t modified(const operation *step, uint64_t before) {
    switch (step->kind) {
    case EVENT_ADD:
        return before + step->value;
    case EVENT_OR:
        return before | step->value;
    case EVENT_AND:
        return before & step->value;
    case EVENT_CAS:
        return before == truncated(step->expected, step->size) ? step->value : before;
    case EVENT_LOCK:
        return 1;
    default:
        return step->value;
    }
}

static void wake(const volatile void *word) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        if (engine->threads[i].next.kind == EVENT_SLEEP && engine->threads[i].next.word == word &&
            !engine->threads[i].woken) {
            engine->threads[i].woken = true;
            engine->threads[i].next.expected = engine->event; // for the search
        }
}

/// A store that is issued: it waits in the buffer, or reaches memory at once.
static void store(simulated *self, const operation *step, bool at_once) {
    model_clock released = {0};
    if (releases(step->order))
        released = self->clock;
    if (at_once) {
        model_write_word(step->word, step->size, step->value);
        sync_of(step->word)->clock = released;
        return;
    }
    buffered *slot = &self->buffer[(self->first + self->count++) % BUFFER];
    *slot = (buffered){.word = step->word,
                       .size = step->size,
                       .value = step->value,
                       .event = engine->event,
                       .released = released};
    slot->flush = (operation){.kind = EVENT_FLUSH,
                              .accesses = {{(uintptr_t)step->word, ACCESS_WRITE}},
                              .word = step->word,
                              .size = step->size,
                              .value = step->value,
                              .caller = step->caller};
}

/// Executes an operation of a thread; answers what the word held before.
static uint64_t execute(int thread, const operation *step, bool buffers) {
    simulated *self = &engine->threads[thread];
    if (step->word)
        memory_access(step->word, step->size, thread, &self->clock, false, true);
    uint64_t before = 0;
    switch (step->kind) {
    case EVENT_LOAD: {
        const buffered *own = in_own_buffer(self, step->word);
        before = own ? truncated(own->value, own->size) : model_read_word(step->word, step->size);
        if (!own && acquires(step->order))
            model_clock_join(&self->clock, &sync_of(step->word)->clock);
        self->spun_on = step->word;
        self->spun_value = before;
        self->spun_size = step->size;
        break;
    }
    case EVENT_STORE:
        store(self, step, !buffers);
        break;
    case EVENT_WRITE:
        before = model_read_word(step->word, step->size);
        store(self, step, true);
        break;
    case EVENT_FUTEX:
        before = model_read_word(step->word, step->size);
        self->woken = before != step->value;
        break;
    case EVENT_WAKE:
        wake(step->word);
        break;
    case EVENT_FENCE:
    case EVENT_BARRIER:
    case EVENT_SLEEP:
    case EVENT_AWAIT:
        break;
    default: {
        before = model_read_word(step->word, step->size);
        word_sync *sync = sync_of(step->word);
        if (step->kind == EVENT_CAS && before != truncated(step->expected, step->size)) {
            if (acquires(step->order))
                model_clock_join(&self->clock, &sync->clock);
            break;
        }
        if (acquires(step->order))
            model_clock_join(&self->clock, &sync->clock);
        if (releases(step->order))
            model_clock_join(&sync->clock, &self->clock); // continues a release sequence
        model_write_word(step->word, step->size, modified(step, before));
    }
    }
    self->clock.time[thread]++;
    return before;
}

// ------------------------------------------------------------------------------ threads and events

int model_current(void) {
    return engine ? engine->current : MODEL_MAIN;
}

nd_thread *nd__model_thread_record(void) {
    return &records[model_current()];
}

void model_access_here(const volatile void *place, size_t size, bool write) {
    if (engine)
        memory_access(place, size, engine->current, &engine->threads[engine->current].clock, write,
                      false);
}

/// A thread asks for an event: it goes on when the scheduler has executed it.
uint64_t model_event(operation step) {
    if (!engine) // before main: constructors of the core
        model_begin();
    if (!engine->on_fiber)
        return execute(engine->current, &step, false);
    simulated *self = &engine->threads[engine->current];
    self->next = step;
    fiber_switch(self->stack, engine->scheduler);
    return self->answer;
}

bool model_woken(void) {
    return !engine->on_fiber || engine->threads[engine->current].woken;
}

operation model_spin(void) {
    const simulated *self = &engine->threads[engine->current];
    if (!engine->on_fiber)
        return (operation){0};
    return (operation){.kind = EVENT_AWAIT,
                       .accesses = {{(uintptr_t)self->spun_on, ACCESS_READ}},
                       .word = (volatile void *)(uintptr_t)self->spun_on,
                       .size = self->spun_size,
                       .expected = self->spun_value,
                       .caller = __builtin_return_address(0)};
}

static void run_thread(void *data) {
    simulated *self = data;
    self->function();
    int thread = engine->current;
    if (self->at_exit)
        self->at_exit(&records[thread]);
    self->ended = true;
    self->next = (operation){0};
    fiber_switch(self->stack, engine->scheduler);
}

static void resume(int thread) {
    engine->current = thread;
    engine->on_fiber = true;
    fiber_switch(engine->scheduler, engine->threads[thread].stack);
    engine->on_fiber = false;
    engine->current = MODEL_MAIN;
}

void model_begin(void) {
    if (!engine) {
        engine = calloc(1, sizeof *engine);
        engine->current = MODEL_MAIN;
        engine->scheduler = fiber_new(1);
        for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
            engine->threads[i].stack = fiber_new(0);
        engine->threads[MODEL_MAIN].clock.time[MODEL_MAIN] = 1;
        stack_t stack = {.ss_sp = malloc(FIBER_STACK), .ss_size = FIBER_STACK};
        sigaltstack(&stack, NULL);
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
        sigaction(SIGSEGV, &action, NULL);
        sigaction(SIGBUS, &action, NULL);
        sigaction(SIGILL, &action, NULL);
    }
    engine->execution++;
}

bool model_run_main(void (*function)(void)) {
    simulated *self = &engine->threads[MODEL_MAIN];
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        model_clock_join(&self->clock, &engine->threads[i].clock);
    engine->current = MODEL_MAIN;
    engine->on_fiber = false;
    if (setjmp(engine->escape) == 0 && function)
        function();
    return !engine->failed;
}

bool model_start(const model_program *program) {
    memory_restore_snapshot();
    engine->execution++;
    engine->failed = false;
    engine->threads[MODEL_MAIN].clock = (model_clock){.time[MODEL_MAIN] = 1};
    if (setjmp(engine->escape))
        return false;
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++) {
        simulated *self = &engine->threads[i];
        self->function = program->threads[i];
        self->ended = !self->function;
        self->woken = false;
        self->next = (operation){0};
        self->clock = (model_clock){0};
        self->clock.time[i] = 1;
        self->first = self->count = 0;
        self->at_exit = NULL;
        if (self->ended)
            continue;
        fiber_prepare(self->stack, run_thread, self);
        resume(i);
        if (engine->failed)
            return false;
    }
    return true;
}

const operation *model_pending(int process) {
    static const operation none = {0};
    simulated *self = &engine->threads[process % MODEL_PROGRAM_THREADS];
    if (process < MODEL_PROGRAM_THREADS)
        return &self->next;
    return self->count ? &self->buffer[self->first].flush : &none;
}

uint32_t model_flush_origin(int process) {
    simulated *self = &engine->threads[process % MODEL_PROGRAM_THREADS];
    return self->buffer[self->first].event;
}

bool model_enabled(int process) {
    simulated *self = &engine->threads[process % MODEL_PROGRAM_THREADS];
    if (process >= MODEL_PROGRAM_THREADS)
        return self->count > 0;
    const operation *step = &self->next;
    switch (step->kind) {
    case EVENT_NONE:
        return false;
    case EVENT_LOAD:
        return true;
    case EVENT_STORE:
        return self->count < BUFFER;
    case EVENT_BARRIER:
        for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
            if (engine->threads[i].count)
                return false;
        return true;
    case EVENT_LOCK:
        return self->count == 0 && model_read_word(step->word, step->size) == 0;
    case EVENT_AWAIT:
        return model_read_word(step->word, step->size) != step->expected;
    case EVENT_SLEEP:
        return self->woken;
    default:
        return self->count == 0;
    }
}

bool model_step(int process, uint32_t number, uint64_t *ret_before) {
    int thread = process % MODEL_PROGRAM_THREADS;
    simulated *self = &engine->threads[thread];
    if (setjmp(engine->escape))
        return false;
    engine->event = number;
    *ret_before = 0;
    if (process >= MODEL_PROGRAM_THREADS) {
        buffered *oldest = &self->buffer[self->first];
        memory_access(oldest->word, oldest->size, thread, &self->clock, false, true);
        *ret_before = model_read_word(oldest->word, oldest->size);
        model_write_word(oldest->word, oldest->size, oldest->value);
        sync_of(oldest->word)->clock = oldest->released;
        self->first = (self->first + 1) % BUFFER;
        self->count--;
        return true;
    }
    operation step = self->next;
    *ret_before = self->answer = execute(thread, &step, true);
    resume(thread);
    return !engine->failed;
}

bool model_unfinished(void) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        if (!engine->threads[i].ended)
            return true;
    return false;
}

// -------------------------------------------------------------------- threads of the checked code

int nd__model_clock(struct timespec *time) {
    *time = (struct timespec){.tv_sec = 1};
    return 0;
}

void nd__model_at_thread_exit(void (*function)(void *data)) {
    engine->at_thread_exit = function;
}

void nd__model_thread_value(const void *data) {
    (void)data;
    if (engine->on_fiber)
        engine->threads[engine->current].at_exit = engine->at_thread_exit;
}

void model_register_threads(void) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++) {
        engine->current = i;
        nd__thread();
    }
    engine->current = MODEL_MAIN;
}
