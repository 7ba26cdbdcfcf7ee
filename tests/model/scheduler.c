// What an event does: the simulated threads, and the kernel's part in what they share.
//
// An event is an access of a word that threads contend for (words.h), or a call of the kernel. What
// a word holds, and what a load of it may read, is said by its history. The process-wide barrier is
// three kinds of event: it begins, the kernel fences each of the other threads somewhere between
// two of their events, and it ends when that is done. A fenced thread has seen what the caller had
// seen when it began, and the caller in the end what the thread had seen when it was fenced. That
// orders atomic accesses only; plain ones must be ordered by what the memory orders promise
// (memory.h).
//
// Everything that outlives an execution is reached through `engine`, outside the snapshot.
#include "tests/model/scheduler.h"
#include "lib/base/thread.h"
#include "tests/model/fiber.h"
#include "tests/model/scheduler_internal.h"
#include "tests/model/words.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Addresses that stand for what has none: the fences of a thread, all fences, and seq_cst loads.
#define FENCES_OF(thread) ((uintptr_t)(8 + 8 * (thread)))
#define ALL_FENCES ((uintptr_t)4)
#define SEQ_CST_LOADS ((uintptr_t)5)

/// A process-wide barrier that has begun.
typedef struct barrier {
    model_clock begun; ///< what its thread had seen
    model_clock seen;  ///< what the others had
    uint32_t event;
    uint32_t fences[MODEL_PROGRAM_THREADS]; ///< events
    uint8_t waits_for;                      ///< set of threads
} barrier;

typedef struct simulated {
    fiber *stack;
    void (*function)(void);
    bool ended, woken;
    uint32_t queued; ///< event of its last futex
    operation next;
    uint64_t answer;
    model_knowledge knows;
    barrier barrier;
    const volatile void *loaded; ///< last
    uint32_t loaded_index;
    const volatile void *waits_on; ///< for an entry of its history at or behind waits_index
    uint32_t waits_index;
    void (*at_exit)(void *);
} simulated;

typedef struct engine_state {
    simulated threads[MODEL_THREADS];
    fiber *scheduler;
    int current, program_threads;
    bool on_fiber, failed, discovered;
    char message[512];
    jmp_buf escape;
    uint32_t event;
    uint64_t outcomes;
} engine_state;

static engine_state *engine;
static nd_thread records[MODEL_THREADS]; // part of the snapshot
static void (*at_thread_exit)(void *);   // may be set before there is an engine

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

bool model_discovered(void) {
    return engine->discovered;
}

// ------------------------------------------------------------------------------------------ events

static uint64_t truncated(uint64_t value, size_t size) {
    return size >= 8 ? value : value & ((UINT64_C(1) << (8 * size)) - 1);
}

static uint64_t modified(const operation *step, uint64_t before) {
    switch (step->kind) {
    case EVENT_ADD:
        return truncated(before + step->value, step->size);
    case EVENT_OR:
        return before | step->value;
    case EVENT_AND:
        return before & step->value;
    case EVENT_LOCK:
        return 1;
    default:
        return truncated(step->value, step->size);
    }
}

static bool swap_fails(const operation *step, uint64_t before) {
    return step->kind == EVENT_CAS && before != truncated(step->expected, step->size);
}

static bool sleeps_on(const simulated *thread, const volatile void *word) {
    event_kind kind = thread->next.kind;
    return (kind == EVENT_SLEEP || kind == EVENT_NAP) && thread->next.word == word &&
           !thread->woken;
}

/// Who has slept longest comes first.
static void wake(const operation *step) {
    for (uint64_t left = step->value ? step->value : MODEL_PROGRAM_THREADS; left > 0; left--) {
        simulated *first = NULL;
        for (int i = 0; i < MODEL_PROGRAM_THREADS; i++) {
            simulated *other = &engine->threads[i];
            if (sleeps_on(other, step->word) && (!first || other->queued < first->queued))
                first = other;
        }
        if (!first)
            return;
        first->woken = true;
        first->next.expected = engine->event; // for the search
    }
}

static void begin_barrier(int thread) {
    barrier *begun = &engine->threads[thread].barrier;
    *begun = (barrier){.begun = engine->threads[thread].knows.seen, .event = engine->event};
    for (int i = 0; i < engine->program_threads; i++)
        if (i != thread)
            begun->waits_for |= (uint8_t)(1u << i);
}

/// The thread whose barrier waits for a fence of another one; -1 when there is none.
static int who_fences(int thread) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        if (engine->threads[i].barrier.waits_for & (1u << thread))
            return i;
    return -1;
}

static void fence_thread(int thread, barrier *asked) {
    simulated *fenced = &engine->threads[thread];
    model_clock seen = fenced->knows.seen;
    seen.time[thread]--; // not of its next event
    model_clock_join(&asked->seen, &seen);
    model_clock_join(&fenced->knows.seen, &asked->begun);
    asked->fences[thread] = engine->event;
    asked->waits_for &= (uint8_t) ~(1u << thread);
}

static uint64_t modify(int thread, const operation *step) {
    model_knowledge *knows = &engine->threads[thread].knows;
    int32_t event = (int32_t)engine->event;
    if (step->kind == EVENT_STORE) {
        words_store(knows, thread, step->word, step->size, step->order, step->value, event);
        return 0;
    }
    bool fails = swap_fails(step, words_raw(step->word, step->size));
    uint64_t before = words_load_newest(knows, thread, step->word, step->size,
                                        fails ? step->failure_order : step->order);
    if (!fails)
        words_replace(knows, thread, step->word, step->size, step->order, modified(step, before),
                      event);
    return before;
}

/// Executes an operation of a thread; answers what it read.
static uint64_t execute(int thread, const operation *step, uint32_t reads) {
    simulated *self = &engine->threads[thread];
    uint64_t before = 0;
    switch (step->kind) {
    case EVENT_LOAD:
        before = words_load(&self->knows, thread, step->word, step->size, step->order, reads);
        self->loaded = step->word;
        self->loaded_index = reads;
        break;
    case EVENT_FUTEX: // the kernel's look is this thread's
        before = words_look(&self->knows, thread, step->word, step->size);
        self->woken = before != step->value;
        self->queued = engine->event;
        break;
    case EVENT_WAKE:
        wake(step);
        break;
    case EVENT_FENCE:
        words_fence(&self->knows);
        break;
    case EVENT_BARRIER:
        begin_barrier(thread);
        break;
    case EVENT_BARRIER_END:
        model_clock_join(&self->knows.seen, &self->barrier.seen);
        break;
    case EVENT_SLEEP:
    case EVENT_NAP:
        before = self->woken;
        break;
    default:
        before = modify(thread, step);
    }
    self->waits_on = NULL;
    self->knows.ordered.time[thread]++;
    self->knows.seen.time[thread]++;
    return before;
}

// --------------------------------------------------------------------- accesses that are no events

static bool accesses_word(const operation *step) {
    return step->kind >= EVENT_LOAD && (step->kind <= EVENT_AND || step->kind == EVENT_LOCK);
}

static word_use use_of(const operation *step) {
    uint64_t before = words_raw(step->word, step->size);
    if (step->kind == EVENT_LOAD)
        return WORD_LOADED;
    if (step->kind == EVENT_ADD && step->order == memory_order_relaxed)
        return WORD_ADDED;
    bool same = modified(step, before) == before || swap_fails(step, before);
    if (!same || step->order == memory_order_release || step->order == memory_order_acq_rel ||
        step->order == memory_order_seq_cst)
        return WORD_CHANGED;
    return WORD_TOUCHED;
}

/// Whether it matters if the kernel fences the thread before or after the access. It tells the
/// thread what others have stored, of which it hears in a load, and others what the thread has
/// stored, of which they hear in a load; with a third thread also what the two had heard from that.
static bool meets_fences(const operation *step, int thread) {
    if (step->order == memory_order_seq_cst)
        return true;
    if (step->kind == EVENT_LOAD)
        return words_shared_with(step->word, thread, WORD_CHANGED);
    return engine->program_threads > 2 || words_shared_with(step->word, thread, WORD_LOADED);
}

/// What nobody contends for holds its newest value, whoever asks.
static uint64_t execute_at_once(const operation *step) {
    uint64_t before = accesses_word(step) ? words_raw(step->word, step->size) : 0;
    if (accesses_word(step) && step->kind != EVENT_LOAD && !swap_fails(step, before))
        words_set_raw(step->word, step->size, modified(step, before));
    return before;
}

/// An access of a word as an event, or none: with what it is ordered.
static bool is_event(simulated *self, operation *step) {
    int thread = engine->current;
    if (step->kind == EVENT_FUTEX)
        step->accesses[2] = (shared_access){FENCES_OF(thread), ACCESS_SHARE};
    if (!accesses_word(step))
        return true;
    if (words_note_use(step->word, thread, use_of(step))) {
        engine->discovered = true;
        leave_execution();
    }
    if (!words_contended(step->word)) {
        bool spins = step->kind == EVENT_LOAD && step->word == self->waits_on;
        bool waits = step->kind == EVENT_LOCK && words_raw(step->word, step->size) != 0;
        return spins || waits;
    }
    // Who retains first is told nothing by the count it gets, nor is anybody else where no one
    // looks.
    if (use_of(step) == WORD_ADDED && !words_shared_with(step->word, MODEL_MAIN, WORD_LOADED))
        step->accesses[0].type = ACCESS_SHARE;
    if (meets_fences(step, thread))
        step->accesses[1] = (shared_access){FENCES_OF(thread), ACCESS_SHARE};
    if (step->kind == EVENT_LOAD && step->order == memory_order_seq_cst)
        step->accesses[2] = (shared_access){SEQ_CST_LOADS, ACCESS_WRITE};
    return true;
}

// ------------------------------------------------------------------------------ threads and events

int model_current(void) {
    return engine ? engine->current : MODEL_MAIN;
}

nd_thread *model_record(int thread) {
    return &records[thread];
}

nd_thread *nd__model_thread_record(void) {
    return &records[model_current()];
}

void model_access_here(const volatile void *place, size_t size, bool write) {
    if (engine)
        memory_access(place, size, engine->current, &engine->threads[engine->current].knows.ordered,
                      write, false);
}

/// A thread asks for an event: it goes on when the scheduler has executed it.
uint64_t model_event(operation step) {
    if (!engine) // before main: constructors of the core
        model_begin();
    simulated *self = &engine->threads[engine->current];
    if (step.kind == EVENT_FENCE)
        step.accesses[0] = (shared_access){ALL_FENCES, ACCESS_WRITE};
    bool event = engine->on_fiber && is_event(self, &step);
    if (!event && step.word)
        memory_access(step.word, step.size, engine->current, &self->knows.ordered, false, true);
    if (!event) {
        if (step.kind == EVENT_LOAD) {
            self->loaded = step.word;
            self->loaded_index = 0;
        }
        return execute_at_once(&step);
    }
    self->next = step;
    fiber_switch(self->stack, engine->scheduler);
    return self->answer;
}

bool model_woken(void) {
    return !engine->on_fiber || engine->threads[engine->current].woken;
}

void model_spin(void) {
    simulated *self = &engine->threads[engine->current];
    self->waits_on = engine->on_fiber ? self->loaded : NULL;
    self->waits_index = self->loaded_index + 1;
}

void model_free_here(void *place, size_t size) {
    if (engine)
        memory_free(place, size, engine->current, &engine->threads[engine->current].knows.ordered);
}

void model_freed(const void *place, size_t size) {
    if (engine->on_fiber && words_note_free(place, size, engine->current)) {
        engine->discovered = true;
        leave_execution();
    }
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
        engine->threads[MODEL_MAIN].knows.ordered.time[MODEL_MAIN] = 1;
        stack_t stack = {.ss_sp = malloc(FIBER_STACK), .ss_size = FIBER_STACK};
        sigaltstack(&stack, NULL);
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
        sigaction(SIGSEGV, &action, NULL);
        sigaction(SIGBUS, &action, NULL);
        sigaction(SIGILL, &action, NULL);
    }
    words_begin_execution();
}

bool model_run_main(void (*function)(void)) {
    simulated *self = &engine->threads[MODEL_MAIN];
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        model_clock_join(&self->knows.ordered, &engine->threads[i].knows.ordered);
    engine->current = MODEL_MAIN;
    engine->on_fiber = false;
    if (setjmp(engine->escape) == 0 && function)
        function();
    return !engine->failed;
}

static void prepare_thread(int thread, void (*function)(void)) {
    simulated *self = &engine->threads[thread];
    self->function = function;
    self->ended = !function;
    self->woken = false;
    self->next = (operation){0};
    self->knows = (model_knowledge){0};
    self->knows.ordered.time[thread] = self->knows.seen.time[thread] = 1;
    self->barrier = (barrier){0};
    self->loaded = self->waits_on = NULL;
    self->at_exit = NULL;
}

bool model_start(const model_program *program) {
    memory_restore_snapshot();
    words_begin_execution();
    engine->failed = engine->discovered = false;
    engine->threads[MODEL_MAIN].knows = (model_knowledge){.ordered.time[MODEL_MAIN] = 1};
    engine->program_threads = 0;
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++) {
        prepare_thread(i, program->threads[i]);
        engine->program_threads += program->threads[i] != NULL;
    }
    if (setjmp(engine->escape))
        return false;
    for (int i = 0; i < engine->program_threads; i++) {
        fiber_prepare(engine->threads[i].stack, run_thread, &engine->threads[i]);
        resume(i);
        if (engine->failed || engine->discovered)
            return false;
    }
    return true;
}

// ------------------------------------------------------------------------------- what comes next

const operation *model_pending(int process) {
    static const operation none = {0};
    static const operation fenced[] = {
        {.kind = EVENT_FENCED, .accesses = {{FENCES_OF(0), ACCESS_WRITE}}},
        {.kind = EVENT_FENCED, .accesses = {{FENCES_OF(1), ACCESS_WRITE}}},
        {.kind = EVENT_FENCED, .accesses = {{FENCES_OF(2), ACCESS_WRITE}}},
    };
    int thread = process % MODEL_PROGRAM_THREADS;
    if (process < MODEL_PROGRAM_THREADS)
        return &engine->threads[thread].next;
    return who_fences(thread) < 0 ? &none : &fenced[thread];
}

bool model_enabled(int process, load_choices *ret_choices) {
    *ret_choices = (load_choices){0, 0};
    int thread = process % MODEL_PROGRAM_THREADS;
    if (process >= MODEL_PROGRAM_THREADS)
        return who_fences(thread) >= 0;
    simulated *self = &engine->threads[thread];
    const operation *step = &self->next;
    switch (step->kind) {
    case EVENT_NONE:
        return false;
    case EVENT_LOAD:
        words_choices(&self->knows, step->word, step->size, step->order, &ret_choices->lowest,
                      &ret_choices->count);
        if (step->word == self->waits_on && self->waits_index > ret_choices->lowest)
            ret_choices->lowest = self->waits_index;
        return ret_choices->lowest < ret_choices->count;
    case EVENT_BARRIER_END:
        return self->barrier.waits_for == 0;
    case EVENT_LOCK:
        return words_raw(step->word, step->size) == 0;
    case EVENT_SLEEP:
        return self->woken;
    default:
        return true;
    }
}

int model_causes(int process, uint32_t reads, uint32_t ret_events[PROCESSES]) {
    int thread = process % MODEL_PROGRAM_THREADS, count = 0;
    const simulated *self = &engine->threads[thread];
    if (process >= MODEL_PROGRAM_THREADS) {
        ret_events[count++] = engine->threads[who_fences(thread)].barrier.event;
    } else if (self->next.kind == EVENT_BARRIER_END) {
        for (int i = 0; i < engine->program_threads; i++)
            if (i != thread)
                ret_events[count++] = self->barrier.fences[i];
    } else if (self->next.kind == EVENT_LOAD) {
        int32_t origin = words_origin(self->next.word, self->next.size, reads);
        if (origin != WORDS_NO_EVENT)
            ret_events[count++] = (uint32_t)origin;
    }
    return count;
}

bool model_step(int process, uint32_t number, uint32_t reads, event_result *ret_result) {
    int thread = process % MODEL_PROGRAM_THREADS;
    simulated *self = &engine->threads[thread];
    *ret_result = (event_result){0};
    if (setjmp(engine->escape))
        return false;
    engine->event = number;
    if (process >= MODEL_PROGRAM_THREADS) {
        fence_thread(thread, &engine->threads[who_fences(thread)].barrier);
        return true;
    }
    operation step = self->next;
    if (step.word) {
        memory_access(step.word, step.size, thread, &self->knows.ordered, false, true);
        ret_result->newest = words_raw(step.word, step.size);
    }
    if (step.kind == EVENT_LOAD) {
        load_choices choices;
        model_enabled(process, &choices);
        ret_result->stale = reads + 1 < choices.count;
    }
    ret_result->before = self->answer = execute(thread, &step, reads);
    resume(thread);
    return !engine->failed && !engine->discovered;
}

bool model_unfinished(void) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++)
        if (!engine->threads[i].ended)
            return true;
    return false;
}

void model_outcome(unsigned outcome) {
    engine->outcomes |= UINT64_C(1) << outcome;
}

uint64_t model_outcomes(void) {
    uint64_t outcomes = engine->outcomes;
    engine->outcomes = 0;
    return outcomes;
}

// -------------------------------------------------------------------- threads of the checked code

int nd__model_clock(struct timespec *time) {
    *time = (struct timespec){.tv_sec = 1};
    return 0;
}

void nd__model_at_thread_exit(void (*function)(void *data)) {
    at_thread_exit = function;
}

void nd__model_thread_value(const void *data) {
    (void)data;
    if (engine->on_fiber)
        engine->threads[engine->current].at_exit = at_thread_exit;
}

void model_unlist_thread(int thread) {
    records[thread].unlisted = true;
}

void model_register_threads(void) {
    for (int i = 0; i < MODEL_PROGRAM_THREADS; i++) {
        engine->current = i;
        nd__thread();
    }
    engine->current = MODEL_MAIN;
}
