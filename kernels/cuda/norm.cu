// NORM: sets of numbers of layer, group and batch norm and their gradient. Sums are kept in double.
//
// A set whose numbers lie one behind the other and fit in registers is kept there (held.cuh): the
// mean, the variance and the result, or the gradient, come from one reading. Of any other set the
// mean, the variance and the result are found one after the other by a group of threads.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// How [samples, channels, places] fall into sets, and the sets' statistics.
template <class T> struct NormSets {
    const T *x;
    double *mean;    ///< by set
    double *inverse; ///< by set: 1 / root of (variance + epsilon)
    int64_t samples, channels, places;
    int64_t groups; ///< 0: a set is a channel in all samples
    double epsilon;
    bool centered;
    bool narrow; ///< every number's place is below 2^31
    Divider by_places, by_channels, by_group;

    void prepare() {
        narrow = samples * channels * places < ((int64_t)1 << 31);
        if (!narrow || samples * channels * places == 0)
            return;
        by_places.set((uint32_t)places);
        by_channels.set((uint32_t)channels);
        by_group.set((uint32_t)(groups > 0 ? channels / groups : 1));
    }
    ND_BOTH int64_t count() const {
        return groups > 0 ? samples * groups : channels;
    }
    /// Numbers of a set.
    ND_BOTH int64_t length() const {
        return groups > 0 ? channels / groups * places : samples * places;
    }
    /// Where number i of a set stands.
    ND_BOTH int64_t at(int64_t set, int64_t i) const {
        return groups > 0 ? set * length() + i
                          : (i / places * channels + set) * places + i % places;
    }
    ND_BOTH int64_t channel_of(int64_t at) const {
        if (!narrow)
            return at / places % channels;
        uint32_t row = by_places.divide((uint32_t)at);
        return row - by_channels.divide(row) * (uint32_t)channels;
    }
    ND_BOTH int64_t set_of(int64_t at) const {
        int64_t channel = channel_of(at);
        if (groups == 0)
            return channel;
        if (!narrow)
            return at / (channels * places) * groups + channel / (channels / groups);
        uint32_t sample = by_channels.divide(by_places.divide((uint32_t)at));
        return (int64_t)sample * groups + by_group.divide((uint32_t)channel);
    }
    /// Of the first number of a set that lies in one piece.
    ND_BOTH int64_t first_channel(int64_t set) const {
        return set % groups * (channels / groups);
    }
};

template <class T> struct NormMean {
    typedef double State;
    NormSets<T> sets;

    ND_BOTH State accumulate(int64_t set, int lane, int lanes) const {
        State sum = 0;
        for (int64_t i = lane; i < sets.length(); i += lanes)
            sum += (double)sets.x[sets.at(set, i)];
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t set, int lane, int, State sum) const {
        if (lane == 0)
            sets.mean[set] = (double)(T)(sum / (double)sets.length());
    }
};

template <class T> struct NormInverse {
    typedef double State;
    NormSets<T> sets;
    T *statistics; ///< or NULL

    ND_BOTH State accumulate(int64_t set, int lane, int lanes) const {
        State squares = 0;
        double mean = sets.centered ? sets.mean[set] : 0.0;
        for (int64_t i = lane; i < sets.length(); i += lanes) {
            double part = (double)sets.x[sets.at(set, i)] - mean;
            squares += part * part;
        }
        return squares;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t set, int lane, int, State squares) const {
        if (lane != 0)
            return;
        if (!sets.centered)
            sets.mean[set] = 0.0;
        double variance = squares / (double)sets.length();
        sets.inverse[set] = 1.0 / sqrt_of(variance + sets.epsilon);
        if (statistics) {
            statistics[set] = (T)sets.mean[set];
            statistics[sets.count() + set] = (T)variance;
        }
    }
};

template <class T> struct NormResult {
    NormSets<T> sets;
    const T *weight, *bias; ///< or NULL
    T *out;

    ND_BOTH void operator()(int64_t at) const {
        int64_t set = sets.set_of(at), channel = sets.channel_of(at);
        T y = (sets.x[at] - (T)sets.mean[set]) * (T)sets.inverse[set];
        y = weight ? y * weight[channel] : y;
        out[at] = bias ? y + bias[channel] : y;
    }
};

/// The mean and the inverse of each channel from statistics that are given.
template <class T> struct NormGiven {
    NormSets<T> sets;
    const T *statistics;

    ND_BOTH void operator()(int64_t channel) const {
        sets.mean[channel] = (double)statistics[channel];
        sets.inverse[channel] =
            1.0 / sqrt_of((double)statistics[sets.channels + channel] + sets.epsilon);
    }
};

/// Two sums of products with the gradient.
struct NormSums {
    double plain, along;
};

/// The gradient of x: w = grad weight, its sum and that of w (x - mean).
template <class T> struct NormGrad {
    typedef NormSums State;
    NormSets<T> sets;
    const T *grad, *weight; ///< weight or NULL
    T *out;

    ND_BOTH T scaled(int64_t at) const {
        return weight ? grad[at] * weight[sets.channel_of(at)] : grad[at];
    }
    ND_BOTH State accumulate(int64_t set, int lane, int lanes) const {
        State sums = {0, 0};
        for (int64_t i = lane; i < sets.length(); i += lanes) {
            int64_t at = sets.at(set, i);
            double w = (double)scaled(at);
            sums.plain += w;
            sums.along += w * ((double)sets.x[at] - sets.mean[set]);
        }
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.plain + b.plain, a.along + b.along};
    }
    ND_BOTH void finish(int64_t set, int lane, int lanes, const State &sums) const {
        double inverse = sets.inverse[set], n = (double)sets.length();
        T shift = sets.centered ? (T)(sums.plain / n) : (T)0;
        T slope = (T)(sums.along / n * inverse * inverse);
        for (int64_t i = lane; i < sets.length(); i += lanes) {
            int64_t at = sets.at(set, i);
            T center = sets.x[at] - (T)sets.mean[set];
            out[at] = (scaled(at) - shift - center * slope) * (T)inverse;
        }
    }
};

/// A set that is kept: its mean, its variance and what both kernels read of it.
template <class T, class Shape> struct NormRow : Shape {
    typedef HeldRow<Plain<T>, Shape> Row;
    typedef Pack<T, Row::pack> Moved;
    NormSets<T> sets;
    int length;
    bool flat; ///< weight and bias lie as the numbers of a set do, and may be moved by packs

    NormRow(const NormSets<T> &of, bool along) : sets(of), length((int)of.length()), flat(along) {
    }
    /// Those of the channels of a pack.
    ND_BOTH Moved parameters(const T *of, int64_t first_channel, int position) const {
        if (flat)
            return *(const Moved *)(of + first_channel + position);
        Moved result;
        ND_UNROLL
        for (int e = 0; e < Row::pack; e++)
            result.element[e] = of[first_channel + sets.by_places.divide((uint32_t)(position + e))];
        return result;
    }
    /// Numbers behind the end, which are 0, are left out.
    ND_BOTH static bool inside(int i, int lane, int length) {
        return (i / Row::pack * Shape::lanes + lane) * Row::pack < length;
    }
    ND_BOTH double sum(const T *x) const {
        double result = 0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++)
            result += (double)x[i];
        return result;
    }
    ND_BOTH double squares(const T *x, int lane, double mean) const {
        double result = 0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            double part = inside(i, lane, length) ? (double)x[i] - mean : 0.0;
            result += part * part;
        }
        return result;
    }
    ND_BOTH double mean_of(double sum) const {
        return sets.centered ? (double)(T)(sum / length) : 0.0;
    }
    ND_BOTH double inverse_of(double squares) const {
        return 1.0 / sqrt_of(squares / length + sets.epsilon);
    }
};

template <class T, class Shape> struct NormRowResult : NormRow<T, Shape> {
    typedef NormRow<T, Shape> Base;
    using Base::sets, Base::length;
    using typename Base::Moved, typename Base::Row;
    typedef double State;
    struct Kept {
        T x[Shape::elements];
        double mean;
    };
    static constexpr int rounds = 2;
    const T *weight, *bias; ///< or NULL
    T *out, *statistics;    ///< the second or NULL

    NormRowResult(const NormSets<T> &of, const nd_kernel_call *call, bool along)
        : Base(of, along), weight((const T *)call->operand[3].data),
          bias((const T *)call->operand[4].data), out((T *)call->operand[0].data),
          statistics((T *)call->operand[1].data) {
    }
    ND_BOTH void load(Kept &kept, int64_t set, int lane) const {
        Row::load(Plain<T>(), sets.x + set * length, length, lane, (T)0, kept.x);
    }
    template <int round> ND_BOTH State share(Kept &kept, int lane, State before) const {
        if (round == 0)
            return this->sum(kept.x);
        kept.mean = this->mean_of(before);
        return this->squares(kept.x, lane, kept.mean);
    }
    template <int round> ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(const Kept &kept, int64_t set, int lane, State squares) const {
        if (lane == 0 && statistics) {
            statistics[set] = (T)kept.mean;
            statistics[sets.count() + set] = (T)(squares / length);
        }
        T mean = (T)kept.mean, inverse = (T)this->inverse_of(squares);
        int64_t channel = sets.first_channel(set);
        ND_UNROLL
        for (int i = 0; i < Row::packs; i++) {
            int position = (i * Shape::lanes + lane) * Row::pack;
            if (position >= length)
                continue;
            Moved y, w, b;
            if (weight)
                w = this->parameters(weight, channel, position);
            if (bias)
                b = this->parameters(bias, channel, position);
            ND_UNROLL
            for (int e = 0; e < Row::pack; e++) {
                T value = (kept.x[i * Row::pack + e] - mean) * inverse;
                value = weight ? value * w.element[e] : value;
                y.element[e] = bias ? value + b.element[e] : value;
            }
            *(Moved *)(out + set * length + position) = y;
        }
    }
};

/// The gradient of x, and the statistics for those of weight and bias.
template <class T, class Shape> struct NormRowGrad : NormRow<T, Shape> {
    typedef NormRow<T, Shape> Base;
    using Base::sets, Base::length;
    using typename Base::Moved, typename Base::Row;
    typedef NormSums State;
    struct Kept {
        T x[Shape::elements], w[Shape::elements];
        double mean, inverse;
    };
    static constexpr int rounds = 3;
    const T *grad, *weight; ///< weight or NULL
    T *out;

    NormRowGrad(const NormSets<T> &of, const nd_kernel_call *call, bool along)
        : Base(of, along), grad((const T *)call->operand[2].data),
          weight((const T *)call->operand[4].data), out((T *)call->operand[0].data) {
    }
    ND_BOTH void load(Kept &kept, int64_t set, int lane) const {
        Row::load(Plain<T>(), sets.x + set * length, length, lane, (T)0, kept.x);
        Row::load(Plain<T>(), grad + set * length, length, lane, (T)0, kept.w);
        if (!weight)
            return;
        int64_t channel = sets.first_channel(set);
        ND_UNROLL
        for (int i = 0; i < Row::packs; i++) {
            int position = (i * Shape::lanes + lane) * Row::pack;
            if (position >= length)
                continue;
            Moved w = this->parameters(weight, channel, position);
            ND_UNROLL
            for (int e = 0; e < Row::pack; e++)
                kept.w[i * Row::pack + e] *= w.element[e];
        }
    }
    template <int round> ND_BOTH State share(Kept &kept, int lane, const State &before) const {
        if (round == 0)
            return State{this->sum(kept.x), 0};
        if (round == 1) {
            kept.mean = this->mean_of(before.plain);
            return State{this->squares(kept.x, lane, kept.mean), 0};
        }
        kept.inverse = this->inverse_of(before.plain);
        State sums = {0, 0};
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            sums.plain += (double)kept.w[i];
            sums.along += (double)kept.w[i] * ((double)kept.x[i] - kept.mean);
        }
        return sums;
    }
    template <int round> ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.plain + b.plain, a.along + b.along};
    }
    ND_BOTH void finish(const Kept &kept, int64_t set, int lane, const State &sums) const {
        if (lane == 0) {
            sets.mean[set] = kept.mean;
            sets.inverse[set] = kept.inverse;
        }
        T shift = sets.centered ? (T)(sums.plain / length) : (T)0;
        T slope = (T)(sums.along / length * kept.inverse * kept.inverse);
        T mean = (T)kept.mean, inverse = (T)kept.inverse;
        Row::store(Plain<T>(), out + set * length, length, lane, [&](int i, int) {
            return (kept.w[i] - shift - (kept.x[i] - mean) * slope) * inverse;
        });
    }
};

/// The gradients of weight and bias: a channel, or a part of it, by a group of threads.
template <class T> struct NormParameters {
    typedef NormSums State;
    NormSets<T> sets;
    const T *grad;
    T *out;            ///< [2, channels]
    NormSums *partial; ///< [parts][channels], or NULL when there is one part
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t part = partial ? group / sets.channels : 0, channel = group - part * sets.channels;
        int64_t end = (part + 1) * part_length, all = sets.samples * sets.places;
        int64_t set = sets.groups > 0 ? channel / (sets.channels / sets.groups) : channel;
        State sums = {0, 0};
        ND_UNROLL_4
        for (int64_t i = part * part_length + lane; i < (end < all ? end : all); i += lanes) {
            int64_t sample = sets.places == 1 ? i : i / sets.places;
            int64_t at =
                (sample * sets.channels + channel) * sets.places + i - sample * sets.places;
            int64_t of = set + sample * sets.groups;
            double g = (double)grad[at];
            sums.plain += g;
            sums.along += g * (((double)sets.x[at] - sets.mean[of]) * sets.inverse[of]);
        }
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.plain + b.plain, a.along + b.along};
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &sums) const {
        if (lane != 0)
            return;
        if (partial) {
            partial[group] = sums;
            return;
        }
        out[group] = (T)sums.along;
        out[sets.channels + group] = (T)sums.plain;
    }
};

template <class T> struct NormParametersJoin {
    typedef NormSums State;
    const NormSums *partial;
    T *out;
    int64_t channels, parts;

    ND_BOTH State accumulate(int64_t channel, int lane, int lanes) const {
        State sums = {0, 0};
        for (int64_t part = lane; part < parts; part += lanes)
            sums = combine(sums, partial[part * channels + channel]);
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.plain + b.plain, a.along + b.along};
    }
    ND_BOTH void finish(int64_t channel, int lane, int, const State &sums) const {
        if (lane != 0)
            return;
        out[channel] = (T)sums.along;
        out[channels + channel] = (T)sums.plain;
    }
};

/// The gradient of x where its statistics are given.
template <class T> struct NormGivenGrad {
    NormSets<T> sets;
    const T *grad, *weight; ///< weight or NULL
    T *out;

    ND_BOTH void operator()(int64_t at) const {
        int64_t channel = sets.channel_of(at);
        T inverse = (T)sets.inverse[channel];
        out[at] = grad[at] * (weight ? inverse * weight[channel] : inverse);
    }
};

template <class T>
static nd_status run_statistics(const nd_cuda_queue *queue, const NormSets<T> &sets, T *written) {
    GroupShape shape{lanes_for(sets.length()), true};
    nd_status status =
        sets.centered ? run_groups(queue, sets.count(), shape, NormMean<T>{sets}) : ND_OK;
    return status == ND_OK ? run_groups(queue, sets.count(), shape, NormInverse<T>{sets, written})
                           : status;
}

/// ND_ERROR_UNSUPPORTED where sets are not kept. `make(shape, flat)` runs a kernel of NormRow.
template <class T, int rows, class Make>
static nd_status run_sets(const nd_kernel_call *call, const NormSets<T> &sets, const int *moved,
                          int count, const Make &make) {
    if (sets.groups == 0 || !sets.narrow)
        return ND_ERROR_UNSUPPORTED;
    int64_t channels = sets.channels / sets.groups;
    bool packed = true, flat = sets.places == 1;
    for (int i = 0; i < count; i++)
        packed = packed && rows_are_packed<T>(call->operand[moved[i]].data, sets.length(), 0);
    // Operands 3 and 4 are weight and bias, or x and weight.
    for (int i = 3; i < 5; i++)
        flat = flat && (!packed || rows_are_packed<T>(call->operand[i].data, channels, 0));
    return with_row_shape<T, rows>(sets.length(), packed,
                                   [&](auto shape) { return make(shape, flat); });
}

/// Threads that stand side by side read channels that do.
constexpr int parameter_lanes = 8;

template <class T>
static nd_status run_parameters(const nd_cuda_queue *queue, const NormSets<T> &sets, const T *grad,
                                T *out) {
    int64_t each = sets.samples * sets.places;
    NormParameters<T> body{sets, grad, out, nullptr, each};
    bool adjacent = sets.places >= 32;
    int lanes = lanes_for(each);
    lanes = adjacent || lanes < parameter_lanes ? lanes : parameter_lanes;
    GroupShape shape{lanes, adjacent};
    int64_t wanted = divide_up((int64_t)queue->multiprocessors * 2048, sets.channels * lanes);
    int64_t possible = each / ((int64_t)lanes * 16);
    int64_t parts = wanted < possible ? wanted : possible;
    if (parts <= 1)
        return run_groups(queue, sets.channels, shape, body);
    body.part_length = divide_up(each, parts);
    parts = divide_up(each, body.part_length);
    Scratch partial(queue, parts * sets.channels * (int64_t)sizeof(NormSums));
    if (partial.status != ND_OK)
        return partial.status;
    body.partial = (NormSums *)partial.data;
    nd_status status = run_groups(queue, parts * sets.channels, shape, body);
    if (status != ND_OK)
        return status;
    NormParametersJoin<T> join{body.partial, out, sets.channels, parts};
    return run_groups(queue, sets.channels, GroupShape{parameter_lanes, false}, join);
}

/// Of sets whose statistics are not given.
template <class T>
static nd_status run_set_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                              const NormSets<T> &sets) {
    static const int moved[] = {0, 2, 3};
    const nd_operand *operand = call->operand;
    T *out = (T *)operand[0].data;
    nd_status status = ND_ERROR_UNSUPPORTED;
    if (out)
        status = run_sets<T, 2>(call, sets, moved, 3, [&](auto shape, bool flat) {
            return run_rows(queue, sets.count(), NormRowGrad<T, decltype(shape)>(sets, call, flat));
        });
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    status = run_statistics(queue, sets, (T *)nullptr);
    if (status != ND_OK || !out)
        return status;
    return run_groups(
        queue, sets.count(), GroupShape{lanes_for(sets.length()), true},
        NormGrad<T>{sets, (const T *)operand[2].data, (const T *)operand[4].data, out});
}

template <class T>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const NormSets<T> &sets, bool given) {
    const nd_operand *operand = call->operand;
    const T *grad = (const T *)operand[2].data, *weight = (const T *)operand[4].data;
    T *out = (T *)operand[0].data, *parameters = (T *)operand[1].data;
    int64_t numbers = sets.samples * sets.channels * sets.places;
    nd_status status = ND_OK;
    if (given)
        status = run_elements(queue, sets.channels, NormGiven<T>{sets, (const T *)operand[5].data});
    else if (numbers > 0)
        status = run_set_grad(queue, call, sets);
    if (out && given && status == ND_OK)
        status = run_elements(queue, numbers, NormGivenGrad<T>{sets, grad, weight, out});
    return parameters && status == ND_OK ? run_parameters(queue, sets, grad, parameters) : status;
}

/// Forward, of sets whose statistics are not given. ND_ERROR_UNSUPPORTED where these are not kept.
template <class T>
static nd_status run_kept(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const NormSets<T> &sets) {
    static const int moved[] = {0, 2};
    return run_sets<T, 1>(call, sets, moved, 2, [&](auto shape, bool flat) {
        return run_rows(queue, sets.count(), NormRowResult<T, decltype(shape)>(sets, call, flat));
    });
}

template <class T>
static nd_status run_norm(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_operand *operand = call->operand;
    const int64_t *size = call->attrs.i;
    bool backward = call->op == ND_OP_layer_norm_grad || call->op == ND_OP_channel_norm_grad;
    bool given = call->op == ND_OP_channel_norm || call->op == ND_OP_channel_norm_grad;
    NormSets<T> sets{(const T *)operand[backward ? 3
                                        : given  ? 1
                                                 : 2]
                         .data,
                     nullptr,
                     nullptr,
                     size[0],
                     size[1],
                     size[2],
                     given ? 0 : size[3],
                     call->attrs.f[0],
                     size[4] != 0,
                     false,
                     {},
                     {},
                     {}};
    sets.prepare();
    int64_t count = sets.count(), numbers = sets.samples * sets.channels * sets.places;
    if (!backward && !given && numbers > 0) {
        nd_status status = run_kept(queue, call, sets);
        if (status != ND_ERROR_UNSUPPORTED)
            return status;
    }
    Scratch statistics(queue, 2 * (count > 0 ? count : 1) * (int64_t)sizeof(double));
    if (statistics.status != ND_OK)
        return statistics.status;
    sets.mean = (double *)statistics.data;
    sets.inverse = sets.mean + count;
    if (backward)
        return run_grad(queue, call, sets, given);
    nd_status status = ND_OK;
    if (given)
        status = run_elements(queue, count, NormGiven<T>{sets, (const T *)operand[3].data});
    else if (numbers > 0)
        status = run_statistics(queue, sets, (T *)operand[1].data);
    if (status != ND_OK)
        return status;
    NormResult<T> body{sets, (const T *)operand[given ? 2 : 3].data, (const T *)operand[4].data,
                       (T *)operand[0].data};
    return run_elements(queue, numbers, body);
}

} // namespace nd_cuda

nd_status nd__cuda_norm(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_norm<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_norm<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
