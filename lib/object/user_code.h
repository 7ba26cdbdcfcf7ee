// Code of the program's that runs where it does not expect to: destructors, finalizers, callbacks of
// weak references, functions that free memory. It has an error of its own, and what dies in it is
// destroyed there, though the thread destroys something further up: a destructor that computes
// keeps no more than any other code, and what it counts adds up.
//
// That nests so often and no more, since destructors may release what has destructors: further down
// what dies waits for the loop that runs there, which takes it in the order of its last releases, and
// before all that waited already. So what a destructor made and released is gone before the next one
// of a chain runs.
#ifndef ND_LIB_OBJECT_USER_CODE_H
#define ND_LIB_OBJECT_USER_CODE_H
#include "lib/base/error.h"
#include "lib/base/thread.h"

enum { ND__USER_CODE_NESTED = 8 };

typedef struct nd_user_code {
    nd_error_state error; ///< its own
    nd_error_state *outer_error;
    bool nested; ///< a loop further up destroys objects, those on `dead` next
    bool waits;  ///< likewise, and what dies here waits for it
    nd_object *dead;
} nd_user_code;

/// Around a call of such code, without a lock and outside the gate.
void nd__user_code_begin(nd_user_code *code);
void nd__user_code_end(const nd_user_code *code);

/// Whether this thread destroys something, here or further up.
static inline bool nd__user_code_in_destruction(const nd_thread *thread) {
    return thread->is_destroying || thread->nested_code > 0;
}
#endif
