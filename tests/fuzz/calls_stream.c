// Calls about streams and events of the CPU, which is always done, and of the fake device, which
// has one queue for all; and captures, which both refuse.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"

static nd_device device_of(uint8_t number) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}, {ND_FAKE, 7}};
    return devices[number % 4];
}

static void new_stream(fuzz_actor *me, const fuzz_step *s) {
    nd_stream *stream = nd_stream_new(device_of(s->b));
    fuzz_expect(me, stream);
    if (stream && nd_stream_get_device(stream).kind != device_of(s->b).kind)
        fuzz_die("a stream is of another device");
    fuzz_put_fresh(me, FUZZ_STREAM, s->a, stream);
}

/// Held by the actor as long as it is current. Not inside blocks, which go back to the choice
/// outside.
static void stream_set_current(fuzz_actor *me, const fuzz_step *s) {
    if (me->stream_block_count)
        return;
    const nd_device device = device_of(s->b % 3);
    const nd_stream *stream = fuzz_pick(me, FUZZ_STREAM, s->a);
    nd_status status = nd_stream_set_current(device, stream);
    fuzz_expect(me, status == ND_OK);
    if (status != ND_OK)
        return;
    if (nd_stream_get_current(device) != stream)
        fuzz_die("the current stream is another than was chosen");
    nd_stream *before = me->current_streams[s->b % 3];
    me->current_streams[s->b % 3] = nd_retain(stream);
    nd_release(before);
}

static void stream_block_begin(fuzz_actor *me, const fuzz_step *s) {
    if (me->stream_block_count < FUZZ_BLOCKS)
        me->stream_blocks[me->stream_block_count++] =
            nd__stream_block_begin(fuzz_pick(me, FUZZ_STREAM, s->a));
}

static void stream_block_end(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->stream_block_count)
        nd__stream_block_end(&me->stream_blocks[--me->stream_block_count]);
}

static void stream_wait(fuzz_actor *me, const fuzz_step *s) {
    const nd_stream *stream = fuzz_pick(me, FUZZ_STREAM, s->a);
    bool done = false;
    nd_status status;
    switch (s->c % 3) {
    case 0:
        status = nd_stream_wait(stream, fuzz_pick(me, FUZZ_EVENT, s->b));
        break;
    case 1:
        status = nd_stream_synchronize(stream);
        break;
    default:
        status = nd_stream_query(stream, &done);
    }
    fuzz_expect(me, status == ND_OK);
}

static void new_event(fuzz_actor *me, const fuzz_step *s) {
    nd_event *event = nd_event_new(device_of(s->b), s->c % 2);
    fuzz_expect(me, event);
    if (event && nd_event_get_device(event).kind != device_of(s->b).kind)
        fuzz_die("an event is of another device");
    fuzz_put_fresh(me, FUZZ_EVENT, s->a, event);
}

static void event_record(fuzz_actor *me, const fuzz_step *s) {
    const nd_stream *stream = fuzz_pick(me, FUZZ_STREAM, s->b);
    nd_event *event = fuzz_pick_to_write(me, FUZZ_EVENT, s->a);
    if (event || !fuzz_threaded)
        fuzz_expect(me, nd_event_record(event, stream) == ND_OK);
}

/// What was synchronized is done.
static void event_wait(fuzz_actor *me, const fuzz_step *s) {
    const nd_event *event = fuzz_pick(me, FUZZ_EVENT, s->a);
    bool done = false;
    double milliseconds = 0;
    switch (s->c % 3) {
    case 0:
        fuzz_expect(me, nd_event_query(event, &done) == ND_OK);
        break;
    case 1:
        if (nd_event_synchronize(event) != ND_OK || nd_event_query(event, &done) != ND_OK)
            fuzz_expect(me, false);
        else if (!done && !me->disturbed)
            fuzz_die("an event that was waited for is not done");
        break;
    default:
        fuzz_expect(me, nd_event_get_elapsed(event, fuzz_pick(me, FUZZ_EVENT, s->b),
                                             &milliseconds) == ND_OK);
    }
}

/// Neither device can capture: that is refused, changes nothing, and is no capture.
static void capture(fuzz_actor *me, const fuzz_step *s) {
    nd_graph *graph = NULL;
    nd_capture_block block;
    switch (s->a % 4) {
    case 0:
        fuzz_expect(me, nd_capture_begin(device_of(s->b)) == ND_OK);
        break;
    case 1:
        graph = nd_capture_end();
        fuzz_expect(me, graph);
        break;
    case 2:
        block = nd__capture_block_begin(device_of(s->b), &graph);
        fuzz_expect(me, block.once);
        nd__capture_block_end(&block);
        break;
    default:
        nd_capture_abandon();
        fuzz_expect(me, nd_graph_launch(NULL) == ND_OK);
    }
    if (graph || nd_is_capturing() || nd_graph_get_bytes(graph) != 0 ||
        nd_graph_get_device(graph).kind != ND_CPU)
        fuzz_die("there is a graph of a device that cannot capture");
}

const fuzz_call fuzz_stream_calls[] = {
    {"new_stream", new_stream, FUZZ_QUEUES},
    {"stream_set_current", stream_set_current, FUZZ_OUTER | FUZZ_QUEUES},
    {"stream_block_begin", stream_block_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"stream_block_end", stream_block_end, FUZZ_OUTER | FUZZ_QUEUES},
    {"stream_wait", stream_wait, 0},
    {"new_event", new_event, FUZZ_QUEUES},
    {"event_record", event_record, FUZZ_QUEUES},
    {"event_wait", event_wait, 0},
    {"capture", capture, FUZZ_QUEUES},
    {0},
};
