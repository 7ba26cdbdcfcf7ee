// Buckets are read until there is none with the next number.
#include "bench/data_parallel/figures.h"

#include <math.h>
#include <stdio.h>

double figures_us(const bench_peer *peer, const char *of, const char *what) {
    char key[96];
    snprintf(key, sizeof key, "us_%s_%s", of, what);
    return bench_peer_number(peer, key);
}

timeline figures_timeline(const bench_peer *peer, const char *model, double *ret_bytes) {
    timeline line = {.forward = figures_us(peer, model, "forward"),
                     .step = figures_us(peer, model, "step"),
                     .backward = figures_us(peer, model, "backward")};
    char what[32];
    *ret_bytes = 0;
    for (; line.count < TIMELINE_BUCKETS; line.count++) {
        snprintf(what, sizeof what, "ready_%zu", line.count);
        double ready = figures_us(peer, model, what);
        if (!isfinite(ready))
            break;
        snprintf(what, sizeof what, "bytes_%zu", line.count);
        line.buckets[line.count].ready = ready;
        line.buckets[line.count].bytes = figures_us(peer, model, what);
        *ret_bytes += line.buckets[line.count].bytes;
    }
    return line;
}
