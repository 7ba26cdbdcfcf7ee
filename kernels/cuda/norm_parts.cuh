// NORM: sets that are not kept in registers (norm.cuh), in two kernels over parts of the sets.
//
// The first adds up what a part has: the numbers and their squares, less the first number of the set,
// and for the gradient its sums with them, all in double. A number that is of the set is at most the root
// of its length deviations from the mean, so that the difference of the sums keeps their precision (Chan,
// Golub and LeVeque 1983). The second joins the sums of a set's parts, each group of threads for itself
// and in the same order, and makes the result of one part. The order depends on the shape and the device
// alone, so the same call gives the same bits.
#ifndef ND_KERNELS_CUDA_NORM_PARTS_CUH
#define ND_KERNELS_CUDA_NORM_PARTS_CUH
#include "kernels/cuda/norm.cuh"

namespace nd_cuda {

/// Of x - shift, where shift is the set's first number.
struct NormMoments {
    double plain, squares;

    ND_BOTH void add(double x) {
        plain += x;
        squares += x * x;
    }
    static ND_BOTH NormMoments join(const NormMoments &a, const NormMoments &b) {
        return NormMoments{a.plain + b.plain, a.squares + b.squares};
    }
};

/// And of the gradient: its sum and that of its products with x - shift.
struct NormGradMoments {
    NormMoments x;
    NormSums grad;

    static ND_BOTH NormGradMoments join(const NormGradMoments &a, const NormGradMoments &b) {
        return NormGradMoments{NormMoments::join(a.x, b.x),
                               {a.grad.plain + b.grad.plain, a.grad.along + b.grad.along}};
    }
};

/// What follows of a set from its moments.
struct NormStatistics {
    double mean, variance, inverse;
    double shifted_mean; ///< less the shift
};

/// Sets in parts: group = part * sets + set. By packs a set's numbers lie so that each pack is of one
/// channel and begins at a multiple of 16 bytes.
template <class Format, bool packed_> struct NormParted {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef typename ResultOf<Format>::Type Result;
    static constexpr bool packed = packed_;
    static constexpr int pack = packed ? 16 / (int)sizeof(Stored) : 1;
    typedef HeldRow<Format, RowShape<1, 1, 1, pack, packed>> Row; ///< one pack
    /// What a thread reads before it goes on.
    static constexpr int ahead = pack >= 4 ? 2 : 4;
    NormSets<Format> sets;
    int64_t parts, part_length;
    /// Where the numbers of a pack stand, and their channel.
    struct Place {
        int64_t at, channel;
    };
    /// A part of a set.
    struct Part {
        int64_t set, begin, end, number;
    };

    ND_BOTH Part part_of(int64_t group) const {
        int64_t sets_count = sets.count(), number = group / sets_count;
        int64_t begin = number * part_length, end = begin + part_length, all = sets.length();
        return Part{group - number * sets_count, begin, end < all ? end : all, number};
    }
    ND_BOTH Place place(int64_t set, int64_t i) const {
        int64_t row = sets.row_of(i);
        if (sets.groups > 0)
            return Place{set * sets.length() + i, sets.first_channel(set) + row};
        return Place{i + (row * (sets.channels - 1) + set) * sets.places, set};
    }
    /// 0 where the mean is not taken away, and where there is no difference from it.
    ND_BOTH double shift(int64_t set) const {
        double first = sets.centered ? (double)sets.number(place(set, 0).at) : 0.0;
        return first - first == 0.0 ? first : 0.0;
    }
    /// body(places, count) for the packs of a lane in a part, `ahead` of them together but for the last.
    template <class Body>
    ND_BOTH void each(const Part &part, int lane, int lanes, const Body &body) const {
        int64_t step = (int64_t)lanes * pack, i = part.begin + (int64_t)lane * pack;
        Place places[ahead];
        for (; i + (ahead - 1) * step < part.end; i += ahead * step) {
            ND_UNROLL
            for (int k = 0; k < ahead; k++)
                places[k] = place(part.set, i + k * step);
            body.template operator()<ahead>(places);
        }
        for (; i < part.end; i += step) {
            places[0] = place(part.set, i);
            body.template operator()<1>(places);
        }
    }
    ND_BOTH void load(int64_t at, Number *ret_x) const {
        Row::load(sets.format, sets.x + at, pack, 0, (Number)0, ret_x);
    }
    ND_BOTH void load_result(const ResultStored<Format> *from, int64_t at, Number *ret_x) const {
        Row::load(ResultOf<Format>::of(sets.format), from + at, pack, 0, (Number)0, ret_x);
    }
    /// The variance is that from the mean as Number has it.
    ND_BOTH NormStatistics statistics(const NormMoments &moments, double shift) const {
        double n = (double)sets.length(), exact = moments.plain / n;
        double mean = sets.centered ? (double)(Number)(shift + exact) : 0.0;
        double distance = mean - shift, rest = distance - exact;
        double variance = moments.squares / n;
        if (sets.centered) {
            variance -= exact * exact;
            variance = (variance < 0.0 ? 0.0 : variance) + rest * rest;
        }
        return NormStatistics{mean, variance, 1.0 / sqrt_of(variance + sets.epsilon), distance};
    }
};

/// What both first kernels end with: the moments of each part are written.
template <class Parted, class Moments> struct NormPartsWritten : Parted {
    typedef Moments State;
    State *partial; ///< [parts][sets]

    NormPartsWritten(const Parted &base, State *into) : Parted(base), partial(into) {
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &sums) const {
        if (lane == 0)
            partial[group] = sums;
    }
};

/// What both second kernels begin with: the moments of a set are those of its parts, in one order.
template <class Parted, class Moments> struct NormPartsJoined : Parted {
    typedef Moments State;
    const State *partial; ///< [parts][sets]

    NormPartsJoined(const Parted &base, const State *from) : Parted(base), partial(from) {
    }
    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t set = this->part_of(group).set;
        State sums = State();
        for (int64_t part = lane; part < this->parts; part += lanes)
            sums = State::join(sums, partial[part * this->sets.count() + set]);
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
};

/// First kernel of the forward pass.
template <class Format, bool packed>
struct NormPartMoments : NormPartsWritten<NormParted<Format, packed>, NormMoments> {
    typedef NormParted<Format, packed> Base;
    typedef NormPartsWritten<Base, NormMoments> Written;
    typedef typename Format::Number Number;
    using typename Written::State;
    using Written::Written;

    struct Adder {
        const NormPartMoments *of;
        State *sums;
        double shift;
        template <int count> ND_BOTH void operator()(const typename Base::Place *places) const {
            Number x[count][Base::pack];
            ND_UNROLL
            for (int k = 0; k < count; k++)
                of->load(places[k].at, x[k]);
            ND_UNROLL
            for (int k = 0; k < count; k++)
                ND_UNROLL
            for (int e = 0; e < Base::pack; e++)
                sums->add((double)x[k][e] - shift);
        }
    };
    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        typename Base::Part part = this->part_of(group);
        State sums = State();
        this->each(part, lane, lanes, Adder{this, &sums, this->shift(part.set)});
        return sums;
    }
};

/// Second kernel of the forward pass.
template <class Format, bool packed>
struct NormPartResult : NormPartsJoined<NormParted<Format, packed>, NormMoments> {
    typedef NormParted<Format, packed> Base;
    typedef NormPartsJoined<Base, NormMoments> Joined;
    typedef typename Format::Number Number;
    using Base::sets;
    using typename Joined::State;
    const Number *weight, *bias; ///< or NULL
    ResultStored<Format> *out;
    Number *written; ///< the statistics, or NULL

    NormPartResult(const Base &base, const State *from, const nd_kernel_call *call)
        : Joined(base, from), weight((const Number *)call->operand[3].data),
          bias((const Number *)call->operand[4].data),
          out((ResultStored<Format> *)call->operand[0].data),
          written((Number *)call->operand[1].data) {
    }
    struct Writer {
        const NormPartResult *of;
        Number mean, inverse;
        template <int count> ND_BOTH void operator()(const typename Base::Place *places) const {
            Number x[count][Base::pack], w[count], b[count];
            ND_UNROLL
            for (int k = 0; k < count; k++) {
                of->load(places[k].at, x[k]);
                w[k] = of->weight ? of->weight[places[k].channel] : (Number)1;
                b[k] = of->bias ? of->bias[places[k].channel] : (Number)0;
            }
            ND_UNROLL
            for (int k = 0; k < count; k++)
                Base::Row::store_pack(ResultOf<Format>::of(of->sets.format), of->out + places[k].at,
                                      [&](int e) {
                                          Number y = (x[k][e] - mean) * inverse;
                                          y = of->weight ? y * w[k] : y;
                                          return of->bias ? y + b[k] : y;
                                      });
        }
    };
    ND_BOTH void finish(int64_t group, int lane, int lanes, const State &sums) const {
        typename Base::Part part = this->part_of(group);
        NormStatistics found = this->statistics(sums, this->shift(part.set));
        if (lane == 0 && part.number == 0 && written) {
            written[part.set] = (Number)found.mean;
            written[sets.count() + part.set] = (Number)found.variance;
        }
        this->each(part, lane, lanes, Writer{this, (Number)found.mean, (Number)found.inverse});
    }
};

/// First kernel of the gradient. Where a set is a channel its weight is left to the second.
template <class Format, bool packed>
struct NormPartGradMoments : NormPartsWritten<NormParted<Format, packed>, NormGradMoments> {
    typedef NormParted<Format, packed> Base;
    typedef NormPartsWritten<Base, NormGradMoments> Written;
    typedef typename Format::Number Number;
    using typename Written::State;
    const ResultStored<Format> *grad;
    const Number *weight; ///< or NULL

    NormPartGradMoments(const Base &base, State *into, const nd_kernel_call *call)
        : Written(base, into), grad((const ResultStored<Format> *)call->operand[2].data),
          weight(base.sets.groups > 0 ? (const Number *)call->operand[4].data : nullptr) {
    }
    struct Adder {
        const NormPartGradMoments *of;
        State *sums;
        double shift;
        template <int count> ND_BOTH void operator()(const typename Base::Place *places) const {
            Number x[count][Base::pack], g[count][Base::pack], w[count];
            ND_UNROLL
            for (int k = 0; k < count; k++) {
                of->load(places[k].at, x[k]);
                of->load_result(of->grad, places[k].at, g[k]);
                w[k] = of->weight ? of->weight[places[k].channel] : (Number)1;
            }
            ND_UNROLL
            for (int k = 0; k < count; k++)
                ND_UNROLL
            for (int e = 0; e < Base::pack; e++) {
                double from_shift = (double)x[k][e] - shift;
                double scaled = (double)(of->weight ? g[k][e] * w[k] : g[k][e]);
                sums->x.add(from_shift);
                sums->grad.plain += scaled;
                sums->grad.along += scaled * from_shift;
            }
        }
    };
    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        typename Base::Part part = this->part_of(group);
        State sums = State();
        this->each(part, lane, lanes, Adder{this, &sums, this->shift(part.set)});
        return sums;
    }
};

/// Second kernel of the gradient. Where a set is a channel its sums are the gradients of weight and bias.
template <class Format, bool packed>
struct NormPartGrad : NormPartsJoined<NormParted<Format, packed>, NormGradMoments> {
    typedef NormParted<Format, packed> Base;
    typedef NormPartsJoined<Base, NormGradMoments> Joined;
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    using Base::sets;
    using typename Joined::State;
    const ResultStored<Format> *grad;
    const Number *weight; ///< or NULL
    Stored *out;          ///< or NULL
    Number *parameters;   ///< [2, channels], or NULL

    NormPartGrad(const Base &base, const State *from, const nd_kernel_call *call)
        : Joined(base, from), grad((const ResultStored<Format> *)call->operand[2].data),
          weight((const Number *)call->operand[4].data), out((Stored *)call->operand[0].data),
          parameters(base.sets.groups > 0 ? nullptr : (Number *)call->operand[1].data) {
    }
    struct Writer {
        const NormPartGrad *of;
        Number mean, inverse, shift, slope;
        template <int count> ND_BOTH void operator()(const typename Base::Place *places) const {
            Number x[count][Base::pack], g[count][Base::pack], w[count];
            ND_UNROLL
            for (int k = 0; k < count; k++) {
                of->load(places[k].at, x[k]);
                of->load_result(of->grad, places[k].at, g[k]);
                w[k] = of->weight ? of->weight[places[k].channel] : (Number)1;
            }
            ND_UNROLL
            for (int k = 0; k < count; k++)
                Base::Row::store_pack(of->sets.format, of->out + places[k].at, [&](int e) {
                    Number scaled = of->weight ? g[k][e] * w[k] : g[k][e];
                    return (scaled - shift - (x[k][e] - mean) * slope) * inverse;
                });
        }
    };
    ND_BOTH void finish(int64_t group, int lane, int lanes, const State &sums) const {
        typename Base::Part part = this->part_of(group);
        NormStatistics found = this->statistics(sums.x, this->shift(part.set));
        double along = sums.grad.along - found.shifted_mean * sums.grad.plain;
        if (lane == 0 && part.number == 0) {
            sets.mean[part.set] = found.mean;
            sets.inverse[part.set] = found.inverse;
            if (parameters) {
                parameters[part.set] = (Number)(along * found.inverse);
                parameters[sets.channels + part.set] = (Number)sums.grad.plain;
            }
        }
        if (!out)
            return;
        double factor = weight && sets.groups == 0 ? (double)weight[part.set] : 1.0;
        double n = (double)sets.length();
        Number shift = sets.centered ? (Number)(factor * sums.grad.plain / n) : (Number)0;
        Number slope = (Number)(factor * along / n * found.inverse * found.inverse);
        this->each(part, lane, lanes,
                   Writer{this, (Number)found.mean, (Number)found.inverse, shift, slope});
    }
};

/// How the threads share sets: along the numbers of a set where many lie side by side, else as channels
/// do.
template <class Format> static GroupShape part_shape(const NormSets<Format> &sets, int pack) {
    int64_t length = divide_up(sets.length(), pack);
    if (sets.groups > 0 || sets.places >= 32)
        return GroupShape{lanes_for(length), true};
    int lanes = 1;
    while (lanes < block_threads && (int64_t)lanes * 4 < length &&
           (lanes < 8 || lanes * sets.channels < block_threads))
        lanes *= 2;
    return GroupShape{lanes, false};
}

/// Enough parts to fill the device, each of at least eight numbers a lane. The second kernel reads the
/// sums of all parts in each, which are not many for a thread.
template <class Parted>
static void cut_sets(const nd_cuda_queue *queue, GroupShape shape, Parted *ret_parted) {
    const int64_t length = ret_parted->sets.length(), pack = Parted::pack, lanes = shape.lanes;
    int64_t parts =
        divide_up((int64_t)queue->multiprocessors * 2048, ret_parted->sets.count() * lanes);
    int64_t possible = length / (lanes * 8), most = lanes * 16;
    parts = parts < possible ? parts : possible;
    parts = parts < most ? parts : most;
    parts = parts > 1 ? parts : 1;
    ret_parted->part_length = divide_up(divide_up(length, parts), pack) * pack;
    ret_parted->parts = divide_up(length, ret_parted->part_length);
}

template <class Format, bool packed>
static nd_status run_parted_result(const nd_cuda_queue *queue, const nd_kernel_call *call,
                                   const NormSets<Format> &sets) {
    NormParted<Format, packed> parted{sets, 1, 0};
    GroupShape shape = part_shape(sets, parted.pack);
    cut_sets(queue, shape, &parted);
    int64_t groups = parted.parts * sets.count();
    Scratch scratch(queue, groups * (int64_t)sizeof(NormMoments));
    if (scratch.status != ND_OK)
        return scratch.status;
    NormMoments *partial = (NormMoments *)scratch.data;
    nd_status status =
        run_groups(queue, groups, shape, NormPartMoments<Format, packed>(parted, partial));
    return status == ND_OK ? run_groups(queue, groups, shape,
                                        NormPartResult<Format, packed>(parted, partial, call))
                           : status;
}

/// Also the statistics in sets.mean and sets.inverse, and where a set is a channel the gradients of weight
/// and bias.
template <class Format, bool packed>
static nd_status run_parted_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                                 const NormSets<Format> &sets) {
    NormParted<Format, packed> parted{sets, 1, 0};
    GroupShape shape = part_shape(sets, parted.pack);
    cut_sets(queue, shape, &parted);
    int64_t groups = parted.parts * sets.count();
    Scratch scratch(queue, groups * (int64_t)sizeof(NormGradMoments));
    if (scratch.status != ND_OK)
        return scratch.status;
    NormGradMoments *partial = (NormGradMoments *)scratch.data;
    nd_status status = run_groups(queue, groups, shape,
                                  NormPartGradMoments<Format, packed>(parted, partial, call));
    // Without a gradient of x the first part of each set finds all there is.
    int64_t finished = call->operand[0].data ? groups : sets.count();
    return status == ND_OK ? run_groups(queue, finished, shape,
                                        NormPartGrad<Format, packed>(parted, partial, call))
                           : status;
}

/// Whether packs of x are of one channel each, and can be moved.
template <class Format>
static bool sets_are_packed(const NormSets<Format> &sets, const void *x, const void *result,
                            const void *out) {
    return sets.narrow && rows_are_packed<typename Format::Stored>(x, sets.places, 0) &&
           (uintptr_t)result % 16 == 0 && (uintptr_t)out % 16 == 0;
}

} // namespace nd_cuda
#endif
