// Claims as lists and lines.
#include "bench/support/claims.h"

#include <stdarg.h>
#include <stdio.h>

void claims_add(claim_list *list, verdict verdict, const char *format, ...) {
    if (list->count == list->size)
        return;
    claim *claim = &list->claims[list->count++];
    claim->verdict = verdict;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(claim->text, sizeof claim->text, format, arguments);
    va_end(arguments);
}

bool claims_print(const claim *claims, size_t count) {
    bool good = true;
    printf("\n");
    for (size_t i = 0; i < count; i++) {
        printf("  %-10s  %s\n", verdict_name(claims[i].verdict), claims[i].text);
        good = good && claims[i].verdict != FAILS;
    }
    printf("\n");
    return good;
}

void claims_json(bench_json *json, const claim *claims, size_t count) {
    bench_json_begin_array(json, "claims");
    for (size_t i = 0; i < count; i++) {
        bench_json_begin_object(json, NULL);
        bench_json_string(json, "verdict", verdict_name(claims[i].verdict));
        bench_json_string(json, "claim", claims[i].text);
        bench_json_end_object(json);
    }
    bench_json_end_array(json);
}

const char *verdict_name(verdict verdict) {
    static const char *const names[] = {
        [HOLDS] = "HOLDS", [FAILS] = "FAILS", [NOT_JUDGED] = "NOT JUDGED"};
    return names[verdict];
}
