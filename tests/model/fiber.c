// Switching stacks: a few instructions on x86-64, ucontext elsewhere (which asks the kernel about
// signals at every switch).
#include "tests/model/fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)

struct fiber {
    void *stack_pointer;
    char *stack;
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

void fiber_prepare(fiber *target, void (*function)(void *data), void *data) {
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

void fiber_switch(fiber *from, fiber *to) {
    nd__model_switch(&from->stack_pointer, to->stack_pointer);
}

#else
#include <ucontext.h>

struct fiber {
    ucontext_t context;
    char *stack;
    void (*function)(void *data);
    void *data;
};

static void enter(unsigned high, unsigned low) {
    fiber *self = (fiber *)(((uintptr_t)high << 32) | low);
    self->function(self->data);
}

void fiber_prepare(fiber *target, void (*function)(void *data), void *data) {
    target->function = function;
    target->data = data;
    getcontext(&target->context);
    target->context.uc_stack.ss_sp = target->stack;
    target->context.uc_stack.ss_size = FIBER_STACK;
    uint64_t address = (uint64_t)(uintptr_t)target;
    makecontext(&target->context, (void (*)(void))enter, 2, (unsigned)(address >> 32),
                (unsigned)address);
}

void fiber_switch(fiber *from, fiber *to) {
    swapcontext(&from->context, &to->context);
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
