// Sleeping on a word, and waking who sleeps there.
#ifndef ND_LIB_BASE_FUTEX_H
#define ND_LIB_BASE_FUTEX_H
#include "lib/base/atomics.h"

/// Sleeps while *word == value (may return early).
void nd__futex_wait(_Atomic uint32_t *word, uint32_t value);
/// Wakes everybody who sleeps on the word. True when there was somebody.
bool nd__futex_wake_all(_Atomic uint32_t *word);
#endif
