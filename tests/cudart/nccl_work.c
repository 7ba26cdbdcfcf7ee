// See nccl_work.h. Device memory is touched here only, with the communicator's lock, so that nothing
// touches it once that is aborted.
#include "tests/cudart/nccl_work.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// A part of an operation, done at once.
typedef struct part {
    operation of;
    uint64_t first, count; ///< elements of each rank's
    uint64_t meeting;      ///< or which message
    bool last;
} part;

pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
nccl_statistics work_counts;

_Noreturn void work_misuse(const char *name, const char *what) {
    fprintf(stderr, "fake NCCL: %s: %s\n", name, what);
    abort();
}

// ------------------------------------------------------------------------------------------------
// the program's runtime

#define RUNTIME(name) runtime_symbol(#name)
static void *runtime_symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        work_misuse(name, "there is no fake runtime");
    return found;
}

int work_ordinal(void) {
    int (*ask)(void);
    *(void **)&ask = RUNTIME(cudart_get_ordinal);
    return ask();
}

static void queue(const operation *of, const char *name, bool (*ready)(const void *data),
                  void (*function)(void *data), const part *what) {
    cudaError_t (*ask)(cudaStream_t, const char *, bool (*)(const void *), void (*)(void *),
                       const void *, size_t);
    *(void **)&ask = RUNTIME(cudart_queue_meeting);
    atomic_fetch_add(&of->of->taken, 1);
    if (ask(of->stream, name, ready, function, what, sizeof *what) != cudaSuccess)
        work_misuse(name, "the stream takes no work: it captures, or is of another device");
}

// ------------------------------------------------------------------------------------------------
// the work, as the stream does it

static char *brought(const part *p, int rank) {
    return p->of.of->at->brought[rank][p->meeting % 2];
}

// Asked with the runtime's lock held, so that these take none.

static bool has_ended(const comm *of) {
    return atomic_load(&of->aborted);
}

static bool is_stuck(const comm *of) {
    return atomic_load(&of->stuck);
}

/// Only what is not aborted touches memory.
static void touch(void *data, void (*function)(const part *p)) {
    const part *p = data;
    comm *of = p->of.of;
    pthread_mutex_lock(&of->lock);
    bool does = !has_ended(of);
    if (does)
        function(p);
    pthread_mutex_unlock(&of->lock);
    atomic_fetch_add(&of->done, 1);
    if (!does || !p->last)
        return;
    const operation *o = &p->of;
    pthread_mutex_lock(&work_lock);
    work_counts.done++;
    if (o->kind <= SCATTER)
        work_counts.reduced +=
            o->count * meet_size(o->type) * (uint64_t)(o->kind == SCATTER ? of->ranks : 1);
    pthread_mutex_unlock(&work_lock);
}

/// Where the p's elements of a rank begin in memory that has all ranks' one behind the other.
static uint64_t place(const part *p, int rank) {
    return ((uint64_t)rank * p->of.count + p->first) * meet_size(p->of.type);
}

static void bring_it(const part *p) {
    const operation *o = &p->of;
    comm *of = o->of;
    size_t size = meet_size(o->type), bytes = p->count * size;
    meet_rank *mine = &of->at->rank[of->rank];
    mine->purpose[p->meeting % 2] =
        (meet_purpose){(int)o->kind, o->type, o->reduction, o->root, p->count};
    char *to = brought(p, of->rank);
    if (o->kind == SCATTER) {
        for (int rank = 0; rank < of->ranks; rank++)
            memcpy(to + (size_t)rank * bytes, o->from + place(p, rank), bytes);
    } else if (o->kind != BROADCAST || o->root == of->rank) {
        memcpy(to, o->from + p->first * size, bytes);
    }
    if (o->reduction == WORK_MEAN && o->kind <= SCATTER)
        meet_scale(o->type, to, p->count * (o->kind == SCATTER ? (uint64_t)of->ranks : 1),
                   of->ranks);
    atomic_store(&mine->came, p->meeting + 1);
}

static void bring(void *data) {
    touch(data, bring_it);
}

static bool may_bring(const void *data) {
    const comm *of = ((const part *)data)->of.of;
    return has_ended(of) || !is_stuck(of);
}

static bool all_came(const void *data) {
    const part *p = data;
    const comm *of = p->of.of;
    return has_ended(of) || (!is_stuck(of) && meet_all_came(of->at, of->ranks, p->meeting));
}

static void check_purpose(const part *p) {
    const comm *of = p->of.of;
    for (int rank = 0; rank < of->ranks; rank++)
        if (memcmp(&of->at->rank[rank].purpose[p->meeting % 2],
                   &of->at->rank[of->rank].purpose[p->meeting % 2], sizeof(meet_purpose)) != 0)
            work_misuse("a collective", "ranks have called different ones");
}

/// The sum of what all have brought from there on, begun by another rank each time.
static void add_up(const part *p, size_t from, char *into) {
    const operation *o = &p->of;
    int ranks = o->of->ranks, first = (int)(p->meeting % (uint64_t)ranks);
    memcpy(into, brought(p, first) + from, p->count * meet_size(o->type));
    for (int i = 1; i < ranks; i++)
        meet_combine(o->type, o->reduction, into, brought(p, (first + i) % ranks) + from, p->count);
}

static void take_it(const part *p) {
    const operation *o = &p->of;
    const comm *of = o->of;
    check_purpose(p);
    size_t size = meet_size(o->type), bytes = p->count * size;
    char *into = o->into + p->first * size;
    switch (o->kind) {
    case REDUCE:
        if (o->root != of->rank)
            break;
        __attribute__((fallthrough));
    case ALL_REDUCE:
        add_up(p, 0, into);
        break;
    case SCATTER:
        add_up(p, (size_t)of->rank * bytes, into);
        break;
    case GATHER:
        for (int rank = 0; rank < of->ranks; rank++)
            memcpy(o->into + place(p, rank), brought(p, rank), bytes);
        break;
    default:
        memcpy(into, brought(p, o->root), bytes);
    }
}

static void take(void *data) {
    touch(data, take_it);
}

static meet_rank *sender_of(const part *p) {
    const operation *o = &p->of;
    return &o->of->at->rank[o->kind == SEND ? o->of->rank : o->root];
}

static int receiver_of(const part *p) {
    return p->of.kind == SEND ? p->of.root : p->of.of->rank;
}

static char *message_of(const part *p) {
    const operation *o = &p->of;
    int from = o->kind == SEND ? o->of->rank : o->root;
    return o->of->at->message[from][receiver_of(p)];
}

/// Messages that have gone the way of p's.
static uint64_t sent(const part *p) {
    return atomic_load(&sender_of(p)->sent[receiver_of(p)]);
}

static uint64_t received(const part *p) {
    return atomic_load(&sender_of(p)->received[receiver_of(p)]);
}

static bool may_send(const void *data) {
    const part *p = data;
    return has_ended(p->of.of) || (!is_stuck(p->of.of) && received(p) >= p->meeting);
}

static void send_it(const part *p) {
    size_t size = meet_size(p->of.type);
    memcpy(message_of(p), p->of.from + p->first * size, p->count * size);
    atomic_store(&sender_of(p)->sent[receiver_of(p)], p->meeting + 1);
}

static void send_part(void *data) {
    touch(data, send_it);
}

static bool may_receive(const void *data) {
    const part *p = data;
    return has_ended(p->of.of) || (!is_stuck(p->of.of) && sent(p) > p->meeting);
}

static void receive_it(const part *p) {
    size_t size = meet_size(p->of.type);
    memcpy(p->of.into + p->first * size, message_of(p), p->count * size);
    atomic_store(&sender_of(p)->received[receiver_of(p)], p->meeting + 1);
}

static void receive_part(void *data) {
    touch(data, receive_it);
}

static bool has_arrived(const void *data) {
    const part *p = data;
    return has_ended(p->of.of) || (!is_stuck(p->of.of) && received(p) > p->meeting);
}

static void nothing_of(const part *p) {
    (void)p;
}

static void nothing(void *data) {
    touch(data, nothing_of);
}

// ------------------------------------------------------------------------------------------------
// queueing

static void queue_collective(const operation *o) {
    uint64_t most = MEET_BYTES / meet_size(o->type) / (o->kind == SCATTER ? MEET_RANKS : 1);
    for (uint64_t first = 0; first < o->count || first == 0; first += most) {
        part p = {.of = *o, .first = first, .meeting = o->of->meetings++};
        p.count = o->count - first < most ? o->count - first : most;
        queue(o, "ncclCollective, bringing", may_bring, bring, &p);
        p.last = first + most >= o->count;
        queue(o, "ncclCollective, taking", all_came, take, &p);
    }
}

/// Messages of a group: all that is sent, before anything is received or its arrival is waited for.
static void queue_messages(const operation *first, int count) {
    enum { MOST = MEET_BYTES };
    part parts[WORK_GROUP];
    for (int i = 0; i < count; i++)
        parts[i] = (part){.of = first[i]};
    for (bool any = true; any;) {
        any = false;
        for (int phase = 0; phase < 3; phase++)
            for (int i = 0; i < count; i++) {
                part *p = &parts[i];
                const operation *o = &p->of;
                uint64_t most = MOST / meet_size(o->type), left = o->count - p->first;
                if (left == 0 && p->first > 0)
                    continue;
                uint64_t *next =
                    o->kind == SEND ? &o->of->sent[o->root] : &o->of->received[o->root];
                if (phase == 0) {
                    p->count = left < most ? left : most;
                    p->meeting = (*next)++;
                }
                p->last = false;
                if (phase == 0 && o->kind == SEND)
                    queue(o, "ncclSend", may_send, send_part, p);
                p->last = p->first + p->count == o->count;
                if (phase == 1 && o->kind == RECEIVE)
                    queue(o, "ncclRecv", may_receive, receive_part, p);
                if (phase == 2 && o->kind == SEND)
                    queue(o, "ncclSend, arriving", has_arrived, nothing, p);
                if (phase == 2) {
                    any |= !p->last;
                    p->first += p->count;
                }
            }
    }
}

void work_queue(const operation *first, int count) {
    int messages = 0;
    for (int i = 0; i < count; i++)
        messages += first[i].kind >= SEND;
    if (messages == count)
        queue_messages(first, count);
    for (int i = 0; i < count && messages != count; i++)
        queue_collective(&first[i]);
}
