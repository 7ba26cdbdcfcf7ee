// How the hottest thread-local variables are reached: at a fixed distance from the thread's own
// address, one instruction. A variable is declared and defined with the same word.
//
// Variables at a fixed distance need static thread storage, of which a library that dlopen() brings
// in late gets what is left of some 1.5 KiB. So libnd.so keeps all its thread-local variables
// together small (tests/symbols/symbols_test.sh): what is larger is allocated by the thread that
// wants it. NVIDIA's runtime, where libnd.so has it inside, has a page of its own, and one variable
// at a fixed distance would ask for all of it: there each is found by a call, in libnd.so alone.
#ifndef ND_LIB_BASE_THREAD_LOCAL_H
#define ND_LIB_BASE_THREAD_LOCAL_H

#if ND_HAVE_CUDA
#define ND__THREAD_LOCAL _Thread_local
#else
#define ND__THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local
#endif

#endif
