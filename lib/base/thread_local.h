// How the hottest thread-local variables are reached: at a fixed distance from the thread's own
// address, one instruction. A variable is declared and defined with the same word.
//
// Variables at a fixed distance need static thread storage, of which a library that dlopen() brings
// in late gets what is left of some 1.5 KiB. So libnd.so keeps all its thread-local variables
// together small (tests/symbols/symbols_test.sh): what is larger is allocated by the thread that
// wants it.
#ifndef ND_LIB_BASE_THREAD_LOCAL_H
#define ND_LIB_BASE_THREAD_LOCAL_H

#define ND__THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local

#endif
