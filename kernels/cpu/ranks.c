// Selection: the elements at a few ranks of a long row.
//
// A sample of the row is sorted, and two of its keys are taken between which the wanted ranks lie most
// probably: a bracket. The elements in it are kept in their order, those below it counted. If the ranks are not
// there, they are where the count says, which is kept instead. A bracket is sought within what is kept until that is
// short, and then sorted.
//
// Invariant: the kept pairs are all of the row's with keys from the lower to the upper end of the bracket, in
// the row's order, so that their stable sort is a part of the row's. Which sample is taken changes the time alone: what
// a few brackets have not made short is sorted as it is.
#include "kernels/cpu/ranks.h"
#include "kernels/cpu/isa.h"
#include <math.h>

#define SHORT ND__ORDERED ///< pairs that are not sampled again
#define KEYS 256          ///< read at once
#define MOST_SAMPLE 1024
#define MOST_BRACKETS 12

typedef struct bracket {
    uint64_t low, high; ///< keys, both within
} bracket;

/// How many of n elements a sample has: none is sorted by digits where that would cost more than it spares.
static int64_t sample_size(int64_t n) {
    return n < 4096 ? SHORT : n < (1 << 18) ? 256 : MOST_SAMPLE;
}

/// Two of `count` sorted keys of a sample of n between which ranks first ... last lie, but for one time in twenty.
static bracket bracket_of(const nd__pair *sample, int64_t count, int64_t first, int64_t last,
                          int64_t n) {
    const double share = ((double)first + (double)last + 1) / 2 / (double)n;
    const int64_t more = 1 + (int64_t)(2 * sqrt((double)count * share * (1 - share)));
    const double scale = (double)count / (double)n;
    const int64_t low = (int64_t)((double)first * scale) - more;
    const int64_t high = (int64_t)((double)last * scale) + more;
    return (bracket){low < 0 ? 0 : sample[low].key, high < count ? sample[high].key : UINT64_MAX};
}

/// The ranks are not among those that are kept: where they are.
static bracket other_bracket(bracket old, int64_t first, int64_t last, int64_t below,
                             int64_t kept) {
    bracket other = old;
    if (first < below)
        other.low = 0;
    if (last < below)
        other.high = old.low - 1;
    if (last >= below + kept)
        other.high = UINT64_MAX;
    if (first >= below + kept)
        other.low = old.high + 1;
    return other;
}

static bool is_missed(int64_t first, int64_t last, int64_t below, int64_t kept) {
    return first < below || last >= below + kept;
}

// ----------------------------------------------------------------------------------------------- of a row

static const void *element(const nd__ranked_row *row, int64_t index) {
    return (const char *)row->x + index * row->stride * row->x_bytes;
}

static bracket bracket_of_row(const nd__ranked_row *row, int64_t first, int64_t last,
                              nd__pair *room) {
    const int64_t count = sample_size(row->size);
    uint64_t keys[MOST_SAMPLE];
    row->keys(row->x, row->stride * (row->size / count), count, 0, keys);
    for (int64_t i = 0; i < count; i++)
        room[i] = (nd__pair){keys[i], 0};
    nd__digits_sort(room, room + count, count);
    return bracket_of(room, count, first, last, row->size);
}

/// The pairs of a bracket; how many they are, how many keys are below it, and how many are the greatest of all.
static int64_t keep_of_row(const nd__ranked_row *row, bracket of, nd__pair *pairs,
                           int64_t *ret_below, int64_t *ret_greatest) {
    uint64_t keys[KEYS];
    int64_t kept = 0, below = 0, greatest = 0;
    const uint64_t width = of.high - of.low;
    for (int64_t begin = 0; begin < row->size; begin += KEYS) {
        const int64_t left = row->size - begin, n = left < KEYS ? left : KEYS;
        row->keys(element(row, begin), row->stride, n, 0, keys);
        for (int64_t i = 0; i < n; i++) {
            pairs[kept] = (nd__pair){keys[i], begin + i};
            kept += keys[i] - of.low <= width;
            below += keys[i] < of.low;
            greatest += keys[i] == UINT64_MAX;
        }
    }
    *ret_below = below;
    *ret_greatest = greatest;
    return kept;
}

/// Where the last of the NaNs is, of which there are some.
static int64_t last_nan(const nd__ranked_row *row) {
    uint64_t keys[KEYS];
    for (int64_t end = row->size;; end -= KEYS) {
        const int64_t n = end < KEYS ? end : KEYS;
        row->keys(element(row, end - n), row->stride, n, 0, keys);
        for (int64_t i = n; i-- > 0;)
            if (keys[i] == UINT64_MAX)
                return end - n + i;
    }
}

// -------------------------------------------------------------------------------------- of what is kept

static bracket bracket_of_pairs(const nd__pair *pairs, int64_t n, int64_t first, int64_t last,
                                nd__pair *room) {
    const int64_t count = sample_size(n), step = n / count;
    for (int64_t i = 0; i < count; i++)
        room[i] = pairs[i * step];
    nd__digits_sort(room, room + count, count);
    return bracket_of(room, count, first, last, n);
}

static int64_t keep_of_pairs(const nd__pair *from, int64_t n, bracket of, nd__pair *pairs,
                             int64_t *ret_below) {
    int64_t kept = 0, below = 0;
    const uint64_t width = of.high - of.low;
    for (int64_t i = 0; i < n; i++) {
        const nd__pair pair = from[i];
        pairs[kept] = pair;
        kept += pair.key - of.low <= width;
        below += pair.key < of.low;
    }
    *ret_below = below;
    return kept;
}

/// Writes the positions at ranks first ... last of n pairs.
static void find_in_pairs(nd__pair *pairs, nd__pair *room, int64_t n, int64_t first, int64_t last,
                          bool are_equal, int64_t *ret_positions) {
    for (int i = 0; i < MOST_BRACKETS && n > SHORT && !are_equal; i++) {
        bracket of = bracket_of_pairs(pairs, n, first, last, room);
        int64_t below, kept = keep_of_pairs(pairs, n, of, room, &below);
        if (is_missed(first, last, below, kept)) {
            of = other_bracket(of, first, last, below, kept);
            kept = keep_of_pairs(pairs, n, of, room, &below);
        }
        nd__pair *other = pairs;
        pairs = room;
        room = other;
        n = kept;
        first -= below;
        last -= below;
        are_equal = of.low == of.high;
    }
    if (!are_equal)
        nd__digits_sort(pairs, room, n);
    for (int64_t rank = first; rank <= last; rank++)
        *ret_positions++ = pairs[rank].position;
}

void nd__ranks_find(const nd__ranked_row *row, const int64_t *ranks, int64_t count, nd__pair *pairs,
                    nd__pair *room, int64_t *ret_positions) {
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
        end = begin + 1;
        while (end < count && ranks[end] == ranks[end - 1] + 1)
            end++;
        const int64_t first = ranks[begin], last = ranks[end - 1];
        bracket of = bracket_of_row(row, first, last, room);
        int64_t below, nans, kept = keep_of_row(row, of, pairs, &below, &nans);
        if (row->is_float && nans > 0) {
            const int64_t position = last_nan(row);
            for (int64_t i = 0; i < count; i++)
                ret_positions[i] = position;
            return;
        }
        if (is_missed(first, last, below, kept)) {
            of = other_bracket(of, first, last, below, kept);
            kept = keep_of_row(row, of, pairs, &below, &nans);
        }
        find_in_pairs(pairs, room, kept, first - below, last - below, of.low == of.high,
                      ret_positions + begin);
    }
}
