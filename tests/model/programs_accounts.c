// Programs of a manager's byte account: the thread that owns the manager writes its part of it
// plainly, others add to theirs, and anybody sums up.
#include "lib/base/atomics.h"
#include "lib/manager/account.h"
#include "lib/manager/charge.h"
#include "lib/manager/shard.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/scheduler_internal.h"

enum { OWNERS = 5, MOST_OF_OWNER = 8, OTHERS = 10, MOST = MOST_OF_OWNER + OTHERS };

static void charge(uint64_t bytes) {
    model_assert(nd__charge_path(managers[0], managers[0]->parent, ND_CPU, bytes, NULL));
}

static void discharge(uint64_t bytes) {
    nd__charge_return_path(managers[0], managers[0]->parent, ND_CPU, bytes);
}

/// Owned by the first thread.
static void setup_account(void) {
    make_managers(1);
    managers[0]->owner = model_record(0)->number;
}

/// Owned by a thread that does not run.
static void setup_foreign(void) {
    make_managers(1);
    managers[0]->owner = model_record(MODEL_PROGRAM_THREADS - 1)->number;
}

static void setup_spreading(void) {
    setup_account();
    managers_made++;
}

static void charge_as_owner(void) {
    charge(3);
    charge(OWNERS);
    discharge(3);
}

static void charge_as_other(void) {
    charge(OTHERS);
    discharge(OTHERS);
}

static void sum_up(void) {
    model_assert(nd__account_bytes(managers[0], ND_CPU) <= MOST);
}

static void spread(void) {
    nd__shard_spread(managers[0]);
}

/// What is left is there once, and the peak is at least what each thread has seen, and no more than
/// all there was.
static void finish_account(void) {
    model_assert(nd__account_bytes(managers[0], ND_CPU) == OWNERS);
    uint64_t peak = nd__atomic_load_relaxed(&managers[0]->peak_bytes[ND_CPU]);
    model_assert(peak >= OTHERS && peak <= MOST);
    discharge(OWNERS);
    finish();
}

/// With shards the peak may lag behind.
static void finish_spread(void) {
    model_assert(nd__account_bytes(managers[0], ND_CPU) == OWNERS);
    discharge(OWNERS);
    finish();
}

const model_program model_accounts_programs[] = {
    {"account_owner",
     "the owner and another thread charge a manager",
     setup_account,
     {charge_as_owner, charge_as_other},
     finish_account,
     0,
     0},
    {"account_foreign",
     "two threads charge a manager that is neither's",
     setup_foreign,
     {charge_as_owner, charge_as_other},
     finish_account,
     0,
     0},
    {"account_sum",
     "an account is summed up as two threads charge it",
     setup_account,
     {charge_as_owner, charge_as_other, sum_up},
     finish_account,
     30000,
     0},
    {"account_spreading",
     "a manager gets shards as its owner and another thread charge it",
     setup_spreading,
     {charge_as_owner, charge_as_other, spread},
     finish_spread,
     30000,
     0},
};
const size_t model_accounts_program_count =
    sizeof model_accounts_programs / sizeof model_accounts_programs[0];
