// Products of bf16 with the processor's own products of pairs (which take subnormal numbers for 0).
//
// One side is the narrow one: b's columns or a's rows, ND__MOST_NARROW at a time, packed into a panel
// whose vectors hold `group` pairs of each line side by side: one pair of sixteen lines, or two of eight,
// or more of fewer. The other side's lines lie dense along k and are read where they lie; what is read of
// one is as many pairs, repeated over a vector. So no lanes of a vector are added up but `group`
// neighbours, for several lines at once. A sum's order depends on k and the number of narrow lines
// alone.
#include "kernels/cpu/pairs.h"

#if defined(__AVX512BW__)
#include "kernels/cpu/names.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/half.h"
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL ND__PRAGMA(GCC unroll 16)
#define MINIMUM(a, b) ((a) < (b) ? (a) : (b))

/// Lanes of a vector of sums.
#define LANES 16
/// Lines that are multiplied at once, by how many vectors there are; and the most vectors of sums of
/// each.
#define LINES_OF(vectors) ((vectors) == 1 ? 16 : (vectors) == 2 ? 12 : (vectors) == 3 ? 8 : 6)
#define MOST_LINES 16
#define MOST_SUMS 4
/// Lines whose results are put together.
#define BLOCK 48
/// Lines a multiple of so many bytes apart share the same few places of the nearest cache.
#define CROWDED_BYTES 4096
/// Bytes of the panels that are packed at once.
#define MOST_PANELS ((int64_t)1 << 22)

void ND_ISA_NAME(nd__cpu_box_copy)(const nd__box *given, int64_t width, char *to, const char *from);
extern const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT];

/// A product, and which of its panels are there.
typedef struct work {
    const uint16_t *lines, *x; ///< what is read where it lies, and the narrow side
    uint16_t *y;
    int64_t count, width, k;      ///< lines, narrow lines and elements of each
    int64_t line, x_line, x_step; ///< from one line to the next; of the narrow ones, and along them
    int64_t y_line, y_other;      ///< along the lines, and along the narrow ones
    int64_t few, sets;            ///< narrow lines of a panel, and panels
    int64_t first_set;            ///< of the panels that are packed
    char *room;                   ///< for panels
    size_t panel_bytes, dense_bytes; ///< of one; and of its lines, where they are copied first
    bool accumulate;
} work;

/// One panel, and its part of the results.
typedef struct narrow {
    const work *of;
    const uint32_t *panel; ///< [steps][vectors][LANES] pairs
    uint16_t *y;
    int64_t few;
    int group, vectors;
    bool rounds; ///< results are written where they belong as soon as they are there
} narrow;

// ------------------------------------------------------------------------------------------- panels

static narrow narrow_of(const work *w, int64_t set) {
    const int64_t few = MINIMUM(w->width - set * w->few, w->few);
    const size_t at = (size_t)(set - w->first_set) * (w->panel_bytes + w->dense_bytes);
    return (narrow){.of = w,
                    .panel = (const uint32_t *)(const void *)(w->room + at),
                    .y = w->y + set * w->few * w->y_other,
                    .few = few,
                    .group = few > 8   ? 1
                             : few > 4 ? 2
                             : few > 2 ? 4
                             : few > 1 ? 8
                                       : 16,
                    .vectors = (int)((few + LANES - 1) / LANES),
                    .rounds = few > 8 && w->y_other == 1 && !w->accumulate};
}

/// Lines that lie side by side, of which one element follows the other `step` apart, pair by pair.
static void pack_pairs(const narrow *f, uint32_t *panel, const uint16_t *x) {
    const int64_t step = f->of->x_step, k = f->of->k;
    for (int64_t at = 0; at < k; at += 2, x += 2 * step)
        for (int i = 0; i < f->vectors; i++, panel += LANES) {
            const int64_t left = f->few - i * LANES;
            const __mmask16 there = (__mmask16)(left < LANES ? (1u << left) - 1 : 0xFFFF);
            const __mmask16 second = at + 1 < k ? there : 0;
            const __m256i lower = _mm256_maskz_loadu_epi16(there, x + i * LANES);
            const __m256i upper = _mm256_maskz_loadu_epi16(second, x + step + i * LANES);
            const __m512i shifted = _mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16);
            _mm512_store_si512(panel, _mm512_or_si512(_mm512_cvtepu16_epi32(lower), shifted));
        }
}

/// So many bytes to each vector of a panel of one vector.
static inline __attribute__((always_inline)) void spread(uint32_t *to, const uint16_t *from,
                                                         int64_t steps, const int64_t bytes) {
    for (int64_t step = 0; step < steps; step++)
        memcpy(to + step * LANES, from + step * bytes / (int64_t)sizeof *from, (size_t)bytes);
}

/// Lines that are dense along k.
static void pack_lines(const narrow *f, uint32_t *panel, const uint16_t *x, int64_t line) {
    const int64_t taken = 2 * f->group, whole = f->of->k / taken, rest = f->of->k % taken;
    const int64_t row = f->vectors * LANES, width = (int64_t)sizeof(uint32_t) * f->group;
    memset(panel, 0, (size_t)((whole + (rest > 0)) * row) * sizeof *panel);
    if (whole > 0 && width <= 8) {
        const nd__box box = {.ndim = 2,
                             .shape = {f->few, whole},
                             .to = {width, row * (int64_t)sizeof *panel},
                             .from = {line * (int64_t)sizeof *x, width}};
        ND_ISA_NAME(nd__cpu_box_copy)(&box, width, (char *)panel, (const char *)x);
    }
    for (int64_t i = 0; i < f->few; i++) {
        uint32_t *to = panel + i * f->group;
        const uint16_t *from = x + i * line;
        if (f->group == 4)
            spread(to, from, whole, 16);
        else if (f->group == 8)
            spread(to, from, whole, 32);
        else if (f->group == 16)
            spread(to, from, whole, 64);
        if (rest > 0)
            memcpy(to + whole * row, from + whole * taken, (size_t)rest * sizeof *x);
    }
}

/// Packs panels begin ... end - 1 of those that there is room for.
static void pack_sets(void *context, int64_t begin, int64_t end) {
    const work *w = (const work *)context;
    for (int64_t at = begin; at < end; at++) {
        const int64_t set = w->first_set + at, width = (int64_t)sizeof(uint16_t);
        const narrow f = narrow_of(w, set);
        const uint16_t *x = w->x + set * w->few * w->x_line;
        uint32_t *panel = (uint32_t *)(uintptr_t)f.panel;
        if (w->x_step == 1 || w->k == 1) {
            pack_lines(&f, panel, x, w->x_line);
        } else if (w->x_line == 1 && f.group == 1) {
            pack_pairs(&f, panel, x);
        } else {
            const nd__box box = {.ndim = 2,
                                 .shape = {f.few, w->k},
                                 .to = {w->k * width, width},
                                 .from = {w->x_line * width, w->x_step * width}};
            char *dense = (char *)panel + w->panel_bytes;
            ND_ISA_NAME(nd__cpu_box_copy)(&box, width, dense, (const char *)x);
            pack_lines(&f, panel, (const uint16_t *)(void *)dense, w->k);
        }
    }
}

// --------------------------------------------------------------------------------------------- sums

/// `group` pairs, repeated over a vector.
INLINE __m512i repeated(const int group, const uint16_t *from) {
    uint32_t pair;
    uint64_t two;
    switch (group) {
    case 1:
        memcpy(&pair, from, sizeof pair);
        return _mm512_set1_epi32((int)pair);
    case 2:
        memcpy(&two, from, sizeof two);
        return _mm512_set1_epi64((long long)two);
    case 4:
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)from));
    case 8:
        return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)from));
    default:
        return _mm512_loadu_si512(from);
    }
}

/// The same of the last elements, fewer than two for each of the group, with zeros behind them.
INLINE __m512i repeated_part(const int group, const uint16_t *from, int64_t count) {
    const __m512i part = _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), from);
    switch (group) {
    case 1:
        return _mm512_broadcastd_epi32(_mm512_castsi512_si128(part));
    case 2:
        return _mm512_broadcastq_epi64(_mm512_castsi512_si128(part));
    case 4:
        return _mm512_broadcast_i32x4(_mm512_castsi512_si128(part));
    case 8:
        return _mm512_broadcast_i64x4(_mm512_castsi512_si256(part));
    default:
        return part;
    }
}

/// Adds the products of `chains` steps, which lie behind each other, to as many sums of each line.
INLINE void add_steps(const int group, const int lines, const int vectors, const int chains,
                      const uint32_t *panel, const uint16_t *const *from, int64_t apart,
                      __m512 (*sum)[MOST_SUMS]) {
    __m512i x[MOST_SUMS];
    UNROLL for (int j = 0; j < chains * vectors; j++) {
        x[j] = _mm512_load_si512(panel + j * LANES);
    }
    const int64_t apart_3 = 3 * apart;
    UNROLL for (int i = 0; i < lines; i++) {
        const uint16_t *at = from[i / 4] + (i % 4 == 3 ? apart_3 : i % 4 * apart);
        UNROLL for (int chain = 0; chain < chains; chain++) {
            const __m512i pairs = repeated(group, at + chain * 2 * group);
            UNROLL for (int j = 0; j < vectors; j++) {
                __m512 *to = &sum[i][chain * vectors + j];
                *to = _mm512_dpbf16_ps(*to, (__m512bh)x[chain * vectors + j], (__m512bh)pairs);
            }
        }
    }
}

/// sum[line][vector] of so many lines.
INLINE void add_up(const int group, const int lines, const int vectors, const narrow *f,
                   const uint16_t *line, __m512 (*sum)[MOST_SUMS]) {
    // As many sums as hide how long one takes, of few lines several for each.
    const int together = lines * vectors;
    const int wanted = together <= 4 ? 4 : together <= 8 ? 2 : 1;
    const int chains = wanted * vectors <= MOST_SUMS ? wanted : MOST_SUMS / vectors;
    // Four lines from each address: of sixteen there would not be registers for.
    const uint16_t *from[MOST_LINES / 4];
    const int64_t apart = f->of->line, steps = f->of->k / (2 * group);
    UNROLL for (int i = 0; i < lines; i += 4) {
        from[i / 4] = line + i * apart;
    }
    UNROLL for (int i = 0; i < lines; i++) {
        UNROLL for (int j = 0; j < chains * vectors; j++) {
            sum[i][j] = _mm512_setzero_ps();
        }
    }
    const uint32_t *panel = f->panel;
    int64_t step = 0;
    for (; step + chains <= steps; step += chains) {
        add_steps(group, lines, vectors, chains, panel, from, apart, sum);
        panel += chains * vectors * LANES;
        UNROLL for (int i = 0; i < lines; i += 4) {
            from[i / 4] += chains * 2 * group;
        }
    }
    for (; chains > 1 && step < steps; step++) {
        add_steps(group, lines, vectors, 1, panel, from, apart, sum);
        panel += vectors * LANES;
        UNROLL for (int i = 0; i < lines; i += 4) {
            from[i / 4] += 2 * group;
        }
    }
    UNROLL for (int i = 0; i < lines; i++) {
        UNROLL for (int j = vectors; j < chains * vectors; j++) {
            sum[i][j % vectors] = _mm512_add_ps(sum[i][j % vectors], sum[i][j]);
        }
    }
    const int64_t rest = f->of->k % (2 * group);
    if (rest == 0)
        return;
    UNROLL for (int i = 0; i < lines; i++) {
        const __m512i pairs = repeated_part(group, from[i / 4] + i % 4 * apart, rest);
        UNROLL for (int j = 0; j < vectors; j++) {
            const __m512i x = _mm512_load_si512(panel + j * LANES);
            sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)x, (__m512bh)pairs);
        }
    }
}

/// Sums of two neighbouring lanes each, of a, then of b.
INLINE __m512 add_neighbours(__m512 a, __m512 b) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

/// Writes the sums of so many lines, `few` of each, one line behind the other; and up to a vector of
/// something behind the last.
INLINE void write_sums(const int group, const int lines, const int vectors, int64_t few,
                       __m512 (*sum)[MOST_SUMS], float *to) {
    if (group == 1) {
        UNROLL for (int i = 0; i < lines; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                _mm512_storeu_ps(to + i * few + j * LANES, sum[i][j]);
            }
        }
        return;
    }
    // Each round makes of two vectors one, until a lane is a sum.
    enum { ROUNDS = 16 };
    const int width = LANES / group;
    __m512 x[ROUNDS];
    const int padded = lines < group ? group : lines;
    UNROLL for (int i = 0; i < padded; i++) {
        x[i] = i < lines ? sum[i][0] : _mm512_setzero_ps();
    }
    UNROLL for (int round = 1; round < group; round *= 2) {
        UNROLL for (int i = 0; i < padded / (2 * round); i++) {
            x[i] = add_neighbours(x[2 * i], x[2 * i + 1]);
        }
    }
    float all[MOST_LINES * LANES];
    UNROLL for (int i = 0; i < padded / group; i++) {
        _mm512_storeu_ps(all + i * LANES, x[i]);
    }
    UNROLL for (int i = 0; i < lines; i++) {
        memcpy(to + i * few, all + i * width, (size_t)width * sizeof(float));
    }
}

/// Results of such lines, rounded as they are stored.
INLINE void write_rounded(const int lines, const int vectors, const narrow *f, int64_t first,
                          __m512 (*sum)[MOST_SUMS]) {
    const int64_t rest = f->few - (vectors - 1) * LANES;
    const __mmask16 there = (__mmask16)(rest < LANES ? (1u << rest) - 1 : 0xFFFF);
    UNROLL for (int i = 0; i < lines; i++) {
        uint16_t *to = f->y + (first + i) * f->of->y_line;
        UNROLL for (int j = 0; j < vectors; j++) {
            const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(sum[i][j]);
            if (j < vectors - 1)
                _mm256_storeu_si256((__m256i *)(void *)(to + j * LANES), rounded);
            else
                _mm256_mask_storeu_epi16(to + j * LANES, there, rounded);
        }
    }
}

INLINE void sums_of(const int group, const int lines, const int vectors, const narrow *f,
                    int64_t first, float *to) {
    __m512 sum[MOST_LINES][MOST_SUMS];
    add_up(group, lines, vectors, f, f->of->lines + first * f->of->line, sum);
    if (group == 1 && f->rounds)
        write_rounded(lines, vectors, f, first, sum);
    else
        write_sums(group, lines, vectors, f->few, sum, to);
}

/// Sums of so many lines at a time, as long as there are as many, the last ones once more with some
/// before them. How many are done.
INLINE int64_t sums_of_some(const int group, const int lines, const int vectors, const narrow *f,
                            int64_t first, int64_t done, int64_t count, float *to) {
    for (; done < count && count >= lines; done += lines) {
        done = MINIMUM(done, count - lines);
        sums_of(group, lines, vectors, f, first + done, to + done * f->few);
    }
    return done;
}

/// The sums of `count` lines from `first` on. Lines that are crowded, and of which a step reads a part of
/// what the cache reads at once, are no more at a time than there are places for in the cache.
INLINE void sums_of_block(const int group, const int vectors, const narrow *f, int64_t first,
                          int64_t count, float *to) {
    const int most = LINES_OF(vectors);
    const bool crowded = f->of->line * (int64_t)sizeof(uint16_t) % CROWDED_BYTES == 0;
    int64_t done = 0;
    if (most <= 12 || group == 16 || !crowded)
        done = sums_of_some(group, most, vectors, f, first, done, count, to);
    if (vectors == 1)
        done = sums_of_some(group, 8, vectors, f, first, done, count, to);
    done = sums_of_some(group, 4, vectors, f, first, done, count, to);
    sums_of_some(group, 1, vectors, f, first, done, count, to);
}

static TARGET __attribute__((noinline)) void sums_of_any(const narrow *f, int64_t first,
                                                         int64_t count, float *to) {
    switch (f->vectors * 16 + f->group) {
    case 16 + 1:
        sums_of_block(1, 1, f, first, count, to);
        return;
    case 16 + 2:
        sums_of_block(2, 1, f, first, count, to);
        return;
    case 16 + 4:
        sums_of_block(4, 1, f, first, count, to);
        return;
    case 16 + 8:
        sums_of_block(8, 1, f, first, count, to);
        return;
    case 16 + 16:
        sums_of_block(16, 1, f, first, count, to);
        return;
    case 2 * 16 + 1:
        sums_of_block(1, 2, f, first, count, to);
        return;
    case 3 * 16 + 1:
        sums_of_block(1, 3, f, first, count, to);
        return;
    default:
        sums_of_block(1, 4, f, first, count, to);
    }
}

// ------------------------------------------------------------------------------------------ results

/// `count` neighbouring results, or added to what is there.
static void put_row(const work *w, uint16_t *y, float *sums, int64_t count) {
    if (w->accumulate)
        ND__INDEPENDENT for (int64_t i = 0; i < count; i++) sums[i] += nd__bf16_to_f32(y[i]);
    ND_ISA_NAME(nd__cpu_convert)
    [ND_F32][ND_BF16](count, (char *[]){(char *)y, (char *)sums}, (int64_t[]){1, 1}, NULL);
}

/// sums[count][few] to where they belong.
static void put_block(const narrow *f, int64_t first, int64_t count, float *sums) {
    const work *w = f->of;
    const int64_t few = f->few;
    uint16_t *y = f->y + first * w->y_line;
    if (w->y_other == 1 && (w->y_line == few || few >= LANES)) {
        const bool whole = w->y_line == few;
        for (int64_t line = 0; line < (whole ? 1 : count); line++)
            put_row(w, y + line * w->y_line, sums + line * few, whole ? count * few : few);
    } else if (w->y_line == 1 && count > 1) {
        const int64_t width = (int64_t)sizeof(float);
        float turned[BLOCK * ND__MOST_NARROW];
        const nd__box box = {.ndim = 2,
                             .shape = {few, count},
                             .to = {count * width, width},
                             .from = {width, few * width}};
        ND_ISA_NAME(nd__cpu_box_copy)(&box, width, (char *)turned, (const char *)sums);
        for (int64_t i = 0; i < few; i++)
            put_row(w, y + i * w->y_other, turned + i * count, count);
    } else {
        for (int64_t line = 0; line < count; line++, y += w->y_line)
            for (int64_t i = 0; i < few; i++) {
                uint16_t *to = y + i * w->y_other;
                const float sum = sums[line * few + i];
                *to = nd__f32_to_bf16(w->accumulate ? nd__bf16_to_f32(*to) + sum : sum);
            }
    }
}

/// Blocks of lines, those of a panel one behind the other.
static void blocks(void *context, int64_t begin, int64_t end) {
    const work *w = (const work *)context;
    const int64_t across = (w->count + BLOCK - 1) / BLOCK;
    _Alignas(64) float sums[BLOCK * ND__MOST_NARROW + LANES];
    for (int64_t at = begin; at < end; at++) {
        const narrow f = narrow_of(w, w->first_set + at / across);
        const int64_t first = at % across * BLOCK, count = MINIMUM(w->count - first, BLOCK);
        sums_of_any(&f, first, count, sums);
        if (!f.rounds)
            put_block(&f, first, count, sums);
    }
}

static work work_of(const nd__product *p) {
    const bool by_rows = nd__pairs_by_rows(p); // the lines are a's rows
    const nd__matrix *a = &p->a, *b = &p->b, *out = &p->out;
    work w = {.lines = (const uint16_t *)(by_rows ? a->data : b->data),
              .x = (const uint16_t *)(by_rows ? b->data : a->data),
              .y = (uint16_t *)out->data,
              .count = by_rows ? p->m : p->n,
              .width = by_rows ? p->n : p->m,
              .k = p->k,
              .line = by_rows ? a->row_stride : b->column_stride,
              .x_line = by_rows ? b->column_stride : a->row_stride,
              .x_step = by_rows ? b->row_stride : a->column_stride,
              .y_line = by_rows ? out->row_stride : out->column_stride,
              .y_other = by_rows ? out->column_stride : out->row_stride,
              .accumulate = p->accumulate};
    w.sets = (w.width + ND__MOST_NARROW - 1) / ND__MOST_NARROW;
    w.few = (w.width + w.sets - 1) / w.sets;
    if (w.sets > 1)
        w.few = (w.few + LANES - 1) / LANES * LANES;
    w.sets = (w.width + w.few - 1) / w.few;
    const narrow f = narrow_of(&w, 0);
    const int64_t steps = (w.k + 2 * f.group - 1) / (2 * f.group);
    w.panel_bytes = (size_t)(steps * f.vectors * LANES) * sizeof(uint32_t);
    if (w.x_step != 1)
        w.dense_bytes = (size_t)((w.few * w.k + 31) / 32) * 64;
    return w;
}

bool ND_ISA_NAME(nd__cpu_pairs)(const nd__product *p) {
    work w = work_of(p);
    const int64_t bytes = (int64_t)(w.panel_bytes + w.dense_bytes);
    int64_t together = MOST_PANELS / bytes;
    together = together < 1 ? 1 : MINIMUM(together, w.sets);
    w.room = (char *)nd__cpu_scratch((size_t)(together * bytes));
    if (!w.room)
        return false;
    const int64_t across = (w.count + BLOCK - 1) / BLOCK;
    for (; w.first_set < w.sets; w.first_set += together) {
        const int64_t sets = MINIMUM(together, w.sets - w.first_set);
        nd__cpu_parallel(sets, w.few * w.k / 16 + 1, 1, pack_sets, &w);
        nd__cpu_parallel(sets * across, BLOCK * w.few * w.k / 32 + 1, 1, blocks, &w);
    }
    return true;
}
#endif
