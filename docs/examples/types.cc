// types, in C++. The payload is memory of the library's, for which no constructor or destructor runs:
// it stays a struct of plain handles. Around it everything is owned by nd::object.
#include <cstdio>
#include <nd/nd.hpp>
#include <utility>

struct station {
    nd_tensor *position;
    nd_map *lines; ///< from the name of a line to the next station on it
};

#define STATION_EDGES(ONE, MANY) ONE(position) ONE(lines)
ND_TYPE_EDGES(station, STATION_EDGES) // station_traverse and station_clear

/// The type's description, which must outlive its objects.
static const nd_type *station_type() {
    static const nd_type type = [] {
        nd_type made{};
        made.size = sizeof made;
        made.version = 1;
        made.name = "station";
        made.traverse = station_traverse;
        made.clear = station_clear;
        return made;
    }();
    return &type;
}

/// The payload of a station; NULL for what is none.
static station *get_station(const nd_object *object) {
    return static_cast<station *>(nd_object_get_data(object));
}

/// Fills the payload. What it holds when this fails, `clear` releases.
static nd_status station_init(nd_object *self, void *position) {
    station *s = get_station(self);
    s->position = nd::from_data(position, ND_SHAPE(2), ND_F32).steal(); // an edge is owned
    s->lines = nd_map_new();
    return s->position && s->lines ? ND_OK : nd_error_get_status();
}

/// A station without lines; nothing on error.
static nd::object station_new(const char *name, float x, float y) {
    float position[] = {x, y};
    nd::object self(nd_object_new_with(station_type(), sizeof(station), station_init, position));
    if (self)
        nd_set_name(self.get(), name);
    return self;
}

/// Lets a line lead from one station to the next. The map retains that one.
static nd_status connect(const nd::object &from, const char *line, const nd::object &to) {
    station *s = get_station(from);
    return nd_map_set(s ? s->lines : nullptr, line, to);
}

static void show_lines(const nd::object &from) {
    const station *s = get_station(from);
    const char *line;
    const nd_object *next; // borrowed from the map
    char name[16];
    for (size_t at = 0; s && nd_map_next(s->lines, &at, &line, &next);)
        std::printf("%s leads to %s\n", line, nd_get_name(next, name, sizeof name));
}

/// North and south lead to each other, a cycle, and south to east. Gives out east.
static nd::object make_stations() {
    nd::object north = station_new("north", 0, 1);
    nd::object south = station_new("south", 0, -1);
    nd::object east = station_new("east", 1, 0);
    if (connect(north, "blue", south) || connect(south, "blue", north) ||
        connect(south, "green", east))
        return nullptr;
    show_lines(south);
    return east;
}

static void show() {
    nd::object east = make_stations();
    if (east)
        nd_debug_holders(east, stdout);
    nd_gc_collect(nullptr, nullptr);
    std::printf("after a collection east has %d handle\n", static_cast<int>(nd_get_count(east)));
}

int main() {
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
