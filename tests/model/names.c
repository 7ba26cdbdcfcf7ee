// What counterexamples call things: objects and threads' records by name, events by what they do.
#include "lib/base/thread.h"
#include "lib/object/object.h"
#include "tests/model/scheduler_internal.h"
#include <stdio.h>

enum { NAMES = 32 };

typedef struct named {
    const char *at;
    const char *name;
} named;

static named names[NAMES]; // part of the snapshot, as what they name
static int name_count;

void model_name(const void *object, const char *name) {
    if (name_count < NAMES)
        names[name_count++] = (named){object, name};
}

/// The named object that a place is in, nearest below it; NULL when there is none.
static const named *named_below(const char *place) {
    enum { LARGEST = 512 };
    const named *nearest = NULL;
    for (int i = 0; i < name_count; i++)
        if ((size_t)(place - names[i].at) < LARGEST && (!nearest || names[i].at > nearest->at))
            nearest = &names[i];
    return nearest;
}

void model_place_name(const char *place, char *name, size_t size) {
    static const struct {
        size_t offset;
        const char *name;
    } fields[] = {
        {offsetof(nd_object, word), "word"},         {offsetof(nd_object, type), "type"},
        {offsetof(nd_object, shard), "home"},        {offsetof(nd_object, flags), "flags"},
        {offsetof(nd_object, gc_index), "gc_index"},
    };
    for (int i = 0; i < MODEL_THREADS; i++) {
        size_t offset = (size_t)(place - (const char *)model_record(i));
        if (offset < sizeof(nd_thread)) {
            if (offset == offsetof(nd_thread, writing))
                snprintf(name, size, "thread %d's writing", i);
            else
                snprintf(name, size, "thread %d's record+%zu", i, offset);
            return;
        }
    }
    const named *nearest = named_below(place);
    if (!nearest) {
        snprintf(name, size, "%p", (const void *)place);
        return;
    }
    size_t offset = (size_t)(place - nearest->at);
    for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++)
        if (offset == fields[k].offset) {
            snprintf(name, size, "%s.%s", nearest->name, fields[k].name);
            return;
        }
    snprintf(name, size, "%s+%zu", nearest->name, offset);
}

void model_describe(int process, const operation *step, const event_result *result, char *text,
                    size_t size) {
    static const char *const kinds[] = {"ends",
                                        "loads",
                                        "stores to",
                                        "exchanges",
                                        "compares and swaps",
                                        "adds to",
                                        "sets bits of",
                                        "clears bits of",
                                        "fences",
                                        "begins a process barrier",
                                        "is fenced by it",
                                        "ends its process barrier",
                                        "locks",
                                        "futex-waits for",
                                        "is woken from",
                                        "wakes",
                                        "has slept enough, or is woken, from"};
    char place[64] = "";
    if (step->word)
        model_place_name((const char *)(uintptr_t)step->word, place, sizeof place);
    int length = snprintf(text, size, "thread %d  %s %s", process % MODEL_PROGRAM_THREADS,
                          kinds[step->kind], place);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (used >= size || !step->word || step->kind == EVENT_WAKE || step->kind == EVENT_SLEEP ||
        step->kind == EVENT_NAP)
        return;
    unsigned long long before = result->before, newest = result->newest;
    if (step->kind == EVENT_LOAD && result->stale)
        snprintf(text + used, size - used, ": %#llx, an older value: it is %#llx", before, newest);
    else if (step->kind == EVENT_LOAD)
        snprintf(text + used, size - used, ": %#llx", before);
    else
        snprintf(text + used, size - used, ": was %#llx, with %#llx", newest,
                 (unsigned long long)step->value);
}
