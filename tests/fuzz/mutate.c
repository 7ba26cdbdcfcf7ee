#include "tests/fuzz/mutate.h"
#include <string.h>

typedef struct input {
    uint8_t *data;
    size_t units, capacity;
    uint64_t random;
} input;

/// xorshift64*.
static size_t draw(input *in, size_t below) {
    in->random ^= in->random >> 12;
    in->random ^= in->random << 25;
    in->random ^= in->random >> 27;
    return (size_t)((in->random * UINT64_C(2685821657736338717)) >> 33) % below;
}

/// Random bytes at a unit; small numbers are the likely ones.
static void fill(input *in, size_t at) {
    for (size_t i = 0; i < fuzz_unit; i++)
        in->data[at * fuzz_unit + i] = (uint8_t)draw(in, i && draw(in, 2) ? 16 : 256);
}

static void insert(input *in, size_t at) {
    if (in->units == in->capacity)
        return;
    uint8_t *place = in->data + at * fuzz_unit;
    memmove(place + fuzz_unit, place, (in->units - at) * fuzz_unit);
    in->units++;
    fill(in, at);
}

static void erase(input *in, size_t at) {
    uint8_t *place = in->data + at * fuzz_unit;
    memmove(place, place + fuzz_unit, (in->units - at - 1) * fuzz_unit);
    in->units--;
}

static void swap(input *in, size_t at, size_t with) {
    for (size_t i = 0; i < fuzz_unit; i++) {
        uint8_t kept = in->data[at * fuzz_unit + i];
        in->data[at * fuzz_unit + i] = in->data[with * fuzz_unit + i];
        in->data[with * fuzz_unit + i] = kept;
    }
}

static void copy(input *in, size_t at, size_t from) {
    insert(in, at);
    if (from < in->units)
        memmove(in->data + at * fuzz_unit, in->data + from * fuzz_unit, fuzz_unit);
}

static void change(input *in) {
    size_t at = in->units ? draw(in, in->units) : 0;
    size_t kind = in->units ? draw(in, 8) : 0;
    switch (kind) {
    case 0:
    case 1:
        insert(in, at);
        break;
    case 2:
        erase(in, at);
        break;
    case 3:
        swap(in, at, draw(in, in->units));
        break;
    case 4:
        copy(in, at, draw(in, in->units));
        break;
    case 5:
        fill(in, at);
        break;
    case 6: // a number nearby: another slot
        in->data[at * fuzz_unit + draw(in, fuzz_unit)] += (uint8_t)(draw(in, 2) ? 1 : 255);
        break;
    default:
        in->data[at * fuzz_unit + draw(in, fuzz_unit)] = (uint8_t)draw(in, 256);
    }
}

size_t fuzz_mutate(uint8_t *data, size_t size, size_t capacity, uint64_t seed) {
    input in = {data, size / fuzz_unit, capacity / fuzz_unit,
                seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    for (size_t changes = 1 + draw(&in, 6); changes > 0; changes--)
        change(&in);
    return in.units * fuzz_unit;
}
