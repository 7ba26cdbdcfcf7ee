// Why is this still alive? Holders, difference of snapshots, a block that must leave nothing behind,
// and, with the names of files as arguments, a graph for graphviz and a trace for ui.perfetto.dev.
#define ND_TRACK_SITES
#include <nd/nd.h>
#include <stdio.h>

/// A training step that keeps its graph: w -> gradient -> graph -> w.
static nd_weak *step(nd_list *history) {
    nd_auto nd_tensor *w = nd_randn(nd_key_new(7), ND_SHAPE(64, 64), ND_F32);
    nd_set_name(w, "w");
    nd_set_requires_grad(w, true);
    nd_auto nd_tensor *y = nd_tanh(w);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_backward(loss, &options);
    nd_list_append(history, loss); // "only for the plot"
    return nd_weak_new(w);
}

int main(int count, char **arguments) {
    if (count > 2)
        nd_trace_begin(arguments[2]);
    nd_list *history = nd_list_new();
    nd_set_name(history, "history");
    nd_manager *epoch = nd_manager_new(NULL, "epoch");
    nd_snapshot *before = nd_snapshot_new(epoch);
    nd_weak *weak = NULL;
    nd_with_manager(epoch) weak = step(history);

    puts("-- what is more than before");
    nd_snapshot *after = nd_snapshot_new(epoch);
    nd_snapshot_difference(before, after, stdout, 3, NULL);
    puts("-- who holds w");
    nd_tensor *w = nd_weak_get_tensor(weak);
    nd_debug_holders(w, stdout);
    nd_release(w);
    if (count > 1) {
        FILE *dot = fopen(arguments[1], "w");
        if (dot) {
            nd_debug_dump_dot(NULL, dot, 0);
            fclose(dot);
        }
    }
    puts("-- without the list");
    nd_list_clear(history);
    w = nd_weak_get_tensor(weak);
    nd_debug_holders(w, stdout);
    nd_release(w);
    puts("-- a block that must leave nothing behind");
    nd_balance *balance = nd_balance_begin(NULL, __FILE__, __LINE__);
    nd_tensor *forgotten = nd_ones(ND_SHAPE(8), ND_F32);
    nd_balance_end(balance, NULL, NULL);
    puts(nd_error_get_message());

    nd_release(forgotten);
    nd_gc_collect(NULL, NULL);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_release(weak);
    nd_release(history);
    nd_release(epoch);
    printf("-- in the end: %d objects\n", (int)nd_manager_get_total_objects(NULL));
    return 0;
}
