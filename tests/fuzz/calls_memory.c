// Calls about memory that is kept for reuse, limits of devices, and settings of the process.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"

static nd_device_kind kind_of(uint8_t number) {
    return (nd_device_kind)(number % (ND_FAKE + 2));
}

static uint64_t limit_of(uint8_t number) {
    static const uint64_t limits[] = {UINT64_MAX, 0, 64, 1000, 4096, 100000, 1 << 20, UINT64_MAX};
    return limits[number % 8];
}

static void trim(fuzz_actor *me, const fuzz_step *s) {
    nd_memory_trim(kind_of(s->a));
    nd_memory_get_cached(kind_of(s->b));
    fuzz_expect(me, true);
}

static void set_cache_limit(fuzz_actor *me, const fuzz_step *s) {
    const nd_device_kind kind = kind_of(s->a);
    nd_status status = nd_memory_set_cache_limit(kind, limit_of(s->b));
    fuzz_expect(me, status == ND_OK);
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    if (status == ND_OK && !fuzz_threaded && nd_memory_get_cache_stats(kind, &stats) == ND_OK &&
        nd_get_device_count(kind) > 0 && stats.limit != limit_of(s->b))
        fuzz_die("the limit of what is kept is another than was set");
}

static void cache_stats(fuzz_actor *me, const fuzz_step *s) {
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    fuzz_expect(me, nd_memory_get_cache_stats(kind_of(s->a), &stats) == ND_OK);
}

static void set_limit(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_FAKE, 0}, {ND_FAKE, 1}, {ND_CPU, 0}, {ND_FAKE, 9}};
    fuzz_expect(me, nd_memory_set_limit(devices[s->a % 4], limit_of(s->b)) == ND_OK);
}

static void device_stats(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_FAKE, 0}, {ND_FAKE, 1}, {ND_CPU, 0}, {ND_FAKE, 9}};
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    nd_status status = nd_memory_get_device_stats(devices[s->a % 4], &stats);
    fuzz_expect(me, status == ND_OK);
}

/// Settings that change no result by more than its last bits.
static void settings(fuzz_actor *me, const fuzz_step *s) {
    switch (s->a % 4) {
    case 0:
        fuzz_expect(me, nd_set_num_threads(s->b % 4) == ND_OK);
        break;
    case 1:
        nd_set_deterministic(s->b % 2);
        if (nd_is_deterministic() != s->b % 2)
            fuzz_die("what was set is not in force");
        break;
    case 2:
        nd_set_tf32(s->b % 2);
        if (nd_is_tf32() != s->b % 2)
            fuzz_die("what was set is not in force");
        break;
    default:
        if (nd_get_num_threads() < 1 || nd_get_device_count(ND_CPU) != 1 ||
            nd_get_device_count(ND_FAKE) != ND__FAKE_DEVICES)
            fuzz_die("there are other threads or devices than there can be");
        if (nd_get_default_device().kind != ND_CPU && nd_get_default_device().kind != ND_FAKE)
            fuzz_die("the default device is none that a program chose");
        fuzz_expect(me, true);
    }
}

const fuzz_call fuzz_memory_calls[] = {
    {"trim", trim, 0},
    {"set_cache_limit", set_cache_limit, 0},
    {"cache_stats", cache_stats, FUZZ_QUEUES},
    {"set_limit", set_limit, 0},
    {"device_stats", device_stats, FUZZ_QUEUES},
    {"settings", settings, FUZZ_ALONE},
    {0},
};
