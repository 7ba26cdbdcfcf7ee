// Sorts pairs of a key and a position stably: few by insertion, or by how many come before each, more by
// their digits, from the lowest, leaving out digits that all share.
//
// Of many digits the highest few say nearly everything, so that insertion does the rest. Where it does not, as
// there are many pairs that differ in lower digits alone, all digits are sorted by.
#include "kernels/cpu/digits.h"
#include "kernels/cpu/isa.h"
#include <stdbool.h>
#include <string.h>

#define SHORT ND__ORDERED ///< pairs up to here are not sorted by digits
#define FEW 7             ///< and up to here always by insertion
#define DIGITS 8          ///< of a key
#define DIGIT_VALUES 256

/// Whether pairs are in their order, or become so when they are turned round, which is done then.
static bool is_sorted(nd__pair *pairs, int64_t n) {
    int64_t i = 1;
    while (i < n && pairs[i - 1].key <= pairs[i].key)
        i++;
    if (i == n)
        return true;
    i = 1;
    while (i < n && pairs[i - 1].key > pairs[i].key)
        i++;
    if (i < n)
        return false;
    for (int64_t at = 0; at < n / 2; at++) {
        nd__pair other = pairs[at];
        pairs[at] = pairs[n - 1 - at];
        pairs[n - 1 - at] = other;
    }
    return true;
}

/// The digits of keys that not all share, the lowest first, of what they are above the least: integers of both
/// signs differ in few of them then.
typedef struct digits {
    uint64_t least;
    int count, shift[DIGITS];
} digits;

static digits digits_of(const nd__pair *pairs, int64_t n) {
    digits of = {.least = pairs[0].key, .count = 0};
    uint64_t differing = 0;
    for (int64_t i = 1; i < n; i++)
        of.least = pairs[i].key < of.least ? pairs[i].key : of.least;
    for (int64_t i = 0; i < n; i++)
        differing |= pairs[i].key - of.least;
    for (int shift = 0; shift < 8 * DIGITS; shift += 8)
        if (differing >> shift & 0xFF)
            of.shift[of.count++] = shift;
    return of;
}

/// Sorts pairs in place by `of`, from number `first` on, with room for as many.
static void sort_by_digits(nd__pair *pairs, nd__pair *room, int64_t n, const digits *of,
                           int first) {
    nd__pair *from = pairs, *to = room;
    for (int digit = first; digit < of->count; digit++) {
        const int shift = of->shift[digit];
        const uint64_t least = of->least;
        int64_t places[DIGIT_VALUES] = {0}, place = 0;
        for (int64_t i = 0; i < n; i++)
            places[(from[i].key - least) >> shift & 0xFF]++;
        for (int value = 0; value < DIGIT_VALUES; value++) {
            int64_t count = places[value];
            places[value] = place;
            place += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[places[(from[i].key - least) >> shift & 0xFF]++] = from[i];
        nd__pair *other = from;
        from = to;
        to = other;
    }
    if (from != pairs)
        memcpy(pairs, from, (size_t)n * sizeof *pairs);
}

/// Sorts by insertion what is nearly sorted; false, and not sorted, where it is not.
static bool insert_few(nd__pair *pairs, int64_t n) {
    int64_t left = 2 * n; // pairs that may be moved
    for (int64_t i = 1; i < n && left >= 0; i++) {
        nd__pair moved = pairs[i];
        int64_t at = i;
        for (; at > 0 && pairs[at - 1].key > moved.key && left >= 0; at--, left--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
    return left >= 0;
}

/// Sorts pairs in place, with room for as many. Many numbers differ in their highest digits already, by
/// which they are then sorted first.
static void digit_sort(nd__pair *pairs, nd__pair *room, int64_t n) {
    if (is_sorted(pairs, n))
        return;
    const digits of = digits_of(pairs, n);
    int highest = 2;
    for (int64_t values = DIGIT_VALUES; values < n; values *= DIGIT_VALUES)
        highest++;
    if (of.count > highest + 1) {
        sort_by_digits(pairs, room, n, &of, of.count - highest);
        if (insert_few(pairs, n))
            return;
    }
    sort_by_digits(pairs, room, n, &of, 0);
}

/// Sorts pairs by insertion.
static void insert_all(nd__pair *pairs, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const nd__pair moved = pairs[i];
        int64_t at = i;
        for (; at > 0 && pairs[at - 1].key > moved.key; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
}

/// Few pairs in vectors, which the processor has.
static void order_pairs(nd__pair *pairs, nd__pair *room, int64_t n) {
    uint64_t keys[SHORT];
    int64_t positions[SHORT];
    for (int64_t i = 0; i < n; i++)
        keys[i] = pairs[i].key;
    nd__cpu_loops_now()->sorting->order(keys, n, positions);
    for (int64_t i = 0; i < n; i++)
        room[i] = pairs[positions[i]];
    memcpy(pairs, room, (size_t)n * sizeof *pairs);
}

void nd__digits_sort(nd__pair *pairs, nd__pair *room, int64_t n) {
    if (n > SHORT)
        digit_sort(pairs, room, n);
    else if (n > FEW && nd__cpu_loops_now()->sorting->order)
        order_pairs(pairs, room, n);
    else
        insert_all(pairs, n);
}
