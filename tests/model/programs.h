// The small programs that the checker explores: two or three threads, two to four objects, one
// thing that could go wrong.
//
// Each program's setup builds its cells and managers (cells.h) and says in `handles` which handles
// finish has to release: those of which no thread gets rid. A program of a collection in steps is
// in programs_steps.c, of one that decides early in programs_settled.c, of an object with a storage
// in programs_attach.c, of one that the collector may see as well in programs_tensors.c, of the
// lock in programs_lock.c, of one that is biased in programs_biased.c, of an account in
// programs_accounts.c; of the others, one in which a manager closes, moves or counts its objects is
// in programs_managers.c, and any other in programs_core.c. What two of them need is in shared.c.
// litmus.c has programs of the memory model.
#ifndef ND_TESTS_MODEL_PROGRAMS_H
#define ND_TESTS_MODEL_PROGRAMS_H
#include "tests/model/scheduler.h"
#include <stddef.h>

extern const model_program model_litmus_programs[], model_core_programs[],
    model_managers_programs[], model_settled_programs[], model_steps_programs[],
    model_attach_programs[], model_tensors_programs[], model_lock_programs[],
    model_accounts_programs[], model_biased_programs[];
extern const size_t model_litmus_program_count, model_core_program_count,
    model_managers_program_count, model_settled_program_count, model_steps_program_count,
    model_attach_program_count, model_tensors_program_count, model_lock_program_count,
    model_accounts_program_count, model_biased_program_count;

#define CHECKED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish, 0, 0 }
/// Too many interleavings for a test.
#define BOUNDED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish, 30000, 0 }
#endif
