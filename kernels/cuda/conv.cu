// Convolutions and their gradients, on contiguous tensors.
//
// Each is a matrix product whose one operand is a matrix of windows that nobody writes (implicit
// GEMM): a tile's readers gather its elements. Of one group of channels, with all images beside
// each other:
//   conv              out [go, n y]       = weight [go, gi window] windows of x [gi window, n y]
//   conv_grad_input   out [gi, n x]       = weight [gi, go window] windows of grad [go window, n x]
//   conv_grad_weight  out [go, gi window] = grad [go, n y] windows of x [n y, gi window]
// Groups of few channels (depthwise ones have one) and tensors whose numbers need more than 31 bits
// are added up directly, a thread for each result, neighbours reading beside each other.
//
// f16 and bf16 are multiplied by tensor cores, added up in f32 and rounded once, behind a bias; what is
// added up directly is converted by lib/ops.
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tensor.cuh"
#include "kernels/cuda/window.cuh"

namespace nd_cuda {

// ------------------------------------------------------------------------------------------------
// the matrices

/// A convolution's sizes in 32 bits, with what divides by them.
struct ConvShape {
    int image, window, plane;
    int x[ND_WINDOW_AXES], y[ND_WINDOW_AXES];
    int stride[ND_WINDOW_AXES], padding[ND_WINDOW_AXES], dilation[ND_WINDOW_AXES];
    int64_t x_images, y_images; ///< elements from one image of x, of y, to the next
    Divider by_image, by_window, by_plane;
    Divider by_x[ND_WINDOW_AXES], by_y[ND_WINDOW_AXES], by_kernel[ND_WINDOW_AXES];
    Divider by_stride[ND_WINDOW_AXES];

    explicit ConvShape(const ConvSizes &c)
        : image((int)c.image), window((int)c.window), plane((int)c.plane),
          x_images(c.s.ci * c.image), y_images(c.s.co * c.plane) {
        by_image.set((uint32_t)c.image);
        by_window.set((uint32_t)c.window);
        by_plane.set((uint32_t)c.plane);
        for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
            x[axis] = (int)c.s.x[axis];
            y[axis] = (int)c.s.y[axis];
            stride[axis] = (int)c.s.stride[axis];
            padding[axis] = (int)c.s.padding[axis];
            dilation[axis] = (int)c.s.dilation[axis];
            by_x[axis].set((uint32_t)c.s.x[axis]);
            by_y[axis].set((uint32_t)c.s.y[axis]);
            by_kernel[axis].set((uint32_t)c.s.kernel[axis]);
            by_stride[axis].set((uint32_t)c.s.stride[axis]);
        }
    }
};

/// Splits off the position along the innermost axis.
ND_BOTH int split(int *rest, const Divider &by) {
    const int quotient = (int)by.divide((uint32_t)*rest);
    const int position = *rest - quotient * (int)by.divisor;
    *rest = quotient;
    return position;
}

/// Positions along three axes.
struct Place {
    int at[ND_WINDOW_AXES];

    /// Splits a number into positions; what is left is `rest`.
    static ND_BOTH Place of(int *rest, const Divider (&by)[ND_WINDOW_AXES]) {
        Place place;
        ND_UNROLL
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--)
            place.at[axis] = split(rest, by[axis]);
        return place;
    }
};

/// Which matrix of windows: k runs over taps of channels and lines over results or places; or k
/// over results, and lines over taps of channels.
enum class Windows { OF_RESULTS, OF_PLACES, ALONG_RESULTS };

/// x, or a gradient of y, as such a matrix.
template <class T, Windows kind> struct WindowMatrix {
    typedef T Element;
    static constexpr bool along_k = false; ///< how fragments are read of what a reader stores
    const T *data;
    ConvShape c;
    int64_t lines;

    template <int width, int slice> struct Reader : GatheredValues<T, width, slice> {
        typedef GatheredValues<T, width, slice> Base;
        using Base::count, Base::k_of, Base::value;
        int64_t base; ///< of the line's image, or channel
        Place line;   ///< its window's first place, or its tap's distance from that
        int k, end;   ///< of a line that is there

        ND_BOTH void begin(const WindowMatrix &m, int64_t offset, int64_t first_line,
                           const Tile &tile, int number) {
            this->thread = number;
            const int64_t at = first_line + Base::line();
            int rest = at < m.lines ? (int)at : 0;
            k = (int)tile.first_k;
            end = at < m.lines ? (int)tile.end_k : 0;
            const ConvShape &c = m.c;
            if constexpr (kind == Windows::OF_RESULTS) {
                line = Place::of(&rest, c.by_y);
                base = offset + rest * c.x_images;
                ND_UNROLL
                for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
                    line.at[axis] = line.at[axis] * c.stride[axis] - c.padding[axis];
            } else if constexpr (kind == Windows::OF_PLACES) {
                line = Place::of(&rest, c.by_x);
                base = offset + rest * c.y_images;
                ND_UNROLL
                for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
                    line.at[axis] += c.padding[axis];
            } else {
                line = Place::of(&rest, c.by_kernel);
                base = offset + (int64_t)rest * c.image;
                ND_UNROLL
                for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
                    line.at[axis] = line.at[axis] * c.dilation[axis] - c.padding[axis];
            }
        }
        ND_BOTH void fetch(const WindowMatrix &m) {
            ND_UNROLL
            for (int i = 0; i < count; i++) {
                const int at = k + k_of(i);
                value[i] = at < end ? element(m, at) : T(0);
            }
            k += slice;
        }
        ND_BOTH T element(const WindowMatrix &m, int at) const {
            const ConvShape &c = m.c;
            int rest = at, place = 0;
            const Place of =
                Place::of(&rest, kind == Windows::ALONG_RESULTS ? c.by_y : c.by_kernel);
            bool there = true;
            ND_UNROLL
            for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
                if constexpr (kind == Windows::OF_PLACES) {
                    const int from = line.at[axis] - of.at[axis] * c.dilation[axis];
                    const int result =
                        (int)c.by_stride[axis].divide((uint32_t)(from < 0 ? 0 : from));
                    there =
                        there && from >= 0 && result * c.stride[axis] == from && result < c.y[axis];
                    place = place * c.y[axis] + result;
                } else {
                    const int step =
                        kind == Windows::ALONG_RESULTS ? c.stride[axis] : c.dilation[axis];
                    const int to = line.at[axis] + of.at[axis] * step;
                    there = there && (unsigned)to < (unsigned)c.x[axis];
                    place = place * c.x[axis] + to;
                }
            }
            if (!there)
                return T(0);
            if constexpr (kind == Windows::OF_RESULTS)
                return m.data[base + (int64_t)rest * c.image + place];
            else if constexpr (kind == Windows::OF_PLACES)
                return m.data[base + (int64_t)rest * c.plane + place];
            else
                return m.data[base + rest * c.x_images + place];
        }
    };
};

/// Lines whose k lie in blocks: element k of a line lies at line * line_stride + (k / block) *
/// block_stride + k % block.
template <class T> struct BlockedLines {
    typedef T Element;
    static constexpr bool along_k = true;
    const T *data;
    int64_t lines, line_stride, block_stride;
    Divider block;

    /// A thread has one k of each slice, and several lines: neighbours read along k.
    template <int width, int slice> struct Reader {
        static constexpr int apart = block_threads / slice, count = width / apart;
        T value[count];
        int64_t base; ///< of its first line
        int lines_left, thread, k, end;

        ND_BOTH void begin(const BlockedLines &m, int64_t offset, int64_t first_line,
                           const Tile &tile, int number) {
            thread = number;
            const int64_t line = first_line + thread / slice, left = m.lines - line;
            lines_left = (int)(left < width ? left : width);
            base = offset + line * m.line_stride;
            k = (int)tile.first_k + thread % slice;
            end = (int)tile.end_k;
        }
        ND_BOTH void fetch(const BlockedLines &m) {
            int number = k;
            const int inner = split(&number, m.block);
            const T *from = m.data + base + number * m.block_stride + inner;
            ND_UNROLL
            for (int i = 0; i < count; i++)
                value[i] =
                    k < end && i * apart < lines_left ? from[i * apart * m.line_stride] : T(0);
            k += slice;
        }
        template <int stride>
        ND_BOTH void store_across(const BlockedLines &, T (*shared)[stride]) const {
            ND_UNROLL
            for (int i = 0; i < count; i++)
                shared[thread % slice][thread / slice + i * apart] = value[i];
        }
        /// To [line][k], 8 elements more than a row apart.
        ND_BOTH void store_along(const BlockedLines &, T *shared) const {
            ND_UNROLL
            for (int i = 0; i < count; i++)
                shared[(thread / slice + i * apart) * (slice + 8) + thread % slice] = value[i];
        }
    };
};

/// Where the sums of a group go: row by row, each in blocks of `size` elements, one for each image.
template <class Store> struct ImageResult {
    typedef typename Store::Sum Sum;
    Store store;
    void *out;
    const void *bias; ///< of rows, or NULL
    int64_t row, block_stride;
    int64_t left_group, right_group, out_group, bias_group;
    Divider size;

    ND_BOTH int64_t left_offset(int64_t group) const {
        return group * left_group;
    }
    ND_BOTH int64_t right_offset(int64_t group) const {
        return group * right_group;
    }
    ND_BOTH int64_t offset(int64_t group) const {
        return group;
    }
    template <int count>
    ND_BOTH void put(int64_t group, int64_t of_row, int64_t column, int64_t columns,
                     const Sum *sums) const {
        const int64_t to = group * out_group + of_row * row;
        const Sum more = bias ? store.load(bias, group * bias_group + of_row) : Sum(0);
        int block = (int)column;
        int inner = split(&block, size);
        ND_UNROLL
        for (int j = 0; j < count; j++) {
            if (column + j < columns)
                store.store(out, to + block * block_stride + inner, sums[j] + more);
            if (++inner == (int)size.divisor) {
                inner = 0;
                block++;
            }
        }
    }
};

// ------------------------------------------------------------------------------------------------
// as products

template <class Source> inline constexpr bool is_strided = false;
template <class Load> inline constexpr bool is_strided<Strided<Load>> = true;

/// Numbers that the ordinary units multiply, by tiles of 16 `own` by as many.
template <class T> struct Ordinary {
    typedef T Element;
    typedef PlainStore<T> Store;
    static constexpr int shortest = sizeof(T) == 4 ? 256 : 0; ///< part of a sum in a large tile
    template <class Left, class Right, bool large> struct Tiles {
        static constexpr int own = large ? 8 : 4, slice = sizeof(T) == 4 ? 16 : 8;
        // Without registers for a second block where both operands are gathered.
        static constexpr int resident = large && !is_strided<Left> ? 1 : 2;
        typedef FmaTile<Left, Right, ImageResult<Store>, own, own, slice, resident> Body;
    };
};
/// 16-bit floats, by tensor cores.
template <bool brain> struct OnTensorCores {
    typedef uint16_t Element;
    typedef HalfStore Store;
    static constexpr int shortest = 128;
    template <class Left, class Right, bool large> struct Tiles {
        typedef TensorTile<brain, Left, Right, ImageResult<Store>, large ? 4 : 2, large ? 2 : 1>
            Body;
    };
};

template <class Kind, bool large, class Left, class Right>
static nd_status run_tile(const nd_cuda_queue *queue, int64_t groups, int64_t m, int64_t n,
                          int64_t k, const Left &left, const Right &right,
                          const ImageResult<typename Kind::Store> &result) {
    typedef typename Kind::template Tiles<Left, Right, large>::Body Body;
    return run_products<Body, typename Kind::Store::Sum>(
        queue, TileGrid(groups, m, n, k, Body::rows, Body::columns), left, right, result);
}

template <class Kind, class Left, class Right>
static nd_status run_product(const nd_cuda_queue *queue, int64_t groups, int64_t m, int64_t n,
                             int64_t k, const Left &left, const Right &right,
                             const ImageResult<typename Kind::Store> &result) {
    if constexpr (Kind::shortest > 0) {
        const TileGrid large(groups, m, n, k, 128, 128);
        const int64_t parts = k / Kind::shortest > 1 ? k / Kind::shortest : 1;
        if (m > 64 && n > 64 && large.tiles() * parts >= queue->multiprocessors)
            return run_tile<Kind, true>(queue, groups, m, n, k, left, right, result);
    }
    return run_tile<Kind, false>(queue, groups, m, n, k, left, right, result);
}

static Divider divider_of(int64_t by) {
    Divider divider;
    divider.set((uint32_t)by);
    return divider;
}

/// The operands of one call.
struct ConvOperands {
    void *out;
    const void *a, *b, *bias; ///< bias: or NULL
    nd_dtype dtype;

    explicit ConvOperands(const nd_kernel_call *call)
        : out(call->operand[0].data), a(call->operand[1].data), b(call->operand[2].data),
          bias(call->noperands > 3 ? call->operand[3].data : nullptr),
          dtype(call->operand[0].dtype) {
    }
};

template <class Kind>
static nd_status run_forward(const nd_cuda_queue *queue, const ConvSizes &c,
                             const ConvOperands &of) {
    typedef typename Kind::Element T;
    const int64_t k = c.gi * c.window, pack = 16 / (int64_t)sizeof(T);
    const T *weight = (const T *)of.b;
    const Strided<PlainLoad<T>> lines(PlainLoad<T>{weight}, weight, c.go, k, 1,
                                      c.go * k % pack == 0);
    const WindowMatrix<T, Windows::OF_RESULTS> windows = {(const T *)of.a, ConvShape(c),
                                                          c.s.n * c.plane};
    const ImageResult<typename Kind::Store> result = {typename Kind::Store(of.dtype),
                                                      of.out,
                                                      of.bias,
                                                      c.plane,
                                                      c.s.co * c.plane,
                                                      c.go * k,
                                                      c.gi * c.image,
                                                      c.go * c.plane,
                                                      c.go,
                                                      divider_of(c.plane)};
    return run_product<Kind>(queue, c.s.groups, c.go, c.s.n * c.plane, k, lines, windows, result);
}

template <class Kind>
static nd_status run_grad_input(const nd_cuda_queue *queue, const ConvSizes &c,
                                const ConvOperands &of) {
    typedef typename Kind::Element T;
    const BlockedLines<T> lines = {(const T *)of.b, c.gi, c.window, c.gi * c.window,
                                   divider_of(c.window)};
    const WindowMatrix<T, Windows::OF_PLACES> windows = {(const T *)of.a, ConvShape(c),
                                                         c.s.n * c.image};
    const ImageResult<typename Kind::Store> result = {typename Kind::Store(of.dtype),
                                                      of.out,
                                                      of.bias,
                                                      c.image,
                                                      c.s.ci * c.image,
                                                      c.go * c.gi * c.window,
                                                      c.go * c.plane,
                                                      c.gi * c.image,
                                                      c.gi,
                                                      divider_of(c.image)};
    return run_product<Kind>(queue, c.s.groups, c.gi, c.s.n * c.image, c.go * c.window, lines,
                             windows, result);
}

template <class Kind>
static nd_status run_grad_weight(const nd_cuda_queue *queue, const ConvSizes &c,
                                 const ConvOperands &of) {
    typedef typename Kind::Element T;
    const int64_t n = c.gi * c.window;
    const BlockedLines<T> lines = {(const T *)of.b, c.go, c.plane, c.s.co * c.plane,
                                   divider_of(c.plane)};
    const WindowMatrix<T, Windows::ALONG_RESULTS> windows = {(const T *)of.a, ConvShape(c), n};
    const ImageResult<typename Kind::Store> result = {typename Kind::Store(of.dtype),
                                                      of.out,
                                                      nullptr,
                                                      n,
                                                      0,
                                                      c.go * c.plane,
                                                      c.gi * c.image,
                                                      c.go * n,
                                                      0,
                                                      divider_of(n)};
    return run_product<Kind>(queue, c.s.groups, c.go, n, c.s.n * c.plane, lines, windows, result);
}

// ------------------------------------------------------------------------------------------------
// directly

template <class T> struct Conv {
    const T *x, *weight;
    T *out;
    ConvSizes c;

    /// The taps of one channel, `from` its window's first place along each axis.
    ND_BOTH T window_sum(const T *image, const T *filter, const int64_t *from) const {
        const nd__conv_sizes &s = c.s;
        T sum = 0;
        for (int64_t z = 0; z < s.kernel[0]; z++)
            for (int64_t y = 0; y < s.kernel[1]; y++) {
                const int64_t at_z = from[0] + z * s.dilation[0],
                              at_y = from[1] + y * s.dilation[1];
                const T *row = image + (at_z * s.x[1] + at_y) * s.x[2];
                const bool there = at_z >= 0 && at_z < s.x[0] && at_y >= 0 && at_y < s.x[1];
                int64_t at_x = from[2];
                for (int64_t w = 0; w < s.kernel[2]; w++, filter++, at_x += s.dilation[2])
                    if (there && at_x >= 0 && at_x < s.x[2])
                        sum += row[at_x] * *filter;
            }
        return sum;
    }
    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index, from[ND_WINDOW_AXES];
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--)
            from[axis] = next_position(&rest, c.s.y[axis]) * c.s.stride[axis] - c.s.padding[axis];
        int64_t channel = next_position(&rest, c.s.co);
        const T *images = x + (rest * c.s.ci + quotient_of(channel, c.go) * c.gi) * c.image;
        const T *filters = weight + channel * c.gi * c.window;
        T sum = 0;
        for (int64_t input = 0; input < c.gi; input++)
            sum += window_sum(images + input * c.image, filters + input * c.window, from);
        out[index] = sum;
    }
};

template <class T> struct ConvGradInput {
    const T *grad, *weight;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index;
        const int64_t place = next_position(&rest, c.image);
        const int64_t input = next_position(&rest, c.s.ci), group = quotient_of(input, c.gi);
        const int64_t first = group * c.go;
        const T *planes = grad + (rest * c.s.co + first) * c.plane;
        const T *filters = weight + (first * c.gi + input - group * c.gi) * c.window;
        T sum = 0;
        c.each_result(place, [&](int64_t tap, int64_t result) {
            for (int64_t channel = 0; channel < c.go; channel++)
                sum +=
                    planes[channel * c.plane + result] * filters[channel * c.gi * c.window + tap];
        });
        out[index] = sum;
    }
};

template <class T> struct ConvGradWeight {
    typedef T State;
    const T *x, *grad;
    T *out;
    ConvSizes c;

    ND_BOTH T accumulate(int64_t index, int lane, int lanes) const {
        int64_t channel = index, place, from[ND_WINDOW_AXES];
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--)
            from[axis] =
                next_position(&channel, c.s.kernel[axis]) * c.s.dilation[axis] - c.s.padding[axis];
        int64_t input = next_position(&channel, c.gi);
        input += quotient_of(channel, c.go) * c.gi;
        T sum = 0;
        for (int64_t position = lane; position < c.s.n * c.plane; position += lanes) {
            int64_t batch = position;
            int64_t result = next_position(&batch, c.plane);
            if (c.place(result, from, &place))
                sum += x[(batch * c.s.ci + input) * c.image + place] *
                       grad[(batch * c.s.co + channel) * c.plane + result];
        }
        return sum;
    }
    ND_BOTH T combine(T a, T b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t index, int lane, int, T sum) const {
        if (lane == 0)
            out[index] = sum;
    }
};

/// Whether products pay: a tile has 64 channels, of which at least eight are there; and whether
/// they count in 31 bits, with what a window reaches beyond an image.
static bool takes_products(const ConvSizes &c, int64_t channels) {
    const int64_t most = (int64_t)1 << 30;
    int64_t reach = 0;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        const int64_t far =
            c.s.x[axis] + 2 * c.s.padding[axis] + c.s.dilation[axis] * c.s.kernel[axis];
        reach = far > reach ? far : reach;
    }
    return channels >= 8 && reach < most && c.s.n * c.image < most && c.s.n * c.plane < most &&
           c.gi * c.window < most && c.go * c.window < most;
}

/// ND_ERROR_UNSUPPORTED where products do not pay.
template <class Kind>
static nd_status run_products_of(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const ConvSizes c(call);
    const ConvOperands of(call);
    if (!takes_products(c, call->op == ND_OP_conv_grad_input ? c.gi : c.go))
        return ND_ERROR_UNSUPPORTED;
    switch (call->op) {
    case ND_OP_conv:
        return run_forward<Kind>(queue, c, of);
    case ND_OP_conv_grad_input:
        return run_grad_input<Kind>(queue, c, of);
    default:
        return run_grad_weight<Kind>(queue, c, of);
    }
}

template <class T>
static nd_status run_conv(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_status status = run_products_of<Ordinary<T>>(queue, call);
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    const ConvSizes c(call);
    T *out = (T *)call->operand[0].data;
    const T *a = (const T *)call->operand[1].data, *b = (const T *)call->operand[2].data;
    switch (call->op) {
    case ND_OP_conv:
        return run_elements(queue, c.s.n * c.s.co * c.plane, Conv<T>{a, b, out, c});
    case ND_OP_conv_grad_input:
        return run_elements(queue, c.s.n * c.s.ci * c.image, ConvGradInput<T>{a, b, out, c});
    default:
        return run_groups(queue, c.s.co * c.gi * c.window,
                          GroupShape{lanes_for(c.s.n * c.plane), true},
                          ConvGradWeight<T>{a, b, out, c});
    }
}

} // namespace nd_cuda

nd_status nd__cuda_conv(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    if (call->op == ND_OP_unfold || call->op == ND_OP_fold)
        return nd__cuda_unfold(queue, call);
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_conv<float>(queue, call);
    case ND_F64:
        return run_conv<double>(queue, call);
    case ND_F16:
        return run_products_of<OnTensorCores<false>>(queue, call);
    case ND_BF16:
        return run_products_of<OnTensorCores<true>>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
