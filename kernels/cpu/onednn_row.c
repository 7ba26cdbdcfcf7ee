#include "kernels/cpu/onednn_row.h"

#if ND_HAVE_ONEDNN
#include <string.h>

/// Rows up to so long are not cut; of images with many rows, which all run the same code, longer ones, since
/// the copies take up to a fifth of the time.
#define LONG_ROW 2048
#define LONG_ROW_OF_MANY 8192
#define MANY_ROWS 16
/// A single row that is longer than this is lengthened to a multiple of a STEPS-th of the power of two above
/// it, if it is no such multiple.
#define SHORT_ROW 512
#define STEPS 16
/// A run has this many places, and up to MOST_PLACES where that is less than LEAST_WORK
/// multiplications: it takes microseconds to begin one.
#define PLACES 512
#define MOST_PLACES 2048
#define LEAST_WORK ((int64_t)1 << 23)

enum { ROW = ND_WINDOW_AXES - 1 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/// Places of a run of long rows. Of the larger ones a row has eight, unless windows are long, so that
/// little of the last is computed for nothing.
static int64_t run_of(const nd__conv_sizes *s, int64_t window) {
    const int64_t work =
        s->co * (s->ci / s->groups) * nd__windows_volume(s->kernel) * s->y[0] * s->y[1];
    int64_t run = PLACES;
    while (run < MOST_PLACES &&
           ((work < LEAST_WORK / run && run * 8 <= s->y[ROW]) || run < 2 * window))
        run *= 2;
    return run;
}

static int64_t lengthened(int64_t places) {
    int64_t power = SHORT_ROW;
    while (power < places)
        power *= 2;
    return ceiling(places, power / STEPS) * (power / STEPS);
}

nd__conv_row nd__conv_row_of(nd_op op, const nd__conv_sizes *s) {
    nd__conv_row row = {.runs = 1};
    const int64_t window = s->dilation[ROW] * (s->kernel[ROW] - 1) + 1, rows = s->y[0] * s->y[1];
    const bool of_input = op == ND_OP_conv_grad_input;
    const int64_t places = of_input ? s->x[ROW] : s->y[ROW];
    // A run of windows that are far apart, or longer than it, would be far more than the row.
    if (s->stride[ROW] > 1 || window > PLACES)
        return row;
    const bool is_long =
        most(s->x[ROW], s->y[ROW]) > (rows < MANY_ROWS ? LONG_ROW : LONG_ROW_OF_MANY);
    const bool is_single = rows * s->x[0] * s->x[1] == 1 && places > SHORT_ROW;
    const int64_t run = is_long ? run_of(s, window) : is_single ? lengthened(places) : places;
    if (!is_long && run == places)
        return row;
    row.cut = true;
    row.run = run;
    row.runs = ceiling(places, run);
    row.places[ND__ROW_OF_X] = row.places[ND__ROW_OF_Y] = run;
    if (of_input) { // every window that sees a place of the run
        row.first[ND__ROW_OF_Y] = s->padding[ROW] - (window - 1);
        row.places[ND__ROW_OF_Y] += window - 1;
        row.padding = window - 1;
    } else { // every place that a window of the run sees
        row.first[ND__ROW_OF_X] = -s->padding[ROW];
        row.places[ND__ROW_OF_X] += window - 1;
    }
    return row;
}

nd__conv_part nd__conv_row_cut(const nd__conv_row *row, const nd__conv_part *part) {
    nd__conv_part cut = *part;
    nd__conv_sizes *s = &cut.sizes;
    s->x[ROW] = row->places[ND__ROW_OF_X];
    s->y[ROW] = row->places[ND__ROW_OF_Y];
    s->padding[ROW] = row->padding;
    cut.x_stride = s->ci * nd__windows_volume(s->x);
    cut.y_stride = s->co * nd__windows_volume(s->y);
    return cut;
}

nd__conv_pieces nd__conv_row_pieces(const nd__conv_row *row, const nd__conv_part *part, int of,
                                    int64_t run, void *data) {
    const nd__conv_sizes *s = &part->sizes;
    const bool is_x = of == ND__ROW_OF_X;
    const int64_t *size = is_x ? s->x : s->y;
    return (nd__conv_pieces){.data = (float *)data,
                             .images = s->n,
                             .image_stride = is_x ? part->x_stride : part->y_stride,
                             .rows = (is_x ? s->ci : s->co) * size[0] * size[1],
                             .row = size[ROW],
                             .first = row->first[of] + run * row->run,
                             .places = row->places[of]};
}

/// Which places of the pieces there are.
static int64_t begin_of(const nd__conv_pieces *pieces) {
    return least(most(-pieces->first, 0), pieces->places);
}
static int64_t end_of(const nd__conv_pieces *pieces) {
    return most(least(pieces->row - pieces->first, pieces->places), begin_of(pieces));
}

void nd__conv_row_read(const nd__conv_pieces *from, float *to) {
    const size_t begin = (size_t)begin_of(from), end = (size_t)end_of(from);
    const size_t places = (size_t)from->places;
    for (int64_t image = 0; image < from->images; image++)
        for (int64_t row = 0; row < from->rows; row++, to += places) {
            memset(to, 0, begin * sizeof *to);
            if (begin < end)
                memcpy(to + begin,
                       from->data + image * from->image_stride + row * from->row + from->first +
                           (int64_t)begin,
                       (end - begin) * sizeof *to);
            memset(to + end, 0, (places - end) * sizeof *to);
        }
}

void nd__conv_row_write(const nd__conv_pieces *to, const float *from) {
    const size_t begin = (size_t)begin_of(to), end = (size_t)end_of(to);
    for (int64_t image = 0; image < to->images && begin < end; image++)
        for (int64_t row = 0; row < to->rows; row++, from += to->places)
            memcpy(to->data + image * to->image_stride + row * to->row + to->first + (int64_t)begin,
                   from + begin, (end - begin) * sizeof *from);
}
#endif
