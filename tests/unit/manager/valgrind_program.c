// What valgrind_test.sh looks at: managers that were made, recycled, given more shards and left
// open, and objects of each kind that the core keeps. At its end all that is left is the library's
// own, and valgrind must find the way to it.
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include <nd/debug.h>
#include <nd/gc.h>
#include <nd/manager.h>
#include <nd/object.h>
#include <nd/scope.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, TURNS = 200, MANAGERS = 40 };

static nd_manager *crowded;

static void *fill(void *data) {
    for (int i = 0; i < TURNS; i++) {
        nd_with_manager(crowded) {
            nd_list *list = nd_list_new();
            nd_list_append(list, list); // a cycle
            nd_release(list);
        }
        nd_manager *own = nd_manager_new(crowded, "of a thread");
        nd_release(own);
    }
    return data;
}

int main(void) {
    pthread_t threads[THREADS];
    nd_gc_set_mode(ND_GC_ON);
    crowded = nd_manager_new(NULL, "crowded");
    nd__shard_spread((nd_manager *)crowded);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fill, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    nd_manager *nested[MANAGERS] = {NULL};
    for (int i = 0; i < MANAGERS; i++)
        nested[i] = nd_manager_new(i ? nested[i - 1] : NULL, "nested");
    for (int i = 0; i < MANAGERS; i++)
        nd_release(nested[i]);
    nd_manager_close(crowded, NULL);
    nd_release(crowded);
    nd_manager *left_open = nd_manager_new(NULL, "left open"); // as a program may end
    nd__shard_spread(left_open);
    printf("%llu objects\n", (unsigned long long)nd_manager_get_total_objects(NULL));
    return left_open ? 0 : 1;
}
