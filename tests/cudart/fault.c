// Faults, and how the program ends when it did what it must not.
#include "tests/cudart/runtime.h"
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

_Thread_local bool cudart_is_worker;

void cudart_take_stack(cudart_stack *stack) {
    stack->frames = backtrace(stack->addresses, CUDART_FRAMES);
}

void cudart_print_stack(const char *title, const cudart_stack *stack) {
    if (stack->frames == 0)
        return;
    fprintf(stderr, "  %s\n", title);
    fflush(stderr);
    backtrace_symbols_fd((void *const *)stack->addresses, stack->frames, STDERR_FILENO);
}

void cudart_abort(const cudart_block *block, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("fake CUDA runtime: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    const cudart_step *step = cudart_is_worker ? cudart.running : NULL;
    if (step) {
        fprintf(stderr, "  by %s, device %d, stream %d\n", step->name,
                step->point.stream->device->ordinal, step->point.stream->number);
        cudart_print_stack("queued at", &step->issued_at);
    } else {
        cudart_stack here;
        cudart_take_stack(&here);
        cudart_print_stack("here", &here);
    }
    if (block) {
        fprintf(stderr, "  block of %zu bytes at %p, device %d\n", block->bytes,
                (void *)block->pointer, block->region->device->ordinal);
        cudart_print_stack("allocated at", &block->made_at);
        cudart_print_stack("freed at", &block->freed_at);
    }
    fflush(NULL);
    abort();
}

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2]; ///< what others have set for them

static bool was_write(const void *context) {
#if defined(__x86_64__)
    const ucontext_t *state = context;
    return (state->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return false; // the second fault at the same pages says it
#endif
}

/// Lets the handler return into what ends the step, on the stack of the step.
static void leave_behind_handler(void *context) {
#if defined(__x86_64__)
    ucontext_t *state = context;
    greg_t *stack = &state->uc_mcontext.gregs[REG_RSP];
    *stack = ((*stack - 128) & ~(greg_t)15) - 8; // below what the function keeps there
    state->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)cudart_leave;
#elif defined(__aarch64__)
    ucontext_t *state = context;
    state->uc_mcontext.pc = (uintptr_t)cudart_leave;
#else
    (void)context;
    cudart_leave();
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    if (cudart_is_worker && cudart.running && !cudart_in_function) {
        if (cudart_open_touched(info->si_addr, was_write(context)))
            return;
        cudart_kind kind = cudart.running->kind;
        if (kind == CUDART_KERNEL || kind == CUDART_LIBRARY) {
            leave_behind_handler(context);
            return;
        }
        cudart_abort(NULL, "a copy finds no memory of the host at %p", info->si_addr);
    }
    if (pthread_mutex_trylock(&cudart.lock) == 0) {
        cudart_region *region = cudart_region_at(info->si_addr);
        if (region)
            cudart_abort(region->block, "the host touches memory of a device, at %p",
                         info->si_addr);
        pthread_mutex_unlock(&cudart.lock);
    }
    sigaction(signal, &before[signal == SIGBUS], NULL); // it happens again, and is theirs
}

static bool is_watching(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

/// A program may have put a handler of its own in front meanwhile, which is then called for its own
/// faults.
void cudart_watch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        struct sigaction found;
        sigaction(signals[i], NULL, &found);
        if (is_watching(&found))
            continue;
        before[i] = found;
        sigaction(signals[i], &action, NULL);
    }
}

/// In the place of the C library's. cmocka sets its handlers as each test begins, while a worker may
/// be at work whose next fault is the runtime's: they are set behind it.
void (*signal(int number, void (*handler)(int)))(int) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, found;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        if (number != signals[i] || sigaction(number, NULL, &found) != 0 || !is_watching(&found))
            continue;
        found = before[i];
        before[i] = action;
        return found.sa_handler;
    }
    return sigaction(number, &action, &found) == 0 ? found.sa_handler : SIG_ERR;
}
