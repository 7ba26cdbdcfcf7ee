// The core's lock as it is outside the model, where nd__lock_acquire is one step: as_it_is.sh takes
// its functions out of the sources, and the kernel's part is the scheduler's.
//
// Taking it spins once: what a longer spin sees, one does that comes later.
#ifndef ND_TESTS_MODEL_AS_IT_IS_H
#define ND_TESTS_MODEL_AS_IT_IS_H
#include "lib/base/lock.h"
#include "lib/base/pause.h"
#include "tests/model/scheduler.h"
#include <errno.h>

bool as_it_is_lock_try(nd_lock *lock);
bool as_it_is_lock_at_once(nd_lock *lock);
void as_it_is_lock_wait(nd_lock *lock);
void as_it_is_lock_wake(nd_lock *lock);
void as_it_is_lock_acquire(nd_lock *lock);
void as_it_is_lock_release(nd_lock *lock);

enum { SYS_futex, FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE, FIRST_SLEEP_NS };
/// The system call, with the number of those to wake, or the value to wait for.
#define syscall(number, word, operation, value, limit, unused, more) \
    ((operation) == FUTEX_WAKE_PRIVATE                               \
         ? model_futex_wake(word, value)                             \
         : model_futex_wait(word, value, (const void *)(limit) != NULL))
#endif
