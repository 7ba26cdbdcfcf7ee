// What atomic words hold: every value that a word had in this execution, and which of them a thread
// may still read.
//
// Stores are appended to their word's history when they are executed (modification order). A load
// may read any entry but those that are older than one which its thread has seen: by an access of
// its own, or through what happened before, or through a fence. Read-modify-writes read the newest
// one. A load of an entry that was published learns what its writer knew.
//
// Words that only one thread uses, that nobody changes, or that are only added to and never read,
// need none of that, and no scheduling point either. Which those are is learned while programs run.
#ifndef ND_TESTS_MODEL_WORDS_H
#define ND_TESTS_MODEL_WORDS_H
#include "tests/model/memory.h"

enum { WORDS_NO_EVENT = -1 };

/// What a thread knows. Clocks count its events: it knows of those up to a time.
typedef struct model_knowledge {
    model_clock ordered; ///< happened before: plain accesses may rely on it
    model_clock seen;    ///< nothing older may be read: `ordered`, and what fences tell
    model_clock acquired, acquired_seen; ///< read by relaxed loads: known at the next fence
    model_clock fenced, fenced_seen;     ///< at the last fence: published by relaxed stores
} model_knowledge;

void words_begin_execution(void);

/// How a thread uses a word.
typedef enum word_use {
    WORD_TOUCHED, ///< read-modify-write that changes nothing and publishes nothing
    WORD_LOADED,  ///< and not by a read-modify-write
    WORD_ADDED,   ///< relaxed
    WORD_CHANGED, ///< in any other way
} word_use;
/// Whether the order of accesses of this word can matter, as far as is known.
bool words_contended(const volatile void *word);
/// Whether a thread other than that one loads the word, or changes it, as far as is known.
bool words_shared_with(const volatile void *word, int thread, word_use use);
/// A thread uses the word. True when that changes one of the answers above.
bool words_note_use(const volatile void *word, int thread, word_use use);
/// A thread frees memory, and with it the words in it that are known.
bool words_note_free(const void *place, size_t size, int thread);

/// Indices of the entries that a load by the thread may read: from *ret_lowest to *ret_count - 1.
void words_choices(const model_knowledge *knows, const volatile void *word, size_t size, int order,
                   uint32_t *ret_lowest, uint32_t *ret_count);
/// Number of the event that stored an entry, or WORDS_NO_EVENT.
int32_t words_origin(const volatile void *word, size_t size, uint32_t index);
uint64_t words_load(model_knowledge *knows, int thread, const volatile void *word, size_t size,
                    int order, uint32_t index);
void words_store(model_knowledge *knows, int thread, volatile void *word, size_t size, int order,
                 uint64_t value, int32_t event);
/// How many stores there were, in all executions, that nothing orders behind an earlier one of
/// another thread. In C11 such stores could also be the other way round in their word's history,
/// against the order in which they were executed; which is not tried.
uint64_t words_unordered_stores(void);
/// Both halves of a read-modify-write.
uint64_t words_load_newest(model_knowledge *knows, int thread, const volatile void *word,
                           size_t size, int order);
void words_replace(model_knowledge *knows, int thread, volatile void *word, size_t size, int order,
                   uint64_t value, int32_t event);
/// The newest value, of which nothing is learned but that.
uint64_t words_look(const model_knowledge *knows, int thread, const volatile void *word,
                    size_t size);
/// A seq_cst fence.
void words_fence(model_knowledge *knows);

uint64_t words_raw(const volatile void *word, size_t size);
void words_set_raw(volatile void *word, size_t size, uint64_t value);
#endif
