// See memo.h. The places of a set are in the order in which they were asked for last.
#include "lib/device/cuda/memo.h"
#include <stdint.h>
#include <string.h>

static size_t set_of(const nd_cuda_memo *memo, const void *question) {
    const unsigned char *bytes = question;
    uint64_t hash = 0;
    for (size_t i = 0; i < memo->question_bytes; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    }
    return (hash >> 40) % (memo->places / ND__MEMO_SET) * ND__MEMO_SET;
}

/// Puts what is `behind` places behind a set's first one there, and what was before it one further.
static void bring_forward(unsigned char *first, size_t bytes, size_t behind, const void *content) {
    memmove(first + bytes, first, behind * bytes);
    memcpy(first, content, bytes);
}

static void set_first(nd_cuda_memo *memo, size_t set, size_t behind, const void *question,
                      const void *answer) {
    bring_forward(memo->questions + set * memo->question_bytes, memo->question_bytes, behind,
                  question);
    bring_forward(memo->answers + set * memo->answer_bytes, memo->answer_bytes, behind, answer);
}

/// How far behind the first place of its set a question stands; ND__MEMO_SET: nowhere.
static size_t find(const nd_cuda_memo *memo, size_t set, const void *question) {
    for (size_t i = 0; i < ND__MEMO_SET; i++)
        if (memcmp(memo->questions + (set + i) * memo->question_bytes, question,
                   memo->question_bytes) == 0)
            return i;
    return ND__MEMO_SET;
}

bool nd__memo_recall(nd_cuda_memo *memo, const void *question, void *ret_answer) {
    const size_t set = set_of(memo, question);
    pthread_mutex_lock(&memo->lock);
    const size_t behind = find(memo, set, question);
    if (behind < ND__MEMO_SET) {
        memcpy(ret_answer, memo->answers + (set + behind) * memo->answer_bytes, memo->answer_bytes);
        if (behind > 0)
            set_first(memo, set, behind, question, ret_answer);
    }
    pthread_mutex_unlock(&memo->lock);
    return behind < ND__MEMO_SET;
}

void nd__memo_remember(nd_cuda_memo *memo, const void *question, const void *answer) {
    const size_t set = set_of(memo, question);
    pthread_mutex_lock(&memo->lock);
    const size_t behind = find(memo, set, question);
    set_first(memo, set, behind < ND__MEMO_SET ? behind : ND__MEMO_SET - 1, question, answer);
    pthread_mutex_unlock(&memo->lock);
}
