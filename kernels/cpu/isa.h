// What one instruction set's copy of the loops offers, and how its symbols are named.
//
// The files listed as `loops` in BUILD.bazel are compiled once per instruction set with
// -DND_ISA=...; every symbol they share carries that name (ND_ISA_NAME). cpu.c picks one table when
// the program runs. Nothing in those files starts threads: they ask nd__cpu_parallel.
#ifndef ND_KERNELS_CPU_ISA_H
#define ND_KERNELS_CPU_ISA_H
#include "kernels/cpu/reduce.h"

#define ND__PASTE2(a, b) a##_##b
#define ND__PASTE(a, b) ND__PASTE2(a, b)
#define ND_ISA_NAME(name) ND__PASTE(name, ND_ISA)

/// Elementwise work on one row of n elements. data[k] points to operand k's first element,
/// strides[k] counts elements, attrs are the call's.
typedef void (*nd__loop)(int64_t n, char *const *data, const int64_t *strides,
                         const nd_op_attrs *attrs);

/// Rows of n contiguous elements, `stride` elements apart: softmax and log_softmax into `out`,
/// which may be `x`.
typedef void (*nd__softmax_rows)(const void *x, int64_t x_stride, void *out, int64_t out_stride,
                                 int64_t rows, int64_t n);

/// The same for rows that lie side by side: element i of `columns` of them, ND__COLUMNS at most,
/// stands at x + i x_stride and behind it, and its result at out + i out_stride and behind it. The
/// buffer holds n columns elements; x and out may be it.
#define ND__COLUMNS 128
typedef void (*nd__softmax_columns)(const void *x, int64_t x_stride, void *buffer, void *out,
                                    int64_t out_stride, int64_t columns, int64_t n);

typedef struct nd__softmax_loops {
    nd__softmax_rows softmax;
    nd__softmax_rows log_softmax;
    nd__softmax_columns softmax_columns;
    nd__softmax_columns log_softmax_columns;
    /// Sum of -log softmax(row)[target] over contiguous rows. The targets are in range.
    double (*loss)(const void *x, const int64_t *targets, int64_t rows, int64_t n);
    /// Puts `number` into the row where the mask, whose elements are `step` apart, is 0.
    void (*hide)(void *row, const uint8_t *mask, int64_t step, int64_t n, double number);
    /// (grad - sum(grad y)) y into `out`, which may be `grad`.
    void (*gradient)(const void *grad, const void *y, void *out, int64_t n);
} nd__softmax_loops;

/// A NORM call (kernels/kernel.h), cut into tasks. Where groups and places leave the numbers of
/// a set one by one in memory (groups 0, places 1), a task is ND__NORM_COLUMNS channels; else it is a
/// set, or in a backward pass with groups a group in a block of samples.
#define ND__NORM_COLUMNS 128
typedef struct nd__norm {
    const void *grad, *x, *weight, *bias; ///< weight and bias, and what follows, may be NULL
    void *out, *statistics;
    double *sums; ///< [blocks, 2, channels]: of g y and of g, for each block of samples; zeros
    int64_t samples, channels, places;
    int64_t groups; ///< 0: a set is a channel in all samples
    int64_t blocks;
    double epsilon;
    bool centered; ///< the mean is taken away
} nd__norm;
typedef void (*nd__norm_loop)(const nd__norm *norm, int64_t begin, int64_t end);
typedef struct nd__norm_loops {
    nd__norm_loop forward, backward;
    nd__norm_loop by_channel;      ///< channel_norm; a set is a channel of a sample
    nd__norm_loop by_channel_grad; ///< channel_norm_grad; a set is a channel in all samples
} nd__norm_loops;

/// A step of a recurrent net and its gradient: rows begin ... end - 1 of a CELL call.
typedef void (*nd__cell_loop)(const nd_kernel_call *call, int64_t begin, int64_t end);
typedef struct nd__cell_loops {
    nd__cell_loop forward, backward;
} nd__cell_loops;

/// Losses of `count` pairs: their sum; each, times `factor`; the gradients of a and b, of which one
/// may be NULL, with g, or where g_each the one for each pair, times `factor`.
typedef struct nd__pair_loop {
    double (*sum)(const void *a, const void *b, int64_t count, const nd_op_attrs *attrs);
    void (*each)(const void *a, const void *b, void *out, int64_t count, const nd_op_attrs *attrs);
    void (*grad)(const void *g, const void *a, const void *b, void *const *out, int64_t count,
                 const nd_op_attrs *attrs);
} nd__pair_loop;

/// Lines of a depthwise convolution: x's lie behind each other, `line` elements long and with the
/// zeros around them; so do the results', `columns` elements long.
typedef struct nd__depthwise_lines {
    const void *x, *weight;
    void *out;
    int64_t line, lines, columns;
    int64_t window;      ///< its height and width: 3 or 5
    int64_t dilation[2]; ///< by height, by width
} nd__depthwise_lines;
typedef void (*nd__depthwise)(const nd__depthwise_lines *lines);

/// Results of ND__TAPS_ROWS channels of a direct convolution: out[row][i], where a row is
/// `out_stride` elements, is the sum over all taps of weight[tap][row] x[offsets[tap] + i]. The
/// elements behind the last of `count` are read and written, too, up to a multiple of
/// ND__TAPS_VECTOR bytes.
#define ND__TAPS_ROWS 8
#define ND__TAPS_VECTOR 64
typedef struct nd__taps {
    const void *x, *weight;
    void *out;
    const int64_t *offsets;
    int64_t taps, count, out_stride;
} nd__taps;
typedef void (*nd__taps_loop)(const nd__taps *taps);

/// A tile of an ATTENTION call (kernels/kernel.h): some queries of one batch entry. A tile of scores
/// has a row for each key and a column for each query, so that queries, not keys, share a vector:
/// neither keys nor values are turned round, and the largest score of each query needs no reduction.
#define ND__ATTENTION_QUERIES 64
#define ND__ATTENTION_KEYS 128
/// Elements of a key or a value at most; more are left to products. Working memory of a tile, in
/// elements, forward and backward.
#define ND__ATTENTION_MOST_SIZE 256
#define ND__ATTENTION_ROOM(size, value_size) \
    (((size) + (value_size) + 2 * ND__ATTENTION_KEYS) * ND__ATTENTION_QUERIES)
typedef struct nd__attention_tile {
    /// Of the batch entry: its first elements. The mask may be NULL.
    const void *query, *key, *value, *mask;
    int64_t row, rows;       ///< the first query, and how many, ND__ATTENTION_QUERIES at most
    int64_t first_key, keys; ///< the first that is looked at, and the one behind the last
    int64_t size, value_size;
    int64_t query_stride, key_stride, value_stride; ///< from one row to the next
    int64_t mask_row_stride, mask_key_stride;
    bool mask_is_bool, causal;
    double scale;
    void *room;           ///< ND__ATTENTION_ROOM elements, 64-byte aligned
    void *out, *log_sums; ///< of the batch entry; read by the backward pass
    int64_t out_stride;
    // ------------------------------------------------------------------------------------- backward
    const void *grad; ///< of out
    int64_t grad_stride;
    /// The queries' are written, the keys' and the values' added to; their rows lie one behind the
    /// other. The first, or the second and the third, may be NULL.
    void *query_grad, *key_grad, *value_grad;
} nd__attention_tile;
typedef struct nd__attention_loops {
    void (*forward)(const nd__attention_tile *tile);
    void (*backward)(const nd__attention_tile *tile);
} nd__attention_loops;

typedef enum nd__scan_kind {
    ND__SCAN_SUM,
    ND__SCAN_PRODUCT,
    ND__SCAN_LARGER,
    ND__SCAN_SMALLER,
    ND__SCANS,
} nd__scan_kind;
/// Scans `rows` rows, ND__SCAN_ROWS at most, of n >= 1 elements: element i of row k stands at
/// x + i x_step + k x_row, and its result likewise. out may be x, element for element.
#define ND__SCAN_ROWS 256
typedef void (*nd__scan)(const void *x, int64_t x_step, int64_t x_row, void *out, int64_t out_step,
                         int64_t out_row, int64_t rows, int64_t n);

typedef struct nd__matrix {
    void *data;
    int64_t row_stride;
    int64_t column_stride;
} nd__matrix;

/// What the bytes of a factor of matmul_integer stand for: byte b of a line, which is a row of a or a
/// column of b, for (b xor flip) - (zero xor flip). That is the difference for i8, too, whose flip
/// makes their order that of u8.
typedef struct nd__bytes {
    const uint8_t *zeros; ///< a line's zero point; NULL: 0
    int64_t zero_stride;  ///< from one line to the next
    uint8_t flip;         ///< 0x80 for i8, 0 for u8
} nd__bytes;

/// What is subtracted for a line.
static inline int32_t nd__bytes_zero(const nd__bytes *bytes, int64_t line) {
    return (bytes->zeros ? bytes->zeros[line * bytes->zero_stride] : 0) ^ bytes->flip;
}

/// out = a b, or out += a b. The caller fills what stands above the line.
typedef struct nd__product {
    int64_t m, n, k;
    nd__matrix a, b, out;
    bool accumulate;
    nd__bytes a_bytes, b_bytes; ///< of matmul_integer
    // ---------------------------------------------------------------------------------------------
    int64_t tile_rows, tile_columns, tiles_across;
} nd__product;
typedef void (*nd__matmul)(nd__product *product);

/// `count` products for which nd__product_is_plain(), of which the first is given: `steps` are the
/// elements from one to the next of out, a and b.
typedef void (*nd__matmul_entries)(const nd__product *first, int64_t count, const int64_t *steps);

/// Whether vectors cost more than they give: of a tiny product, and of one that has few columns.
static inline bool nd__product_is_plain(const nd__product *p) {
    enum { TINY = 64, NARROW = 1024, NARROW_COLUMNS = 2, NARROW_ROWS = 64 };
    int64_t size = p->m * p->n * p->k;
    return size <= TINY || (size <= NARROW && p->n <= NARROW_COLUMNS && p->m <= NARROW_ROWS);
}

/// Products of floats up to so many multiplications, of sums so long, are computed by AVX-512's
/// loops without packing where b's rows are dense: as fast as by a library, without its call.
#define ND__SMALL_PRODUCT ((int64_t)1 << 18)
#define ND__SMALL_DEPTH 256

/// A product of f32 or f64 whose sums are ND__SMALL_DEPTH long at most and whose b has dense rows, by
/// this thread and without working memory: a and b are read where they lie. An element's bits depend on
/// its row of a, its column of b and what it is added to alone, as long as there are as many columns.
typedef void (*nd__direct)(const nd__product *product);

/// Rows, or columns, of a product of 8-bit integers up to which the loops read the other matrix where
/// it lies, faster than any library.
#define ND__FEW_LINES 8

/// Whether it is a matrix times a vector, or a vector times a matrix, that the portable product
/// reads in order: at the speed of memory, so that no library is asked.
static inline bool nd__product_is_matvec(const nd__product *p) {
    const nd__matrix *matrix = p->n == 1 ? &p->a : &p->b;
    int64_t rows = p->n == 1 ? p->m : p->n;
    int64_t along = p->n == 1 ? matrix->column_stride : matrix->row_stride;
    int64_t across = p->n == 1 ? matrix->row_stride : matrix->column_stride;
    return (p->m == 1 || p->n == 1) && p->k > 0 &&
           (rows == 1 || along == 1 || (across == 1 && rows >= 16));
}

/// A weight in groups of small integers: the operands of QUANTIZED.
typedef struct nd__quantized {
    const void *values, *scales, *zeros; ///< zeros may be NULL
    nd_dtype scale_dtype;
    bool packed;      ///< two int4 to a byte
    int64_t k, group; ///< elements of a row and of a group
} nd__quantized;

typedef struct nd__quantized_loops {
    /// Writes x's even elements, then its odd ones; k is even.
    void (*split)(const void *x, int64_t k, void *out);
    /// out[row] = x times the row, for rows begin ... end - 1. Where the weight is packed, x is its
    /// even elements, then its odd ones.
    void (*dot)(const nd__quantized *weight, const void *x, void *out, int64_t begin, int64_t end);
    /// Writes these rows as numbers behind each other.
    void (*expand)(const nd__quantized *weight, void *out, int64_t begin, int64_t end);
} nd__quantized_loops;

/// Blocks first ... first + ND__RANDOM_BLOCKS - 1 of the sequence (seed, stream) of kernels/philox.h as elements.
typedef void (*nd__random)(uint64_t seed, uint64_t stream, uint64_t first, void *out);
#define ND__RANDOM_BLOCKS 64

typedef struct nd__create_loops {
    nd__loop fill[9]; ///< by bytes of an element, which the call's f holds
    /// out[i] = start + (first + i) step. `first` and n are below 2^52.
    void (*arange)(double *out, int64_t first, int64_t n, double start, double step);
    void (*arange_integers)(uint64_t *out, uint64_t start, uint64_t step, int64_t n);
    nd__random uniform_f16, uniform_bf16; ///< written as f32, four for each block
    nd__random uniform_f32, normal_f32;   ///< four for each block
    nd__random uniform_f64, normal_f64;   ///< two for each block
    nd__random words;                     ///< two uint64_t for each block
    /// f32, f64: what elements with these random numbers are multiplied with, `scale` or 0 below the limit.
    void (*keep[2])(const float *numbers, int64_t n, float limit, double scale, void *ret_factors);
    /// Words to integers in [low, high), in place.
    void (*integers)(uint64_t *words, int64_t n, int64_t low, int64_t high);
} nd__create_loops;

/// Planes begin ... end - 1 of a POOL call.
typedef void (*nd__pool_planes)(const nd_kernel_call *call, int64_t begin, int64_t end);

/// A RESAMPLE call: x and the results, or, of the adjoint, the results' gradients and x's.
typedef struct nd__resample_rows {
    const struct nd__resample_axis *axis;
    const struct nd__resample_taps *taps; ///< one for each result
    /// From which result on, and before which, all windows lie in x with all of their places; twice
    /// the same where there are none, or rows have more than one element.
    int64_t whole[2];
    const void *x;
    void *out;
} nd__resample_rows;
typedef struct nd__resample_loops {
    /// Rows of results, begin ... end - 1 of those of all blocks, whole lines where r->whole is set.
    void (*sum)(const nd__resample_rows *r, int64_t begin, int64_t end);
    /// Blocks of x's gradient.
    void (*spread)(const nd__resample_rows *r, int64_t begin, int64_t end);
} nd__resample_loops;

/// Factors of a matrix of n columns whose rows are `row` elements apart, a multiple of
/// ND__FACTOR_BASE; the places between are working memory. A large matrix is shared between threads.
#define ND__FACTOR_BASE 16
/// Columns that are reflected together.
#define ND__REFLECT_PANEL 64
typedef struct nd__factor_loops {
    /// p a = l u, in place. Row i was exchanged with row pivots[i] before it became u's. Returns the
    /// first pivot that is 0, counted from 1, or 0.
    int (*lu)(void *a, int64_t row, int64_t n, int *pivots);
    /// u^T u = a, of the upper triangle, in place. Returns the first minor that is not positive, counted
    /// from 1, or 0; the factor is whole only with 0.
    int (*cholesky)(void *a, int64_t row, int64_t n);
    /// b := t^-1 b: b [n, columns]. Of t only the triangle is read, without its diagonal for `unit`.
    void (*solve_triangle)(const void *t, int64_t t_row, int64_t n, bool upper, bool unit, void *b,
                           int64_t b_row, int64_t columns);
    /// a = q r, m >= n: r in the upper triangle of a, and q [m, n], dense (NULL: not wanted). v: [m,
    /// row], which is zeros, t: [n, ND__REFLECT_PANEL], and w: [2, ND__REFLECT_PANEL, n] are
    /// working memory.
    void (*qr)(void *a, void *v, int64_t row, int64_t m, int64_t n, void *t, void *w, void *q);
} nd__factor_loops;

/// What sorting reads of a row (kernels/sorting.h).
#define ND__ORDERED 48
typedef struct nd__sorting_loops {
    /// Writes the keys of n elements, `stride` apart, each xor `turned`; returns the least, or
    /// UINT64_MAX where there are none. By dtype.
    uint64_t (*keys[ND_DTYPE_COUNT])(const void *x, int64_t stride, int64_t n, uint64_t turned,
                                     uint64_t *ret_keys);
    /// Writes the positions of n keys, ND__ORDERED at most, in their stable order. NULL where the
    /// instruction set has no vectors for it.
    void (*order)(const uint64_t *keys, int64_t n, int64_t *ret_positions);
    /// The same for keys of a dtype of up to four bytes, of which the lower 32 bits are compared.
    void (*order_narrow)(const uint64_t *keys, int64_t n, int64_t *ret_positions);
} nd__sorting_loops;

/// Lines begin ... end - 1 of a call of kernels/cpu/fft_lines.h, one bundle at most, with working
/// memory.
struct nd__fft_lines;
typedef void (*nd__fft_lines_loop)(const struct nd__fft_lines *lines, int64_t begin, int64_t end,
                                   void *room);

/// Copies to memory that is not read again soon. nd__stream_end() must follow before the thread
/// tells another that the memory is written; it costs much more than one copy, so it follows many.
typedef void (*nd__stream)(void *to, const void *from, int64_t bytes);
static inline void nd__stream_end(void) {
#if defined(__x86_64__)
    __builtin_ia32_sfence(); // ordinary stores would overtake the others
#endif
}

/// Has memory fetched that comes soon behind `bytes` bytes of an operand whose results are written so, of
/// `left` bytes that are there from `from` on.
/// The processor's own fetching ends with each page, and what is over in less than a microsecond is over
/// before it has begun anew: relu of 64 MiB took 6.8 ms without, 2.8 with it (a Zen 5, one thread).
enum { ND__STREAM_AHEAD = 2048 };
static inline void nd__stream_fetch(const void *from, int64_t bytes, int64_t left) {
    const int64_t end = bytes < left - ND__STREAM_AHEAD ? bytes : left - ND__STREAM_AHEAD;
    for (int64_t at = 0; at < end; at += 64)
        __builtin_prefetch((const char *)from + ND__STREAM_AHEAD + at);
}

/// Axes of a box of elements, and the bytes between neighbours along each, on both sides.
typedef struct nd__box {
    int ndim;
    int64_t shape[ND_MAX_DIMS]; ///< not 0
    int64_t to[ND_MAX_DIMS], from[ND_MAX_DIMS];
} nd__box;
/// Copies elements of `width` bytes, 1, 2, 4 or 8, from one side of a box to the other, which must
/// not overlap. Made for boxes that fill a part of the nearest cache.
typedef void (*nd__box_copy)(const nd__box *box, int64_t width, char *to, const char *from);

/// Everything one instruction set supplies. Entries are NULL where an op is not defined for a
/// dtype.
typedef struct nd__cpu_loops {
    const char *name;
    const nd__loop *const *unary;              ///< by dtype of the last operand, then op
    const nd__loop *const *binary;             ///< likewise: BINARY, COMPARE, LOGICAL and TERNARY
    const nd__loop (*convert)[ND_DTYPE_COUNT]; ///< by dtype from, then to
    const nd__reducer *const (*reducers)[ND_DTYPE_COUNT]; ///< by nd__fold, then dtype
    const nd__argreducer (*argreducers)[2];               ///< by dtype, then argmax, argmin
    const nd__argcolumns (*argcolumns)[2];                ///< likewise
    const nd__scan (*scans)[ND_DTYPE_COUNT];              ///< by nd__scan_kind, then dtype
    const nd__softmax_loops *softmax;                     ///< f32, f64
    const nd__norm_loops *norm;                           ///< f32, f64
    const nd__pair_loop *const *pair;                     ///< f32, f64, then by nd_pair_loss
    const nd__depthwise *depthwise;                       ///< f32, f64
    const nd__taps_loop *taps;                            ///< f32, f64
    const nd__quantized_loops *quantized;                 ///< f32, f64
    const nd__matmul *matmul;                             ///< by dtype; NULL for bool
    const nd__matmul_entries *matmul_entries;             ///< likewise
    nd__matmul matmul_integer;
    const nd__attention_loops *attention; ///< f32, f64
    int64_t small_product;                ///< ND__SMALL_PRODUCT, or 0 where a library is faster
    const nd__cell_loops *cell;           ///< f32, f64
    const nd__create_loops *create;
    const nd__pool_planes *pool;               ///< f32, f64
    const nd__resample_loops *resample;        ///< f32, f64
    const nd__factor_loops *factor;            ///< f32, f64
    const struct nd__spectral_loops *spectral; ///< f32, f64: kernels/cpu/spectral.h
    const nd__sorting_loops *sorting;
    const nd__fft_lines_loop *fft_lines; ///< f32, f64
    nd__stream stream;
    nd__box_copy box_copy;
} nd__cpu_loops;

extern const nd__cpu_loops nd__cpu_loops_baseline;
extern const nd__cpu_loops nd__cpu_loops_x86_64_v3;
extern const nd__cpu_loops nd__cpu_loops_x86_64_v4;
/// The same with AVX2's sums, for processors that compute 512 bits in halves (Zen 4): f32 become f64
/// twice as fast there.
extern const nd__cpu_loops nd__cpu_loops_x86_64_v4_halves;

/// The loops for this machine's CPU.
const nd__cpu_loops *nd__cpu_loops_now(void);
#endif
