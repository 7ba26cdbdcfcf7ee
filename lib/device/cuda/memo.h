// What a library has answered, by all that it was asked: a step of training, which does the same each
// time, asks once.
//
// A memo has so many places, in sets of a few. A question stands in one set; where that is full, what was
// asked for there longest ago is forgotten.
#ifndef ND_LIB_DEVICE_CUDA_MEMO_H
#define ND_LIB_DEVICE_CUDA_MEMO_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/// Places of a set.
#define ND__MEMO_SET ((size_t)4)

typedef struct nd_cuda_memo {
    pthread_mutex_t lock;
    size_t places;         ///< a multiple of ND__MEMO_SET
    size_t question_bytes; ///< a multiple of 8
    size_t answer_bytes;
    unsigned char *questions, *answers; ///< of all places
} nd_cuda_memo;

/// A memo of static storage. Questions are compared byte by byte, so they have no padding, and none
/// is all zeros, as a place without an answer is.
#define ND__MEMO(name, places_, Question, Answer)                             \
    _Static_assert(sizeof(Question) % 8 == 0, "a question is made of words"); \
    _Static_assert((places_) % ND__MEMO_SET == 0, "places are in sets");      \
    static unsigned char name##_questions[places_][sizeof(Question)];         \
    static unsigned char name##_answers[places_][sizeof(Answer)];             \
    static nd_cuda_memo name = {PTHREAD_MUTEX_INITIALIZER, places_,           \
                                sizeof(Question),          sizeof(Answer),    \
                                *name##_questions,         *name##_answers}

/// The answer to a question, if it is known. Thread-safe, as the other.
bool nd__memo_recall(nd_cuda_memo *memo, const void *question, void *ret_answer);
void nd__memo_remember(nd_cuda_memo *memo, const void *question, const void *answer);
#endif
