// NORM: sets of numbers of layer, group and batch norm and their gradient, the mean, the variance and
// the result of a set each by its own group of threads. Sums are kept in double.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/grid.cuh"

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
        return at / places % channels;
    }
    ND_BOTH int64_t set_of(int64_t at) const {
        int64_t channel = channel_of(at);
        return groups > 0 ? at / (channels * places) * groups + channel / (channels / groups)
                          : channel;
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

/// The gradients of weight and bias, a channel each by its group of threads.
template <class T> struct NormParameters {
    typedef NormSums State;
    NormSets<T> sets;
    const T *grad;
    T *out; ///< [2, channels]

    ND_BOTH State accumulate(int64_t channel, int lane, int lanes) const {
        State sums = {0, 0};
        for (int64_t i = lane; i < sets.samples * sets.places; i += lanes) {
            int64_t at =
                (i / sets.places * sets.channels + channel) * sets.places + i % sets.places;
            int64_t set = sets.set_of(at);
            sums.plain += (double)grad[at];
            sums.along +=
                (double)grad[at] * (((double)sets.x[at] - sets.mean[set]) * sets.inverse[set]);
        }
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.plain + b.plain, a.along + b.along};
    }
    ND_BOTH void finish(int64_t channel, int lane, int, const State &sums) const {
        if (lane != 0)
            return;
        out[channel] = (T)sums.along;
        out[sets.channels + channel] = (T)sums.plain;
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

template <class T>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const NormSets<T> &sets, bool given) {
    const nd_operand *operand = call->operand;
    const T *grad = (const T *)operand[2].data, *weight = (const T *)operand[4].data;
    T *out = (T *)operand[0].data, *parameters = (T *)operand[1].data;
    nd_status status = ND_OK;
    if (out && given)
        status = run_elements(queue, sets.samples * sets.channels * sets.places,
                              NormGivenGrad<T>{sets, grad, weight, out});
    else if (out && sets.length() > 0)
        status = run_groups(queue, sets.count(), GroupShape{lanes_for(sets.length()), true},
                            NormGrad<T>{sets, grad, weight, out});
    // Channels whose places are few stand side by side, and so do the threads that read them.
    if (parameters && status == ND_OK)
        status = run_groups(queue, sets.channels,
                            GroupShape{lanes_for(sets.samples * sets.places), sets.places >= 32},
                            NormParameters<T>{sets, grad, parameters});
    return status;
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
                     size[4] != 0};
    int64_t count = sets.count(), numbers = sets.samples * sets.channels * sets.places;
    Scratch statistics(queue, 2 * (count > 0 ? count : 1) * (int64_t)sizeof(double));
    if (statistics.status != ND_OK)
        return statistics.status;
    sets.mean = (double *)statistics.data;
    sets.inverse = sets.mean + count;
    nd_status status = ND_OK;
    if (given)
        status = run_elements(queue, count,
                              NormGiven<T>{sets, (const T *)operand[backward ? 5 : 3].data});
    else if (numbers > 0)
        status = run_statistics(queue, sets, backward ? nullptr : (T *)operand[1].data);
    if (status != ND_OK)
        return status;
    if (backward)
        return run_grad(queue, call, sets, given);
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
