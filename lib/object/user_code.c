// The thread's list of the dead is put aside while code of the program's runs.
#include "lib/object/user_code.h"
#include "lib/object/object.h"

/// Of the dead that were added one before the other, down to those that were there.
static void put_in_order(nd_thread *thread, nd_object *there) {
    nd_object *first = there;
    while (thread->dead != there) {
        nd_object *object = thread->dead;
        thread->dead = object->next;
        object->next = first;
        first = object;
    }
    thread->dead = first;
}

void nd__user_code_begin(nd_user_code *code) {
    nd__error_begin(&code->error, &code->outer_error);
    nd_thread *thread = nd__thread();
    const bool in_loop = thread->is_destroying && !thread->in_callback;
    code->nested = in_loop && thread->nested_code < ND__USER_CODE_NESTED;
    code->waits = in_loop && !code->nested;
    code->dead = thread->dead;
    if (!code->nested)
        return;
    thread->dead = NULL;
    thread->is_destroying = false;
    thread->nested_code++;
}

void nd__user_code_end(const nd_user_code *code) {
    nd__error_end(code->outer_error);
    nd_thread *thread = nd__thread();
    if (code->waits)
        put_in_order(thread, code->dead);
    if (!code->nested)
        return;
    thread->dead = code->dead;
    thread->is_destroying = true;
    thread->nested_code--;
}
