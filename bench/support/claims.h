// Claims: what a benchmark is there to show, judged from the figures of its own run.
#ifndef ND_BENCH_CLAIMS_H
#define ND_BENCH_CLAIMS_H
#include "bench/support/json.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum verdict { HOLDS, FAILS, NOT_JUDGED } verdict;

enum { CLAIM_TEXT = 320 };

typedef struct claim {
    verdict verdict;
    char text[CLAIM_TEXT];
} claim;

/// Where claims are written: at most `size`, others are left out.
typedef struct claim_list {
    claim *claims;
    size_t size;
    size_t count;
} claim_list;

void claims_add(claim_list *list, verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/// One line each. True when none failed.
bool claims_print(const claim *claims, size_t count);
/// Writes "claims": [{verdict, claim}] into an open object.
void claims_json(bench_json *json, const claim *claims, size_t count);
const char *verdict_name(verdict verdict);

#endif
