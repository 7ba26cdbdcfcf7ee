// How products are made: a block keeps a tile of results in its threads' registers and goes along
// what is summed, a slice of both operands at a time, which all its threads read from shared
// memory.
//
// run_tiles(queue, blocks, body) is to blocks with shared memory what run_threads (grid.cuh) is to
// independent threads. A body says what a thread does between two barriers, so that a host compiler
// can do it for one thread after the other:
//
//   struct Shared                         one slice of both operands; two of them take turns
//   struct Thread                         what a thread keeps in registers
//   int64_t begin(own, block, thread)     how many slices there are, at least 1
//   void fetch(own)                       the thread's share of the next slice, from device memory
//   void store(own, shared)               that share, to shared memory
//   void load(own, shared, fragment)      what the thread multiplies next, from shared memory
//   void multiply(own, lanes)             adds its products to what the thread keeps
//   void finish(own)                      writes the results
//   fragments                             how many a slice has
//   collective                            multiply needs what the other threads of its warp loaded
//   resident                              blocks that a multiprocessor is to hold at a time
//
// While a slice is multiplied the next one is on its way: fetch starts the reads, store comes
// behind the products, and one barrier per slice is enough.
#ifndef ND_KERNELS_CUDA_TILE_CUH
#define ND_KERNELS_CUDA_TILE_CUH
#include "kernels/cuda/grid.cuh"
#include <string.h>

namespace nd_cuda {

/// The threads of a warp, by lane: where no hardware multiplies what a warp holds, each lane reads
/// the others' fragments. Empty on a GPU.
template <class Thread> struct Lanes { const Thread *const *thread; };

#ifdef __CUDACC__

#ifdef CUDART_FAKE
#define ND_WARP_EXCHANGE() (void)__shfl_sync(0xFFFFFFFFu, 0, 0)
#else
#define ND_WARP_EXCHANGE() (void)0 // the instruction itself is the warp's
#endif

template <class Body>
__global__ void __launch_bounds__(block_threads, Body::resident) tile_kernel(Body body) {
    begin_kernel();
    typedef typename Body::Thread Thread;
    __shared__ typename Body::Shared shared[2];
    const int thread = (int)threadIdx.x;
    Thread own;
    Lanes<Thread> lanes = {nullptr};
#ifdef CUDART_FAKE
    __shared__ const Thread *threads[block_threads];
    threads[thread] = &own;
    lanes.thread = threads + thread / warp_threads * warp_threads;
#endif
    const int64_t slices = body.begin(own, (int64_t)blockIdx.x, thread);
    body.fetch(own);
    body.store(own, shared[0]);
    __syncthreads();
    for (int64_t slice = 0; slice < slices; slice++) {
        const bool more = slice + 1 < slices;
        if (more)
            body.fetch(own);
        ND_UNROLL
        for (int fragment = 0; fragment < Body::fragments; fragment++) {
            body.load(own, shared[slice & 1], fragment);
            if constexpr (Body::collective)
                ND_WARP_EXCHANGE();
            body.multiply(own, lanes);
            if constexpr (Body::collective)
                ND_WARP_EXCHANGE();
        }
        if (more)
            body.store(own, shared[(slice + 1) & 1]);
        __syncthreads();
    }
    body.finish(own);
}

template <class Body>
nd_status run_tiles(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    return launch(queue, blocks, block_threads, tile_kernel<Body>, body);
}

#else

template <class Body> nd_status run_tiles(const nd_cuda_queue *, int64_t blocks, const Body &body) {
    typedef typename Body::Thread Thread;
    typename Body::Shared shared[2];
    Thread own[block_threads];
    const Thread *threads[block_threads];
    memset((void *)shared, 0xA5, sizeof shared);
    for (int thread = 0; thread < block_threads; thread++)
        threads[thread] = &own[thread];
    for (int64_t block = 0; block < blocks; block++) {
        int64_t slices = 0;
        for (int thread = 0; thread < block_threads; thread++) {
            slices = body.begin(own[thread], block, thread);
            body.fetch(own[thread]);
            body.store(own[thread], shared[0]);
        }
        for (int64_t slice = 0; slice < slices; slice++) {
            const bool more = slice + 1 < slices;
            for (int thread = 0; thread < block_threads && more; thread++)
                body.fetch(own[thread]);
            for (int fragment = 0; fragment < Body::fragments; fragment++) {
                for (int thread = 0; thread < block_threads; thread++)
                    body.load(own[thread], shared[slice & 1], fragment);
                for (int thread = 0; thread < block_threads; thread++)
                    body.multiply(own[thread],
                                  Lanes<Thread>{threads + thread / warp_threads * warp_threads});
            }
            for (int thread = 0; thread < block_threads && more; thread++)
                body.store(own[thread], shared[(slice + 1) & 1]);
        }
        for (int thread = 0; thread < block_threads; thread++)
            body.finish(own[thread]);
    }
    return ND_OK;
}

#endif

// ------------------------------------------------------------------------------------------------
// which results are whose

/// One tile of one product's results, and the part of the sum that is made of it.
struct Tile {
    int64_t entry, part, first_row, first_column, first_k, end_k;
};

/// Products of [m, k] and [k, n] matrices cut into tiles. Where there are too few tiles for the
/// device the sum is cut into parts as well, which are added up afterwards, in order.
struct TileGrid {
    int64_t entries, m, n, k;
    int rows, columns; ///< of a tile
    int64_t down, across, parts, part_length;

    TileGrid(int64_t entries_, int64_t m_, int64_t n_, int64_t k_, int rows_, int columns_)
        : entries(entries_), m(m_), n(n_), k(k_), rows(rows_), columns(columns_),
          down(divide_up(m_, rows_)), across(divide_up(n_, columns_)), parts(1), part_length(k_) {
    }
    int64_t tiles() const {
        return entries * down * across;
    }
    /// Parts of at least `shortest` each, until every multiprocessor has two tiles, but not so many
    /// that adding them up takes long; and of no more than 2^30 k, so that a reader counts them in 32
    /// bits.
    void cut_sums(int multiprocessors, int shortest) {
        const int64_t longest = (int64_t)1 << 30;
        if (k > longest) {
            part_length = longest;
            parts = divide_up(k, longest);
            return;
        }
        const int64_t wanted = tiles() > 0 ? divide_up(2 * multiprocessors, tiles()) : 1;
        const int64_t allowed = entries * m * n <= 16384 ? 128 : 32;
        const int64_t most = k / shortest < allowed ? k / shortest : allowed;
        if (tiles() >= multiprocessors || most < 2)
            return;
        const int64_t made = wanted < most ? wanted : most;
        part_length = divide_up(divide_up(k, made), shortest / 4) * (shortest / 4);
        parts = divide_up(k, part_length);
    }
    /// As many parts as that, of a multiple of `unit` but for the last one; fewer where they are that long.
    void cut_into(int64_t wanted, int64_t unit) {
        part_length = divide_up(divide_up(k, wanted), unit) * unit;
        parts = divide_up(k, part_length);
    }
    /// Eight rows of tiles at a time, column by column: what blocks that run at the same time read
    /// of both operands stays in the L2 cache.
    ND_BOTH Tile locate(int64_t block) const {
        const int64_t per_part = down * across, per_band = 8 * across;
        Tile tile;
        int64_t rest = block / per_part, place = block - rest * per_part;
        tile.entry = rest / parts;
        tile.part = rest - tile.entry * parts;
        const int64_t band = place / per_band;
        const int64_t height = down - band * 8 < 8 ? down - band * 8 : 8;
        place -= band * per_band;
        const int64_t column = place / height;
        tile.first_row = (band * 8 + place - column * height) * rows;
        tile.first_column = column * columns;
        tile.first_k = tile.part * part_length;
        tile.end_k = tile.first_k + part_length < k ? tile.first_k + part_length : k;
        return tile;
    }
};

// ------------------------------------------------------------------------------------------------
// what is multiplied: matrices with strides

/// 16 bytes that travel together; those of 16-bit elements stay in four registers.
template <class T> struct alignas(16) TilePack {
    T element[16 / sizeof(T)];

    ND_BOTH T get(int j) const {
        return element[j];
    }
    ND_BOTH void set(int j, T value) {
        element[j] = value;
    }
};
template <> struct alignas(16) TilePack<uint16_t> {
    uint32_t word[4];

    ND_BOTH uint16_t get(int j) const {
        return (uint16_t)(word[j / 2] >> j % 2 * 16);
    }
    /// In order: an even element clears the one behind it.
    ND_BOTH void set(int j, uint16_t value) {
        word[j / 2] = j % 2 ? word[j / 2] | (uint32_t)value << 16 : value;
    }
};

/// How elements lie: as what they are multiplied as.
template <class T> struct PlainLoad {
    typedef T Element;
    static constexpr bool is_plain = true;
    const T *x;

    ND_BOTH T at(int64_t index) const {
        return x[index];
    }
};

/// Lines of an operand (rows of the left one, columns of the right one) along which products are
/// summed: element k of a line lies at line * line_stride + k * k_stride. Elements that lie behind
/// each other, along k or across the lines, are read 16 bytes at a time where they are aligned.
template <class Load> struct Strided {
    typedef typename Load::Element Element;
    static constexpr int pack = 16 / (int)sizeof(Element);
    Load x;
    int64_t lines, line_stride, k_stride;
    bool along_k; ///< packs lie along k
    bool wide;    ///< aligned, every batch entry

    /// `unit`: every offset that batches add is a multiple of a pack.
    Strided(const Load &from, const void *data, int64_t lines_, int64_t line_stride_,
            int64_t k_stride_, bool unit)
        : x(from), lines(lines_), line_stride(line_stride_), k_stride(k_stride_),
          along_k(k_stride_ == 1 || line_stride_ != 1), wide(false) {
        const int64_t inner = along_k ? k_stride_ : line_stride_;
        const int64_t outer = along_k ? line_stride_ : k_stride_;
        wide =
            Load::is_plain && unit && inner == 1 && outer % pack == 0 && (uintptr_t)data % 16 == 0;
    }

    /// What one thread reads of a tile's slice: `packs` packs.
    template <int width, int slice> struct Reader {
        static constexpr int packs = width * slice / pack / block_threads;
        static_assert(packs * pack * block_threads == width * slice, "every thread has as many");
        int64_t at;     ///< of the first pack
        int lines_left; ///< from its line on, of the tile's
        int k_left;     ///< from its k on
        int thread;
        TilePack<Element> value[packs];

        ND_BOTH void begin(const Strided &source, int64_t offset, int64_t first_line,
                           const Tile &tile, int number) {
            thread = number;
            const int64_t line = first_line + local_line(source);
            const int64_t k = tile.first_k + local_k(source), left = source.lines - line;
            lines_left = (int)(left < width ? left : width);
            k_left = (int)(tile.end_k - k);
            at = offset + line * source.line_stride + k * source.k_stride;
        }
        ND_BOTH int local_line(const Strided &source) const {
            return source.along_k ? thread / (slice / pack) : thread % (width / pack) * pack;
        }
        ND_BOTH int local_k(const Strided &source) const {
            return source.along_k ? thread % (slice / pack) * pack : thread / (width / pack);
        }
        /// From one pack of a thread to its next, in lines or along k.
        static ND_BOTH int next_line(const Strided &source) {
            return source.along_k ? block_threads / (slice / pack) : 0;
        }
        static ND_BOTH int next_k(const Strided &source) {
            return source.along_k ? 0 : block_threads / (width / pack);
        }
        ND_BOTH void fetch(const Strided &source) {
            const int64_t step =
                next_line(source) * source.line_stride + next_k(source) * source.k_stride;
            ND_UNROLL
            for (int p = 0; p < packs; p++)
                fetch_pack(source, at + p * step, lines_left - p * next_line(source),
                           k_left - p * next_k(source), value[p]);
            at += slice * source.k_stride;
            k_left -= slice;
        }
        ND_BOTH void fetch_pack(const Strided &source, int64_t from, int lines_from, int k_from,
                                TilePack<Element> &to) const {
            const int left = source.along_k ? k_from : lines_from;
            const bool outside = source.along_k ? lines_from <= 0 : k_from <= 0;
            if constexpr (Load::is_plain) {
                if (source.wide && !outside && left >= pack) {
                    to = *(const TilePack<Element> *)(const void *)(source.x.x + from);
                    return;
                }
            }
            const int64_t inner = source.along_k ? source.k_stride : source.line_stride;
            ND_UNROLL
            for (int j = 0; j < pack; j++)
                to.set(j, !outside && j < left ? source.x.at(from + j * inner) : Element(0));
        }
        /// To shared[k][line], whose rows are `stride` apart.
        template <int stride>
        ND_BOTH void store_across(const Strided &source, Element (*shared)[stride]) const {
            const int to_line = local_line(source), to_k = local_k(source);
            ND_UNROLL
            for (int p = 0; p < packs; p++) {
                if (source.along_k) {
                    ND_UNROLL
                    for (int j = 0; j < pack; j++)
                        shared[to_k + j][to_line + p * next_line(source)] = value[p].get(j);
                } else {
                    write_pack(&shared[to_k + p * next_k(source)][to_line], value[p]);
                }
            }
        }
        /// As it lies: to [line][k] or to [k][line], 8 elements more than a row apart.
        ND_BOTH void store_along(const Strided &source, Element *shared) const {
            const int to_line = local_line(source), to_k = local_k(source);
            ND_UNROLL
            for (int p = 0; p < packs; p++) {
                const int l = to_line + p * next_line(source), at_k = to_k + p * next_k(source);
                write_pack(shared +
                               (source.along_k ? l * (slice + 8) + at_k : at_k * (width + 8) + l),
                           value[p]);
            }
        }
        static ND_BOTH void write_pack(Element *to, const TilePack<Element> &from) {
            *(TilePack<Element> *)(void *)to = from;
        }
    };
};

/// What a reader shares that gathers its elements one by one: its thread has one line, and every
/// `apart`-th k.
template <class T, int width, int slice> struct GatheredValues {
    static constexpr int apart = block_threads / width, count = slice / apart;
    static_assert(apart * width == block_threads && count * apart == slice, "all have as many");
    T value[count];
    int thread;

    ND_BOTH int line() const {
        return thread % width;
    }
    /// Of number i, in the slice.
    ND_BOTH int k_of(int i) const {
        return thread / width + i * apart;
    }
    template <int stride, class Source>
    ND_BOTH void store_across(const Source &, T (*shared)[stride]) const {
        ND_UNROLL
        for (int i = 0; i < count; i++)
            shared[k_of(i)][line()] = value[i];
    }
    /// To [k][line], 8 elements more than a row apart.
    template <class Source> ND_BOTH void store_along(const Source &, T *shared) const {
        ND_UNROLL
        for (int i = 0; i < count; i++)
            shared[k_of(i) * (width + 8) + line()] = value[i];
    }
};

// ------------------------------------------------------------------------------------------------
// what becomes of a sum

/// The parts of a sum, one after the other: part, entry, row, column.
template <class T> struct PartialSums {
    T *data; ///< NULL: sums have one part and go to the result

    ND_BOTH int64_t place(const TileGrid &grid, int64_t part, int64_t entry, int64_t row,
                          int64_t column) const {
        return ((part * grid.entries + entry) * grid.m + row) * grid.n + column;
    }
};

/// `count` sums of one row beside each other, to the result or as a part of it.
template <int count, class T, class Result>
ND_BOTH void put_sums(const TileGrid &grid, const Result &result, const PartialSums<T> &partial,
                      const Tile &tile, int64_t row, int64_t column, const T *sums) {
    if (row >= grid.m)
        return;
    if (partial.data) {
        const int64_t place = partial.place(grid, tile.part, tile.entry, row, column);
        ND_UNROLL
        for (int j = 0; j < count; j++)
            if (column + j < grid.n)
                partial.data[place + j] = sums[j];
        return;
    }
    result.template put<count>(result.offset(tile.entry), row, column, grid.n, sums);
}

/// Adds up the parts of one result.
template <class T, class Result> struct JoinParts {
    TileGrid grid;
    Result result;
    PartialSums<T> partial;

    ND_BOTH void operator()(int64_t index) const {
        T sum = partial.data[index];
        const int64_t all = grid.entries * grid.m * grid.n;
        ND_UNROLL_4
        for (int64_t part = 1; part < grid.parts; part++)
            sum += partial.data[part * all + index];
        const int64_t line = index / grid.n, entry = line / grid.m;
        result.template put<1>(result.offset(entry), line - entry * grid.m, index - line * grid.n,
                               grid.n, &sum);
    }
};

/// The products of a grid whose sums are cut, all of which go to `result`: run(blocks, partial) queues
/// the tiles.
template <class T, class Result, class Run>
nd_status run_parts(const nd_cuda_queue *queue, const TileGrid &grid, const Result &result,
                    const Run &run) {
    if (grid.parts == 1)
        return run(grid.tiles(), PartialSums<T>{nullptr});
    const int64_t sums = grid.entries * grid.m * grid.n;
    Scratch scratch(queue, grid.parts * sums * (int64_t)sizeof(T));
    if (scratch.status != ND_OK)
        return scratch.status;
    const PartialSums<T> partial = {(T *)scratch.data};
    nd_status status = run(grid.tiles() * grid.parts, partial);
    if (status != ND_OK)
        return status;
    return run_elements(queue, sums, JoinParts<T, Result>{grid, result, partial});
}

/// A body of tiles, all of whose sums go to `result`. Body(grid, left, right, result, partial).
template <class Body, class T, class Left, class Right, class Result>
nd_status run_products(const nd_cuda_queue *queue, TileGrid grid, const Left &left,
                       const Right &right, const Result &result) {
    grid.cut_sums(queue->multiprocessors, 4 * Body::slice);
    return run_parts<T>(queue, grid, result, [&](int64_t blocks, const PartialSums<T> &partial) {
        return run_tiles(queue, blocks, Body{grid, left, right, result, partial});
    });
}

// ------------------------------------------------------------------------------------------------
// products of numbers by the ordinary units

/// A tile of 16 * own_rows by 16 * own_columns: each of 16 x 16 threads keeps own_rows x
/// own_columns results, four beside each other, the next four half a tile away. So the 4 x 8
/// threads of a warp read four and eight different packs of 16 bytes, without a conflict between
/// banks.
template <class Left, class Right, class Result, int own_rows, int own_columns, int slice_,
          int resident_ = 2>
struct FmaTile {
    typedef typename Left::Element T;
    static constexpr int rows = 16 * own_rows, columns = 16 * own_columns, slice = slice_;
    static constexpr int run = 4, gap = 16 / (int)sizeof(T);
    static constexpr int fragments = slice;
    static constexpr int resident = resident_;
    static constexpr bool collective = false;

    TileGrid grid;
    Left left;
    Right right;
    Result result;
    PartialSums<T> partial;

    struct Shared {
        alignas(16) T a[slice][rows + gap];
        alignas(16) T b[slice][columns + gap];
    };
    struct Thread {
        typename Left::template Reader<rows, slice> a_reader;
        typename Right::template Reader<columns, slice> b_reader;
        T a[own_rows], b[own_columns];
        T sum[own_rows][own_columns];
        int64_t block;
        int thread;
    };

    /// The warp's place in the tile and the thread's in the warp.
    static ND_BOTH int row_of(int thread) {
        return (thread / 64 * 4 + thread % 32 / 8) * run;
    }
    static ND_BOTH int column_of(int thread) {
        return (thread / 32 % 2 * 8 + thread % 8) * run;
    }

    ND_BOTH int64_t begin(Thread &own, int64_t block, int thread) const {
        const Tile tile = grid.locate(block);
        own.block = block;
        own.thread = thread;
        own.a_reader.begin(left, result.left_offset(tile.entry), tile.first_row, tile, thread);
        own.b_reader.begin(right, result.right_offset(tile.entry), tile.first_column, tile, thread);
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < own_columns; j++)
                own.sum[i][j] = 0;
        }
        return divide_up(tile.end_k - tile.first_k, slice);
    }
    ND_BOTH void fetch(Thread &own) const {
        own.a_reader.fetch(left);
        own.b_reader.fetch(right);
    }
    ND_BOTH void store(Thread &own, Shared &shared) const {
        own.a_reader.store_across(left, shared.a);
        own.b_reader.store_across(right, shared.b);
    }
    template <int count, int width> static ND_BOTH void load_line(T (&to)[count], const T *from) {
        constexpr int pack = 16 / (int)sizeof(T);
        ND_UNROLL
        for (int i = 0; i < count; i += pack) {
            const TilePack<T> read =
                *(const TilePack<T> *)(const void *)(from + i / run * (width / (count / run)) +
                                                     i % run);
            ND_UNROLL
            for (int j = 0; j < pack; j++)
                to[i + j] = read.get(j);
        }
    }
    ND_BOTH void load(Thread &own, const Shared &shared, int fragment) const {
        load_line<own_rows, rows>(own.a, &shared.a[fragment][row_of(own.thread)]);
        load_line<own_columns, columns>(own.b, &shared.b[fragment][column_of(own.thread)]);
    }
    ND_BOTH void multiply(Thread &own, const Lanes<Thread> &) const {
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < own_columns; j++)
                own.sum[i][j] += own.a[i] * own.b[j];
        }
    }
    ND_BOTH void finish(const Thread &own) const {
        const Tile tile = grid.locate(own.block);
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            const int64_t row =
                tile.first_row + row_of(own.thread) + i / run * (rows / (own_rows / run)) + i % run;
            ND_UNROLL
            for (int j = 0; j < own_columns; j += run)
                put_sums<run>(grid, result, partial, tile, row,
                              tile.first_column + column_of(own.thread) +
                                  j / run * (columns / (own_columns / run)),
                              &own.sum[i][j]);
        }
    }
};

} // namespace nd_cuda
#endif
