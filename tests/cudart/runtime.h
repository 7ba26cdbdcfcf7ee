// The fake CUDA runtime from within: what its files share.
//
// A call does nothing but queue. One thread, the worker, stands for all devices and does the queued
// work, a step at a time, as late as it may: when somebody waits for it. Which of the streams goes
// on is drawn from ND_CUDART_SEED. One lock guards everything here; the worker does a step's work
// without it.
//
// Device memory rests without access rights. A step's first touch of a block faults, which tells
// the runtime what it touches: a block that is there is opened until the step ends, one that is not
// ends the program, and any other address is the illegal address that a GPU reports.
#ifndef ND_TESTS_CUDART_RUNTIME_H
#define ND_TESTS_CUDART_RUNTIME_H
#include "tests/cudart/include/cuda_runtime_api.h"
#include "tests/cudart/include/fat_binary.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { CUDART_DEVICES = 8, CUDART_STREAMS = 256, CUDART_FRAMES = 20, CUDART_TOUCHES = 8 };
/// Dynamic shared memory of a block in bytes: that every kernel may have, and that one may ask for, as
/// on compute capability 9.0.
enum { CUDART_SHARED = 48 << 10, CUDART_SHARED_ASKED = 227 << 10 };

typedef struct CUstream_st cudart_stream;
typedef struct CUevent_st cudart_event;
typedef struct CUmemPoolHandle_st cudart_pool;
typedef struct cudart_region cudart_region;
typedef struct CUgraph_st cudart_graph;
typedef struct CUgraphExec_st cudart_graph_exec;
typedef struct cudart_capture cudart_capture;

/// Nodes of a graph, by their numbers.
typedef struct cudart_nodes {
    unsigned count;
    unsigned *at;
} cudart_nodes;

/// Where the program was.
typedef struct cudart_stack {
    int frames;
    void *addresses[CUDART_FRAMES];
} cudart_stack;

/// A place in a stream: all work up to number `at` is done.
typedef struct cudart_point {
    cudart_stream *stream;
    uint64_t at;
} cudart_point;

/// For each stream, how much of its work is done before something. Shared; counted.
typedef struct cudart_clock {
    unsigned uses;
    uint64_t at[CUDART_STREAMS];
} cudart_clock;

typedef struct cudart_device {
    int ordinal, capability;
    size_t memory, reserved;
    bool has_context;
    cudaError_t failed; ///< sticky; cudaSuccess: none
    cudart_stream *null_stream;
    cudart_pool *default_pool;
    bool peers[CUDART_DEVICES]; ///< whose memory its kernels may touch
} cudart_device;

/// A device allocation.
typedef struct cudart_block {
    struct cudart_block *older; ///< that had the region before
    cudart_region *region;
    char *pointer;
    size_t bytes;
    cudart_point made, freed; ///< stream NULL: by the host, which waited
    bool given_back;          ///< in the order of calls
    enum { CUDART_UNBORN, CUDART_ALIVE, CUDART_DEAD } state; ///< in the order of execution
    cudart_stack made_at, freed_at;
} cudart_block;

/// A step's touch of a region.
typedef struct cudart_touch {
    cudart_point point;
    bool write;
    cudart_stack issued_at;
} cudart_touch;

/// Pages that blocks have one after the other.
struct cudart_region {
    char *base;
    size_t mapped; ///< without the page behind, which nobody may touch
    cudart_device *device;
    cudart_pool *pool; ///< NULL: cudaMalloc's
    bool released;     ///< not counted any more; kept to tell whose it was
    cudart_block *block;
    unsigned touches;
    cudart_touch touched[CUDART_TOUCHES]; ///< the last of each stream; of many streams, some
    int opened; ///< 0: closed, 1: for reading, 2: for writing too, by the present step
    cudart_region *next_opened;
};

struct CUmemPoolHandle_st {
    bool alive;
    cudart_device *device;
    uint64_t threshold;
    uint64_t reserved, reserved_high, used, used_high;
};

struct CUevent_st {
    bool alive, timing, recorded;
    cudart_device *device;
    cudart_point point;
    cudart_clock *clock; ///< owned; NULL: never recorded
    double time;
    uint64_t captured;  ///< number of the capture in which it was recorded; 0: in none
    cudart_nodes nodes; ///< there, last before it
    cudart_event *next; ///< of all that ever were
};

typedef enum cudart_kind {
    CUDART_KERNEL,
    CUDART_LIBRARY,
    CUDART_COPY,
    CUDART_SET,
    CUDART_ALLOCATE,
    CUDART_FREE,
    CUDART_HOST_FUNCTION,
    CUDART_RECORD,
    CUDART_WAIT,
} cudart_kind;

/// One step of a stream's work.
typedef struct cudart_step {
    struct cudart_step *next;
    cudart_kind kind;
    const char *name; ///< for reports; static or of a registered kernel
    cudart_point point;
    cudart_clock *clock; ///< owned: what is done before it
    cudart_stack issued_at;
    unsigned waits; ///< further points that must be reached first
    cudart_point *waited;
    char *destination; ///< COPY, SET
    const char *source;
    size_t bytes;
    int value;
    cudart_block *block;   ///< ALLOCATE, FREE
    cudart_event *event;   ///< RECORD
    cudaHostFn_t function; ///< HOST_FUNCTION, LIBRARY
    bool (*ready)(
        const void *data); ///< LIBRARY: whether others have come for it; NULL: it needs nobody
    void *data;            ///< of the function; LIBRARY: owned copy
    struct cudart_kernel *kernel;
    dim3 grid, threads;
    size_t shared_bytes;
    bool overlaps;       ///< it may begin before what is queued in front of it has ended
    uint64_t order;      ///< of a block's threads
    void **arguments;    ///< owned, with what they point to
    cudart_graph *graph; ///< of which it is a launched node, and which owns the rest; else NULL
} cudart_step;

struct CUstream_st {
    bool alive, blocking;
    int number;
    cudart_device *device;
    cudart_step *first, **last;
    uint64_t queued, done;
    cudart_clock *clock;
    cudart_capture *capture; ///< NULL: what is queued is work
    cudart_nodes tail;       ///< of the graph: last on this stream
};

/// Everything. Guarded by `lock`, but what is set when the runtime starts.
extern struct cudart_state {
    pthread_mutex_t lock;
    pthread_cond_t changed; ///< a step is done, or a device has failed
    pthread_cond_t wanted;  ///< there is something for the worker
    int devices;
    cudart_device device[CUDART_DEVICES];
    int streams;
    cudart_stream *stream[CUDART_STREAMS];
    cudart_clock *host; ///< what the host has waited for
    uint64_t random;
    unsigned char poison;
    bool early;          ///< work may be done before somebody waits for it
    unsigned free_steps; ///< then: due to nobody
    bool held;           ///< nothing is done
    bool let_go;         ///< all that is queued is due
    bool races;          ///< report unordered touches of one block
    bool
        met_nobody; ///< since somebody looked: a step's turn has come, and not those whom it waits for
    bool forked, ended;
    uint64_t calls, refused, pending, steps, kernels, libraries;
    cudart_step *running;
} cudart;

extern _Thread_local cudart_device *cudart_current; ///< NULL: the first
extern _Thread_local bool cudart_in_function;       ///< that a stream calls
extern _Thread_local bool cudart_is_worker;

// ------------------------------------------------------------------------------------ device.c

/// Every call begins and ends here; locked in between, whatever the answer. `on_device`: fails once
/// the current device has.
cudaError_t cudart_begin(const char *name, bool on_device);
cudaError_t cudart_end(cudaError_t error);
cudart_device *cudart_device_now(void);
cudart_device *cudart_device_of(int ordinal);
/// A number below `bound`, from the seed.
uint64_t cudart_draw(uint64_t bound);
void cudart_device_fail(cudart_device *device, cudaError_t error);
void *cudart_allocate(size_t bytes);  ///< zeroed; never NULL
extern uint64_t cudart_steps_to_loss; ///< 0: none is to fail

// ---------------------------------------------------------------------------------- schedule.c

/// The stream behind a handle, or NULL with cudaErrorInvalidResourceHandle for one of another
/// device.
cudaError_t cudart_stream_of(cudaStream_t handle, cudart_stream **ret_stream);
/// The stream behind any handle.
cudart_stream *cudart_stream_behind(cudaStream_t handle);
cudart_stream *cudart_stream_new(cudart_device *device, bool blocking);
cudart_step *cudart_step_new(cudart_stream *stream, cudart_kind kind, const char *name);
void cudart_step_wait(cudart_step *step, cudart_point point);
/// Takes the step. On a stream that is captured it becomes a node.
void cudart_issue(cudart_step *step);
void cudart_step_free(cudart_step *step);
/// Waits; then the host knows that all before that point is done.
cudaError_t cudart_wait_for(cudart_point point, cudart_clock *clock);
/// Asked, not waited: lets some step towards it happen. cudaSuccess or cudaErrorNotReady.
cudaError_t cudart_ask(cudart_point point, const cudart_clock *clock);
void cudart_wait_for_device(cudart_device *device);
bool cudart_passed(cudart_point point);
void cudart_clock_join(cudart_clock **clock, const cudart_clock *other);
cudart_clock *cudart_clock_share(cudart_clock *clock);
void cudart_clock_drop(cudart_clock *clock);

// ----------------------------------------------------------------------------------- capture.c

/// Whether work may be queued on a stream: not when its capture is invalid, nor when it would wait
/// for one.
cudaError_t cudart_capture_check(const cudart_stream *stream);
/// Of a call that no capture can hold: refuses it on a captured stream.
cudaError_t cudart_capture_refuse(const cudart_stream *stream);
/// Of a call that may wait, or change what captured work relies on: refuses it beside a capture.
cudaError_t cudart_capture_unsafe(void);
/// Takes the step, of a captured stream.
void cudart_capture_add(cudart_step *step);
/// An event is recorded on a stream, captured or not.
void cudart_capture_record(const cudart_stream *stream, cudart_event *event);
/// A stream waits for an event. ret_done: nothing is to be queued.
cudaError_t cudart_capture_wait(cudart_stream *stream, const cudart_event *event, bool *ret_done);
/// Somebody asks an event, or waits for it.
cudaError_t cudart_capture_asked(const cudart_event *event);
void cudart_capture_stream_gone(const cudart_stream *stream);
void cudart_nodes_clear(cudart_nodes *nodes);
void cudart_graph_drop(cudart_graph *graph);
struct cudart_statistics;
/// Fills in what is of captures and graphs; the rest is zeroed.
void cudart_count_graphs(struct cudart_statistics *ret_statistics);

// ------------------------------------------------------------------------------------ memory.c

/// NULL: no memory of a device.
cudart_region *cudart_region_at(const void *pointer);
cudart_block *cudart_block_new(cudart_device *device, cudart_pool *pool, size_t bytes,
                               cudart_stream *stream);
void cudart_block_born(cudart_block *block);
/// `step`: that frees it; NULL: the host, which has waited.
void cudart_block_died(cudart_block *block, const cudart_step *step);
/// Notes that the host gives the block at this address back.
cudart_block *cudart_give_back(void *pointer);
/// Ends the program unless these bytes are of one block that is not given back, or of none.
cudart_block *cudart_check_range(const char *name, const void *pointer, size_t bytes);
void cudart_region_release(cudart_region *region);
void cudart_count_live(uint64_t *ret_blocks, uint64_t *ret_bytes);
void cudart_pool_release(cudart_pool *pool, uint64_t down_to);
void cudart_pools_synchronized(cudart_device *device);
/// The running step is over: what it touched rests again.
void cudart_close_touched(void);
/// From the handler of a fault: true when the access may be tried again.
bool cudart_open_touched(void *address, bool write);
/// Whether these bytes are of one pinned piece of the host's memory.
bool cudart_is_pinned(const void *pointer, size_t bytes);

// ------------------------------------------------------------------------------------- fault.c

void cudart_watch_faults(void);
void cudart_take_stack(cudart_stack *stack);
void cudart_print_stack(const char *title, const cudart_stack *stack);
/// Says why, with where the running step was queued, and ends the program.
_Noreturn void cudart_abort(const cudart_block *block, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// ------------------------------------------------------------------------------------ kernel.c

void cudart_run_kernel(cudart_step *step);

// ------------------------------------------------------------------------------------ threads.c

extern dim3 threadIdx; ///< as kernels see it
/// Runs function(data) where a fault can end it; false when one did. By the worker alone.
bool cudart_guarded(void (*function)(void *data), void *data);
/// Ends what cudart_guarded runs, from the handler of a fault.
_Noreturn void cudart_leave(void);
/// Calls function(data, i) for all i below count, each on a stack of its own, in an order that
/// follows from `order` and is another after each wait. False when they waited nowhere.
bool cudart_run_block(unsigned count, void (*function)(void *data, unsigned i), void *data,
                      uint64_t order);
/// The i-th of count numbers in that order.
unsigned cudart_shuffled(unsigned i, unsigned count, uint64_t order);
#endif
