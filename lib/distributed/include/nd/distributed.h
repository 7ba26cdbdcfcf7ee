/// @file
/// Several processes that compute together: communicators, and what is sent through them.
///
/// This header belongs to the target //:nd_distributed, a library of its own above //:nd. A process
/// is a rank of a communicator, has a tree of managers of its own, and no count goes over its
/// border: what arrives is a new tensor, or the values of one that was there. MPI moves data
/// between processes, NCCL between GPUs (docs/distributed.md).
///
/// A collective call (all but nd_send() and nd_receive_()) is made by all ranks of a communicator,
/// in the same order. Before anything is sent the ranks agree on what is to be sent: when a shape,
/// a dtype or an argument differs, or one rank cannot take part, every rank gets an error that says
/// so, nothing has changed anywhere, and the communicator is as good as before. The exception is a
/// rank without the communicator (NULL, closed, or an nd_data_parallel that is): it has no way to
/// say anything, and the others wait for it until their timeout is over.
///
/// A rank that died, hangs or has left gives every other one an error within the communicator's
/// timeout (60 s at first), or at once where MPI reports it. After that the communicator is broken:
/// every later call answers at once with the reason, ND_ERROR_IO. What was in place is unchanged.
///
/// Nothing here is recorded for a backward pass. A tensor that requires a gradient may be sent; it
/// is written in place in nd_no_grad only.
///
/// One call at a time goes through a communicator, others wait; threads that communicate beside
/// each other have one each (nd_communicator_duplicate()). Code of the program's that runs in the
/// middle of a call, such as finalizers, weak callbacks and memory callbacks, may use the same
/// communicator: what it calls there comes before that call. In a forked child a communicator is of
/// no use, and says so.
#ifndef ND_DISTRIBUTED_H
#define ND_DISTRIBUTED_H
#include <nd/autograd.h>
#include <nd/io.h>
#include <nd/nn.h>
#include <nd/state.h>
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------------------- communicators

/// Options of a communicator. NULL means all defaults.
typedef struct nd_communicator_options {
    uint32_t size;    ///< sizeof(nd_communicator_options)
    uint32_t version; ///< 1
    double timeout;   ///< seconds that a call waits for the other ranks; above 0
} nd_communicator_options;
/// What an nd_communicator_options must begin as: 60 seconds.
#define ND_COMMUNICATOR_OPTIONS_INIT \
    { sizeof(nd_communicator_options), 1, 60.0 }

/// Whether this library was built with MPI, without which the next two have ND_ERROR_UNSUPPORTED.
ND_API bool nd_has_mpi(void);

/// Communicator over all processes that were started together (MPI_COMM_WORLD, duplicated), in the
/// current manager. A collective call. Where the program has not initialised MPI this does, with
/// MPI_THREAD_MULTIPLE, and the library finalizes it when the process exits, or, where that does not
/// return within the timeout, ends the process without; the program may have done it before, with
/// MPI_THREAD_SERIALIZED at least, and then finalizes it itself, after its last call here. A program
/// that nothing started (mpirun, srun) is rank 0 of 1. Errors: ND_ERROR_UNSUPPORTED (no MPI, or one
/// for a single thread), ND_ERROR_STATE (MPI was finalized), ND_ERROR_IO (a rank did not take part).
ND_API nd_communicator *nd_communicator_from_world(const nd_communicator_options *options) ND_OWNED;
/// Communicator over the processes of an MPI communicator of the program's, which is duplicated.
/// `mpi_comm` is the address of an MPI_Comm. A collective call of these. Errors: as
/// nd_communicator_from_world(), ND_ERROR_INVALID_ARGUMENT (MPI_COMM_NULL, an intercommunicator).
ND_API nd_communicator *nd_communicator_from_mpi(const void *mpi_comm,
                                                 const nd_communicator_options *options) ND_OWNED;
/// Another communicator over the same ranks, for another thread. A collective call of `comm`: all
/// ranks get one, or all an error. Options NULL: the timeout of `comm`.
ND_API nd_communicator *nd_communicator_duplicate(const nd_communicator *comm,
                                                  const nd_communicator_options *options) ND_OWNED;

/// Communicator between GPUs, over NCCL: each rank of `comm`, which is one of MPI, brings a device
/// of its own. A collective call of `comm`. Tensors of other devices go through that one. Maxima
/// and minima of NaN are NCCL's, and 16-bit integers have no reductions. Errors:
/// ND_ERROR_UNSUPPORTED (NCCL cannot be opened), ND_ERROR_DEVICE, ND_ERROR_IO.
ND_API nd_communicator *nd_communicator_from_nccl(const nd_communicator *comm, nd_device device,
                                                  const nd_communicator_options *options) ND_OWNED;
/// The same without MPI: rank 0 of `ranks` makes a file that the others wait for and read, in a
/// folder that all see. The path is a new one for each run; the program removes it.
ND_API nd_communicator *
nd_communicator_from_nccl_file(const char *path, int rank, int ranks, nd_device device,
                               const nd_communicator_options *options) ND_OWNED;

/// Which of the ranks this process is, from 0; -1 for NULL or a closed communicator.
ND_API int nd_communicator_get_rank(const nd_communicator *comm);
/// How many ranks there are; 0 for NULL or a closed communicator.
ND_API int nd_communicator_get_size(const nd_communicator *comm);
/// Seconds that a call waits for the other ranks; 0 for NULL.
ND_API double nd_communicator_get_timeout(const nd_communicator *comm);
/// Changes that for later calls of this rank. Error: not above 0, or not below 1e9.
ND_API nd_status nd_communicator_set_timeout(nd_communicator *comm, double seconds);
/// Whether a call has failed for good; the next one says why. True for a closed communicator, false
/// for NULL.
ND_API bool nd_communicator_is_broken(const nd_communicator *comm);

// ------------------------------------------------------------------------------------- collectives

/// What becomes of the values that the ranks have for one element. Sums of f16 and bf16 are
/// computed in f32 and rounded to the dtype after each addition. Integers wrap around.
typedef enum nd_collective {
    ND_COLLECTIVE_SUM = 0, ///< of numbers, not of bools
    ND_COLLECTIVE_MEAN,    ///< the sum divided by the number of ranks; of floats
    ND_COLLECTIVE_MAX,     ///< the largest; NaN where one is NaN
    ND_COLLECTIVE_MIN,     ///< the smallest; NaN where one is NaN
} nd_collective;

/// Returns when all ranks have called it. An error need not be one on all: a rank that comes after
/// another one's deadline may have ND_OK yet, and hears of it in its next call.
ND_API nd_status nd_barrier(const nd_communicator *comm);
/// x of every rank becomes that of rank `root`; of one shape and dtype, on any devices, strided as
/// they will.
ND_API nd_status nd_broadcast_(nd_tensor *x, const nd_communicator *comm, int root);
/// The x of all ranks, element by element: the same bits on every rank.
ND_API nd_tensor *nd_all_reduce(const nd_tensor *x, const nd_communicator *comm,
                                nd_collective op) ND_OWNED;
/// The same into x.
ND_API nd_status nd_all_reduce_(nd_tensor *x, const nd_communicator *comm, nd_collective op);
/// Rank r's share of nd_all_reduce(): x: [ranks * n, ...] -> [n, ...], the rows from r * n on. Sums
/// and means of floats of more than two ranks may be added up in another order than there, and so
/// differ in their last bits. Error: the first axis is not divisible by the number of ranks.
ND_API nd_tensor *nd_reduce_scatter(const nd_tensor *x, const nd_communicator *comm,
                                    nd_collective op) ND_OWNED;
/// The x of all ranks in their order along the first axis: [n, ...] -> [ranks * n, ...].
ND_API nd_tensor *nd_all_gather(const nd_tensor *x, const nd_communicator *comm) ND_OWNED;
/// Sends x to a rank, which calls nd_receive_(). Both return when it has arrived, or both have the
/// same error.
ND_API nd_status nd_send(const nd_tensor *x, const nd_communicator *comm, int rank);
/// Receives into x what that rank sends: of x's shape and dtype.
ND_API nd_status nd_receive_(nd_tensor *x, const nd_communicator *comm, int rank);

// ----------------------------------------------------------------------------------- data parallel
//
// Every rank has the whole model and computes with its own share of a batch; gradients become the
// mean over the ranks, so that one step of any optimizer, made by every rank for itself, changes
// all models alike:
//
//     nd_auto nd_data_parallel *parallel = nd_data_parallel_new(model, world, NULL);
//     ...
//     nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels); // a mean over this rank's share
//     nd_data_parallel_backward(parallel, loss, NULL);
//     nd_data_parallel_step(parallel, optimizer);
//     nd_module_zero_grad(model);

/// Makes a data set this rank's share (`rank` and `ranks` of nd_dataset_options, which says what is
/// whose), before its first epoch and before a state is loaded. A collective call: data sets that
/// differ in shape or dtype (also of their labels), batch, key, order or position are an error on
/// all ranks, and nothing has changed. Values are not compared. A share may be a single sample, of
/// which a batch norm of features in training is an error; drop_last with a batch above 1 avoids it.
ND_API nd_status nd_dataset_shard(nd_dataset *dataset, const nd_communicator *comm);

/// Options of nd_data_parallel_new(). NULL means all defaults.
typedef struct nd_data_parallel_options {
    uint32_t size;         ///< sizeof(nd_data_parallel_options)
    uint32_t version;      ///< 1
    uint64_t bucket_bytes; ///< of gradients that are sent together, at most
    uint64_t
        first_bucket_bytes; ///< of those that are there first, so that sending begins early, at
                            ///< most; of those that are there last, just so many or more
    bool shard_optimizer;   ///< state of its own share of the parameters on each rank
} nd_data_parallel_options;
/// What an nd_data_parallel_options must begin as: buckets of 25 MiB, the first of 1 MiB,
/// nothing sharded.
#define ND_DATA_PARALLEL_OPTIONS_INIT \
    { sizeof(nd_data_parallel_options), 1, UINT64_C(25) << 20, UINT64_C(1) << 20, false }

/// Makes the parameters and buffers of `module` those of rank 0 on all ranks, and is what its
/// gradients go through, in the current manager. Modules that draw random keys (dropout) draw other
/// ones on each rank: rank 0 its own, the others these with their rank folded in. A collective call of `comm`, which it
/// duplicates; the module keeps the parameters it has, and they keep their dtypes: behind
/// nd_module_cast() every pass and step is ND_ERROR_DTYPE on all ranks until there is a new object. Over MPI gradients go through memory of the
/// host, wherever they are; over NCCL all parameters are on the device of `comm`, and their gradients
/// stay there. Errors: as a collective call; ND_ERROR_INVALID_ARGUMENT (a size of 0), ND_ERROR_DEVICE
/// (a parameter is elsewhere). Modules of two ranks that differ in the shapes and dtypes of their parameters
/// and buffers, in order, options that differ, or a rank that has no room for the object, are an error
/// on all, and nothing has changed.
ND_API nd_data_parallel *nd_data_parallel_new(const nd_module *module, const nd_communicator *comm,
                                              const nd_data_parallel_options *options) ND_OWNED;
/// nd_backward(), but that the gradient of each parameter of the module becomes the mean over all
/// ranks of what it was on them and what this pass adds. Sends while it computes. A collective
/// call.
///
/// Gradients are accumulated over several batches without communication by nd_backward() for all
/// but the last. A parameter that the output of one rank does not depend on counts as zero there;
/// one that no rank has a gradient for has none afterwards, either. On error no gradient has
/// changed on any rank; leaves that are no parameters of the module are this rank's alone. What
/// other ranks sent has no history: create_graph is ND_ERROR_UNSUPPORTED (gradients of gradients
/// are computed with nd_grad(), before). Gradients are clipped behind it, with
/// nd_data_parallel_clip_grad_norm().
ND_API nd_status nd_data_parallel_backward(nd_data_parallel *parallel, const nd_tensor *output,
                                           const nd_backward_options *options);
/// Makes parameters, buffers and random keys what they were behind nd_data_parallel_new(), of what
/// rank 0 has now, such as after it alone has loaded a file, or for running means. A collective
/// call.
ND_API nd_status nd_data_parallel_synchronize(nd_data_parallel *parallel);
/// nd_optimizer_step(), of an optimizer of the module's parameters. With shard_optimizer (ZeRO-1:
/// Rajbhandari et al. 2020) each parameter has an owner among the ranks, which alone has its
/// gradient after nd_data_parallel_backward(), and so alone makes state for it; the owners step,
/// and the new values go to all. A collective call: where a rank cannot step (no memory for state, a
/// quota, a gradient that does not fit) all ranks get an error, and none has stepped. What fails
/// later (a device, an object that another thread closes meanwhile, a rank that dies) is an error,
/// too, and ranks may have different values then: each later step is ND_ERROR_STATE on all ranks
/// until nd_data_parallel_load_state(), or nd_data_parallel_synchronize(), which brings parameters
/// but no state of the optimizer.
ND_API nd_status nd_data_parallel_step(nd_data_parallel *parallel, nd_optimizer *optimizer);
/// nd_clip_grad_norm() of all gradients, wherever they are. A collective call; `ret_norm` (may be
/// NULL) is the same on all ranks. A limit that differs between ranks is an error on all, and
/// nothing has changed.
ND_API nd_status nd_data_parallel_clip_grad_norm(nd_data_parallel *parallel, double limit,
                                                 double *ret_norm);
/// nd_loss_scaler_unscale() of all gradients, wherever they are, such as before they are clipped;
/// nd_data_parallel_step_scaled() does it when this was not called. A collective call: what is not
/// finite on one rank is known to all. A gradient that is divided already is not divided again, so
/// that the call can be made again after an error. A scale that differs between ranks is one on all.
ND_API nd_status nd_data_parallel_unscale(nd_data_parallel *parallel, nd_loss_scaler *scaler,
                                          nd_optimizer *optimizer);
/// nd_loss_scaler_step() with nd_data_parallel_step() in it: all ranks step, or none where one of the
/// gradients is not finite, wherever that is, and all choose the same next scale. A collective call.
/// Each rank has a scaler of its own, made with the same options. ret_stepped may be NULL.
ND_API nd_status nd_data_parallel_step_scaled(nd_data_parallel *parallel, nd_loss_scaler *scaler,
                                              nd_optimizer *optimizer, bool *ret_stepped);
/// Brings the optimizer's whole state to rank 0, which may then save it (nd_save_state) for any
/// number of ranks, or for none. A collective call; without shard_optimizer all have it anyway.
ND_API nd_status nd_data_parallel_gather_state(nd_data_parallel *parallel, nd_optimizer *optimizer);
/// Drops the optimizer's state of parameters that other ranks own: on rank 0 when the state is
/// saved, on all when one was loaded. No collective call.
ND_API nd_status nd_data_parallel_drop_state(nd_data_parallel *parallel, nd_optimizer *optimizer);
/// nd_save_state() of a run of several ranks, between two steps: by rank 0, into a file that takes
/// its place at once, as a whole; the optimizer's sharded state is gathered before and dropped
/// behind it. `state` is of the same parts on all ranks, by name and kind, none of them closed, or
/// an error on all, before anything has changed; `optimizer` (NULL where nothing is sharded) is one
/// of them. `path` is rank 0's: those of the others are not used, and may be NULL. What differs
/// between ranks is as on rank 0 when it is loaded; buffers, such as running means, become so on
/// all ranks now, and random keys each rank's own of rank 0's, so that a run that goes on computes
/// the same bits as one that is killed and loads. A collective call; returns on all ranks when the
/// file is on the disk, with an error on all when it is not, and the old one is there still:
/// ND_ERROR_STATE where a step was made by a part of the ranks (nd_data_parallel_step).
ND_API nd_status nd_data_parallel_save_state(nd_data_parallel *parallel, nd_optimizer *optimizer,
                                             const nd_state *state, const char *path);
/// nd_load_state() on all ranks, of one file that all see. A collective call: a file that does not
/// fit on one rank, that one does not see, or that is another one there, is an error on all, and
/// nothing has changed. *ret_loaded: whether there was a file; without one nothing has changed, and
/// the status is ND_OK, so that a program begins with this call whether it is its first start or
/// not. ret_loaded NULL, on any rank: a file that is not there is an error on all.
ND_API nd_status nd_data_parallel_load_state(nd_data_parallel *parallel, nd_optimizer *optimizer,
                                             const nd_state *state, const char *path,
                                             bool *ret_loaded);
/// How many buckets there are now; 0 for NULL or a closed one.
ND_API size_t nd_data_parallel_get_bucket_count(const nd_data_parallel *parallel);

#ifdef __cplusplus
}
#endif

// <nd/nd.h> with ND_TRACK_SITES or <nd/scoped.h> came before; they also look for this header.
#ifdef ND_DETAIL_CALLS_H
#include <nd/detail/calls_distributed.h>
#endif
#endif
