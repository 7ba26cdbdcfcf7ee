// Random programs over the public interface: what the calls, the actors that make them and the two
// harnesses share.
//
// Bytes are read as steps of six: a call, of two bytes, and four numbers, which choose its operands
// among an actor's slots. Every string of bytes is a program, and a valid one: what the
// documentation forbids (a close beside an operation on the same handle, a second writer of a list)
// is left out by the call, never by the reader of the bytes. So whatever stops a program is a
// mistake of the library.
//
// Invariant: a slot owns its handle. A step pins the slots it takes its operands from, so that the
// steps which callbacks run meanwhile (nested ones) neither replace nor close nor write what an
// operation further up is using.
#ifndef ND_TESTS_FUZZ_PROGRAM_H
#define ND_TESTS_FUZZ_PROGRAM_H
#include <nd/nd.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct fuzz_step {
    uint8_t call_low, call_high, a, b, c, d;
} fuzz_step;
_Static_assert(sizeof(fuzz_step) == 6, "a program is an array of steps");

static inline unsigned fuzz_step_call(const fuzz_step *step) {
    return step->call_low | (unsigned)step->call_high << 8;
}

typedef enum fuzz_kind {
    FUZZ_TENSOR,
    FUZZ_OBJECT, ///< of a user's type, made by fuzz_cell_new()
    FUZZ_MANAGER,
    FUZZ_WEAK,
    FUZZ_LIST,
    FUZZ_RESOURCE,
    FUZZ_MODULE,
    FUZZ_OPTIMIZER,
    FUZZ_DATASET,
    FUZZ_MAP,
    FUZZ_SCHEDULE,
    FUZZ_EMA,
    FUZZ_SCALER,
    FUZZ_STATE,
    FUZZ_STREAM,
    FUZZ_EVENT,
    FUZZ_KINDS,
} fuzz_kind;

enum {
    FUZZ_SLOTS = 8,      ///< of each kind
    FUZZ_EDGES = 4,      ///< of a cell; in a program of several threads each writes its own
    FUZZ_BLOCKS = 4,     ///< open blocks and scopes of each sort
    FUZZ_STEPS_MAX = 400 ///< what is longer is cut
};

typedef struct fuzz_slot {
    void *handle; ///< owned, or NULL
    unsigned pins;
    /// Nobody else can have the object or what it shares: made here, and used for nothing since.
    /// Beside other threads only such an object may be written.
    bool fresh;
} fuzz_slot;

/// One thread's part of a program.
typedef struct fuzz_actor {
    fuzz_slot slots[FUZZ_KINDS][FUZZ_SLOTS];
    fuzz_slot *pinned[64];
    unsigned pinned_count;
    const fuzz_step *steps;
    size_t count, next;
    unsigned number; ///< 0 for the only one
    unsigned depth;  ///< of nested steps
    bool disturbed;  ///< a callback has run others during this step, so the error may be theirs
    bool quiet;      ///< callbacks run no further steps
    bool paused;     ///< the fake device is
    unsigned fail_armed, fail_after, fail_count; ///< allocations of the next step, of this one
    nd_scope *scopes[FUZZ_BLOCKS];
    unsigned scope_count;
    nd_manager_block manager_blocks[FUZZ_BLOCKS];
    unsigned manager_block_count;
    nd_grad_block grad_blocks[FUZZ_BLOCKS];
    unsigned grad_block_count;
    nd_autocast_block autocast_blocks[FUZZ_BLOCKS];
    unsigned autocast_block_count;
    nd_stream_block stream_blocks[FUZZ_BLOCKS];
    unsigned stream_block_count;
    nd_stream
        *current_streams[3]; ///< owned: of the CPU and the fake devices, chosen outside of blocks
    uint64_t hooks[FUZZ_SLOTS]; ///< what some were registered as, not yet removed
    nd_snapshot *snapshot;
    nd_watch *watch;
    nd_balance *balance;
} fuzz_actor;

/// A call by name. `flags` say where it may stand.
typedef struct fuzz_call {
    const char *name;
    void (*run)(fuzz_actor *me, const fuzz_step *step);
    unsigned flags;
} fuzz_call;
enum {
    FUZZ_OUTER =
        1, ///< not inside a callback: opens or ends a block, which C would have end where it began
    FUZZ_ALONE = 2,  ///< not beside other threads
    FUZZ_QUEUES = 4, ///< waits for no device, so the fake one may be paused meanwhile
};

/// The tables of calls, one per subject; each ends with an entry without a name.
extern const fuzz_call fuzz_object_calls[], fuzz_manager_calls[], fuzz_tensor_calls[],
    fuzz_operation_calls[], fuzz_autograd_calls[], fuzz_nn_calls[], fuzz_report_calls[],
    fuzz_device_calls[], fuzz_map_calls[], fuzz_indexing_calls[], fuzz_linalg_calls[],
    fuzz_elementwise_calls[], fuzz_network_calls[], fuzz_fft_calls[], fuzz_layer_calls[],
    fuzz_training_calls[], fuzz_stream_calls[], fuzz_memory_calls[];

// ----------------------------------------------------------------------------------------- running

/// Name of a call, and the number of a name or -1.
const char *fuzz_call_name(unsigned call);
int fuzz_call_number(const char *name, size_t length);
/// One step as a line of text.
void fuzz_write_step(FILE *stream, const fuzz_step *step);

/// Several threads are at work on this program.
extern bool fuzz_threaded;
/// ND_FUZZ_TRACE is in the environment: every step is written before it runs, and why it was
/// refused.
extern bool fuzz_traced;
/// The actor of this thread; NULL on a device's thread.
extern _Thread_local fuzz_actor *fuzz_me;

/// The program that bytes are, in the actors' storage: how many steps were copied to `ret_steps`.
size_t fuzz_steps(const uint8_t *data, size_t size, fuzz_step *ret_steps);
/// Runs an actor's next step, with its checks.
void fuzz_run_step(fuzz_actor *me);
/// Inside a callback of the library: runs one more step of this thread's program, if it may.
void fuzz_nest(void);
/// Ends this thread's blocks. Of its scopes `leave` are left for the end of the thread.
void fuzz_end_blocks(fuzz_actor *me, bool leave);
/// Releases everything an actor has.
void fuzz_drop(fuzz_actor *me);
/// Releases what the threads have put on the board.
void fuzz_clear_board(void);
/// Removes the files that a program has written.
void fuzz_remove_files(void);
/// Before a program, and after it: then nothing may be left.
void fuzz_begin_program(bool threaded);
void fuzz_end_program(void);

/// Says what is wrong and stops.
__attribute__((format(printf, 1, 2), noreturn)) void fuzz_die(const char *format, ...);
/// A call that fails says why, and one that does not leaves the error alone.
void fuzz_expect(fuzz_actor *me, bool success);
/// From here to the step's end allocations succeed again.
void fuzz_disarm(fuzz_actor *me);

// ------------------------------------------------------------------------------------------- slots

/// The handle in the slot that a number means or in the next full one, pinned; NULL when there is
/// none, or for numbers from 224 on.
void *fuzz_pick(fuzz_actor *me, fuzz_kind kind, uint8_t number);
/// The same for what is to be written or closed. NULL also when somebody else may be using it.
void *fuzz_pick_to_write(fuzz_actor *me, fuzz_kind kind, uint8_t number);
/// An object of any kind.
void *fuzz_pick_any(fuzz_actor *me, uint8_t number);
/// Puts an owned handle (or NULL) into a slot, and releases what was there.
void fuzz_put(fuzz_actor *me, fuzz_kind kind, uint8_t number, void *owned);
/// The same for what only this actor can have.
void fuzz_put_fresh(fuzz_actor *me, fuzz_kind kind, uint8_t number, void *owned);
/// Takes a handle out of a slot; NULL when it is empty or pinned.
void *fuzz_take(fuzz_actor *me, fuzz_kind kind, uint8_t number);
/// Which kind of slot an object belongs into.
fuzz_kind fuzz_kind_of(const void *object);

static inline nd_tensor *fuzz_tensor(fuzz_actor *me, uint8_t number) {
    return fuzz_pick(me, FUZZ_TENSOR, number);
}
static inline nd_manager *fuzz_manager(fuzz_actor *me, uint8_t number) {
    return fuzz_pick(me, FUZZ_MANAGER, number);
}

// ------------------------------------------------------------------------------------ user's types

/// New owned object of one of the user's types: plain, with a finalizer, with a destructor that
/// runs steps, green.
nd_object *fuzz_cell_new(uint8_t which);
/// The same, filled before anybody sees it: with handles of up to FUZZ_EDGES objects, after the
/// program's next step. It fails with `status` when half of them are in.
nd_object *fuzz_cell_new_with(uint8_t which, void *const *objects, nd_status status);
/// The edge of a cell that this actor may write; NULL when it is closed or has none.
void **fuzz_edge(fuzz_actor *me, nd_object *cell, uint8_t number);
/// A handle of a slot came or went: whoever is held must not die.
void fuzz_held(void *object, int by);
/// Cells alive now.
int64_t fuzz_cells_alive(void);

/// Shape, dtype and value that a number means.
int fuzz_shape(uint8_t number, const int64_t **ret_shape);
nd_dtype fuzz_dtype(uint8_t number);
double fuzz_value(uint8_t number);

#endif
