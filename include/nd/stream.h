/// @file
/// Streams of work on a device, and events: places in them.
///
/// What a thread asks of a device is queued on the stream that is current in this thread, at first
/// the device's default stream. Work of one stream is done in order; several may be done at once. A
/// program's results do not depend on its streams: work that uses a tensor on another stream than
/// the one it was written on waits for it there, by itself, and memory is given back behind all
/// work that uses it (docs/cuda.md, "Streams"). The CPU works at once, so that its streams are always
/// done.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. A closed stream or event is ND_ERROR_CLOSED. In a
/// callback that a device runs it is ND_ERROR_STATE, and so is all but the choice of a current
/// stream while the thread captures a graph (<nd/graph.h>). The documentation below does not repeat
/// it.
#ifndef ND_STREAM_H
#define ND_STREAM_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------------------------- streams

/// A stream of a device. A device has so many of its own; where the program has more, some share
/// one, and are done in order. What is queued on a stream that is released is still done.
///
/// @param device whose
/// @return owned; NULL on error
/// @errors ND_ERROR_DEVICE (no such device, or it failed), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_stream *nd_stream_new(nd_device device) ND_OWNED;

/// Device of a stream.
///
/// @param stream the stream; NULL is fine
/// @return cpu:0 for NULL
/// @errors none
/// @threads any
ND_API nd_device nd_stream_get_device(const nd_stream *stream);

/// Stream that is current in this thread.
///
/// @param device whose
/// @return borrowed; NULL for the default stream
/// @errors none
/// @threads any; each has its own
ND_API const nd_stream *nd_stream_get_current(nd_device device);

/// Makes a stream current in this thread, for its device, until another is. It is not held: keep it
/// as long as it is current. nd_with_stream() holds it.
///
/// @param device whose
/// @param stream one of that device; NULL: its default stream
/// @return ND_OK, or the error; then nothing has changed
/// @errors ND_ERROR_DEVICE (no such device, or the stream is of another), ND_ERROR_UNSUPPORTED (this
///         thread has current streams of eight devices)
/// @threads any; it is the choice of this thread that changes
ND_API nd_status nd_stream_set_current(nd_device device, const nd_stream *stream);

/// nd_with_stream(s) { ... }: s is current in the block, which holds it. `break` and `return` leave
/// the block correctly.
///
/// @param s the stream. On an error the choice stays as it was, and the error is set
/// @errors as nd_stream_set_current(); the block runs nevertheless
/// @threads any; it is the choice of this thread that changes
#define nd_with_stream(s) \
    ND__FOR_BLOCK(nd_stream_block, nd__stream_block_begin(s), nd__stream_block_end)

/// What nd_with_stream() keeps. Not for users to touch.
typedef struct nd_stream_block {
    bool once;                 ///< whether the block is still to run
    nd_stream *held;           ///< owned: the block's stream; NULL: it changed nothing
    const nd_stream *previous; ///< choice outside
} nd_stream_block;
ND_API nd_stream_block nd__stream_block_begin(const nd_stream *stream);
ND_API void nd__stream_block_end(nd_stream_block *block);

/// Waits until all work queued on a stream is done.
///
/// @param stream the stream
/// @return ND_OK, or the error
/// @errors as nd_synchronize()
/// @threads any
ND_API nd_status nd_stream_synchronize(const nd_stream *stream);

/// Asks whether all work queued on a stream is done.
///
/// @param stream the stream
/// @param ret_done the answer
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (it failed)
/// @threads any
ND_API nd_status nd_stream_query(const nd_stream *stream, bool *ret_done);

/// What is queued later on a stream waits for an event, as it is recorded now. One that was never
/// recorded is not waited for. The host waits only where the stream is the CPU's.
///
/// @param stream the stream; NULL: the one that is current in this thread, of the event's device
/// @param event of any device
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (a device failed)
/// @threads any
ND_API nd_status nd_stream_wait(const nd_stream *stream, const nd_event *event);

// ------------------------------------------------------------------------------------------ events

/// An event of a device, recorded nowhere.
///
/// @param device on whose streams it can be recorded
/// @param timed whether it notes the time, for nd_event_get_elapsed()
/// @return owned; NULL on error
/// @errors ND_ERROR_DEVICE (no such device, or it failed), ND_ERROR_OUT_OF_MEMORY,
///         ND_ERROR_UNSUPPORTED (timed, on a device without)
/// @threads any
ND_API nd_event *nd_event_new(nd_device device, bool timed) ND_OWNED;

/// Device of an event.
///
/// @param event the event; NULL is fine
/// @return cpu:0 for NULL
/// @errors none
/// @threads any
ND_API nd_device nd_event_get_device(const nd_event *event);

/// Records an event behind all work queued on a stream so far. Recorded again, it stands there for
/// whoever waits from now on; who waits already waits for the place before.
///
/// @param event the event
/// @param stream one of its device; NULL: the one that is current in this thread
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (the stream is of another device, or it failed)
/// @threads any, one at a time
ND_API nd_status nd_event_record(nd_event *event, const nd_stream *stream);

/// Waits until the work before an event is done; not at all for one that was never recorded.
///
/// @param event the event
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (it failed)
/// @threads any
ND_API nd_status nd_event_synchronize(const nd_event *event);

/// Asks whether the work before an event is done; it is for one that was never recorded.
///
/// @param event the event
/// @param ret_done the answer
/// @return ND_OK, or the error
/// @errors ND_ERROR_DEVICE (it failed)
/// @threads any
ND_API nd_status nd_event_query(const nd_event *event, bool *ret_done);

/// Time between two events, in milliseconds. Waits for both.
///
/// @param start the first
/// @param end the second, of the same device
/// @param ret_milliseconds the time; below 0 where end was before start
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (one was not made timed, or never recorded), ND_ERROR_DEVICE (of two
///         devices, or it failed)
/// @threads any
ND_API nd_status nd_event_get_elapsed(const nd_event *start, const nd_event *end,
                                      double *ret_milliseconds);

#ifdef __cplusplus
}
#endif
#endif
