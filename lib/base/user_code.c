// The thread's list of the dead is put aside while code of the program's runs.
#include "lib/base/user_code.h"

void nd__user_code_begin(nd_user_code *code) {
    nd__error_begin(&code->error, &code->outer_error);
    nd_thread *thread = nd__thread();
    code->nested =
        thread->is_destroying && !thread->in_callback && thread->nested_code < ND__USER_CODE_NESTED;
    if (!code->nested)
        return;
    code->dead = thread->dead;
    thread->dead = NULL;
    thread->is_destroying = false;
    thread->nested_code++;
}

void nd__user_code_end(const nd_user_code *code) {
    nd__error_end(code->outer_error);
    if (!code->nested)
        return;
    nd_thread *thread = nd__thread();
    thread->dead = code->dead;
    thread->is_destroying = true;
    thread->nested_code--;
}
