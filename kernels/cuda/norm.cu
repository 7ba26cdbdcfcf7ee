// NORM: layer, group and batch norm and their gradient.
//
// Sets that fit in registers are kept there (norm.cuh); any other is cut into parts (norm_parts.cuh).
// Sums are kept in double.
#include "kernels/cuda/norm_parts.cuh"

namespace nd_cuda {

/// The result where statistics are given.
template <class Format> struct NormResult {
    typedef typename Format::Number Number;
    NormSets<Format> sets;
    const Number *weight, *bias; ///< or NULL
    ResultStored<Format> *out;

    ND_BOTH void operator()(int64_t at) const {
        int64_t channel = sets.channel_of(at);
        Number y = (sets.number(at) - (Number)sets.mean[channel]) * (Number)sets.inverse[channel];
        y = weight ? y * weight[channel] : y;
        out[at] = ResultOf<Format>::of(sets.format).store(bias ? y + bias[channel] : y);
    }
};

/// The mean and the inverse of each channel from statistics that are given.
template <class Format> struct NormGiven {
    typedef typename Format::Number Number;
    NormSets<Format> sets;
    const Number *statistics;

    ND_BOTH void operator()(int64_t channel) const {
        sets.mean[channel] = (double)statistics[channel];
        sets.inverse[channel] =
            1.0 / sqrt_of((double)statistics[sets.channels + channel] + sets.epsilon);
    }
};

/// The gradients of weight and bias: a channel, or a part of it, by a group of threads.
template <class Format> struct NormParameters {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef NormSums State;
    NormSets<Format> sets;
    const ResultStored<Format> *grad;
    Number *out;       ///< [2, channels]
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
            double g = (double)ResultOf<Format>::of(sets.format).load(grad[at]);
            sums.plain += g;
            sums.along += g * (((double)sets.number(at) - sets.mean[of]) * sets.inverse[of]);
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
        out[group] = (Number)sums.along;
        out[sets.channels + group] = (Number)sums.plain;
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
template <class Format> struct NormGivenGrad {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    NormSets<Format> sets;
    const ResultStored<Format> *grad;
    const Number *weight; ///< or NULL
    Stored *out;

    ND_BOTH void operator()(int64_t at) const {
        int64_t channel = sets.channel_of(at);
        Number inverse = (Number)sets.inverse[channel];
        Number g = ResultOf<Format>::of(sets.format).load(grad[at]);
        out[at] = sets.format.store(g * (weight ? inverse * weight[channel] : inverse));
    }
};

/// ND_ERROR_UNSUPPORTED where sets are not kept. `make(shape, flat)` runs a kernel of NormRow.
template <class Format, int rows, class Make>
static nd_status run_sets(const nd_kernel_call *call, const NormSets<Format> &sets,
                          const int *moved, int count, const Make &make) {
    if (sets.groups == 0 || !sets.narrow)
        return ND_ERROR_UNSUPPORTED;
    int64_t channels = sets.channels / sets.groups;
    bool packed = true, flat = sets.places == 1;
    for (int i = 0; i < count; i++)
        packed = packed && rows_are_packed<typename Format::Stored>(call->operand[moved[i]].data,
                                                                    sets.length(), 0);
    // Operands 3 and 4 are weight and bias, or x and weight.
    for (int i = 3; i < 5; i++)
        flat = flat && (!packed || rows_are_packed<typename Format::Number>(call->operand[i].data,
                                                                            channels, 0));
    return with_row_shape<Format, rows>(sets.length(), packed,
                                        [&](auto shape) { return make(shape, flat); });
}

/// Threads that stand side by side read channels that do.
constexpr int parameter_lanes = 8;

template <class Format>
static nd_status run_parameters(const nd_cuda_queue *queue, const NormSets<Format> &sets,
                                const ResultStored<Format> *grad, typename Format::Number *out) {
    typedef typename Format::Number Number;
    if (sets.channels == 0)
        return ND_OK;
    int64_t each = sets.samples * sets.places;
    NormParameters<Format> body{sets, grad, out, nullptr, each};
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
    NormParametersJoin<Number> join{body.partial, out, sets.channels, parts};
    return run_groups(queue, sets.channels, GroupShape{parameter_lanes, false}, join);
}

/// Of sets whose statistics are not given.
template <class Format>
static nd_status run_set_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                              const NormSets<Format> &sets) {
    typedef typename Format::Stored Stored;
    static const int moved[] = {0, 2, 3};
    const nd_operand *operand = call->operand;
    Stored *out = (Stored *)operand[0].data;
    nd_status status = ND_ERROR_UNSUPPORTED;
    if (out)
        status = run_sets<Format, 2>(call, sets, moved, 3, [&](auto shape, bool flat) {
            return run_rows(queue, sets.count(),
                            NormRowGrad<Format, decltype(shape)>(sets, call, flat));
        });
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    bool packed =
        sets_are_packed(sets, operand[3].data, operand[2].data, out ? out : operand[3].data);
    return packed ? run_parted_grad<Format, true>(queue, call, sets)
                  : run_parted_grad<Format, false>(queue, call, sets);
}

template <class Format>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const NormSets<Format> &sets, bool given) {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    const nd_operand *operand = call->operand;
    const ResultStored<Format> *grad = (const ResultStored<Format> *)operand[2].data;
    const Number *weight = (const Number *)operand[4].data;
    Stored *out = (Stored *)operand[0].data;
    Number *parameters = (Number *)operand[1].data;
    int64_t numbers = sets.samples * sets.channels * sets.places;
    nd_status status = ND_OK;
    if (given)
        status = run_elements(queue, sets.channels,
                              NormGiven<Format>{sets, (const Number *)operand[5].data});
    else if (numbers > 0)
        status = run_set_grad(queue, call, sets);
    if (out && given && status == ND_OK)
        status = run_elements(queue, numbers, NormGivenGrad<Format>{sets, grad, weight, out});
    // The sums of channels that are sets are those of weight and bias.
    bool found = !given && sets.groups == 0 && numbers > 0;
    return parameters && !found && status == ND_OK ? run_parameters(queue, sets, grad, parameters)
                                                   : status;
}

/// Forward, of sets whose statistics are not given.
template <class Format>
static nd_status run_result(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const NormSets<Format> &sets) {
    static const int moved[] = {0, 2};
    nd_status status = run_sets<Format, 1>(call, sets, moved, 2, [&](auto shape, bool flat) {
        return run_rows(queue, sets.count(),
                        NormRowResult<Format, decltype(shape)>(sets, call, flat));
    });
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    const void *x = call->operand[2].data, *out = call->operand[0].data;
    return sets_are_packed(sets, x, out, out) ? run_parted_result<Format, true>(queue, call, sets)
                                              : run_parted_result<Format, false>(queue, call, sets);
}

/// The place of x among the operands.
static int x_of(const nd_kernel_call *call) {
    if (call->op == ND_OP_layer_norm)
        return 2;
    return call->op == ND_OP_channel_norm ? 1 : 3;
}

template <class Format>
static nd_status run_norm(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    const nd_operand *operand = call->operand;
    const int64_t *size = call->attrs.i;
    bool backward = call->op == ND_OP_layer_norm_grad || call->op == ND_OP_channel_norm_grad;
    bool given = call->op == ND_OP_channel_norm || call->op == ND_OP_channel_norm_grad;
    NormSets<Format> sets{format,
                          (const Stored *)operand[x_of(call)].data,
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
                          {}};
    sets.prepare();
    int64_t count = sets.count(), numbers = sets.samples * sets.channels * sets.places;
    if (!backward && !given)
        return numbers > 0 ? run_result(queue, call, sets) : ND_OK;
    Scratch statistics(queue, 2 * (count > 0 ? count : 1) * (int64_t)sizeof(double));
    if (statistics.status != ND_OK)
        return statistics.status;
    sets.mean = (double *)statistics.data;
    sets.inverse = sets.mean + count;
    if (backward)
        return run_grad(queue, call, sets, given);
    nd_status status =
        run_elements(queue, count, NormGiven<Format>{sets, (const Number *)operand[3].data});
    if (status != ND_OK)
        return status;
    NormResult<Format> body{sets, (const Number *)operand[2].data, (const Number *)operand[4].data,
                            (ResultStored<Format> *)operand[0].data};
    return run_elements(queue, numbers, body);
}

} // namespace nd_cuda

nd_status nd__cuda_norm(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    bool backward = call->op == ND_OP_layer_norm_grad || call->op == ND_OP_channel_norm_grad;
    const nd_dtype dtype = call->operand[x_of(call)].dtype;
    switch (dtype) {
    case ND_F32:
        return run_norm(queue, call, Plain<float>());
    case ND_F64:
        return run_norm(queue, call, Plain<double>());
    case ND_F16:
    case ND_BF16:
        return call->operand[backward ? 2 : 0].dtype == ND_F32
                   ? run_norm(queue, call, HalvesToFloats(dtype))
                   : run_norm(queue, call, Halves(dtype));
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
