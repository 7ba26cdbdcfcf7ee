// The portable matrix product, for f64, 16-bit floats (converted panel by panel, added up in f32)
// and integers, for builds without oneDNN, and for matrices so small that a library's call costs
// more than the work.
#include "kernels/cpu/few.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/half.h"

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#define KERNEL_ROWS 12
#define KERNEL_AHEAD 2
#define SMALL_VECTORS 3
#define SMALL_WIDE_ROWS 8
#define SMALL_DIRECT ND__SMALL_PRODUCT
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#define KERNEL_ROWS 6
#define KERNEL_AHEAD 0
#define SMALL_VECTORS 2
#define SMALL_WIDE_ROWS 6
#define SMALL_DIRECT SMALL_PRODUCT
#else
#define ND__VECTOR_BYTES 16
#define KERNEL_ROWS 6
#define KERNEL_AHEAD 0
#define SMALL_VECTORS 2
#define SMALL_WIDE_ROWS 6
#define SMALL_DIRECT SMALL_PRODUCT
#endif

/// How far ahead the inner kernel fetches both panels, and of each KERNEL_AHEAD lines a step: AVX-512 needs
/// them faster than the second cache gives what is asked for only then, and the panels together are larger
/// than the nearest one.
#define AHEAD_BYTES 512

/// A tile's steps through k, of which the two vectors of b's columns that the inner kernel reads again and
/// again are 32 KiB of doubles; a tile's columns, whose panels are 1 MiB of them, and the rows of a that
/// are packed together, whose panels are 192 KiB; the most rows of a tile, and of one whose sums
/// have memory of their own; the least that a tile is cut to for more threads; and rows of b that are packed
/// together.
#define TILE_DEPTH 256
#define TILE_COLUMNS 512
#define BLOCK_ROWS 96
#define MOST_ROWS 4096
#define MOST_SUMMED_ROWS 192
#define LEAST_TILE_ROWS 48
#define LEAST_TILE_COLUMNS 64
#define PACK_DEPTH 8

/// Of a matrix times a vector: rows that are walked side by side, and columns; sums that a long sum
/// is made of, and elements of a piece of it; results that are added up at a time, and the fewest.
#define DOT_ROWS 4
#define MATVEC_COLUMNS 8
#define DOT_CHAINS 4
#define DOT_PIECE ((int64_t)1 << 16)
#define COLUMN_ROWS 2048
#define COLUMN_GRAIN 256

/// Of a vector times a matrix of few columns that lie side by side: the most of those, elements of x
/// that are repeated at a time, and of a piece of a long sum.
#define MOST_INTERLEAVED ND__MOST_INTERLEAVED
#define INTERLEAVED_DEPTH 128
#define INTERLEAVED_PIECE ((int64_t)1 << 14)

/// Multiplications up to which packing panels costs more than it gives (SMALL_DIRECT: where b need not be packed either); of such a product the longest sums, and the
/// rows of one vector and, where b is read as it lies, vectors that are computed at once, of how many
/// rows (SMALL_WIDE_ROWS: as many as there are registers for).
#define SMALL_PRODUCT 8192
#define SMALL_DEPTH ND__SMALL_DEPTH
#define SMALL_ROWS 8
#define SMALL_PAIR 2
/// Of a product without panels whose b is read where it lies: the longest sums of more than
/// SMALL_WIDE_ROWS rows (of words of 16 bits), rows of b that are read before the next columns, of few rows and of more, and how
/// often as many columns or rows as are computed at once make a task.
#define DIRECT_DEPTH 64
#define DIRECT_STEP_OF_FEW 16
#define DIRECT_STEP 64
#define DIRECT_BLOCK 8

/// Of a product of long sums and few lines (few.inc): the most of those; lines and others that are
/// multiplied at once; elements of a line that are brought together, and of a piece of a sum.
#define FEW ND__FEW
#if ND__VECTOR_BYTES == 64
#define FEW_ROWS 4
#else
#define FEW_ROWS 2
#endif
#define FEW_COLUMNS 4
#define FEW_DEPTH 256
#define FEW_PIECE ((int64_t)1 << 13)

#define ND__MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define ND__UNROLL ND__PRAGMA(GCC unroll 12)

// One product for each width of integers: what wraps has the same bits with a sign and without. Those of
// 8 bits are the lower halves of words of 16.
#define LOAD_PLAIN(e) (e)
#define LOAD_WORD(e) ((T)(e))
#define STORE_PLAIN(t) (t)
#define STORE_WORD(t) ((E)(t))
#define TIMES_PLAIN(x, y) ((x) * (y))
// Two words of 16 bits would be multiplied as numbers with a sign.
#define TIMES_WORD(x, y) ((T)((uint32_t)(x) * (uint32_t)(y)))
#define ADD(sum, x) (sum) = (T)((sum) + (x))
#define LOADS_PLAIN(e) __builtin_convertvector(*(const ELEMENTS *)(e), VECTOR)
#define LOADS_BF16(e) \
    ((VECTOR)(__builtin_convertvector(*(const ELEMENTS *)(e), words_of_vector) << 16))
#define PACK_PLAIN(to, row) memcpy(to, row, sizeof(T) * (size_t)KERNEL_COLUMNS)
#define PACK_WORDS(to, row)                                                 \
    ND__INDEPENDENT for (int64_t word = 0; word < KERNEL_COLUMNS; word++) { \
        (to)[word] = LOAD((row)[word]);                                     \
    }

typedef uint32_t words_of_vector __attribute__((vector_size(ND__VECTOR_BYTES)));
typedef uint16_t short_words __attribute__((vector_size(16)));
typedef float floats_of_vector __attribute__((vector_size(ND__VECTOR_BYTES)));
typedef int64_t pairs_of_vector
    __attribute__((vector_size(ND__VECTOR_BYTES), aligned(sizeof(uint16_t)), may_alias));
static inline floats_of_vector loads_f16(const uint16_t *from) {
    floats_of_vector result;
#if defined(__AVX512F__)
    __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
    memcpy(&result, &wide, sizeof result);
#elif defined(__F16C__)
    __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    memcpy(&result, &wide, sizeof result);
#else
    for (size_t lane = 0; lane < sizeof result / sizeof(float); lane++)
        result[lane] = nd__f16_to_f32(from[lane]);
#endif
    return result;
}

/// Whether vectors can be read and written in part.
#if defined(__AVX512F__) || defined(__AVX2__)
#define HAS_PARTS 1
#else
#define HAS_PARTS 0
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
static inline __m256i first_words(int64_t count) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places);
}
#endif

extern const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT];
void ND_ISA_NAME(nd__cpu_box_copy)(const nd__box *given, int64_t width, char *to, const char *from);
static inline void pack_f16(float *to, const uint16_t *row, int64_t n) {
    ND_ISA_NAME(nd__cpu_convert)
    [ND_F16][ND_F32](n, (char *[]){(char *)to, (char *)(uintptr_t)row}, (int64_t[]){1, 1}, NULL);
}

/// As many f32 as 16-bit floats.
static inline void narrow(nd_dtype dtype, void *to, const float *from, int64_t n) {
    ND_ISA_NAME(nd__cpu_convert)
    [ND_F32][dtype](n, (char *[]){(char *)to, (char *)(uintptr_t)from}, (int64_t[]){1, 1}, NULL);
}

/// A product that has one column, or one row, as rows of a matrix times a vector.
typedef struct nd__matvec {
    const void *a, *x;
    void *y;
    int64_t rows, k, row_stride, column_stride, x_stride, y_stride;
    bool accumulate;
} nd__matvec;

static nd__matvec matvec_of(const nd__product *p) {
    if (p->n == 1)
        return (nd__matvec){p->a.data,
                            p->b.data,
                            p->out.data,
                            p->m,
                            p->k,
                            p->a.row_stride,
                            p->a.column_stride,
                            p->b.row_stride,
                            p->out.row_stride,
                            p->accumulate};
    return (nd__matvec){p->b.data,
                        p->a.data,
                        p->out.data,
                        p->n,
                        p->k,
                        p->b.column_stride,
                        p->b.row_stride,
                        p->a.column_stride,
                        p->out.column_stride,
                        p->accumulate};
}

/// A product of few rows or few columns: y[line, other] = lines[line] times x[other], of k
/// elements.
typedef struct nd__few {
    const void *lines, *x;
    void *y, *sums; ///< of the pieces, where there are several
    int64_t count, few, k, pieces;
    int64_t line, line_step, x_line, x_step; ///< from one line to the next, and along it
    int64_t y_line, y_other;
    bool x_is_ready,
        x_is_copy; ///< x's lines are dense and of what is computed in; and end with zeros
    bool accumulate;
} nd__few;

static nd__few few_of(const nd__product *p) {
    const bool by_rows = p->m >= p->n; // the lines are a's rows
    const nd__few of_rows = {.lines = p->a.data,
                             .x = p->b.data,
                             .y = p->out.data,
                             .count = p->m,
                             .few = p->n,
                             .k = p->k,
                             .pieces = (p->k + FEW_PIECE - 1) / FEW_PIECE,
                             .line = p->a.row_stride,
                             .line_step = p->a.column_stride,
                             .x_line = p->b.column_stride,
                             .x_step = p->b.row_stride,
                             .y_line = p->out.row_stride,
                             .y_other = p->out.column_stride,
                             .accumulate = p->accumulate};
    nd__few f = of_rows;
    if (!by_rows) {
        f.lines = of_rows.x, f.x = of_rows.lines;
        f.count = p->n, f.few = p->m;
        f.line = of_rows.x_line, f.line_step = of_rows.x_step;
        f.x_line = of_rows.line, f.x_step = of_rows.line_step;
        f.y_line = of_rows.y_other, f.y_other = of_rows.y_line;
    }
    return f;
}

/// `size` in as many pieces as `most` needs, which are as long as one another, of whole `step`s.
static int64_t even_piece(int64_t size, int64_t most, int64_t step) {
    int64_t pieces = (size + most - 1) / most;
    int64_t piece = (size + pieces - 1) / pieces;
    return (piece + step - 1) / step * step;
}

/// Tiles as large as they may be, and smaller ones where there would be too few for the threads.
static void choose_tiles(nd__product *p, int64_t most_rows, int64_t column_step) {
    int64_t rows = even_piece(p->m, most_rows, KERNEL_ROWS);
    int64_t columns = even_piece(p->n, TILE_COLUMNS, column_step);
    const int64_t parts = nd__parts_of(p->m * p->n * p->k);
    while ((p->m + rows - 1) / rows * ((p->n + columns - 1) / columns) < parts) {
        bool by_rows = rows >= 2 * LEAST_TILE_ROWS && 2 * rows >= columns;
        if (!by_rows && columns < 2 * LEAST_TILE_COLUMNS)
            break;
        if (by_rows)
            rows = even_piece(rows, rows / 2, KERNEL_ROWS);
        else
            columns = even_piece(columns, columns / 2, column_step);
    }
    p->tile_rows = rows;
    p->tile_columns = columns;
}

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#define TYPE f32
#define T float
#define E float
#define LOAD LOAD_PLAIN
#define LOADS LOADS_PLAIN
#define STORE STORE_PLAIN
#define TIMES TIMES_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE f64
#define T double
#define E double
#define LOAD LOAD_PLAIN
#define LOADS LOADS_PLAIN
#define STORE STORE_PLAIN
#define TIMES TIMES_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE f16
#define T float
#define E uint16_t
#define LOAD nd__f16_to_f32
#define LOADS loads_f16
#define STORE nd__f32_to_f16
#define TIMES TIMES_PLAIN
#define PACK(to, row) pack_f16(to, row, KERNEL_COLUMNS)
#define NARROW(to, from, n) narrow(ND_F16, to, from, n)
#define WIDE_SUMS 1
#include "kernels/cpu/matmul.inc"

#define TYPE bf16
#define T float
#define E uint16_t
#define LOAD nd__bf16_to_f32
#define LOADS LOADS_BF16
#define STORE nd__f32_to_bf16
#define TIMES TIMES_PLAIN
#define PACK PACK_WORDS
#define NARROW(to, from, n) narrow(ND_BF16, to, from, n)
#define WIDE_SUMS 1
#if defined(__AVX512BW__)
#define HAS_PAIRS 1
#endif
#include "kernels/cpu/matmul.inc"

#define TYPE w8
#define T uint16_t
#define E uint8_t
#define LOAD LOAD_WORD
#define LOADS LOADS_PLAIN
#define STORE STORE_WORD
#define TIMES TIMES_WORD
#define PACK PACK_WORDS
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w16
#define T uint16_t
#define E uint16_t
#define LOAD LOAD_PLAIN
#define LOADS LOADS_PLAIN
#define STORE STORE_PLAIN
#define TIMES TIMES_WORD
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w32
#define T uint32_t
#define E uint32_t
#define LOAD LOAD_PLAIN
#define LOADS LOADS_PLAIN
#define STORE STORE_PLAIN
#define TIMES TIMES_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w64
#define T uint64_t
#define E uint64_t
#define LOAD LOAD_PLAIN
#define LOADS LOADS_PLAIN
#define STORE STORE_PLAIN
#define TIMES TIMES_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"
// clang-format on

const nd__matmul ND_ISA_NAME(nd__cpu_matmul)[ND_DTYPE_COUNT] = {
    [ND_F32] = matmul_f32, [ND_F64] = matmul_f64, [ND_F16] = matmul_f16, [ND_BF16] = matmul_bf16,
    [ND_I8] = matmul_w8,   [ND_U8] = matmul_w8,   [ND_I16] = matmul_w16, [ND_U16] = matmul_w16,
    [ND_I32] = matmul_w32, [ND_U32] = matmul_w32, [ND_I64] = matmul_w64, [ND_U64] = matmul_w64,
};

const nd__matmul_entries ND_ISA_NAME(nd__cpu_matmul_entries)[ND_DTYPE_COUNT] = {
    [ND_F32] = entries_f32,   [ND_F64] = entries_f64, [ND_F16] = entries_f16,
    [ND_BF16] = entries_bf16, [ND_I8] = entries_w8,   [ND_U8] = entries_w8,
    [ND_I16] = entries_w16,   [ND_U16] = entries_w16, [ND_I32] = entries_w32,
    [ND_U32] = entries_w32,   [ND_I64] = entries_w64, [ND_U64] = entries_w64,
};

const nd__direct ND_ISA_NAME(nd__cpu_direct)[2] = {small_f32, small_f64};
