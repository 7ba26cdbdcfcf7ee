// Programs as text: `name a b c d`, one call on a line.
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/text.h"
#include <stdlib.h>
#include <string.h>

/// One line; false when it says nothing.
static bool read_line(const char *name, unsigned number, const char *line, const char *end,
                      fuzz_step *ret_step) {
    const char *comment = memchr(line, '#', (size_t)(end - line));
    end = comment ? comment : end;
    while (line < end && *line == ' ')
        line++;
    size_t length = 0;
    while (line + length < end && line[length] != ' ')
        length++;
    if (length == 0)
        return false;
    int call = fuzz_call_number(line, length);
    if (call < 0)
        fuzz_die("%s:%u: there is no call %.*s", name, number, (int)length, line);
    uint8_t values[4] = {0};
    line += length;
    for (int i = 0;; i++) {
        while (line < end && *line == ' ')
            line++;
        if (line >= end)
            break;
        char *behind;
        unsigned long value = strtoul(line, &behind, 10);
        if (behind == line || behind > end || value > 255 || i == 4)
            fuzz_die("%s:%u: expected at most four numbers of 0 to 255", name, number);
        values[i] = (uint8_t)value;
        line = behind;
    }
    *ret_step = (fuzz_step){.call_low = (uint8_t)call,
                            .call_high = (uint8_t)(call >> 8),
                            .a = values[0],
                            .b = values[1],
                            .c = values[2],
                            .d = values[3]};
    return true;
}

uint8_t *fuzz_read_text(const char *name, const char *text, size_t *ret_size) {
    size_t count = 0;
    unsigned number = 1;
    fuzz_step *steps = calloc(strlen(text) + 1, sizeof *steps); // a line has at least one character
    if (!steps)
        fuzz_die("no memory");
    for (const char *line = text; *line; number++) {
        const char *end = strchr(line, '\n');
        if (!end)
            end = line + strlen(line);
        count += read_line(name, number, line, end, &steps[count]);
        line = *end ? end + 1 : end;
    }
    *ret_size = count * sizeof *steps;
    return (uint8_t *)steps;
}

const size_t fuzz_unit = sizeof(fuzz_step);

void fuzz_write_text(FILE *stream, const uint8_t *data, size_t size) {
    static fuzz_step steps[FUZZ_STEPS_MAX];
    size_t count = fuzz_steps(data, size, steps);
    for (size_t i = 0; i < count; i++)
        fuzz_write_step(stream, &steps[i]);
}
