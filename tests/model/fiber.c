// Switching stacks: a few instructions on x86-64, ucontext elsewhere (which asks the kernel about
// signals at every switch).
#include "tests/model/fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#ifdef ADDRESS_SANITIZER
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif

/// What the address sanitizer is told, which keeps some variables beside the stack.
typedef struct told {
    const void *bottom;
    size_t size;
    void *beside;
    void (*function)(void *data);
    void *data;
} told;

#if defined(__x86_64__)

struct fiber {
    void *stack_pointer;
    char *stack;
    told told;
};

void nd__model_switch(void **from, void *to);
void nd__model_enter(void);
__asm__(".text\n"
        "nd__model_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n"
        "    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n"
        "    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        "nd__model_enter:\n"
        "    movq %r12, %rdi\n"
        "    callq *%rbx\n"
        "    ud2\n");

static void prepare(fiber *target, void (*function)(void *data), void *data) {
    uint64_t *top = (uint64_t *)(void *)(target->stack + FIBER_STACK);
    *--top = 0;
    *--top = 0; // keeps the stack aligned at the call
    *--top = (uint64_t)(uintptr_t)nd__model_enter;
    *--top = 0;                             // rbp
    *--top = (uint64_t)(uintptr_t)function; // rbx
    *--top = (uint64_t)(uintptr_t)data;     // r12
    *--top = 0;
    *--top = 0;
    *--top = 0;
    target->stack_pointer = top;
}

static void switch_to(fiber *from, fiber *to) {
    nd__model_switch(&from->stack_pointer, to->stack_pointer);
}

#else
#include <ucontext.h>

struct fiber {
    ucontext_t context;
    char *stack;
    told told;
    void (*function)(void *data);
    void *data;
};

static void enter(unsigned high, unsigned low) {
    fiber *self = (fiber *)(((uintptr_t)high << 32) | low);
    self->function(self->data);
}

static void prepare(fiber *target, void (*function)(void *data), void *data) {
    target->function = function;
    target->data = data;
    getcontext(&target->context);
    target->context.uc_stack.ss_sp = target->stack;
    target->context.uc_stack.ss_size = FIBER_STACK;
    uint64_t address = (uint64_t)(uintptr_t)target;
    makecontext(&target->context, (void (*)(void))enter, 2, (unsigned)(address >> 32),
                (unsigned)address);
}

static void switch_to(fiber *from, fiber *to) {
    swapcontext(&from->context, &to->context);
}
#endif

#ifdef ADDRESS_SANITIZER

static void arrive(void *data) {
    fiber *self = data;
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
    self->told.function(self->told.data);
}

void fiber_prepare(fiber *target, void (*function)(void *data), void *data) {
    target->told = (told){target->stack, FIBER_STACK, NULL, function, data};
    prepare(target, arrive, target);
}

void fiber_switch(fiber *from, fiber *to) {
    if (!from->stack) {
        pthread_attr_t attributes;
        void *bottom;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &bottom, &from->told.size);
        pthread_attr_destroy(&attributes);
        from->told.bottom = bottom;
    }
    __sanitizer_start_switch_fiber(&from->told.beside, to->told.bottom, to->told.size);
    switch_to(from, to);
    __sanitizer_finish_switch_fiber(from->told.beside, NULL, NULL);
}

void fiber_leave(fiber *from, fiber *to) {
    __sanitizer_start_switch_fiber(NULL, to->told.bottom, to->told.size);
    switch_to(from, to);
}

#else

void fiber_prepare(fiber *target, void (*function)(void *data), void *data) {
    prepare(target, function, data);
}

void fiber_switch(fiber *from, fiber *to) {
    switch_to(from, to);
}

void fiber_leave(fiber *from, fiber *to) {
    switch_to(from, to);
}

#endif

fiber *fiber_new(int own) {
    fiber *made = calloc(1, sizeof *made);
    if (made && !own) {
        void *stack = mmap(NULL, FIBER_STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        made->stack = stack == MAP_FAILED ? NULL : stack;
    }
    if (!made || (!own && !made->stack)) {
        fputs("no memory for a fiber\n", stderr);
        exit(1);
    }
    return made;
}
