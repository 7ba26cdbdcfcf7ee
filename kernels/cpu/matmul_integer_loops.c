// Products of 8-bit integers that are added up in 32, exact modulo 2^32.
//
// Elements are widened to 16 bits, since the processors' products of bytes saturate, or have one
// operand with a sign and one without. Then pairs of products are added to a sum of 32 bits at once.
// a's elements have their zero point subtracted when they are widened; b's are (b xor flip), and what
// that is too much, the line's zero times the sum of a's row, is subtracted from the result.
//
// A few rows, or a few columns, are multiplied with the other matrix where it lies, whose elements are
// read once. Else tiles of the result are computed from panels, as in matmul.inc.
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
#define VECTOR_BYTES 64
#define KERNEL_ROWS 12
#define DOT_SUMS 16
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define KERNEL_ROWS 6
#define DOT_SUMS 8
#else
#define VECTOR_BYTES 16
#define KERNEL_ROWS 6
#define DOT_SUMS 8
#endif
/// Sums of a vector.
#define LANES (VECTOR_BYTES / 4)
#define KERNEL_COLUMNS (2 * LANES)
#define TILE_ROWS 192
#define TILE_COLUMNS 256
#define TILE_DEPTH 256

/// Rows, or columns, that are few; lines of the other matrix that are walked at once, along k and
/// side by side; of these the pairs of k that are added up at once.
#define FEW_ROWS ND__FEW_LINES
#define DOT_LINES 4
#define MOST_LINES 512
#define COLUMN_PAIRS 4
/// Multiplications up to which vectors cost more than they give.
#define TINY_PRODUCT 64

#define ND__UNROLL ND__PRAGMA(GCC unroll 12)
#define MINIMUM(a, b) ((a) < (b) ? (a) : (b))

typedef uint32_t WORDS __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));
#if !defined(__SSE2__)
typedef int32_t INTEGERS __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));
#endif
typedef uint16_t HALVES __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));
typedef uint8_t MANY_BYTES __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1), may_alias));

/// The lines of a factor: a's rows, or b's columns.
typedef struct lines {
    const uint8_t *data;
    int64_t count, line_stride, k_stride;
    nd__bytes bytes;
} lines;

static lines rows_of_a(const nd__product *p) {
    return (lines){p->a.data, p->m, p->a.row_stride, p->a.column_stride, p->a_bytes};
}

static lines columns_of_b(const nd__product *p) {
    return (lines){p->b.data, p->n, p->b.column_stride, p->b.row_stride, p->b_bytes};
}

/// A few lines, widened, and the matrix that they are multiplied with.
typedef struct few_rows {
    const int16_t *x; ///< [rows][depth], zeros behind the last and behind k
    int64_t k, depth;
    int rows;                  ///< 1, 2, 4 or 8
    int inside;                ///< of which are results
    uint32_t totals[FEW_ROWS]; ///< of x's rows
    lines matrix;
    uint32_t *out;
    int64_t row_stride, line_stride; ///< of out
} few_rows;

/// A pair in every lane.
static inline WORDS repeated(const int16_t *pair) {
    uint32_t both;
    memcpy(&both, pair, sizeof both);
    return (WORDS){0} + both;
}

/// LANES bytes, each to a lane.
static inline WORDS widened(const uint8_t *from) {
    WORDS result;
#if defined(__AVX512BW__)
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
    memcpy(&result, &wide, sizeof result);
#elif defined(__AVX2__)
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
    memcpy(&result, &wide, sizeof result);
#elif defined(__SSE2__)
    int32_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    const __m128i none = _mm_setzero_si128();
    result = (WORDS)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none), none);
#else
    for (int lane = 0; lane < LANES; lane++)
        result[lane] = from[lane];
#endif
    return result;
}

/// Twice as many, each to half a lane.
static inline HALVES widened_pairs(const uint8_t *from) {
#if defined(__AVX512BW__)
    return (HALVES)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__AVX2__)
    return (HALVES)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from));
#elif defined(__SSE2__)
    return (HALVES)_mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)from), _mm_setzero_si128());
#else
    return __builtin_convertvector(*(const MANY_BYTES *)from, HALVES);
#endif
}

typedef uint32_t QUAD __attribute__((vector_size(16), may_alias));

/// In halves: told so, the compiler adds vectors.
static inline uint32_t sum_of_lanes(WORDS lanes) {
    QUAD part[VECTOR_BYTES / 16];
    memcpy(part, &lanes, sizeof part);
    ND__UNROLL for (int half = VECTOR_BYTES / 32; half > 0; half /= 2)
        ND__UNROLL for (int i = 0; i < half; i++) part[i] += part[i + half];
    return (part[0][0] + part[0][1]) + (part[0][2] + part[0][3]);
}

/// Results of lines from ... of which those from `begin` on are written.
static __attribute__((noinline)) void put_lines(int rows, const few_rows *f, int64_t from,
                                                int64_t begin, int64_t count,
                                                uint32_t (*sums)[MOST_LINES]) {
    for (int row = 0; row < rows && row < f->inside; row++) {
        uint32_t *to = f->out + row * f->row_stride + begin * f->line_stride;
        const uint32_t *sum = sums[row] + (begin - from);
        for (int64_t i = 0; i < count; i++)
            to[i * f->line_stride] =
                sum[i] - (uint32_t)nd__bytes_zero(&f->matrix.bytes, begin + i) * f->totals[row];
    }
}

static inline WORDS add_pairs(WORDS sum, WORDS a, WORDS b) {
#if defined(__AVX512BW__)
    return sum + (WORDS)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (WORDS)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return sum + (WORDS)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    // b's halves have no sign.
    const INTEGERS lower = (INTEGERS)(a << 16) >> 16, upper = (INTEGERS)a >> 16;
    return sum + (WORDS)lower * (b & 0xFFFF) + (WORDS)upper * (b >> 16);
#endif
}

#define NAME(function) function##_plain
#define TARGET
#define ADD_PAIRS(sum, a, b) add_pairs(sum, a, b)
#include "kernels/cpu/matmul_integer.inc"

#if defined(__AVX512BW__)
#define NAME(function) function##_vnni
#define TARGET __attribute__((target("avx512vnni")))
#define ADD_PAIRS(sum, a, b) (WORDS) _mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b))
#include "kernels/cpu/matmul_integer.inc"
#endif

typedef struct inner_loops {
    void (*kernel)(uint32_t *result, const int16_t *rows, const int16_t *columns, int64_t depth);
    void (*few)(const few_rows *f, int64_t begin, int64_t end);
} inner_loops;

static inner_loops loops_now(void) {
#if defined(__AVX512BW__)
    if (__builtin_cpu_supports("avx512vnni"))
        return (inner_loops){kernel_vnni, few_vnni};
#endif
    return (inner_loops){kernel_plain, few_plain};
}

// ------------------------------------------------------------------------------------------- panels

/// Elements k ... of a line without its zero, `depth` of them, of which `inside` are there, the
/// others 0; their sum.
static uint32_t widen_line(int16_t *to, const lines *l, int64_t line, int64_t begin, int64_t inside,
                           int64_t depth) {
    const uint8_t *from = l->data + line * l->line_stride + begin * l->k_stride;
    const int16_t zero = (int16_t)nd__bytes_zero(&l->bytes, line);
    const uint8_t flip = l->bytes.flip;
    int32_t total = 0;
    if (l->k_stride == 1)
        for (int64_t k = 0; k < inside; k++)
            to[k] = (int16_t)((from[k] ^ flip) - zero);
    else
        for (int64_t k = 0; k < inside; k++)
            to[k] = (int16_t)((from[k * l->k_stride] ^ flip) - zero);
    // A panel's sums stay below 2^31.
    for (int64_t k = 0; k < inside; k++)
        total += to[k];
    for (int64_t k = inside; k < depth; k++)
        to[k] = 0;
    return (uint32_t)total;
}

#if VECTOR_BYTES == 64
#define ZIP_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VECTOR_BYTES == 32
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/// LANES pairs of LANES lines that lie dense along k, to as many rows of a panel.
static void pack_square(int16_t *panel, const uint8_t *from, int64_t line_stride, uint8_t flip) {
    WORDS x[LANES], y[LANES];
    const HALVES flips = (HALVES){0} + (uint16_t)flip;
    ND__UNROLL for (int i = 0; i < LANES; i++) x[i] =
        (WORDS)(widened_pairs(from + i * line_stride) ^ flips);
    // Each round deals out two halves; after as many as a lane's number has bits it is transposed.
    for (int round = 1; round < LANES; round *= 2) {
        ND__UNROLL for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = ZIP_LOW(x[i], x[i + LANES / 2]);
            y[2 * i + 1] = ZIP_HIGH(x[i], x[i + LANES / 2]);
        }
        ND__UNROLL for (int i = 0; i < LANES; i++) x[i] = y[i];
    }
    ND__UNROLL for (int i = 0; i < LANES; i++) * (WORDS *)(panel + i * 2 * KERNEL_COLUMNS) = x[i];
}

/// LANES lines that lie side by side, pairs of one k and the next.
static void pack_side_by_side(int16_t *panel, const uint8_t *from, int64_t k_stride, int64_t depth,
                              uint8_t flip) {
    const WORDS flips = (WORDS){0} + flip * 0x10001U;
    for (int64_t k = 0; k < depth; k += 2, panel += 2 * KERNEL_COLUMNS, from += 2 * k_stride)
        *(WORDS *)panel = (widened(from) | widened(from + k_stride) << 16) ^ flips;
}

/// panel[k / 2][KERNEL_COLUMNS][2] of LANES lines, zeros beyond the matrix; from k `done` on.
static void pack_rest(int16_t *panel, const lines *l, int64_t line, int64_t begin, int64_t done,
                      int64_t inside) {
    const int64_t count = MINIMUM(l->count - line, LANES);
    for (int64_t k = done; k < inside + inside % 2; k++)
        for (int64_t i = 0; i < LANES; i++) {
            const bool there = i < count && k < inside;
            panel[k / 2 * 2 * KERNEL_COLUMNS + 2 * i + k % 2] =
                there ? l->data[(line + i) * l->line_stride + (begin + k) * l->k_stride] ^
                            l->bytes.flip
                      : 0;
        }
}

static void pack_lines(int16_t *panel, const lines *l, int64_t line, int64_t begin,
                       int64_t inside) {
    const uint8_t *from = l->data + line * l->line_stride + begin * l->k_stride;
    int64_t done = 0;
    if (l->count - line >= LANES && l->k_stride == 1) {
        for (; done + 2 * LANES <= inside; done += 2 * LANES)
            pack_square(panel + done * KERNEL_COLUMNS, from + done, l->line_stride, l->bytes.flip);
    } else if (l->count - line >= LANES && l->line_stride == 1) {
        done = inside / 2 * 2;
        pack_side_by_side(panel, from, l->k_stride, done, l->bytes.flip);
    }
    pack_rest(panel, l, line, begin, done, inside);
}

// -------------------------------------------------------------------------------------------- tiles

/// Where a tile's panels and what belongs to them stand.
typedef struct tile_room {
    int16_t *rows, *columns;
    uint32_t *totals; ///< of the rows' elements
    uint32_t *zeros;  ///< of the columns
} tile_room;

/// Writes a block of results, of which rows x columns are inside the matrix, or adds it.
static void put_block(const nd__product *p, const uint32_t *result, int64_t top, int64_t left,
                      int64_t rows, int64_t columns, bool add, const uint32_t *totals,
                      const uint32_t *zeros) {
    for (int64_t row = 0; row < rows; row++) {
        uint32_t *to = (uint32_t *)p->out.data + (top + row) * p->out.row_stride + left;
        const uint32_t *from = result + row * KERNEL_COLUMNS;
        const uint32_t total = totals[row];
        if (add)
            for (int64_t column = 0; column < columns; column++)
                to[column] += from[column] - zeros[column] * total;
        else
            for (int64_t column = 0; column < columns; column++)
                to[column] = from[column] - zeros[column] * total;
    }
}

static void multiply_tile(const nd__product *p, int64_t top, int64_t left, const tile_room *room) {
    const inner_loops loops = loops_now();
    const lines a = rows_of_a(p), b = columns_of_b(p);
    const int64_t rows = MINIMUM(p->m - top, p->tile_rows);
    const int64_t columns = MINIMUM(p->n - left, p->tile_columns);
    uint32_t result[KERNEL_ROWS * KERNEL_COLUMNS];
    for (int64_t i = 0; i < columns; i++)
        room->zeros[i] = (uint32_t)nd__bytes_zero(&b.bytes, left + i);
    for (int64_t begin = 0; begin < p->k; begin += TILE_DEPTH) {
        const int64_t inside = MINIMUM(p->k - begin, TILE_DEPTH), depth = inside + inside % 2;
        for (int64_t row = 0; row < rows; row++)
            room->totals[row] =
                widen_line(room->rows + row * depth, &a, top + row, begin, inside, depth);
        for (int64_t column = 0; column < columns; column += LANES)
            pack_lines(room->columns + column / KERNEL_COLUMNS * KERNEL_COLUMNS * depth +
                           column % KERNEL_COLUMNS * 2,
                       &b, left + column, begin, inside);
        for (int64_t column = 0; column < columns; column += KERNEL_COLUMNS)
            for (int64_t row = 0; row < rows; row += KERNEL_ROWS) {
                loops.kernel(result, room->rows + row * depth, room->columns + column * depth,
                             depth);
                put_block(p, result, top + row, left + column, MINIMUM(rows - row, KERNEL_ROWS),
                          MINIMUM(columns - column, KERNEL_COLUMNS), begin > 0, room->totals + row,
                          room->zeros + column);
            }
    }
}

/// A sum of products per result: of a tiny product, or where there is no memory.
static void plain_tile(const nd__product *p, int64_t top, int64_t left) {
    const uint8_t *a = (const uint8_t *)p->a.data, *b = (const uint8_t *)p->b.data;
    for (int64_t row = top; row < MINIMUM(p->m, top + p->tile_rows); row++)
        for (int64_t column = left; column < MINIMUM(p->n, left + p->tile_columns); column++) {
            const int32_t a_zero = nd__bytes_zero(&p->a_bytes, row);
            const int32_t b_zero = nd__bytes_zero(&p->b_bytes, column);
            uint32_t sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                const int32_t x = a[row * p->a.row_stride + k * p->a.column_stride];
                const int32_t y = b[k * p->b.row_stride + column * p->b.column_stride];
                sum +=
                    (uint32_t)(((x ^ p->a_bytes.flip) - a_zero) * ((y ^ p->b_bytes.flip) - b_zero));
            }
            ((uint32_t *)p->out.data)[row * p->out.row_stride + column * p->out.column_stride] =
                sum;
        }
}

static void tiles(void *context, int64_t begin, int64_t end) {
    const nd__product *p = (const nd__product *)context;
    const int64_t depth = MINIMUM(p->k, TILE_DEPTH) + 1;
    const int64_t rows = (p->tile_rows + KERNEL_ROWS) * depth;
    const int64_t columns = (p->tile_columns + KERNEL_COLUMNS) * depth;
    const int64_t words = p->tile_rows + p->tile_columns;
    char *memory = (char *)nd__cpu_scratch((size_t)(rows + columns) * sizeof(int16_t) +
                                           (size_t)words * sizeof(uint32_t));
    tile_room room = {.totals = (uint32_t *)(void *)memory};
    if (memory) {
        room.zeros = room.totals + p->tile_rows;
        room.columns = (int16_t *)(void *)(room.zeros + p->tile_columns);
        room.rows = room.columns + columns;
    }
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t top = tile / p->tiles_across * p->tile_rows;
        const int64_t left = tile % p->tiles_across * p->tile_columns;
        if (memory)
            multiply_tile(p, top, left, &room);
        else
            plain_tile(p, top, left);
    }
}

static void multiply_tiles(nd__product *p) {
    // Smaller tiles when there would be too few for the threads.
    const bool few = p->m * p->n < 4 * TILE_ROWS * TILE_COLUMNS;
    p->tile_rows = few ? TILE_ROWS / 2 : TILE_ROWS;
    p->tile_columns = few ? TILE_COLUMNS / 2 : TILE_COLUMNS;
    p->tiles_across = (p->n + p->tile_columns - 1) / p->tile_columns;
    const int64_t count = (p->m + p->tile_rows - 1) / p->tile_rows * p->tiles_across;
    nd__cpu_parallel(count, p->tile_rows * p->tile_columns / 32 * (p->k / 4 + 1), 1, tiles, p);
}

// ----------------------------------------------------------------------------------------- few rows

static void few_lines(void *context, int64_t begin, int64_t end) {
    const few_rows *f = (const few_rows *)context;
    loops_now().few(f, begin, end);
}

/// Rows of x, which are few, with the lines of a matrix. False, and nothing is written, when the
/// matrix does not suit it, or there is no memory.
static bool multiply_few(few_rows *f, const lines *x) {
    if (f->matrix.k_stride != 1 && (f->matrix.line_stride != 1 || f->matrix.count < LANES))
        return false;
    f->inside = (int)x->count;
    f->rows = x->count > 4 ? 8 : x->count > 2 ? 4 : (int)x->count;
    f->depth = f->k + f->k % 2;
    int16_t *room = nd__cpu_scratch((size_t)(f->rows * f->depth) * sizeof(int16_t));
    if (!room)
        return false;
    for (int row = 0; row < f->rows; row++) {
        int16_t *to = room + row * f->depth;
        f->totals[row] = 0;
        if (row >= f->inside)
            memset(to, 0, (size_t)f->depth * sizeof(int16_t));
        for (int64_t k = 0; k < f->k && row < f->inside; k += TILE_DEPTH) {
            const int64_t inside = MINIMUM(f->k - k, TILE_DEPTH);
            f->totals[row] += widen_line(to + k, x, row, k, inside, inside + inside % 2);
        }
    }
    f->x = room;
    nd__cpu_parallel(f->matrix.count, f->k * f->rows / 32 + 1, 64, few_lines, f);
    return true;
}

void ND_ISA_NAME(nd__cpu_matmul_integer)(nd__product *p) {
    const lines a = rows_of_a(p), b = columns_of_b(p);
    few_rows by_rows = {.k = p->k,
                        .matrix = b,
                        .out = p->out.data,
                        .row_stride = p->out.row_stride,
                        .line_stride = p->out.column_stride};
    few_rows by_columns = {.k = p->k,
                           .matrix = a,
                           .out = p->out.data,
                           .row_stride = p->out.column_stride,
                           .line_stride = p->out.row_stride};
    if (p->m * p->n * p->k <= TINY_PRODUCT) {
        p->tile_rows = p->m;
        p->tile_columns = p->n;
        plain_tile(p, 0, 0);
        return;
    }
    const bool few_columns = p->n <= FEW_ROWS && (p->m > FEW_ROWS || b.k_stride != 1);
    if (few_columns && multiply_few(&by_columns, &b))
        return;
    if (p->m <= FEW_ROWS && multiply_few(&by_rows, &a))
        return;
    multiply_tiles(p);
}
