// NORM: sets of numbers of layer, group and batch norm, and kernels for those that fit in registers.
//
// A set whose numbers lie one behind the other and fit in registers is kept there (held.cuh): the
// mean, the variance and the result, or the gradient, come from one reading. Sums are kept in double.
// Numbers may be 16-bit floats, which are computed in f32: parameters, statistics and their gradients
// are f32 then, and results and their gradients may be.
#ifndef ND_KERNELS_CUDA_NORM_CUH
#define ND_KERNELS_CUDA_NORM_CUH
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// 16-bit floats whose result is f32.
struct HalvesToFloats : Halves {
    using Halves::Halves;
};

/// What results are, and their gradients.
template <class Format> struct ResultOf {
    typedef Format Type;
    static ND_BOTH const Type &of(const Format &format) {
        return format;
    }
};
template <> struct ResultOf<HalvesToFloats> {
    typedef Plain<float> Type;
    static ND_BOTH Type of(const HalvesToFloats &) {
        return Type();
    }
};
template <class Format> using ResultStored = typename ResultOf<Format>::Type::Stored;

/// How [samples, channels, places] fall into sets, and the sets' statistics.
template <class Format> struct NormSets {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    Format format;
    const Stored *x;
    double *mean;    ///< by set
    double *inverse; ///< by set: 1 / root of (variance + epsilon)
    int64_t samples, channels, places;
    int64_t groups; ///< 0: a set is a channel in all samples
    double epsilon;
    bool centered;
    bool narrow; ///< every number's place is below 2^31
    Divider by_places, by_channels;

    void prepare() {
        narrow = samples * channels * places < ((int64_t)1 << 31);
        if (!narrow || samples * channels * places == 0)
            return;
        by_places.set((uint32_t)places);
        by_channels.set((uint32_t)channels);
    }
    ND_BOTH int64_t count() const {
        return groups > 0 ? samples * groups : channels;
    }
    ND_BOTH Number number(int64_t at) const {
        return format.load(x[at]);
    }
    /// Numbers of a set.
    ND_BOTH int64_t length() const {
        return groups > 0 ? channels / groups * places : samples * places;
    }
    /// In which row of `places` numbers of its set number i stands.
    ND_BOTH int64_t row_of(int64_t i) const {
        return narrow ? (int64_t)by_places.divide((uint32_t)i) : i / places;
    }
    ND_BOTH int64_t channel_of(int64_t at) const {
        if (!narrow)
            return at / places % channels;
        uint32_t row = by_places.divide((uint32_t)at);
        return row - by_channels.divide(row) * (uint32_t)channels;
    }
    /// Of the first number of a set that lies in one piece.
    ND_BOTH int64_t first_channel(int64_t set) const {
        return set % groups * (channels / groups);
    }
};

/// Two sums of products with the gradient.
struct NormSums {
    double plain, along;
};

/// A set that is kept: its mean, its variance and what both kernels read of it.
template <class Format, class Shape> struct NormRow : Shape {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef HeldRow<Format, Shape> Row;
    /// Numbers of the channels of a pack.
    struct Parameters {
        Number element[Row::pack];
    };
    NormSets<Format> sets;
    int length;
    bool flat; ///< weight and bias lie as the numbers of a set do, and may be moved by packs

    NormRow(const NormSets<Format> &of, bool along)
        : sets(of), length((int)of.length()), flat(along) {
    }
    ND_BOTH Parameters parameters(const Number *of, int64_t first_channel, int position) const {
        constexpr int wide = 16 / (int)sizeof(Number);
        constexpr int step = Row::pack < wide ? Row::pack : wide;
        Parameters result;
        if (flat) {
            ND_UNROLL
            for (int e = 0; e < Row::pack; e += step) {
                Pack<Number, step> moved =
                    *(const Pack<Number, step> *)(of + first_channel + position + e);
                ND_UNROLL
                for (int i = 0; i < step; i++)
                    result.element[e + i] = moved.element[i];
            }
            return result;
        }
        ND_UNROLL
        for (int e = 0; e < Row::pack; e++)
            result.element[e] = of[first_channel + sets.by_places.divide((uint32_t)(position + e))];
        return result;
    }
    /// Numbers behind the end, which are 0, are left out.
    ND_BOTH static bool inside(int i, int lane, int length) {
        return (i / Row::pack * Shape::lanes + lane) * Row::pack < length;
    }
    ND_BOTH double sum(const Number *x) const {
        double result = 0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++)
            result += (double)x[i];
        return result;
    }
    ND_BOTH double squares(const Number *x, int lane, double mean) const {
        double result = 0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            double part = inside(i, lane, length) ? (double)x[i] - mean : 0.0;
            result += part * part;
        }
        return result;
    }
    ND_BOTH double mean_of(double sum) const {
        return sets.centered ? (double)(Number)(sum / length) : 0.0;
    }
    ND_BOTH double inverse_of(double squares) const {
        return 1.0 / sqrt_of(squares / length + sets.epsilon);
    }
};

template <class Format, class Shape> struct NormRowResult : NormRow<Format, Shape> {
    typedef NormRow<Format, Shape> Base;
    using Base::sets, Base::length;
    using typename Base::Stored, typename Base::Number, typename Base::Parameters,
        typename Base::Row;
    typedef double State;
    struct Kept {
        Number x[Shape::elements];
        double mean;
    };
    static constexpr int rounds = 2;
    const Number *weight, *bias; ///< or NULL
    ResultStored<Format> *out;
    Number *statistics; ///< or NULL

    NormRowResult(const NormSets<Format> &of, const nd_kernel_call *call, bool along)
        : Base(of, along), weight((const Number *)call->operand[3].data),
          bias((const Number *)call->operand[4].data),
          out((ResultStored<Format> *)call->operand[0].data),
          statistics((Number *)call->operand[1].data) {
    }
    ND_BOTH void load(Kept &kept, int64_t set, int lane) const {
        Row::load(sets.format, sets.x + set * length, length, lane, (Number)0, kept.x);
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
            statistics[set] = (Number)kept.mean;
            statistics[sets.count() + set] = (Number)(squares / length);
        }
        Number mean = (Number)kept.mean, inverse = (Number)this->inverse_of(squares);
        int64_t channel = sets.first_channel(set);
        ND_UNROLL
        for (int i = 0; i < Row::packs; i++) {
            int position = (i * Shape::lanes + lane) * Row::pack;
            if (position >= length)
                continue;
            Parameters w, b;
            if (weight)
                w = this->parameters(weight, channel, position);
            if (bias)
                b = this->parameters(bias, channel, position);
            Row::store_pack(ResultOf<Format>::of(sets.format), out + set * length + position,
                            [&](int e) {
                                Number value = (kept.x[i * Row::pack + e] - mean) * inverse;
                                value = weight ? value * w.element[e] : value;
                                return bias ? value + b.element[e] : value;
                            });
        }
    }
};

/// The gradient of x, and the statistics for those of weight and bias.
template <class Format, class Shape> struct NormRowGrad : NormRow<Format, Shape> {
    typedef NormRow<Format, Shape> Base;
    using Base::sets, Base::length;
    using typename Base::Stored, typename Base::Number, typename Base::Parameters,
        typename Base::Row;
    typedef NormSums State;
    struct Kept {
        Number x[Shape::elements], w[Shape::elements];
        double mean, inverse;
    };
    static constexpr int rounds = 3;
    const ResultStored<Format> *grad;
    const Number *weight; ///< or NULL
    Stored *out;

    NormRowGrad(const NormSets<Format> &of, const nd_kernel_call *call, bool along)
        : Base(of, along), grad((const ResultStored<Format> *)call->operand[2].data),
          weight((const Number *)call->operand[4].data), out((Stored *)call->operand[0].data) {
    }
    ND_BOTH void load(Kept &kept, int64_t set, int lane) const {
        Row::load(sets.format, sets.x + set * length, length, lane, (Number)0, kept.x);
        Row::load(ResultOf<Format>::of(sets.format), grad + set * length, length, lane, (Number)0,
                  kept.w);
        if (!weight)
            return;
        int64_t channel = sets.first_channel(set);
        ND_UNROLL
        for (int i = 0; i < Row::packs; i++) {
            int position = (i * Shape::lanes + lane) * Row::pack;
            if (position >= length)
                continue;
            Parameters w = this->parameters(weight, channel, position);
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
        Number shift = sets.centered ? (Number)(sums.plain / length) : (Number)0;
        Number slope = (Number)(sums.along / length * kept.inverse * kept.inverse);
        Number mean = (Number)kept.mean, inverse = (Number)kept.inverse;
        Row::store(sets.format, out + set * length, length, lane, [&](int i, int) {
            return (kept.w[i] - shift - (kept.x[i] - mean) * slope) * inverse;
        });
    }
};

} // namespace nd_cuda
#endif
