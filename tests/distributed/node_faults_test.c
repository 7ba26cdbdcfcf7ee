// Ranks that are killed, hang or leave at every phase of a call in the memory that they have in
// common: each other one has an error when its time is over, neither before nor much later, every
// call before has brought the right numbers, and no mapping, file or process is left.
//
// Ranks are forked processes over node.h alone, so that each moment can be chosen. What MPI adds is
// in faults_test.c.
#include "lib/base/clock.h"
#include "lib/base/pause.h"
#include "tests/distributed/node_ranks.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MOST = 4, BAD_CALL = 2, CALLS = 5 };

/// Seconds that a rank waits, what it may need beyond, and what a rank that hangs is away. A process
/// that has found no end after `stuck` is ended, and the test has failed.
static const double timeout = 1, slack = 3, away = 2.5;
static const unsigned stuck = 10;
/// The call has brought something else than it should.
#define WRONG ND_ERROR_STATE

typedef enum manner { KILLED, HANGS, LEAVES } manner;

/// Where the one rank is that others count on.
typedef enum phase {
    BEFORE_STAGING,
    STAGED,             ///< and not at the agreement
    AWAITING_AGREEMENT, ///< it waits for another one
    AGREED,             ///< and nothing added up
    ADDING_FIRST,       ///< a piece
    AWAITING_SUMS,      ///< it waits for another one, between two pieces
    ADDING_LAST,        ///< a piece
    SETTLED,            ///< the last sums, which are not put down
    REDUCED,            ///< and nothing gathered
    AWAITING_PIECES,    ///< it waits for another one, while shares are gathered
    SCATTERING,         ///< it adds up a piece of its own share
    DONE,               ///< and all of that call's is there
    PHASES,
} phase;

/// Of a call.
typedef enum part { AGREEING, REDUCING, GATHERING, SCATTERING_OWN } part;

/// A child.
typedef struct rank {
    int number, ranks, victim;
    manner manner;
    phase phase;
    nd_node *node;
    nd_transport_call call;
    int64_t at; ///< call
    int added;  ///< calls of combine in it
    part part;
    bool has_been_away;
} rank;

static double seconds(void) {
    return (double)nd__clock_now_ns() * 1e-9;
}

static void nap(double length) {
    nd__pause_nap((uint64_t)(length * 1e9));
}

static int count_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

// -------------------------------------------------------------------------------------------------
// a rank

static bool is_victim(const rank *self) {
    return self->number == self->victim;
}

/// The rank after the victim comes late, so that the victim waits.
static bool is_late(const rank *self) {
    return self->number == (self->victim + 1) % self->ranks;
}

static void at_phase(rank *self, phase phase) {
    if (!is_victim(self) || phase != self->phase || self->at != BAD_CALL || self->has_been_away)
        return;
    self->has_been_away = true;
    if (self->manner == KILLED)
        kill(getpid(), SIGKILL);
    if (self->manner == LEAVES) {
        nd__node_free(self->node);
        _exit(0);
    }
    nap(away);
}

static nd_status idle(void *context, const nd_transport_call *call) {
    rank *self = context;
    (void)call;
    static const phase waiting[] = {AWAITING_AGREEMENT, AWAITING_SUMS, AWAITING_PIECES, PHASES};
    at_phase(self, waiting[self->part]);
    return ND_OK;
}

static nd_status combine(void *context, const void *from, void *into, int64_t count) {
    rank *self = context;
    int piece = self->added++ / (self->ranks - 1);
    bool last = piece == NODE_PIECES - 1;
    if (self->part == SCATTERING_OWN)
        at_phase(self, SCATTERING);
    else if (piece == 0)
        at_phase(self, ADDING_FIRST);
    if (last && self->part == REDUCING)
        at_phase(self, ADDING_LAST);
    if (piece == NODE_PIECES / 2 && self->phase == AWAITING_SUMS && is_late(self) &&
        self->at == BAD_CALL)
        nap(0.1);
    node_add(from, into, count);
    return ND_OK;
}

static void settle(void *context, void *sums, int64_t count) {
    rank *self = context;
    (void)sums;
    (void)count;
    if (self->part == REDUCING && self->added == NODE_PIECES * (self->ranks - 1))
        at_phase(self, SETTLED);
}

static nd_status agree(rank *self) {
    if (self->phase == AWAITING_AGREEMENT && is_late(self) && self->at == BAD_CALL)
        nap(0.1);
    uint64_t values[ND__NODE_VALUES] = {(uint64_t)self->number, 7, 100 - (uint64_t)self->number};
    nd_node_idle while_idle = {idle, self};
    nd_status status = nd__node_agree(self->node, &self->call, &while_idle, values);
    bool good = values[0] == (uint64_t)self->ranks - 1 && values[1] == 7 && values[2] == 100;
    return status == ND_OK && !good ? WRONG : status;
}

/// Several pieces of each rank: first gathered, then added up, each for its rank.
static nd_status gather_and_scatter(rank *self) {
    enum { COUNT = 3 * NODE_SHARE_COUNT };
    int64_t counts[RANKS_MOST], data[COUNT * RANKS_MOST] = {0};
    int64_t first = (int64_t)COUNT * self->number, count = (int64_t)COUNT * self->ranks;
    nd_node_idle while_idle = {idle, self};
    nd_sums sums = {sizeof *data, self, combine, settle};
    for (int i = 0; i < self->ranks; i++)
        counts[i] = COUNT;
    for (int64_t i = first; i < first + COUNT; i++)
        data[i] = node_element(self->number, self->at, i);
    if (self->phase == AWAITING_PIECES && is_late(self) && self->at == BAD_CALL)
        nap(0.1);
    self->part = GATHERING;
    nd_status status =
        nd__node_gather(self->node, &self->call, &while_idle, data, counts, sizeof *data);
    for (int64_t i = 0; status == ND_OK && i < count; i++)
        if (data[i] != node_element((int)(i / COUNT), self->at, i))
            status = WRONG;
    self->part = SCATTERING_OWN;
    if (status == ND_OK)
        status = nd__node_scatter(self->node, &self->call, &while_idle, &sums, data, counts);
    for (int64_t i = first; status == ND_OK && i < first + COUNT; i++)
        if (data[i] != self->ranks * node_element(self->number, self->at, i))
            status = WRONG;
    return status;
}

/// One call of all ranks.
static nd_status reduce(rank *self) {
    int64_t count = (int64_t)NODE_PIECES * NODE_SHARE_COUNT * self->ranks;
    int64_t data[NODE_PIECES * NODE_SHARE_COUNT * RANKS_MOST];
    nd_node_idle while_idle = {idle, self};
    nd_sums sums = {sizeof *data, self, combine, settle};
    for (int64_t i = 0; i < count; i++)
        data[i] = node_element(self->number, self->at, i);
    self->added = 0;
    self->part = AGREEING;
    at_phase(self, BEFORE_STAGING);
    nd__node_stage(self->node, data, data, count, sizeof *data);
    at_phase(self, STAGED);
    nd_status status = agree(self);
    if (status != ND_OK)
        return status;
    at_phase(self, AGREED);
    self->part = REDUCING;
    status = nd__node_reduce(self->node, &self->call, &while_idle, &sums, data, count, true);
    for (int64_t i = 0; status == ND_OK && i < count; i++)
        if (data[i] != node_sum(self->ranks, self->at, i))
            status = WRONG;
    if (status == ND_OK) {
        at_phase(self, REDUCED);
        status = gather_and_scatter(self);
    }
    if (status == ND_OK)
        at_phase(self, DONE);
    return status;
}

/// Calls until one fails, which must be the right one, at the right time, and say why.
static const char *work(rank *self) {
    int64_t expected = self->phase == DONE ? BAD_CALL + 1 : BAD_CALL;
    for (self->at = 0; self->at < CALLS; self->at++) {
        double begin = seconds();
        nd_status status = reduce(self);
        double took = seconds() - begin;
        if (status == ND_OK)
            continue;
        if (status != ND_ERROR_IO)
            return "another error, or wrong numbers";
        if (!strstr(nd_error_get_message(), "nothing came from the other ranks for 1 s"))
            return "an error that says something else";
        if (self->at < expected)
            return "an error in a call that all were in";
        if (self->at > expected && !is_victim(self)) // who hung may hear of it one call later
            return "no error in the call that one was missing from";
        return took < timeout                                              ? "an error too early"
               : took < timeout + slack + (self->has_been_away ? away : 0) ? NULL
                                                                           : "an error too late";
    }
    return "no error";
}

/// Has the memory: rank 0 makes it, the others hear of it, and all wait until all have it.
static const char *join(rank *self, const int *keys, const int *answers) {
    nd_node_key key = {.file = -1};
    char byte = 0;
    if (self->number == 0) {
        self->node = nd__node_make(self->ranks, &key);
        for (int i = 1; i < self->ranks; i++)
            if (write(keys[1], &key, sizeof key) != sizeof key)
                return "no key";
        for (int i = 1; self->node && i < self->ranks; i++)
            if (read(answers[0], &byte, 1) != 1 || byte != 1)
                return "not all have joined";
        if (self->node)
            nd__node_seal(self->node);
    } else if (read(keys[0], &key, sizeof key) == sizeof key) {
        self->node = nd__node_join(&key, self->number, self->ranks);
        byte = self->node != NULL;
        if (write(answers[1], &byte, 1) != 1)
            return "nobody hears of it";
    }
    return self->node ? NULL : "no memory in common";
}

static _Noreturn void be(rank self, const int *keys, const int *answers) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(stuck);
    int files = count_files();
    const char *wrong = join(&self, keys, answers);
    bool sealed = count_mappings() == 1 && count_files() == files;
    if (!wrong && !sealed)
        wrong = "a file is open, or not one mapping there";
    if (!wrong)
        wrong = work(&self);
    nd__node_free(self.node);
    if (!wrong && (count_mappings() != 0 || count_files() != files))
        wrong = "a mapping or a file is left";
    if (wrong)
        fprintf(stderr, "manner %d, phase %d, rank %d of %d: %s in call %d: %s\n", self.manner,
                self.phase, self.number, self.ranks, wrong, (int)self.at, nd_error_get_message());
    _exit(wrong != NULL);
}

// -------------------------------------------------------------------------------------------------
// the process that starts them

typedef struct group {
    pid_t pids[RANKS_MOST];
    int keys[2], answers[2];
} group;

static void start(group *group, rank self) {
    assert_int_equal(pipe(group->keys) | pipe(group->answers), 0);
    for (int i = 0; i < self.ranks; i++) {
        self.number = i;
        group->pids[i] = fork();
        assert_true(group->pids[i] >= 0);
        if (group->pids[i] == 0)
            be(self, group->keys, group->answers);
    }
    for (int i = 0; i < 2; i++) {
        close(group->keys[i]);
        close(group->answers[i]);
    }
}

/// Whether all of them have ended as they should.
static bool end(const group *group, rank self) {
    bool good = true;
    for (int i = 0; i < self.ranks; i++) {
        int answer = -1;
        good = waitpid(group->pids[i], &answer, 0) == group->pids[i] && good;
        bool killed = WIFSIGNALED(answer) && WTERMSIG(answer) == SIGKILL;
        bool well = WIFEXITED(answer) && WEXITSTATUS(answer) == 0;
        if (i == self.victim && self.manner == KILLED ? !killed : !well) {
            fprintf(stderr, "manner %d, phase %d, rank %d of %d: status %d\n", self.manner,
                    self.phase, i, self.ranks, answer);
            good = false;
        }
    }
    return good;
}

/// Every phase, all at once, since they mostly wait.
static void at_every_phase(manner manner) {
    static const int ranks[] = {2, 3, 4}, victims[] = {1, 0, 2};
    int64_t share_before = nd__node_share, copied_before = nd__node_copied;
    nd__node_share = nd__node_copied = NODE_SHARE;
    for (int i = 0; i < 3; i++) {
        group groups[PHASES];
        rank rank = {.ranks = ranks[i],
                     .victim = victims[i],
                     .manner = manner,
                     .call = {.operation = "reduce", .seconds = timeout, .staged = true}};
        bool good = true;
        for (rank.phase = 0; rank.phase < PHASES; rank.phase++)
            start(&groups[rank.phase], rank);
        for (rank.phase = 0; rank.phase < PHASES; rank.phase++)
            good = end(&groups[rank.phase], rank) && good;
        assert_true(good);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
    }
    nd__node_share = share_before;
    nd__node_copied = copied_before;
}

static void test_a_rank_that_is_killed_anywhere_is_an_error_in_time(void **state) {
    (void)state;
    at_every_phase(KILLED);
}

static void test_a_rank_that_hangs_anywhere_is_an_error_in_time(void **state) {
    (void)state;
    at_every_phase(HANGS);
}

static void test_a_rank_that_leaves_anywhere_is_an_error_in_time(void **state) {
    (void)state;
    at_every_phase(LEAVES);
}

// -------------------------------------------------------------------------------------------------
// the deadline itself

/// All ranks in this process, of which only rank 0 comes by itself.
typedef struct alone {
    nd_node *nodes[RANKS_MOST];
    double begin;
    int come; ///< ranks that have come since
    int looks, give_up_at;
} alone;

static void open_alone(alone *all, int ranks) {
    nd_node_key key;
    alarm(stuck);
    *all = (alone){.nodes = {nd__node_make(ranks, &key)}};
    assert_non_null(all->nodes[0]);
    for (int i = 1; i < ranks; i++)
        assert_non_null(all->nodes[i] = nd__node_join(&key, i, ranks));
    nd__node_seal(all->nodes[0]);
}

static void close_alone(alone *all) {
    for (int i = 0; i < RANKS_MOST; i++)
        nd__node_free(all->nodes[i]);
    assert_int_equal(count_mappings(), 0);
    alarm(0);
}

/// Rank 1 comes when 0.6 of the time has passed, and would wait for the others itself.
static nd_status come_late(void *context, const nd_transport_call *call) {
    alone *all = context;
    if (all->come == 0 && seconds() - all->begin > 0.6 * call->seconds) {
        static const nd_transport_call at_once = {.operation = "agree", .seconds = 1e-9};
        uint64_t values[ND__NODE_VALUES] = {0};
        nd_node_idle none = {come_late, context};
        all->come = 1;
        assert_int_equal(nd__node_agree(all->nodes[1], &at_once, &none, values), ND_ERROR_IO);
    }
    return ND_OK;
}

static void test_a_meeting_has_one_deadline_for_all_ranks(void **state) {
    (void)state;
    alone all;
    open_alone(&all, 3);
    nd_transport_call call = {.operation = "agree", .seconds = 2};
    nd_node_idle while_idle = {come_late, &all};
    uint64_t values[ND__NODE_VALUES] = {0};
    all.begin = seconds();
    assert_int_equal(nd__node_agree(all.nodes[0], &call, &while_idle, values), ND_ERROR_IO);
    double took = seconds() - all.begin;
    assert_int_equal(all.come, 1);
    assert_true(took >= 2 && took < 2.9); // 3.2 where it began anew for rank 2
    assert_string_equal(nd_error_get_message(),
                        "agree: nothing came from the other ranks for 2 s: one of them has died, "
                        "hangs, or has left");
    close_alone(&all);
}

static nd_status give_up(void *context, const nd_transport_call *call) {
    alone *all = context;
    (void)call;
    return ++all->looks == 3 ? ND_ERROR_DEVICE : ND_OK;
}

/// MPI says that it failed while a rank waits: it waits no longer.
static void test_what_fails_while_a_rank_waits_ends_it(void **state) {
    (void)state;
    alone all;
    open_alone(&all, 2);
    nd_transport_call call = {.operation = "agree", .seconds = 5};
    nd_node_idle while_idle = {give_up, &all};
    uint64_t values[ND__NODE_VALUES] = {0};
    double begin = seconds();
    assert_int_equal(nd__node_agree(all.nodes[0], &call, &while_idle, values), ND_ERROR_DEVICE);
    assert_int_equal(all.looks, 3);
    assert_true(seconds() - begin < 4);
    close_alone(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_meeting_has_one_deadline_for_all_ranks),
        ND_TEST(test_what_fails_while_a_rank_waits_ends_it),
        ND_TEST(test_a_rank_that_is_killed_anywhere_is_an_error_in_time),
        ND_TEST(test_a_rank_that_hangs_anywhere_is_an_error_in_time),
        ND_TEST(test_a_rank_that_leaves_anywhere_is_an_error_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
