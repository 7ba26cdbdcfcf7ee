// A type of one's own: its edges are a list of fields, it is filled before anybody sees it, and maps and
// lists are edges like any other.
#include <nd/nd.h>
#include <stdio.h>

typedef struct station {
    nd_tensor *position;
    nd_map *lines; ///< from the name of a line to the next station on it
} station;

#define STATION_EDGES(ONE, MANY) ONE(position) ONE(lines)
ND_TYPE_EDGES(station, STATION_EDGES) // station_traverse and station_clear

static const nd_type station_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "station",
    .traverse = station_traverse,
    .clear = station_clear,
};

static nd_status station_init(nd_object *self, void *position) {
    station *s = nd_object_get_data(self);
    s->position = nd_from_data(position, ND_SHAPE(2), ND_F32);
    s->lines = nd_map_new();
    return s->position && s->lines ? ND_OK : nd_error_get_status();
}

static nd_object *station_new(const char *name, float x, float y) {
    float position[] = {x, y};
    nd_object *self = nd_object_new_with(&station_type, sizeof(station), station_init, position);
    if (self)
        nd_set_name(self, name);
    return self;
}

static void connect(nd_object *from, const char *line, nd_object *to) {
    station *s = nd_object_get_data(from);
    nd_map_set(s->lines, line, to);
}

int main(void) {
    nd_object *north = station_new("north", 0, 1), *south = station_new("south", 0, -1);
    nd_object *east = station_new("east", 1, 0);
    connect(north, "blue", south);
    connect(south, "blue", north); // a cycle
    connect(south, "green", east);

    station *s = nd_object_get_data(south);
    const char *line;
    const nd_object *next;
    char name[16];
    for (size_t at = 0; nd_map_next(s->lines, &at, &line, &next);)
        printf("%s leads to %s\n", line, nd_get_name(next, name, sizeof name));

    nd_list *visited = nd_list_new();
    nd_list_append(visited, north);
    nd_list_insert(visited, 0, east);
    nd_object *last = nd_list_pop(visited); // owned now
    printf("the last one was %s\n", nd_get_name(last, name, sizeof name));
    nd_release(last);

    nd_release(visited);
    nd_release(north);
    nd_release(south);
    nd_debug_holders(east, stdout);
    nd_release(east);
    nd_gc_collect(NULL, NULL);
    printf("%d objects left\n", (int)nd_manager_get_total_objects(NULL));
    return 0;
}
