// types: an object of one's own. It is counted, placed and collected as a tensor is, because it says
// what it holds: its edges are a list of fields, it is filled before anybody sees it, and maps and
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

/// Fills the payload. What it holds when this fails, `clear` releases.
static nd_status station_init(nd_object *self, void *position) {
    station *s = nd_object_get_data(self);
    s->position = nd_from_data(position, ND_SHAPE(2), ND_F32);
    s->lines = nd_map_new();
    return s->position && s->lines ? ND_OK : nd_error_get_status();
}

/// A station without lines. Owned; NULL on error.
static nd_object *station_new(const char *name, float x, float y) {
    float position[] = {x, y};
    nd_object *self = nd_object_new_with(&station_type, sizeof(station), station_init, position);
    if (self)
        nd_set_name(self, name);
    return self;
}

/// Lets a line lead from one station to the next. The map retains that one.
static nd_status connect(const nd_object *from, const char *line, const nd_object *to) {
    station *s = nd_object_get_data(from); // NULL for NULL, and for what is no object of a user's
    return nd_map_set(s ? s->lines : NULL, line, to);
}

static void show_lines(const nd_object *from) {
    const station *s = nd_object_get_data(from);
    const char *line;
    const nd_object *next; // borrowed from the map
    char name[16];
    for (size_t at = 0; s && nd_map_next(s->lines, &at, &line, &next);)
        printf("%s leads to %s\n", line, nd_get_name(next, name, sizeof name));
}

/// North and south lead to each other, a cycle, and south to east. Gives out east, owned.
static nd_object *make_stations(void) {
    nd_auto nd_object *north = station_new("north", 0, 1);
    nd_auto nd_object *south = station_new("south", 0, -1);
    nd_auto nd_object *east = station_new("east", 1, 0);
    if (connect(north, "blue", south) || connect(south, "blue", north) ||
        connect(south, "green", east))
        return NULL;
    show_lines(south);
    return nd_steal(&east); // out of the variable, so that it is not released
}

static void show(void) {
    nd_auto nd_object *east = make_stations();
    // Nobody has the other two any more, and yet they live: each has the other.
    if (east)
        nd_debug_holders(east, stdout);
    nd_gc_collect(NULL, NULL);
    printf("after a collection east has %d handle\n", (int)nd_get_count(east));
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
