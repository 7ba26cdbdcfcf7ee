// What a rank of //bench:data_parallel does: it measures with the others, and rank 0 prints the
// figures as one flat JSON object.
#ifndef ND_BENCH_DATA_PARALLEL_RANK_H
#define ND_BENCH_DATA_PARALLEL_RANK_H

/// The link that is put between ranks to see what can be hidden behind a backward pass: 10 Gbit/s.
#define RANK_LINK_LATENCY 20e-6
#define RANK_LINK_BANDWIDTH 1.25e9

/// Figures, where MODEL is a training_kind's name:
///   us_MODEL_alone, _after, _overlap       a step, by how it communicates (training_step)
///   us_MODEL_apart_after, _apart_overlap   of two ranks: the same without memory in common
///   us_MODEL_link_after, _link_overlap     of two ranks: the same as that, over the link
///   us_MODEL_link_busy                     the link's part of these, which needs no processor
///   us_MODEL_alone_processor, ...          of each of these kinds: the process's processor time
///   us_MODEL_forward, _backward, _step     of a rank by itself, and for bucket I of its buckets:
///   us_MODEL_ready_I, us_MODEL_bytes_I     when its last gradient is there; and its bytes
///   us_SIZE_ours, _in_place, _mpi          of two ranks: all-reduces
///   us_KIND_SIZE_ours, _apart, _mpi        of several ranks: what collective.h measures
///   us_message_latency, _mb, us_sum_mb     of two ranks: costs of messages, 10^6 bytes, additions
/// The steps of a model are timed for so many seconds at most.
/// Returns the exit status of the process.
int rank_main(double seconds);

#endif
