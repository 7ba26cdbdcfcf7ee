// Numbers as people read them.
#include "bench/support/numbers.h"

#include <inttypes.h>
#include <stdio.h>

const char *with_commas(char buffer[NUMBER_TEXT], uint64_t value) {
    char digits[NUMBER_TEXT];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    char *end = buffer;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return buffer;
}

const char *in_units(char buffer[NUMBER_TEXT], uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, NUMBER_TEXT, "%.*f %s", unit ? 1 : 0, value, units[unit]);
    return buffer;
}
