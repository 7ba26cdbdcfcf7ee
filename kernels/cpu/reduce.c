// Plans reductions and shares them between threads.
//
// An operation is one fold over x or two, of which the first gives each result the parameter of the
// second: its mean, or its largest element. Then each result is finished as a double (divided, a
// root taken) and converted to out's dtype.
//
// Invariant: where a sum is cut depends on sizes and strides alone, so that any number of threads
// gives the same bits. Many results: threads take results. Few results of many elements: the
// elements are cut into fixed pieces whose partial results are combined in order.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <math.h>
#include <string.h>

/// Below this many results the elements are cut, when there are enough of them.
#define FEW_RESULTS 128
#define PIECE_ELEMENTS 16384
/// Partial results of all pieces together.
#define MOST_PARTIALS 2048
/// Elements that a batch of results walks at most when it walks them twice, if it can be helped.
#define BATCH_ELEMENTS 32768

static void add_axis(nd__axes *axes, int64_t size, int64_t x_stride, int64_t out_stride) {
    if (size == 1)
        return;
    int at = axes->count++;
    // Sorted: the axis that walks x most tightly is last; equal ones stay in order.
    int64_t tight = x_stride < 0 ? -x_stride : x_stride;
    while (at > 0) {
        int64_t before = axes->x_strides[at - 1];
        if ((before < 0 ? -before : before) >= tight)
            break;
        axes->shape[at] = axes->shape[at - 1];
        axes->x_strides[at] = axes->x_strides[at - 1];
        axes->out_strides[at] = axes->out_strides[at - 1];
        at--;
    }
    axes->shape[at] = size;
    axes->x_strides[at] = x_stride;
    axes->out_strides[at] = out_stride;
}

static void merge_axes(nd__axes *axes) {
    int count = 0;
    for (int axis = 0; axis < axes->count; axis++) {
        int64_t size = axes->shape[axis];
        if (count > 0 && axes->x_strides[count - 1] == size * axes->x_strides[axis] &&
            axes->out_strides[count - 1] == size * axes->out_strides[axis]) {
            axes->shape[count - 1] *= size;
            axes->x_strides[count - 1] = axes->x_strides[axis];
            axes->out_strides[count - 1] = axes->out_strides[axis];
        } else {
            axes->shape[count] = size;
            axes->x_strides[count] = axes->x_strides[axis];
            axes->out_strides[count] = axes->out_strides[axis];
            count++;
        }
    }
    axes->count = count;
}

static int64_t axes_total(const nd__axes *axes) {
    int64_t total = 1;
    for (int axis = 0; axis < axes->count; axis++)
        total *= axes->shape[axis];
    return total;
}

static void make_plan(nd__reduction *plan, const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    plan->kept.count = plan->reduced.count = 0;
    plan->repeats = 1;
    for (int axis = 0; axis < call->ndim; axis++) {
        // An axis of out without a stride is reduced; of size 1 it does not matter.
        if (out->strides[axis] == 0 && x->strides[axis] == 0)
            plan->repeats *= call->shape[axis];
        else
            add_axis(out->strides[axis] == 0 ? &plan->reduced : &plan->kept, call->shape[axis],
                     x->strides[axis], out->strides[axis]);
    }
    merge_axes(&plan->kept);
    merge_axes(&plan->reduced);
    plan->results = axes_total(&plan->kept);
    plan->elements = axes_total(&plan->reduced);
    int64_t kept = nd__last_stride(&plan->kept), reduced = nd__last_stride(&plan->reduced);
    plan->by_columns = plan->kept.count > 0 && plan->reduced.count > 0 &&
                       (kept < 0 ? -kept : kept) < (reduced < 0 ? -reduced : reduced);
    plan->x = (const char *)x->data;
    plan->x_bytes = nd__dtype_bytes(x->dtype);
}

typedef struct reduction_work {
    nd__reduction plan;
    const nd_kernel_call *call;
    nd__fold first_fold, second_fold;
    const nd__reducer *first;  ///< gives the second its parameters; NULL: there is one fold
    const nd__reducer *second; ///< gives the results
    const nd__reducer *now;    ///< of a reduction in pieces
    const double *parameters;  ///< likewise
    char *partials;            ///< likewise
    int64_t piece;             ///< elements in one
} reduction_work;

// ----------------------------------------------------------------------------- what is computed

/// Which folds an operation is; ret_first is that of nothing else than a sum or an extremum, or
/// ND__FOLDS. False for an operation that is none.
static bool folds_of(const nd_kernel_call *call, nd__fold *ret_first, nd__fold *ret_second) {
    static const struct {
        uint8_t first, second; ///< plus one; 0: none
    } folds[ND_OP_COUNT] = {
        [ND_OP_sum] = {0, 1 + ND__FOLD_SUM},
        [ND_OP_mean] = {0, 1 + ND__FOLD_SUM},
        [ND_OP_max] = {0, 1 + ND__FOLD_MAX},
        [ND_OP_min] = {0, 1 + ND__FOLD_MIN},
        [ND_OP_var] = {1 + ND__FOLD_SUM, 1 + ND__FOLD_DEVIATION},
        [ND_OP_std] = {1 + ND__FOLD_SUM, 1 + ND__FOLD_DEVIATION},
        [ND_OP_prod] = {0, 1 + ND__FOLD_PRODUCT},
        // Of what is not 0 as a bool.
        [ND_OP_any] = {0, 1 + ND__FOLD_MAX},
        [ND_OP_all] = {0, 1 + ND__FOLD_MIN},
        [ND_OP_count_nonzero] = {0, 1 + ND__FOLD_SUM},
        [ND_OP_norm] = {0, 1 + ND__FOLD_POWER},
        [ND_OP_logsumexp] = {1 + ND__FOLD_MAX, 1 + ND__FOLD_EXPONENTIAL},
    };
    int first = folds[call->op].first, second = folds[call->op].second;
    if (second == 0)
        return false;
    *ret_first = first ? (nd__fold)(first - 1) : ND__FOLDS;
    *ret_second = (nd__fold)(second - 1);
    if (call->op == ND_OP_norm && call->attrs.f[0] == 1.0)
        *ret_second = ND__FOLD_MAGNITUDE;
    if (call->op == ND_OP_norm && call->attrs.f[0] == 2.0)
        *ret_second = ND__FOLD_SQUARE;
    if (call->op == ND_OP_norm && call->attrs.f[0] == 3.0)
        *ret_second = ND__FOLD_CUBE;
    return true;
}

/// For each dtype that may lack loops the next one that holds all of its numbers; ND_BOOL: none.
/// Sums of u64 are those of i64, since both wrap; its extrema have loops.
static const nd_dtype wider[ND_DTYPE_COUNT] = {
    [ND_BOOL] = ND_I32, [ND_U8] = ND_I32,  [ND_I8] = ND_I32,  [ND_I16] = ND_I32,
    [ND_U16] = ND_I32,  [ND_I32] = ND_I64, [ND_U32] = ND_I64, [ND_U64] = ND_I64,
    [ND_F16] = ND_F32,  [ND_BF16] = ND_F32};

/// The dtype that x has for the loops: its own or a wider one; for what is real, that of a float.
static nd_dtype loops_dtype(const nd__cpu_loops *loops, nd_op op, nd__fold fold, nd_dtype x) {
    if (op == ND_OP_sum && loops->reducers[fold][x])
        return x;
    bool is_float = x == ND_F32 || x == ND_F64 || x == ND_F16 || x == ND_BF16;
    if (op == ND_OP_any || op == ND_OP_all || op == ND_OP_count_nonzero)
        return ND_BOOL;
    bool real = op == ND_OP_mean || op == ND_OP_var || op == ND_OP_std || op == ND_OP_norm ||
                op == ND_OP_logsumexp;
    if (real && !is_float)
        return ND_F64;
    while (!loops->reducers[fold][x])
        x = wider[x];
    return x;
}

/// Chooses the loops, and how x comes to their dtype.
static nd_status choose_loops(reduction_work *work) {
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    if (!folds_of(work->call, &work->first_fold, &work->second_fold))
        return ND_ERROR_UNSUPPORTED;
    nd_dtype x = work->call->operand[1].dtype;
    nd_dtype dtype = loops_dtype(loops, work->call->op, work->second_fold, x);
    // Only rows are read as bf16: columns and strided elements are faster converted first.
    bool rows = !work->plan.by_columns && nd__last_stride(&work->plan.reduced) == 1;
    if (dtype == ND_BF16 && !rows)
        dtype = wider[dtype];
    work->second = loops->reducers[work->second_fold][dtype];
    work->first = work->first_fold < ND__FOLDS ? loops->reducers[work->first_fold][dtype] : NULL;
    work->plan.load = dtype == x ? NULL : loops->convert[x][dtype];
    return dtype == x || work->plan.load ? ND_OK : ND_ERROR_UNSUPPORTED;
}

static uint64_t integer_power(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

/// What the elements that are repeated make of a partial result.
static void repeat(const reduction_work *work, nd__fold fold, nd_dtype dtype, void *partials,
                   int64_t count) {
    int64_t repeats = work->plan.repeats;
    if (repeats == 1 || fold == ND__FOLD_MAX || fold == ND__FOLD_MIN)
        return;
    for (int64_t i = 0; i < count && dtype == ND_F64; i++) {
        double *partial = (double *)partials + i;
        *partial =
            fold == ND__FOLD_PRODUCT ? pow(*partial, (double)repeats) : *partial * (double)repeats;
    }
    for (int64_t i = 0; i < count && dtype != ND_F64; i++) {
        uint64_t *partial = (uint64_t *)partials + i;
        *partial = fold == ND__FOLD_PRODUCT ? integer_power(*partial, (uint64_t)repeats)
                                            : *partial * (uint64_t)repeats;
    }
}

/// Partial results of the first fold, a sum or an extremum, as parameters of the second.
static void make_parameters(const reduction_work *work, void *partials, int64_t count,
                            double *ret_parameters) {
    double elements = (double)work->call->attrs.i[0];
    repeat(work, work->first_fold, work->first->partial, partials, count);
    for (int64_t i = 0; i < count; i++) {
        bool narrow = work->first->partial == ND_F32;
        double value = narrow ? (double)((float *)partials)[i] : ((double *)partials)[i];
        ret_parameters[i] = work->first_fold == ND__FOLD_SUM ? value / elements : value;
    }
}

/// From a sum to the result, by the loops of elementwise operations.
static void finish(const nd_kernel_call *call, const double *parameters, double *partials,
                   int64_t count) {
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    double number = call->attrs.f[0], divisor = (double)call->attrs.i[0];
    nd_op op = call->op;
    char *all[] = {(char *)partials, (char *)partials, (char *)&divisor};
    const int64_t strides[] = {1, 1, 0};
    if (op == ND_OP_var || op == ND_OP_std) {
        // Too few elements: 0 / 0 or a number / 0, as NumPy has it.
        divisor -= number;
        divisor = divisor > 0.0 ? divisor : 0.0;
    }
    if (op == ND_OP_mean || op == ND_OP_var || op == ND_OP_std)
        loops->binary[ND_F64][ND_OP_div](count, all, strides, &call->attrs);
    if (op == ND_OP_std || (op == ND_OP_norm && number == 2.0)) {
        loops->unary[ND_F64][ND_OP_sqrt](count, all, strides, &call->attrs);
    } else if (op == ND_OP_norm && number != 1.0) {
        const double root = 1.0 / number;
        all[2] = (char *)&root;
        loops->binary[ND_F64][ND_OP_pow](count, all, strides, &call->attrs);
    } else if (op == ND_OP_logsumexp) {
        loops->unary[ND_F64][ND_OP_log](count, all, strides, &call->attrs);
        for (int64_t i = 0; i < count; i++) // an infinite or NaN maximum is the result
            partials[i] = parameters[i] + (isfinite(parameters[i]) ? partials[i] : 0.0);
    }
}

/// Finishes results [begin, end) and writes them, converted.
static void store(const reduction_work *work, int64_t begin, int64_t end, const double *parameters,
                  void *partials) {
    const nd__reduction *plan = &work->plan;
    nd_dtype from = work->second->partial, to = work->call->operand[0].dtype;
    repeat(work, work->second_fold, from, partials, end - begin);
    if (from == ND_F64 && work->call->op != ND_OP_sum)
        finish(work->call, parameters, (double *)partials, end - begin);
    nd__loop convert = nd__cpu_loops_now()->convert[from][to];
    int64_t bytes = nd__dtype_bytes(from), out_bytes = nd__dtype_bytes(to);
    char *out = (char *)work->call->operand[0].data, *value = (char *)partials;
    int last = plan->kept.count - 1;
    if (last < 0) {
        convert(1, (char *[]){out, value}, (int64_t[]){1, 1}, NULL);
        return;
    }
    int64_t strides[2] = {plan->kept.out_strides[last], 1};
    nd__position position = nd__position_at(&plan->kept, begin);
    while (begin < end) {
        int64_t run = nd__position_run(&position, &plan->kept, end - begin);
        convert(run, (char *[]){out + position.out_offset * out_bytes, value}, strides, NULL);
        nd__position_advance(&position, &plan->kept, run);
        value += run * bytes;
        begin += run;
    }
}

// ------------------------------------------------------------------------------------ how it runs

/// Work of one element, in additions of floats.
static int64_t cost_of(const reduction_work *work) {
    bool f64 = work->call->operand[1].dtype == ND_F64;
    if (work->second_fold == ND__FOLD_POWER)
        return 64;
    return work->second_fold == ND__FOLD_EXPONENTIAL ? (f64 ? 32 : 4) : 1;
}

/// Parameters of the one fold that has the same for all results.
static void set_parameters(const reduction_work *work, int64_t count, double *ret_parameters) {
    if (work->second_fold == ND__FOLD_POWER)
        for (int64_t i = 0; i < count; i++)
            ret_parameters[i] = work->call->attrs.f[0];
}

static void reduce_results(void *context, int64_t begin, int64_t end) {
    const reduction_work *work = (const reduction_work *)context;
    const nd__reduction *plan = &work->plan;
    double partials[ND__REDUCE_BATCH], parameters[ND__REDUCE_BATCH];
    int64_t batch = ND__REDUCE_BATCH;
    bool has_parameters = work->first || work->second_fold == ND__FOLD_POWER;
    const double *given = has_parameters ? parameters : NULL;
    set_parameters(work, ND__REDUCE_BATCH, parameters);
    // What is walked twice should still be in the cache the second time.
    while (work->first && batch > 16 && batch * plan->elements > BATCH_ELEMENTS)
        batch /= 2;
    while (begin < end) {
        int64_t stop = begin + batch < end ? begin + batch : end;
        if (work->first) {
            work->first->range(plan, begin, stop, 0, plan->elements, NULL, partials);
            make_parameters(work, partials, stop - begin, parameters);
        }
        work->second->range(plan, begin, stop, 0, plan->elements, given, partials);
        store(work, begin, stop, parameters, partials);
        begin = stop;
    }
}

static void reduce_pieces(void *context, int64_t begin, int64_t end) {
    const reduction_work *work = (const reduction_work *)context;
    const nd__reduction *plan = &work->plan;
    int64_t row = plan->results * nd__dtype_bytes(work->now->partial);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t from = piece * work->piece, to = from + work->piece;
        work->now->range(plan, 0, plan->results, from, to < plan->elements ? to : plan->elements,
                         work->parameters, work->partials + piece * row);
    }
}

/// One fold in pieces; `partials` has room for MOST_PARTIALS, the first ones are the results.
static void fold_few(reduction_work *work, const nd__reducer *reducer, const double *parameters,
                     double *partials) {
    const nd__reduction *plan = &work->plan;
    int64_t most = MOST_PARTIALS / plan->results;
    int64_t pieces = plan->elements / PIECE_ELEMENTS;
    pieces = pieces < 64 ? pieces : 64;
    pieces = pieces < most ? pieces : most;
    work->piece = (plan->elements + pieces - 1) / pieces;
    work->piece = (work->piece + 4095) / 4096 * 4096;
    pieces = (plan->elements + work->piece - 1) / work->piece;
    work->partials = (char *)partials;
    work->now = reducer;
    work->parameters = parameters;
    nd__cpu_parallel(pieces, work->piece * plan->results / 4 * cost_of(work), 1, reduce_pieces,
                     work);
    int64_t row = plan->results * nd__dtype_bytes(reducer->partial);
    for (int64_t piece = 1; piece < pieces; piece++)
        reducer->combine(partials, work->partials + piece * row, plan->results);
}

static void reduce_few(reduction_work *work) {
    double partials[MOST_PARTIALS], parameters[FEW_RESULTS];
    int64_t results = work->plan.results;
    set_parameters(work, results, parameters);
    if (work->first) {
        fold_few(work, work->first, NULL, partials);
        make_parameters(work, partials, results, parameters);
    }
    fold_few(work, work->second, parameters, partials);
    store(work, 0, results, parameters, partials);
}

nd_status nd__cpu_reduce(const nd_kernel_call *call) {
    reduction_work work; // large: what is not set is not read
    work.call = call;
    make_plan(&work.plan, call);
    nd_status status = choose_loops(&work);
    if (status != ND_OK)
        return status;
    const nd__reduction *plan = &work.plan;
    if (plan->results > 0 && plan->results < FEW_RESULTS && plan->elements >= 2 * PIECE_ELEMENTS)
        reduce_few(&work);
    else
        nd__cpu_parallel(plan->results, plan->elements * cost_of(&work) / 4 + 1,
                         plan->by_columns ? 64 : 1, reduce_results, &work);
    return ND_OK;
}

// ------------------------------------------------------------------------------- arg-reductions

#define ARG_BLOCK 2048
#define ARG_CANDIDATES 256
/// Columns that are reduced together: a row of them, with what was found so far, stays near.
#define ARG_COLUMNS 512

typedef struct argreduction {
    nd__axes kept;
    nd__argreducer reducer;
    nd__argcolumns columns;
    nd__load load;  ///< to the dtype of the loops; NULL: x has that dtype
    int64_t loaded; ///< bytes of an element there
    const char *x;
    int64_t *out;
    int64_t bytes, size, stride;
} argreduction;

/// Of a row that must be converted: the first extremum of each block is a candidate, and the first
/// extremum of the candidates is that of the row.
static int64_t argreduce_converted(const argreduction *a, const char *row) {
    double room[ARG_BLOCK], values[ARG_CANDIDATES];
    int64_t positions[ARG_CANDIDATES], count = 0;
    size_t bytes = (size_t)a->loaded;
    for (int64_t begin = 0; begin < a->size; begin += ARG_BLOCK) {
        int64_t run = a->size - begin < ARG_BLOCK ? a->size - begin : ARG_BLOCK;
        const char *block = row + begin * a->stride * a->bytes;
        a->load(run, (char *[]){(char *)room, (char *)(uintptr_t)block}, (int64_t[]){1, a->stride},
                NULL);
        int64_t found = a->reducer(room, run, 1);
        memcpy((char *)values + (size_t)count * bytes, (char *)room + (size_t)found * bytes, bytes);
        positions[count++] = begin + found;
        if (count < ARG_CANDIDATES && begin + run < a->size)
            continue;
        int64_t best = a->reducer(values, count, 1);
        if (best > 0) // a copy onto itself is none of memcpy()'s
            memcpy(values, (char *)values + (size_t)best * bytes, bytes);
        positions[0] = positions[best];
        count = 1;
    }
    return positions[0];
}

static void argreduce_results(void *context, int64_t begin, int64_t end) {
    const argreduction *a = (const argreduction *)context;
    nd__position position = nd__position_at(&a->kept, begin);
    for (; begin < end; begin++) {
        const char *row = a->x + position.x_offset * a->bytes;
        a->out[position.out_offset] =
            a->load ? argreduce_converted(a, row) : a->reducer(row, a->size, a->stride);
        nd__position_advance(&position, &a->kept, 1);
    }
}

/// Of an axis of one element.
static void argreduce_single(void *context, int64_t begin, int64_t end) {
    const argreduction *a = (const argreduction *)context;
    nd__position position = nd__position_at(&a->kept, begin);
    const int64_t step = a->kept.count ? a->kept.out_strides[a->kept.count - 1] : 1;
    while (begin < end) {
        int64_t run = nd__position_run(&position, &a->kept, end - begin);
        for (int64_t i = 0; i < run; i++)
            a->out[position.out_offset + i * step] = 0;
        nd__position_advance(&position, &a->kept, run);
        begin += run;
    }
}

/// Columns that lie side by side, row by row, in the order of memory.
static void argreduce_columns(void *context, int64_t begin, int64_t end) {
    const argreduction *a = (const argreduction *)context;
    double loaded[ARG_COLUMNS], best[ARG_COLUMNS];
    int32_t places[ARG_COLUMNS];
    int64_t out_step = a->kept.out_strides[a->kept.count - 1];
    nd__position position = nd__position_at(&a->kept, begin);
    while (begin < end) {
        int64_t most = end - begin < ARG_COLUMNS ? end - begin : ARG_COLUMNS;
        int64_t run = nd__position_run(&position, &a->kept, most);
        for (int64_t i = 0; i < a->size; i++) {
            // The stride of an axis of one element may be any number.
            const char *row = a->x + (position.x_offset + i * a->stride) * a->bytes;
            const void *now = a->load ? (const void *)loaded : row;
            if (a->load)
                a->load(run, (char *[]){(char *)loaded, (char *)(uintptr_t)row}, (int64_t[]){1, 1},
                        NULL);
            if (i > 0) {
                a->columns(now, run, (int32_t)i, best, places);
            } else {
                memcpy(best, now, (size_t)(run * a->loaded));
                memset(places, 0, sizeof places);
            }
        }
        for (int64_t i = 0; i < run; i++)
            a->out[position.out_offset + i * out_step] = places[i];
        nd__position_advance(&position, &a->kept, run);
        begin += run;
    }
}

/// Whether results lie side by side in x, and enough of them for vectors.
static bool is_by_columns(const argreduction *a) {
    int last = a->kept.count - 1;
    return last >= 0 && a->kept.x_strides[last] == 1 && a->stride != 1 && a->size <= INT32_MAX &&
           a->kept.shape[last] >= 8;
}

nd_status nd__cpu_argreduce(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    int last = call->ndim - 1, which = call->op == ND_OP_argmin;
    nd_dtype dtype = x->dtype;
    while (!loops->argreducers[dtype][which])
        dtype = wider[dtype];
    argreduction a = {.reducer = loops->argreducers[dtype][which],
                      .columns = loops->argcolumns[dtype][which],
                      .load = dtype == x->dtype ? NULL : loops->convert[x->dtype][dtype],
                      .loaded = nd__dtype_bytes(dtype),
                      .x = (const char *)x->data,
                      .out = (int64_t *)out->data,
                      .bytes = nd__dtype_bytes(x->dtype),
                      .size = last < 0 ? 1 : call->shape[last],
                      .stride = last < 0 ? 1 : x->strides[last]};
    for (int axis = 0; axis < last; axis++)
        add_axis(&a.kept, call->shape[axis], x->strides[axis], out->strides[axis]);
    bool by_columns = is_by_columns(&a);
    nd__cpu_parallel(axes_total(&a.kept), a.size / 2 + 1, by_columns ? 64 : 16,
                     a.size == 1  ? argreduce_single
                     : by_columns ? argreduce_columns
                                  : argreduce_results,
                     &a);
    return ND_OK;
}
