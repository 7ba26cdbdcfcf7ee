// How the hottest thread-local variables are reached.
//
// In a program: at a fixed distance from the thread's own address, one instruction. libnd.so asks
// for the address instead (ND_SHARED), because variables at a fixed distance need static thread
// storage, of which a library that dlopen() brings in late gets next to none. A variable is
// declared and defined with the same word.
#ifndef ND_LIB_BASE_THREAD_LOCAL_H
#define ND_LIB_BASE_THREAD_LOCAL_H

#if ND_SHARED
#define ND__THREAD_LOCAL _Thread_local
#else
#define ND__THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local
#endif

#endif
