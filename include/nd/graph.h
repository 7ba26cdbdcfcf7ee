/// @file
/// Graphs of captured work: what a device is asked for once, and then does as often as it is told,
/// with one call.
///
/// Between nd_capture_begin() and nd_capture_end() this thread's work on a device is not done but
/// captured. nd_graph_launch() does it, each time with the same memory: it reads what its operands
/// hold then, and writes the tensors that were made in the capture, and those that it changes in
/// place. Sizes, keys of random numbers and all other numbers that the host gave stay what they
/// were; the options and the step count of an optimizer alone are looked at in each launch. Usually
/// a whole training step is captured, behind a few that were done as usual, which make what is made
/// once:
///
///     nd_tensor *x = first_batch(), *loss = NULL;   // x is refilled before each launch
///     for (int i = 0; i < 3; i++) step(x);          // moments of the optimizer, handles of libraries
///     nd_graph *graph = NULL;
///     nd_with_capture(device, &graph) loss = step(x);
///     while (next_batch(x)) nd_graph_launch(graph);
///     nd_get_item(loss);                            // of the last launch
///
/// Memory that captured work takes comes from an arena of the graph's own, which is charged to the
/// graph's manager, as an object of its own there, and goes back with the graph. Tensors that lie in
/// it have no bytes of their own in accounts; of one that outlives the graph the arena keeps the
/// bytes until it is gone, at the graph's manager, or where that has moved them when it closed. What
/// else captured work uses the graph keeps, released or not; what was released no account counts. A
/// launch is ordered with other work on the same memory like any operation (<nd/stream.h>).
///
/// Before the first launch the tensors that were made in the capture hold whatever their memory did,
/// as those of nd_empty(); so they do for ever where there is no graph in the end.
///
/// In a capture nothing waits for a device, asks it, or goes between it and the host, as nd_to(),
/// nd_from_data() and nd_linspace() would, and operations whose result's size the data decide: that
/// is ND_ERROR_STATE, and the capture goes on without it. Other devices of its kind cannot be
/// used. No collection runs and nothing is tried where memory runs out; what is released
/// goes back behind the end, as do collections that are due. Other threads are not concerned.
/// docs/cuda.md, "Graphs", says more.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. A closed graph is ND_ERROR_CLOSED. In a callback that
/// a device runs it is ND_ERROR_STATE. The documentation below does not repeat it.
#ifndef ND_GRAPH_H
#define ND_GRAPH_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------- captures

/// From here on this thread's work on a device is captured, whatever its current stream. What it does
/// on several streams becomes branches of the graph, which a launch may do beside each other; they are
/// one behind the other where they share memory that one of them writes. The graph will belong to the
/// manager that is current now.
///
/// @param device whose
/// @return ND_OK, or the error; then nothing has changed
/// @errors ND_ERROR_DEVICE (no such device, or it failed), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_STATE
///         (this thread captures already, or another one does on this device),
///         ND_ERROR_UNSUPPORTED (a device that works at once)
/// @threads any; it is this thread's work alone that is captured
ND_API nd_status nd_capture_begin(nd_device device);

/// Ends this thread's capture. What was put off for it is done: collections that are due run.
///
/// An operation that was refused before the device heard of it (wrong operands, a quota, no memory
/// for its result, what a capture refuses) is not in the graph, and the end does not fail for it:
/// whoever asked for it looks at its error, and may abandon. Work that failed on its way to the device
/// (CUDA refused it, or there was no working memory for it) leaves no graph.
///
/// @return owned: the graph, not launched yet. NULL on error; then what was captured is gone, and
///         tensors that were made in it are as those of nd_empty()
/// @errors ND_ERROR_STATE (this thread captures nothing, or work failed on its way to the device,
///         or a parameter of a half is written behind its optimizer's step),
///         ND_ERROR_DEVICE (it failed), ND_ERROR_OUT_OF_MEMORY (also: the arena does not fit into
///         the device's limit), ND_ERROR_QUOTA (nor into the manager's)
/// @threads the one that began it
ND_API nd_graph *nd_capture_end(void) ND_OWNED;

/// Gives this thread's capture up, if there is one. What was put off for it is done. Tensors that
/// were made in it are as those of nd_empty(). A thread that ends in a capture does so.
///
/// @errors none
/// @threads any; it is that of this thread
ND_API void nd_capture_abandon(void);

/// Whether this thread captures.
///
/// @return true between nd_capture_begin() and nd_capture_end()
/// @errors none
/// @threads any
ND_API bool nd_is_capturing(void);

/// nd_with_capture(device, &graph) { ... }: captures the block into *graph, which must be NULL or an
/// owned graph that goes first. Leaving the block by `break`, `return` or `goto` gives the capture
/// up. On an error *graph is NULL, and the error is set; where the capture cannot begin the block
/// does not run.
///
/// @param device whose
/// @param ret_graph where the graph goes, owned
/// @errors as nd_capture_begin() and nd_capture_end()
/// @threads any; it is this thread's work alone that is captured
#define nd_with_capture(device, ret_graph)                                          \
    ND__FOR_BLOCK(nd_capture_block, nd__capture_block_begin((device), (ret_graph)), \
                  nd__capture_block_end)

/// What nd_with_capture() keeps. Not for users to touch.
typedef struct nd_capture_block {
    bool once;            ///< whether the block is still to run
    bool begun;           ///< there is a capture to end
    nd_graph **ret_graph; ///< where the graph goes
} nd_capture_block;
ND_API nd_capture_block nd__capture_block_begin(nd_device device, nd_graph **ret_graph);
ND_API void nd__capture_block_end(nd_capture_block *block);

// ------------------------------------------------------------------------------------------ graphs

/// Queues what was captured on the stream that is current in this thread, behind all that other
/// streams do with the same memory. An optimizer whose step was captured counts one more, and goes
/// by its options as they are now. A graph has one step of an optimizer: asking for a second one in
/// its capture is ND_ERROR_STATE. When the program has written a parameter of a half since its last
/// step, launches are refused until nd_optimizer_step() has let the master follow. What launches of
/// other graphs write into such a parameter goes unnoticed.
///
/// @param graph the graph
/// @return ND_OK, or the error; then nothing was queued
/// @errors ND_ERROR_DEVICE (it failed), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_STATE (this thread
///         captures; or an optimizer's options now ask for other work than was captured, or its
///         parameters or state were moved, replaced or loaded since, or a parameter of a half was
///         written since its last step), ND_ERROR_CLOSED (so is an optimizer of it)
/// @threads any, one at a time
ND_API nd_status nd_graph_launch(nd_graph *graph);

/// Device of a graph.
///
/// @param graph the graph; NULL is fine
/// @return cpu:0 for NULL
/// @errors none
/// @threads any
ND_API nd_device nd_graph_get_device(const nd_graph *graph);

/// Bytes of a graph's arena.
///
/// @param graph the graph; NULL is fine
/// @return 0 for NULL and for one that was closed
/// @errors none
/// @threads any
ND_API uint64_t nd_graph_get_bytes(const nd_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
