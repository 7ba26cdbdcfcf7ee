// The small programs that the checker explores.
#ifndef ND_TESTS_MODEL_PROGRAMS_H
#define ND_TESTS_MODEL_PROGRAMS_H
#include "tests/model/scheduler.h"
#include <stddef.h>

extern const model_program model_programs[];
extern const size_t model_program_count;
#endif
