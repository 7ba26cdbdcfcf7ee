// Whether products and convolutions of f32 may round their operands to TF32 (nd_set_tf32).
#ifndef ND_LIB_DEVICE_TF32_H
#define ND_LIB_DEVICE_TF32_H
#include <stdbool.h>

/// What a backend asks at each product: it may change at any time.
bool nd__tf32_allowed(void);
/// This thread's products round nothing while `exact`. Returns what was said before, to be said again.
bool nd__tf32_set_exact(bool exact);
#endif
