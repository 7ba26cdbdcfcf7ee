// No function of the library is a cancellation point, but nd_gc_collect as it begins.
//
// A thread that is cancelled (pthread_cancel) unwinds from wherever it sleeps, reads or writes, and
// would take with it what the library was in the middle of: locks, objects on their way, a
// callback's work half done. So whatever may wait, touch files or run user code does so between
// these two; a request that comes meanwhile is acted upon at the program's own next cancellation
// point. User code that a callback runs is not cancelled either.
#ifndef ND_LIB_BASE_CANCEL_H
#define ND_LIB_BASE_CANCEL_H
#include "lib/base/thread.h"

nd_thread *nd__cancel_disable(void);
void nd__cancel_restore(nd_thread **thread);

/// From here to the end of the block.
#define ND__UNCANCELLED                                                            \
    __attribute__((cleanup(nd__cancel_restore), unused)) nd_thread *uncancelled_ = \
        nd__cancel_disable()
#endif
