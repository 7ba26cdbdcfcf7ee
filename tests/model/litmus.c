// Programs of the memory model itself: each says exactly which outcomes there are, so that a model
// that is too weak or too strong, and a search that leaves something out, both show.
//
// x, y and z begin with 0. What threads read is in r; an outcome is r[0] + 2 r[1] + 4 r[2] + 8
// r[3], unless a program says otherwise.
#include "lib/base/atomics.h"
#include "lib/base/barrier.h"
#include "lib/base/futex.h"
#include "lib/base/lock.h"
#include "lib/base/pause.h"
#include "tests/model/programs.h"

static _Atomic uint32_t x, y, z;
static uint32_t r[4];

static void begin(void) {
}

static void finish(void) {
    model_outcome(r[0] + 2 * r[1] + 4 * r[2] + 8 * r[3]);
}

#define LOAD(word, order) nd__atomic_load(&(word), order)
#define STORE(word, value, order) nd__atomic_store(&(word), value, order)

// ------------------------------------------------------------------------------ store buffering

static void sb_x_relaxed(void) {
    STORE(x, 1, relaxed);
    r[0] = LOAD(y, acquire);
}

static void sb_y_relaxed(void) {
    STORE(y, 1, release);
    r[1] = LOAD(x, relaxed);
}

static void sb_x_seq_cst(void) {
    STORE(x, 1, seq_cst);
    r[0] = LOAD(y, seq_cst);
}

static void sb_y_seq_cst(void) {
    STORE(y, 1, seq_cst);
    r[1] = LOAD(x, seq_cst);
}

static void sb_x_fenced(void) {
    STORE(x, 1, relaxed);
    nd__atomic_full_fence();
    r[0] = LOAD(y, relaxed);
}

static void sb_y_fenced(void) {
    STORE(y, 1, relaxed);
    nd__atomic_full_fence();
    r[1] = LOAD(x, relaxed);
}

static void sb_y_barrier(void) {
    STORE(y, 1, relaxed);
    (void)nd__barrier_run();
    r[1] = LOAD(x, relaxed);
}

/// Exchanges are no fences but of their own word.
static void sb_x_exchange(void) {
    (void)nd__atomic_exchange(&x, 1, acq_rel);
    r[0] = LOAD(y, relaxed);
}

// ------------------------------------------------------------------------------ message passing

static void mp_relaxed(void) {
    STORE(x, 1, relaxed);
    STORE(y, 1, relaxed);
}

static void mp_release(void) {
    STORE(x, 1, relaxed);
    STORE(y, 1, release);
}

static void mp_release_fence(void) {
    STORE(x, 1, relaxed);
    nd__atomic_full_fence();
    STORE(y, 1, relaxed);
}

static void read_relaxed(void) {
    r[0] = LOAD(y, relaxed);
    r[1] = LOAD(x, relaxed);
}

static void read_acquire(void) {
    r[0] = LOAD(y, acquire);
    r[1] = LOAD(x, relaxed);
}

static void read_fenced(void) {
    r[0] = LOAD(y, relaxed);
    nd__atomic_full_fence();
    r[1] = LOAD(x, relaxed);
}

/// Continues the release sequence of y.
static void add_to_y(void) {
    (void)nd__atomic_fetch_add(&y, 2, relaxed);
}

/// r[0] is up to 3.
static void read_y_then_x(void) {
    r[0] = LOAD(y, acquire);
    r[3] = LOAD(x, relaxed);
}

static void bar(void) {
    (void)nd__barrier_run();
}

/// The store to x is in the order of seq_cst events, its way to the other thread is not.
static void mp_seq_cst(void) {
    STORE(x, 1, seq_cst);
    STORE(y, 1, relaxed);
}

static void read_seq_cst(void) {
    r[0] = LOAD(y, relaxed);
    r[1] = LOAD(x, seq_cst);
}

// ------------------------------------------------------------------------------------ coherence

static void read_x_twice(void) {
    r[0] = LOAD(x, relaxed);
    r[1] = LOAD(x, relaxed);
}

static void write_x_twice(void) {
    STORE(x, 1, relaxed);
    STORE(x, 2, relaxed);
}

static void finish_by_threes(void) {
    model_outcome(r[0] + 3 * r[1]);
}

static void add_to_x(void) {
    r[0] = nd__atomic_fetch_add(&x, 1, acq_rel);
}

static void add_to_x_too(void) {
    r[1] = nd__atomic_fetch_add(&x, 1, relaxed);
}

// ------------------------------------------------------------- independent readers, three threads

static void write_x(void) {
    STORE(x, 1, release);
}

static void see_x_write_y(void) {
    r[0] = LOAD(x, acquire);
    STORE(y, 1, release);
}

static void see_x_write_y_relaxed(void) {
    r[0] = LOAD(x, relaxed);
    STORE(y, 1, release);
}

static void read_y_x(void) {
    r[1] = LOAD(y, acquire);
    r[2] = LOAD(x, relaxed);
}

static void write_x_read_y(void) {
    STORE(x, 1, seq_cst);
    r[0] = LOAD(y, seq_cst);
}

static void write_y_read_z(void) {
    STORE(y, 1, seq_cst);
    r[1] = LOAD(z, seq_cst);
}

static void write_z_read_x(void) {
    STORE(z, 1, seq_cst);
    r[2] = LOAD(x, seq_cst);
}

static void write_x_seq_cst(void) {
    STORE(x, 1, seq_cst);
}

static void read_x_y_seq_cst(void) {
    r[0] = LOAD(x, seq_cst);
    r[1] = LOAD(y, seq_cst);
}

static void write_y_read_x_seq_cst(void) {
    STORE(y, 1, seq_cst);
    r[2] = LOAD(x, seq_cst);
}

static void read_x_y_acquire(void) {
    r[0] = LOAD(x, acquire);
    r[1] = LOAD(y, acquire);
}

static void write_y_read_x_acquire(void) {
    STORE(y, 1, release);
    r[2] = LOAD(x, acquire);
}

/// Both others are fenced between the stores to y and z: who hears of z acts behind that.
static void pass_on(void) {
    r[0] = LOAD(z, relaxed);
    STORE(x, 1, relaxed);
}

static void fenced_reader(void) {
    r[1] = LOAD(x, relaxed);
    r[2] = LOAD(y, relaxed);
}

static void barrier_between(void) {
    STORE(y, 1, relaxed);
    (void)nd__barrier_run();
    STORE(z, 1, relaxed);
}

// ------------------------------------------------------------------------------- locks and spins

static nd_lock lock;
static uint32_t counted; // under the lock

static void count_under_lock(void) {
    nd__lock_acquire(&lock);
    r[0] = counted++;
    nd__lock_release(&lock);
}

static void spin_for_y(void) {
    while (LOAD(y, acquire) == 0)
        nd__pause_relax();
    r[0] = LOAD(x, relaxed);
}

static void wait_for_y(void) {
    while (LOAD(y, acquire) == 0)
        nd__futex_wait(&y, 0);
    r[0] = LOAD(x, relaxed);
}

static void mp_wake(void) {
    mp_release();
    nd__futex_wake_all(&y);
}

#define BIT(outcome) (UINT64_C(1) << (outcome))
#define LITMUS(name, what, outcomes, ...) \
    { name, what, begin, {__VA_ARGS__}, finish, 0, outcomes }

const model_program model_litmus_programs[] = {
    LITMUS("litmus_sb", "store buffering", 0xF, sb_x_relaxed, sb_y_relaxed),
    LITMUS("litmus_sb_seq_cst", "the same, seq_cst", 0xE, sb_x_seq_cst, sb_y_seq_cst),
    LITMUS("litmus_sb_half", "the same, one side seq_cst", 0xF, sb_x_relaxed, sb_y_seq_cst),
    LITMUS("litmus_sb_fences", "the same, with fences", 0xE, sb_x_fenced, sb_y_fenced),
    LITMUS("litmus_sb_barrier", "the same, with a barrier on one side", 0xE, sb_x_relaxed,
           sb_y_barrier),
    LITMUS("litmus_sb_exchange", "the same, with exchanges", 0xF, sb_x_exchange, sb_y_relaxed),
    LITMUS("litmus_mp", "message passing, relaxed", 0xF, mp_relaxed, read_relaxed),
    LITMUS("litmus_mp_release", "the same, released but not acquired", 0xF, mp_release,
           read_relaxed),
    LITMUS("litmus_mp_acquire", "the same, acquired but not released", 0xF, mp_relaxed,
           read_acquire),
    LITMUS("litmus_mp_both", "the same, released and acquired", 0xD, mp_release, read_acquire),
    LITMUS("litmus_mp_fences", "the same, with fences", 0xD, mp_release_fence, read_fenced),
    LITMUS("litmus_mp_fence", "the same, with one fence", 0xD, mp_release_fence, read_acquire),
    LITMUS("litmus_mp_sequence", "the same, through a release sequence",
           BIT(0) | BIT(8) | BIT(9) | BIT(2) | BIT(10) | BIT(11), mp_release, add_to_y,
           read_y_then_x),
    LITMUS("litmus_mp_seq_cst", "the same, where only the data are seq_cst", 0xF, mp_seq_cst,
           read_seq_cst),
    LITMUS("litmus_mp_beside_barrier", "the same beside a barrier", 0xF, mp_relaxed, read_relaxed,
           bar),
    LITMUS("litmus_corr", "loads of one word stay in order", 0xD, write_x, read_x_twice),
    {"litmus_corr_two",
     "the same with two stores",
     begin,
     {write_x_twice, read_x_twice},
     finish_by_threes,
     0,
     BIT(0) | BIT(3) | BIT(6) | BIT(4) | BIT(7) | BIT(8)},
    LITMUS("litmus_adds", "additions are not lost", 0x6, add_to_x, add_to_x_too),
    LITMUS("litmus_wrc", "write, read, pass on: in order", 0xFF & ~BIT(3), write_x, see_x_write_y,
           read_y_x),
    LITMUS("litmus_wrc_relaxed", "the same, seen but not acquired in between", 0xF7, write_x,
           see_x_write_y_relaxed, read_y_x),
    LITMUS("litmus_observers", "two threads see two stores in the same order, seq_cst",
           0xFF & ~BIT(1), write_x_seq_cst, read_x_y_seq_cst, write_y_read_x_seq_cst),
    LITMUS("litmus_observers_acquire", "or in different ones, acquired", 0xFF, write_x,
           read_x_y_acquire, write_y_read_x_acquire),
    LITMUS("litmus_sb_three", "store buffering in a ring of three, seq_cst", 0xFE, write_x_read_y,
           write_y_read_z, write_z_read_x),
    LITMUS("litmus_barrier_three", "who acts on the end of a barrier passes it on", 0xFF & ~BIT(3),
           pass_on, fenced_reader, barrier_between),
    LITMUS("litmus_lock", "two threads count under a lock", 0x2, count_under_lock,
           count_under_lock),
    LITMUS("litmus_spin", "a spin ends, and acquires", 0x2, mp_release, spin_for_y),
    LITMUS("litmus_futex", "a wait ends, and acquires", 0x2, mp_wake, wait_for_y),
};
const size_t model_litmus_program_count =
    sizeof model_litmus_programs / sizeof model_litmus_programs[0];
